"""An address below the viewer's own -> what is shown there. Knows the catalogue and the pages; nothing of sockets.

""                                  all runs
run/KEY/                            a run's page
run/KEY/rows?...                    its samples, as samples.js asks for them
compare?run=KEY&run=KEY&baseline=B  several runs on one page; &force=1 compares what did not ask alike
models/KEY/                         several models of one command
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path
from threading import Lock
from urllib.parse import parse_qsl, urlencode

from localeval.progress import LATE, track
from localeval.report.build import report_of
from localeval.report.finished import Finished, of_this_version
from localeval.report.page import served_page
from localeval.report.several import Around, Several
from localeval.report.shell import as_json
from localeval.results import SampleResult, read_results
from localeval.schema import LocalevalError, RunFailed, title_of
from localeval.series import entry_of
from localeval.together import compared_pairs, entries_of, page_of, several_of
from localeval.view.catalogue import Catalogue, Listed, key_of
from localeval.view.pages import home_page, said_page
from localeval.view.reading import Reading

HTML, JSON = "text/html; charset=utf-8", "application/json"
_OPEN = 8
"""Runs whose samples are ready at a time: each has a temporary file."""
_AT_ONCE = 1.0
"""Seconds that a page waits for its samples, before it says how far they are read."""


@dataclass(frozen=True, slots=True)
class Answer:
    """again: after so many seconds the browser asks again."""

    status: HTTPStatus
    kind: str
    body: bytes
    again: int | None = None


class Viewer:
    """The pages of some folders' runs."""

    def __init__(self, places: Sequence[str | Path]) -> None:
        """Raises LocalevalError for a place that is no folder, or where nothing is."""
        self._catalogue = Catalogue(places)
        self._readings: dict[str, Reading] = {}
        self._lock = Lock()
        runs, models = self._catalogue.runs(), self._catalogue.models()
        if not runs and not models:
            raise LocalevalError(
                f"{', '.join(map(str, places))}: no run is there or below; a run folder is "
                "<work-dir>/<model>-<hex>/<dataset>-<hex>"
            )
        alone = len(runs) == 1 and [each.folder for each in runs.values()] == self._catalogue.places
        self.first = f"run/{next(iter(runs))}/" if alone else ""
        """Where to begin: with the only run that was named, else with all of them."""

    def close(self) -> None:
        """Gives the temporary files back."""
        with self._lock:
            for reading in self._readings.values():
                reading.close()
            self._readings.clear()

    def answer(self, path: str, query: str) -> Answer:
        """path, query: of the address; both as they came."""
        pairs = parse_qsl(query, keep_blank_values=True)
        asked = dict(pairs)
        try:
            match path.split("/"):
                case [""]:
                    return self._home()
                case ["run", key, ""]:
                    return self._run(key)
                case ["run", key, "rows"]:
                    return self._rows(key, asked)
                case ["compare"]:
                    return self._compare([value for name, value in pairs if name == "run"], asked)
                case ["models", key, ""]:
                    return self._models(key)
            return _not_found(path)
        except (LocalevalError, RunFailed, OSError) as error:
            if path.endswith("/rows"):
                return Answer(HTTPStatus.CONFLICT, "text/plain; charset=utf-8", _encoded(str(error)))
            return _said(HTTPStatus.CONFLICT, "This can't be shown", str(error).splitlines(), _up(path))

    def _home(self) -> Answer:
        places = [str(place) for place in self._catalogue.places]
        return _page(home_page(places, self._catalogue.runs().values(), self._catalogue.models().values()))

    # --- one run ---

    def _run(self, key: str) -> Answer:
        listed = self._catalogue.runs().get(key)
        if listed is None:
            return _not_found(f"run/{key}/")
        if listed.run is None:
            raise LocalevalError(f"{listed.folder}: {listed.reason}")
        with of_this_version(listed.folder):
            reading = self._reading(listed)
            if not reading.wait(_AT_ONCE):
                told = f"{reading.number:,} of {listed.run.report['n']:,} samples of {_title(listed.run)} are read."
                return _said(HTTPStatus.OK, "Reading the samples", [told], "../../", again=1)
            report = report_of(listed.run.report)
            return _page(served_page(report, listed.run.facts, reading.rows.counted, "rows"))

    def _reading(self, listed: Listed) -> Reading:
        """The samples of a run, which may still be being read; anew where its files have changed."""
        with self._lock:
            known = self._readings.pop(listed.key, None)
            if known is not None and known.state != listed.state:
                known.close()
                known = None
            self._readings[listed.key] = known or Reading(listed.state, _results(listed))
            if len(self._readings) > _OPEN:
                self._readings.pop(next(iter(self._readings))).close()
            return self._readings[listed.key]

    def _rows(self, key: str, asked: Mapping[str, str]) -> Answer:
        listed = self._catalogue.runs().get(key)
        if listed is None or listed.run is None:
            return Answer(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"this run is not there any more")
        with of_this_version(listed.folder):
            rows = self._reading(listed).rows
        if "id" in asked:
            row = rows.row(asked["id"])
            return _json({"rows": [] if row is None else [row]})
        try:
            offset, limit = int(asked.get("offset", 0)), int(asked.get("limit", 50))
        except ValueError as error:
            raise LocalevalError(f"offset and limit are numbers: {error}") from error
        return _json(asdict(rows.find(asked, offset, limit, asked.get("around"))))

    # --- several ---

    def _compare(self, keys: Sequence[str], asked: Mapping[str, str]) -> Answer:
        known = self._catalogue.runs()
        runs = [known[key].run for key in dict.fromkeys(keys) if key in known]
        chosen = [run for run in runs if run is not None]
        if not chosen:
            raise LocalevalError("choose the runs that are to be compared, in the page of all runs")
        baseline = "best" if asked.get("baseline") == "best" else "first"
        entries = entries_of(chosen, lambda folder: f"run/{key_of(folder)}/")
        comparison, why_not = compared_pairs(entries, baseline, "force" in asked)
        forced = [("run", key) for key in keys] + [("baseline", baseline), ("force", "1")]
        around = Around("./", f"compare?{urlencode(forced)}")
        return _page(page_of(several_of(entries, comparison, why_not), around))

    def _models(self, key: str) -> Answer:
        found = self._catalogue.models().get(key)
        if found is None:
            return _not_found(f"models/{key}/")
        if not found.outcomes:
            raise LocalevalError(found.reason)
        places = [(outcome, _now(found.folder, folder)) for outcome in found.outcomes for folder in outcome.folders]
        listed = {each.folder for each in self._catalogue.runs().values()}
        entries = [
            entry_of(outcome, folder, f"../../run/{key_of(folder)}/" if folder in listed else "")
            for outcome, folder in places
        ]
        comparison, why_not = compared_pairs(entries, "first")
        several = Several(
            title=found.folder.name,
            facts={"folder": str(found.folder)},
            entries=entries,
            comparison=comparison,
            failed=[(each.checkpoint.label, each.failure) for each in found.outcomes if each.failure],
            notes=(f"no comparison: {why_not}",) if why_not else (),
        )
        return _page(page_of(several, Around("../../")))


def _now(several: Path, recorded: Path) -> Path:
    """Where a run of several models is, though the work folder may have been moved since it was recorded."""
    beside = several.parent / recorded.parent.name / recorded.name
    return (beside if beside.is_dir() else recorded).resolve()


def _results(listed: Listed) -> Iterator[SampleResult]:
    assert listed.run is not None  # one that is not finished has no page
    return track(read_results(listed.folder), listed.run.report["n"], f"reading {_title(listed.run)}", LATE)


def _title(run: Finished) -> str:
    return f"{title_of(run.dataset, run.mode)}: {run.label}"


def _page(page: str) -> Answer:
    return Answer(HTTPStatus.OK, HTML, _encoded(page))


def _json(value: Mapping[str, object]) -> Answer:
    return Answer(HTTPStatus.OK, JSON, _encoded(str(as_json(value))))


def _encoded(text: str) -> bytes:
    return text.encode(errors="backslashreplace")


def _said(status: HTTPStatus, title: str, lines: Sequence[str], home: str, again: int | None = None) -> Answer:
    return Answer(status, HTML, _encoded(said_page(title, lines, home)), again)


def _not_found(path: str) -> Answer:
    line = "There is no such page; or the run has gone, or its folder was renamed."
    return _said(HTTPStatus.NOT_FOUND, "Not found", [line], _up(path))


def _up(path: str) -> str:
    """The address of all runs, from a page."""
    return "../" * path.count("/") or "./"

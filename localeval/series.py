"""Several checkpoints together: a row for each, the table, the curve and the comparison, in a folder of their own.

``<work-dir>/checkpoints-<8 hex>/``: checkpoints.jsonl, table.md, report.html, curve.csv and .svg, comparison.json and
.md, flips.jsonl, and TensorBoard's event files. The hex is of the settings and of the training runs' folders, so that
the same command goes on with the same folder. Reads the run folders; knows no engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localeval.checkpoints import Checkpoint
from localeval.config import TaskConfig
from localeval.engines.successive import Serving
from localeval.identity import digest_of, short
from localeval.noise import noise_text
from localeval.progress import say, warn
from localeval.report.build import HEADLINE
from localeval.report.comparison import (
    Comparison,
    comparison_json,
    comparison_markdown,
    comparison_text,
    flip_rows,
)
from localeval.report.curve import curve_csv, curve_svg, curve_text
from localeval.report.finished import Finished
from localeval.report.leaderboard import Entry
from localeval.report.points import Point, points_of
from localeval.report.several import Several
from localeval.report.text import DASH, count, interval, markdown_table, number, row_stamps, table, title
from localeval.schema import Estimate, LocalevalError, title_of
from localeval.scoring import Failed, Run, RunResult, find_finished
from localeval.store import RunFolder
from localeval.together import PAGE, compared, entries_of, link_from, page_of

ROWS = "checkpoints.jsonl"
# What does not change a number, or is about several models together.
_NOT_SETTINGS = {
    "model",
    "work_dir",
    "use_cache",
    "models",
    "baseline",
    "fail_below_baseline",
    "dataset_dir",
    "bundle",
    "noise",
    "force_answer",
    "tensorboard",
    "parquet",
    "ray",
    "replicas",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a checkpoint: its run folders, or why there are none. serving: None where nothing was asked anew.

    runs: those that this process has made.
    """

    checkpoint: Checkpoint
    folders: tuple[Path, ...] = ()
    serving: Serving | None = None
    failure: str = ""
    runs: tuple[Run, ...] = ()

    @property
    def row(self) -> dict[str, Any]:
        """As checkpoints.jsonl has it."""
        return {
            **asdict(self.checkpoint),
            "status": "failed" if self.failure else "done",
            "reason": self.failure or None,
            "served": asdict(self.serving) if self.serving else None,
            "runs": [str(folder) for folder in self.folders],
        }


class Series:
    """The folder of several checkpoints of one command."""

    def __init__(self, config: TaskConfig, places: Iterable[str], resume: bool = False) -> None:
        """places: the training runs' folders. resume: whether what an earlier command has recorded stays."""
        settings = {name: value for name, value in config.model_dump(mode="json").items() if name not in _NOT_SETTINGS}
        there = {str(Path(place).resolve()) if Path(place).exists() else place for place in places}
        digest = digest_of([settings, sorted(there)])
        self.path = Path(config.work_dir) / f"checkpoints-{short(digest)}"
        self._config = config
        self._folder = RunFolder(self.path)
        self.outcomes: list[Outcome] = []
        self._folder.lock()
        if resume and (self.path / ROWS).is_file():
            # What has no report any more is asked again.
            known = read_outcomes(self.path / ROWS)
            self.outcomes = [each for each in known if all((place / "report.json").is_file() for place in each.folders)]

    def add(self, outcome: Outcome) -> None:
        """Takes a checkpoint's outcome in place of an older one, and writes the table and the curve of all."""
        self.outcomes = [each for each in self.outcomes if each.checkpoint.asked != outcome.checkpoint.asked]
        self.outcomes.append(outcome)
        self._folder.write_rows(ROWS, [each.row for each in self.outcomes])
        self._write_curve()
        self._write_page(None, "")

    def _write_curve(self) -> None:
        points = self.points()
        self._folder.write_text("table.md", markdown_table(*_table_rows(self.ordered())) + "\n")
        self._folder.write_text("curve.csv", curve_csv(points))
        if self._config.tensorboard:
            from localeval.report.tensorboard import write_events

            write_events(self.path / "tensorboard", points)

    def _write_page(self, comparison: Comparison | None, why_not: str) -> None:
        """Writes report.html. why_not: why there is no comparison; empty where it is still to come."""
        places = [(outcome, folder) for outcome in self.ordered() for folder in outcome.folders]
        entries = [entry_of(outcome, folder, link_from(self.path, folder)) for outcome, folder in places]
        known = {entry.run.folder for entry in entries}
        if comparison is not None and self._config.baseline not in ("first", "best"):
            named = entries_of(find_finished([self._config.baseline]), lambda folder: link_from(self.path, folder))
            entries = [*(entry for entry in named if entry.run.folder not in known), *entries]
        several = Several(
            title=" · ".join([", ".join(self._series_names()) or "Several models", *self._config.datasets]),
            facts=self._facts() | ({} if comparison or why_not else {"comparison": "at the end"}),
            entries=entries,
            comparison=comparison,
            failed=[(each.checkpoint.label, each.failure) for each in self.ordered() if each.failure],
            notes=(why_not,) if why_not else (),
        )
        try:
            self._folder.write_text(PAGE, page_of(several))
        except LocalevalError as error:  # a page must not keep the models that are left from being asked
            warn(f"{self.path / PAGE} is not written: {error}")

    def ordered(self) -> list[Outcome]:
        """Each training run's checkpoints by step, the runs as they came."""
        places = list(dict.fromkeys(each.checkpoint.series or each.checkpoint.asked for each in self.outcomes))

        def place(outcome: Outcome) -> tuple[int, bool, int]:
            checkpoint = outcome.checkpoint
            at = places.index(checkpoint.series or checkpoint.asked)
            return at, checkpoint.step is None, checkpoint.step or 0

        return sorted(self.outcomes, key=place)

    def points(self) -> list[Point]:
        """Every score of every checkpoint, over all rows and by subset."""
        return [point for outcome in self.ordered() for folder in outcome.folders for point in _points(outcome, folder)]

    def _facts(self) -> dict[str, str]:
        config = self._config
        return {
            "datasets": ", ".join(config.datasets),
            "checkpoints": f"{sum(not each.failure for each in self.outcomes)}"
            + (f", {failed} failed" if (failed := sum(bool(each.failure) for each in self.outcomes)) else ""),
            "limit": "none" if config.limit is None else f"LIMITED: {config.limit} rows of each subset",
            "samples": "SAMPLES: the rows that ship with localeval" if config.samples else "no",
            "folder": str(self.path),
        }

    def _series_names(self) -> list[str]:
        return list(dict.fromkeys(each.checkpoint.series for each in self.outcomes if each.checkpoint.series))

    def _stamps(self) -> list[str]:
        reports = [RunFolder(folder).read_json("report.json") for each in self.outcomes for folder in each.folders]
        comparable, limited = all(each["comparable"] for each in reports), any(each["limited"] for each in reports)
        return [f"! {stamp}" for stamp in row_stamps(comparable, limited)]

    def result(self) -> RunResult:
        """The table, the curve and the comparison of all; writes the comparison's files."""
        outcomes = self.ordered()
        done = [each for each in outcomes if not each.failure]
        parts = ["\n".join([*self._stamps(), table(*_table_rows(outcomes))])]
        if any(point.step is not None for point in self.points()):
            parts.append(curve_text(self.points()))
            self._folder.write_text("curve.svg", curve_svg(self.points(), ", ".join(self._series_names())))
        comparison, wrong = self._compare(done)
        if comparison is not None:
            parts.append(comparison_text(comparison))
            write_comparison(self.path, comparison)
        self._write_page(comparison, wrong)
        below: list[str] = []
        if self._config.fail_below_baseline is not None:
            below = comparison.below(self._config.fail_below_baseline) if comparison else [wrong]
        failed = tuple(Failed(each.checkpoint.label, each.failure) for each in outcomes if each.failure)
        runs = [(each.checkpoint.label, run) for each in outcomes for run in each.runs]
        parts += [f"{label}, {title(run.report)}: {noise_text(run.noise)}" for label, run in runs if run.noise]
        parts += [f"failed: {each.model}: {each.reason}" for each in failed]
        parts += [f"not passed: {line}" for line in below]
        parts.append(f"table, curve and comparison: {self.path / PAGE}")
        self._folder.close()
        return RunResult(tuple(run for _, run in runs), "\n\n".join(parts), failed, tuple(below), self.path)

    def _compare(self, done: Sequence[Outcome]) -> tuple[Comparison | None, str]:
        """The comparison; or why there is none, which must not hide runs that are done."""
        for name in COMPARISON:  # an earlier one must not be taken for this one
            (self.path / name).unlink(missing_ok=True)
        labels = {folder.resolve(): each.checkpoint.label for each in done for folder in each.folders}
        if len(done) < 2 and self._config.baseline in ("first", "best"):
            return None, f"there is nothing to compare: {len(done)} of the models could be evaluated"
        say(f"comparing {len(done)} models")
        comparison, why_not = compared(find_finished(list(labels), labels), self._config.baseline)
        if comparison is None:
            warn(f"no comparison: {why_not}")
        return comparison, f"no comparison: {why_not}" if why_not else ""


COMPARISON = ("comparison.json", "comparison.md", "flips.jsonl")


def write_comparison(path: Path, comparison: Comparison) -> None:
    """comparison.json, comparison.md and flips.jsonl, in a folder that is made where it is not there."""
    path.mkdir(parents=True, exist_ok=True)
    folder = RunFolder(path)
    folder.write_json("comparison.json", comparison_json(comparison))
    folder.write_text("comparison.md", comparison_markdown(comparison))
    folder.write_rows("flips.jsonl", flip_rows(comparison))


def read_outcomes(path: Path) -> Iterable[Outcome]:
    """The rows of a checkpoints.jsonl. Raises LocalevalError that names the line that is none."""
    for number_, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            checkpoint = Checkpoint(row["asked"], row["label"], row["series"], row["step"], row["state"])
            serving = Serving(**row["served"]) if row["served"] else None
            folders = tuple(Path(folder) for folder in row["runs"])
            yield Outcome(checkpoint, folders, serving, row["reason"] or "")
        except (ValueError, KeyError, TypeError) as error:
            raise LocalevalError(f"{path}, line {number_}: not a checkpoint's row ({error!r}); take it out") from error


def entry_of(outcome: Outcome, folder: Path, link: str) -> Entry:
    """A run of a checkpoint, as pages of several models show it. link: the address of its own page."""
    run = RunFolder(folder)
    found = Finished(
        outcome.checkpoint.label, folder.resolve(), run.read_json("run.json"), run.read_json("report.json")
    )
    return Entry(found, outcome.checkpoint.series, outcome.checkpoint.step, link)


def _points(outcome: Outcome, folder: Path) -> Iterable[Point]:
    checkpoint = outcome.checkpoint
    return points_of(RunFolder(folder).read_json("report.json"), checkpoint.series, checkpoint.label, checkpoint.step)


def _table_rows(outcomes: Sequence[Outcome]) -> tuple[list[str], list[list[str]]]:
    """One row a checkpoint: the headline of each dataset, and how its weights came into the engine."""
    reports = [[RunFolder(folder).read_json("report.json") for folder in each.folders] for each in outcomes]
    names = list(dict.fromkeys(_column(report) for each in reports for report in each))
    header = ["checkpoint", "step"]
    for name in names:
        header += [name, "95% interval"]
    rows = []
    for outcome, each in zip(outcomes, reports, strict=True):
        found = {_column(report): _headline(report) for report in each}
        row = [outcome.checkpoint.label, count(outcome.checkpoint.step)]
        for name in names:
            row += [number(found[name].value), interval(found[name])] if name in found else [DASH, DASH]
        rows.append([*row, _how(outcome)])
    return [*header, "weights"], rows


def _column(report: Mapping[str, Any]) -> str:
    return f"{title_of(report['dataset'], report['mode'])} {HEADLINE[report['task']]}"


def _headline(report: Mapping[str, Any]) -> Estimate:
    return Estimate(**report["metrics"][HEADLINE[report["task"]]])


_SERVED = {"started": "new engine", "swapped": "swapped in place", "adapter": "adapter", "same": "as before"}


def _how(outcome: Outcome) -> str:
    if outcome.failure:
        return "FAILED"
    if outcome.serving is None:
        return "all reused"
    return f"{_SERVED[outcome.serving.how]}, {outcome.serving.seconds:.1f} s"

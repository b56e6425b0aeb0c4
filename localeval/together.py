"""Finished runs of several models -> their page. Reads the run folders; knows no engine and no data."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import quote

from localeval.checkpoints import step_of
from localeval.compare import against_best, compare_entries, told_apart
from localeval.report.comparison import Comparison
from localeval.report.finished import Finished, of_this_version
from localeval.report.flipped import chosen_flips
from localeval.report.leaderboard import Entry
from localeval.report.several import Around, Several, several_page
from localeval.samples import read_samples
from localeval.schema import LocalevalError, Sample, title_of
from localeval.scoring import find_finished
from localeval.store import write_atomically

PAGE = "report.html"


def link_from(page: Path, folder: Path) -> str:
    """The address of a run's page as a page in another folder of the same work folder has it; else empty."""
    page, file = page.resolve(), folder.resolve() / PAGE
    inside = file.is_relative_to(page.parent) and file.is_file()
    return quote(os.path.relpath(file, page).replace(os.sep, "/")) if inside else ""


def entries_of(runs: Iterable[Finished], link: Callable[[Path], str]) -> list[Entry]:
    """Runs that were named apart from the command that made them; a step is what the model's name says of it.

    Raises LocalevalError for a run.json or report.json of another version.
    """
    found = []
    with of_this_version():
        for run in told_apart(list(runs)):
            asked = Path(str(run.facts["model"]["asked_as"] or run.label))
            step = step_of(asked)
            found.append(Entry(run, "" if step is None else str(asked.parent), step, link(run.folder)))
    return found


def compared(runs: Sequence[Finished], baseline: str, force: bool = False) -> tuple[Comparison | None, str]:
    """The comparison of some runs; or None, and why there is none."""
    try:
        with of_this_version():
            return compare_entries(runs, baseline, force), ""
    except LocalevalError as error:
        return None, str(error)


def compared_pairs(entries: Sequence[Entry], baseline: str, force: bool = False) -> tuple[Comparison | None, str]:
    """The same of those that have another one beside them: of the same dataset, asked in the same way.

    Where none has, there is nothing to say: None, and no reason.
    """
    times = Counter((entry.run.dataset, entry.run.mode) for entry in entries)
    runs = [entry.run for entry in entries if times[entry.run.dataset, entry.run.mode] > 1]
    return compared(runs, baseline, force) if runs else (None, "")


def write_page(file: Path, paths: Sequence[str | Path], comparison: Comparison | None = None) -> None:
    """The page of the finished runs in some folders. comparison: of them; worked out here where it is None.

    Raises LocalevalError and RunFailed as ``find_finished`` and ``page_of`` do.
    """
    entries = entries_of(find_finished(paths), partial(link_from, file.parent))
    found, why_not = compared_pairs(entries, "first") if comparison is None else (comparison, "")
    page = page_of(several_of(entries, found, why_not))
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, [page])


def several_of(entries: Sequence[Entry], comparison: Comparison | None, why_not: str = "") -> Several:
    """What the page of runs shows that were named one by one. why_not: why they are not compared."""
    datasets = list(dict.fromkeys(entry.run.dataset for entry in entries))
    models = len({entry.run.label for entry in entries})
    facts = {"runs": f"{len(entries):,}", "models": f"{models:,}", "datasets": ", ".join(datasets)}
    notes = (f"no comparison: {why_not}",) if why_not else ()
    return Several(" · ".join(["Several runs", *datasets]), facts, entries, comparison, notes=notes)


def page_of(several: Several, around: Around | None = None) -> str:
    """The page. several: without what is worked out here, from the run folders that its comparison names.

    Raises LocalevalError for a run.json or report.json of another version.
    """
    with of_this_version():
        if several.comparison is None:
            return several_page(several, around)
        leaders = against_best([entry.run for entry in several.entries], several.comparison)
        samples, notes = _flipped_samples(several.comparison)
        known = replace(several, leaders=leaders, samples=samples, notes=(*several.notes, *notes))
        return several_page(known, around)


def _flipped_samples(comparison: Comparison) -> tuple[dict[tuple[str, str], Sample], list[str]]:
    """The samples of the flips that are shown, by title and id; and why some are not there."""
    wanted: dict[str, set[str]] = {}
    for flip in chosen_flips(comparison):
        wanted.setdefault(title_of(flip.dataset, flip.mode), set()).add(flip.sample_id)
    found: dict[tuple[str, str], Sample] = {}
    notes = []
    for block in comparison.blocks:
        ids = wanted.get(block.title, set())
        try:
            asked = read_samples(Path(block.folder)) if ids else ()
            found |= {(block.title, each.sample.id): each.sample for each in asked if each.sample.id in ids}
        except LocalevalError as error:
            notes.append(f"the flipped samples of {block.title} are shown without their text: {error}")
    return found, notes

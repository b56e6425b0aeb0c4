"""Finished runs under the names that other tools know results by: a model, a task, a time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from localeval.progress import LATE, track
from localeval.report.finished import Finished
from localeval.results import SampleResult, read_results
from localeval.schema import LocalevalError


@dataclass(frozen=True, slots=True)
class Named:
    """A run. model, task: as its files are called. at: when the run ended, local time."""

    run: Finished
    model: str
    task: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Batch:
    """Runs of which no two are of one model and task. at: of the last of them, and no other batch's."""

    runs: tuple[Named, ...]
    at: datetime


def as_file_name(text: str) -> str:
    """A name without what a path can't hold, or what is more than one name."""
    return re.sub(r"[\"<>:/|\\?*\[\]\s]+", "__", text).lstrip(".") or "_"


def batches(runs: Sequence[Finished]) -> list[Batch]:
    """The runs, in as few batches as hold each model and task once; in the order in which they ended.

    A task is the dataset, with the mode where that is not the usual way. Models of one name have the fingerprint beside
    it.
    """
    piles: list[dict[tuple[str, str], Named]] = []
    for named in sorted(_named(runs), key=lambda each: each.at):
        key = (named.model, named.task)
        pile = next((pile for pile in piles if key not in pile), None)
        if pile is None:
            pile = {}
            piles.append(pile)
        pile[key] = named
    found: list[Batch] = []
    for pile in piles:
        at = max(each.at for each in pile.values())
        if found and at < found[-1].at + timedelta(seconds=1):  # names of folders tell seconds apart
            at = found[-1].at + timedelta(seconds=1)
        found.append(Batch(tuple(pile.values()), at))
    return found


def _named(runs: Sequence[Finished]) -> Iterator[Named]:
    prints: dict[str, set[str]] = {}
    for run in runs:
        _refuse_one_file(run)
        prints.setdefault(as_file_name(run.facts["model"]["name"]), set()).add(run.fingerprint)
    for run in runs:
        name = as_file_name(run.facts["model"]["name"])
        model = name if len(prints[name]) == 1 else f"{name}-{run.fingerprint[:8]}"
        task = run.dataset if run.mode == "generate" else f"{run.dataset}_{run.mode}"
        at = datetime.fromtimestamp((run.folder / "run.json").stat().st_mtime)
        yield Named(run, model, as_file_name(task), at)


def _refuse_one_file(run: Finished) -> None:
    """Each subset is a file. Raises LocalevalError where two of them would be the same one."""
    names: dict[str, str] = {}
    for subset in run.report["subsets"]:
        other = names.setdefault(as_file_name(subset), subset)
        if other != subset:
            raise LocalevalError(
                f"{run.folder}: the subsets {other!r} and {subset!r} would be one file, "
                f"{as_file_name(subset)!r}: call one of them otherwise in the dataset's YAML file"
            )


def row_of(result: SampleResult) -> int:
    """The row of its subset that a sample is, from 0."""
    return int(result.sample_id.rpartition(":")[2])


def by_subset(run: Finished) -> Iterator[tuple[str, list[SampleResult]]]:
    """The samples of a run, subset by subset; those of one are in memory at once.

    Raises LocalevalError where a subset's samples are not together, for each subset is a file.
    """
    seen = set()
    every = track(read_results(run.folder), run.report["n"], f"export of {run.dataset}", LATE)
    for subset, results in groupby(every, key=lambda result: result.subset):
        if subset in seen:
            raise LocalevalError(f"{run.folder}: the samples of {subset} are not together: run the command again")
        seen.add(subset)
        yield subset, list(results)

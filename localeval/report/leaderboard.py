"""Several models in the order of their results: rank, and what chance allows to be said of it. Pure.

Knows finished runs and comparisons as values; no file, no page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from localeval.report.build import HEADLINE
from localeval.report.comparison import Block, Comparison, Contrast
from localeval.report.finished import Finished
from localeval.schema import Estimate, title_of

Standing = Literal["best", "leading", "behind", "not compared", ""]


@dataclass(frozen=True, slots=True)
class Entry:
    """A finished run among several.

    series, step: of a checkpoint; else empty, None. link: the address of its report.html as the page has it; empty
    where it has none.
    """

    run: Finished
    series: str = ""
    step: int | None = None
    link: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """A run's place in a table.

    rank: by value; equal values share one, and the next is as much later; None where there is no value, or it can't be
    put beside the others'. standing: ``best``; ``leading`` where chance may explain how far it lies behind the best;
    ``behind`` where it does not; empty where nothing was tested. lag, change: against the best, and the baseline.
    """

    entry: Entry
    rank: int | None
    standing: Standing
    is_baseline: bool
    lag: Contrast | None
    change: Contrast | None

    @property
    def estimate(self) -> Estimate:
        return Estimate(**self.entry.run.report["metrics"][HEADLINE[self.entry.run.task]])

    @property
    def macro(self) -> float | None:
        """The mean over subsets (MCQ) or types (NER)."""
        value: float | None = self.entry.run.report["macro"].get(HEADLINE[self.entry.run.task])
        return value

    @property
    def tokens(self) -> Mapping[str, Any]:
        """Prompt and output tokens, and the seconds that the command generated; what is replayed has none."""
        facts = self.entry.run.facts
        tokens, seconds = facts.get("tokens") or {}, facts.get("seconds") or {}
        spent = {name: tokens.get(name) or None for name in ("prompt", "output")}
        return {**spent, "seconds": seconds.get("generate") if spent["prompt"] else None}


@dataclass(frozen=True, slots=True)
class Board:
    """One dataset, asked in one way: its runs, the highest value first. block: their comparison with the baseline."""

    title: str
    metric: str
    macro_over: str
    places: tuple[Place, ...]
    block: Block | None

    @property
    def tested(self) -> bool:
        return any(place.standing == "best" for place in self.places)


def boards(
    entries: Sequence[Entry], comparison: Comparison | None = None, leaders: Sequence[Block] = ()
) -> list[Board]:
    """A table for each dataset and way of asking, in the order in which they come.

    comparison: of these runs with a baseline. leaders: each run against the best of its table.
    """
    block_of = {folder: block for block in (comparison.blocks if comparison else ()) for folder in _folders(block)}
    tables: dict[str, list[Entry]] = {}
    for entry in entries:
        block = block_of.get(entry.run.folder)
        title = block.title if block else title_of(entry.run.dataset, entry.run.mode)
        tables.setdefault(title, []).append(entry)
    best_of = {folder: block for block in leaders for folder in _folders(block)}
    return [_board(title, table, block_of, best_of) for title, table in tables.items()]


def _folders(block: Block) -> list[Path]:
    return [Path(block.folder), *dict.fromkeys(Path(test.folder) for test in block.tests)]


def _board(
    title: str, entries: Sequence[Entry], block_of: Mapping[Path, Block], best_of: Mapping[Path, Block]
) -> Board:
    block = next((block_of[entry.run.folder] for entry in entries if entry.run.folder in block_of), None)
    # What was refused stands last: its value is of another question.
    ordered = sorted(entries, key=lambda entry: (_refused(entry, block, block_of), _descending(entry.run.headline)))
    ranked = [entry.run.headline for entry in ordered if not _refused(entry, block, block_of)]
    places = []
    for entry in ordered:
        value, leader = entry.run.headline, best_of.get(entry.run.folder)
        refused = _refused(entry, block, block_of)
        lag = _headline_test(leader, entry.run.folder)
        places.append(
            Place(
                entry=entry,
                rank=None if refused or value is None or len(entries) < 2 else ranked.index(value) + 1,
                standing="not compared" if refused else _standing(entry.run.folder, leader, lag),
                is_baseline=block is not None and Path(block.folder) == entry.run.folder,
                lag=lag,
                change=_headline_test(block, entry.run.folder),
            )
        )
    run = entries[0].run
    return Board(title, HEADLINE[run.task], str(run.report["macro"]["over"]), tuple(places), block)


def _refused(entry: Entry, block: Block | None, block_of: Mapping[Path, Block]) -> bool:
    return block is not None and entry.run.folder not in block_of


def _descending(value: float | None) -> tuple[bool, float]:
    return value is None, -(value or 0.0)


def _headline_test(block: Block | None, folder: Path) -> Contrast | None:
    tests = block.tests if block else ()
    return next((t for t in tests if Path(t.folder) == folder and not t.kind and t.metric == tests[0].metric), None)


def _standing(folder: Path, leader: Block | None, lag: Contrast | None) -> Standing:
    if leader is None:
        return ""
    if Path(leader.folder) == folder:
        return "best"
    if lag is None or lag.result.difference is None:
        return ""
    return "behind" if lag.verdict == "worse" else "leading"

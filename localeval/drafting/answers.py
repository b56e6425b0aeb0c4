"""A column of answers, held against each way in which an answer may name one of a row's options. Pure.

What fits in two ways that differ is refused, not decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from localeval.datasets.answers import WAYS
from localeval.drafting.table import Table, cant

ANSWER = (
    "answer", "answerkey", "correctanswer", "correctoption", "correct", "target", "label", "gold", "key", "cop",
    "answeridx", "answerindex", "answerletter", "answernum", "correctanswernum", "correctidx", "correctindex",
    "correctchoice", "correctletter", "solution", "groundtruth", "goldlabel", "goldindex", "rightanswer", "output",
)  # fmt: skip
_NUMBERS = {"index", "number"}


def refuse_several(table: Table, answer: str, ways: Mapping[str, Sequence[int]], rows: Sequence[Sequence[str]]) -> None:
    """Ways that fit every row alike and make other options right: a guess would make a wrong score."""
    if len({tuple(places) for places in ways.values()}) < 2:
        return
    row = next(row for row, places in enumerate(zip(*ways.values(), strict=True)) if len(set(places)) > 1)
    shown = ", ".join(f"as {way} {rows[row][places[row]]!r}" for way, places in ways.items())
    raise cant(
        table,
        f"every answer in {answer} fits in several ways; row {row}, {table.columns[answer][row]!r}, is {shown}: say "
        f"which with --answer-is {' or --answer-is '.join(ways)}",
    )


@dataclass(frozen=True, slots=True)
class Ways:
    """The ways in which an answer can name an option. rows, labels: of each row. columns: those of the options."""

    rows: Sequence[Sequence[str]]
    labels: Sequence[Sequence[Any]]
    columns: Sequence[str]

    def read(self, way: str, values: Sequence[Any]) -> tuple[list[int], int | None]:
        """The option of each row, up to the first row in which it names none, and that row."""
        places: list[int] = []
        for row, (value, options, labels) in enumerate(zip(values, self.rows, self.labels, strict=True)):
            known = {"column": self.columns, "text": options, "label": labels}.get(way, ())
            place = WAYS[way](value, known)
            if place is None or not 0 <= place < len(options):
                return places, row
            places.append(place)
        return places, None

    def fitting(self, values: Sequence[Any], only: str | None) -> dict[str, list[int]]:
        """Way -> each row's option, for the ways that fit every row."""
        found = {way: self.read(way, values) for way in WAYS if only in (None, way)}
        return {way: places for way, (places, wrong) in found.items() if wrong is None}


def find_answer(
    table: Table, column: str | None, answer_is: str | None, taken: set[str], ways: Ways
) -> tuple[str, dict[str, list[int]]]:
    """The column of the answer, and the ways that fit every row."""
    known = [column] if column else [name for name in table.named(ANSWER) if name not in taken]
    fits = {name: ways.fitting(table.columns[name], answer_is) for name in known}
    fits = {name: found for name, found in fits.items() if found}
    if not fits and not known:
        others = [name for name in table.columns if name not in taken]
        fits = {name: ways.fitting(table.columns[name], answer_is) for name in others}
        # Numbers may be a level, a count or a year, too: by them alone no column is known.
        fits = {name: found for name, found in fits.items() if answer_is or found.keys() - _NUMBERS}
        fits = {name: found for name, found in fits.items() if found}
    if not fits:
        raise cant(table, _no_answer(table, known, ways))
    readings = {name: set(map(tuple, found.values())) for name, found in fits.items()}
    certain = sorted(readings, key=lambda name: len(readings[name]))[0]  # the one that is read in the fewest ways
    if not all(readings[certain] <= others for others in readings.values()):
        shown = " or ".join(map(repr, fits))
        raise cant(table, f"the answer may stand in {shown}, and they differ: say which with --answer COL")
    if (before := [name for name in known[: known.index(certain)] if name not in fits] if known else []) and (
        not fits[certain].keys() - _NUMBERS
    ):
        raise cant(table, f"{_no_answer(table, before[:1], ways)}; {certain} holds numbers that may be meant")
    return certain, fits[certain]


def _no_answer(table: Table, known: Sequence[str], ways: Ways) -> str:
    lines = []
    for name in known:
        values = table.columns[name]
        row, way = max((ways.read(way, values)[1] or 0, way) for way in WAYS)
        lines.append(f"{name} names no option in row {row} ({values[row]!r}; read as {way} up to there)")
    tried = (
        "; ".join(lines)
        or "no column of a known name (answer, label, target ...), and no other names options by letter or text"
    )
    return (
        f"the answer was not found: {tried}. Looked for a letter, an index from 0, a number from 1, a column's name, "
        "or an option's text in every row: name the column with --answer COL"
    )

"""Rows of a table -> where multiple-choice questions, their options and their answers stand.

Every row is held against each way to read it; what fits in two ways that differ is refused, not decided. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from localeval.datasets.parts import LabelledChoices
from localeval.drafting.table import Table, groups_of, is_text, is_texts, plain
from localeval.nearest import nearest
from localeval.schema import LocalevalError

_QUESTION = ("question", "questiontext", "query", "stem", "problem", "prompt", "q", "input", "text", "sentence")
_LISTS = ("choices", "options", "choices.text", "options.text", "alternatives", "candidates", "answers", "endings")
_LABELS = ("label", "labels", "key", "letter", "id")
_STEMS = ("option", "choice", "op", "opt", "", "answer", "mcanswer", "ans", "ending", "sol")
_ANSWER = (
    "answer", "answerkey", "correctanswer", "correctoption", "correct", "target", "label", "gold", "key", "cop",
    "answeridx", "answerindex", "answerletter", "answernum", "correctanswernum", "correctidx", "correctindex",
    "correctchoice", "correctletter", "solution", "groundtruth", "goldlabel", "goldindex", "rightanswer", "output",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Named:
    """What the user says of the columns; nothing where it is to be found out."""

    question: str | None = None
    choices: tuple[str, ...] = ()
    answer: str | None = None
    answer_is: str | None = None


@dataclass(frozen=True, slots=True)
class Questions:
    """Where they stand. choices: the columns of the options, or the one that holds a list, or texts and labels.

    options: the fewest and the most of a row.
    """

    question: str
    choices: str | tuple[str, ...] | LabelledChoices
    answer: str
    answer_is: str
    options: tuple[int, int]
    groups: tuple[str, ...]

    @property
    def used(self) -> list[str]:
        """The columns that a row is read from."""
        return [self.question, *self.choice_columns, self.answer]

    @property
    def choice_columns(self) -> list[str]:
        """Those of the options, as ``Table`` names them."""
        if isinstance(self.choices, LabelledChoices):
            return [f"{self.choices.column}.{field}" for field in (self.choices.text, self.choices.label)]
        return [self.choices] if isinstance(self.choices, str) else list(self.choices)


def find_questions(table: Table, named: Named) -> Questions:
    """Raises LocalevalError that names the columns, what was looked for, and the option that decides."""
    for name in (named.question, *named.choices, named.answer):
        if name is not None and name not in table.columns:
            raise _cant(table, f"there is no column {name!r}{nearest(name, list(table.columns))}")
    choices = _choices(table, named)
    rows = _options(table, choices)
    labelled = _labelled(table, choices) if isinstance(choices, str) else None
    taken = {choices} if isinstance(choices, str) else set(choices)
    taken |= {f"{labelled.column}.{labelled.label}"} if labelled else set()
    question = named.question or _question(table, taken, named.answer)
    columns = () if isinstance(choices, str) else choices
    labels = table.columns[f"{labelled.column}.{labelled.label}"] if labelled else [()] * len(rows)
    answer, ways = _answer(table, named, taken | {question}, _Ways(rows, labels, columns))
    way = next(way for way in WAYS if way in ways)
    _refuse_several(table, answer, ways, rows)
    sizes = [len(options) for options in rows]
    used = {question, answer, *taken}
    groups = tuple(groups_of(table, used))
    return Questions(question, labelled or choices, answer, way, (min(sizes), max(sizes)), groups)


def _refuse_several(
    table: Table, answer: str, ways: Mapping[str, Sequence[int]], rows: Sequence[Sequence[str]]
) -> None:
    """Ways that fit every row alike and make other options right: a guess would make a wrong score."""
    if len({tuple(places) for places in ways.values()}) < 2:
        return
    row = next(row for row, places in enumerate(zip(*ways.values(), strict=True)) if len(set(places)) > 1)
    shown = ", ".join(f"as {way} {rows[row][places[row]]!r}" for way, places in ways.items())
    raise _cant(
        table,
        f"every answer in {answer} fits in several ways; row {row}, {table.columns[answer][row]!r}, is {shown}: say "
        f"which with --answer-is {' or --answer-is '.join(ways)}",
    )


def _cant(table: Table, why: str) -> LocalevalError:
    return LocalevalError(f"{why}; the columns are: {table.told()}")


# --- options ---


def _choices(table: Table, named: Named) -> str | tuple[str, ...]:
    if len(named.choices) == 1:
        return named.choices[0]
    if named.choices:
        return named.choices
    lists = [name for name, values in table.columns.items() if all(map(_is_options, values))]
    lists = [name for name in lists if not all(map(_is_labels, table.columns[name]))] or lists
    by_name = [name for name in table.named(_LISTS) if name in lists]
    sets = _sets(table)
    known = [sets[stem] for stem in _STEMS if stem in sets]
    for tier in (by_name[:1], known[:1], lists, list(sets.values())):
        if len(tier) == 1:
            return tier[0]
        if tier:
            shown = " or ".join(repr(each) if isinstance(each, str) else " ".join(each) for each in tier)
            raise _cant(table, f"the options may stand in {shown}: say which with --choices")
    raise _cant(
        table,
        "no options were found: looked for a column of lists (choices, options ...), and for columns that are numbered "
        "or lettered (option1 option2 ..., A B C D): name them with --choices COL [COL ...]",
    )


def _is_options(value: Any) -> bool:
    return is_texts(value) and 2 <= len(value) <= len(ascii_uppercase)


def _is_labels(value: Sequence[Any]) -> bool:
    """Whether a list is A, B, C or 1, 2, 3: the labels of options that stand beside it, where any do."""
    words = [str(each) for each in value]
    return any(words == list(marks[: len(words)]) for marks in (ascii_uppercase, ascii_lowercase, "123456789"))


_MARKED = re.compile(r"(.*?)[ _-]?([A-Z]|[a-z]|\d{1,2})")


def _sets(table: Table) -> dict[str, tuple[str, ...]]:
    """Stem -> columns of text that are numbered or lettered one after another: ``option`` -> option1, option2."""
    found: defaultdict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for name, values in table.columns.items():
        match = _MARKED.fullmatch(name)
        if match and "." not in name and all(is_text(value) or value is None for value in values):
            mark = match[2]
            kind = "number" if mark.isdecimal() else "upper" if mark.isupper() else "lower"
            found[plain(match[1]), kind][mark.lstrip("0") or "0" if mark.isdecimal() else mark] = name
    sets: dict[str, tuple[str, ...]] = {}
    for (stem, _), columns in found.items():
        for first in ("A", "a", "0", "1"):
            series = [chr(ord(first) + i) for i in range(26)]
            if first.isdecimal():
                series = [str(int(first) + i) for i in range(26)]
            if first in columns and sorted(columns) == sorted(series[: len(columns)]) and len(columns) > 1:
                sets.setdefault(stem, tuple(columns[mark] for mark in series[: len(columns)]))
    return sets


def _labelled(table: Table, choices: str) -> LabelledChoices | None:
    """Of options inside another column their labels, which lie there too."""
    column, _, text = choices.rpartition(".")
    if not column:
        return None
    fields = [name.removeprefix(f"{column}.") for name in table.columns if name.startswith(f"{column}.")]
    same = [
        field
        for field in fields
        if field != text
        and all(
            is_texts(label) and len(label) == len(options) and len(set(map(str, label))) == len(label)
            for label, options in zip(table.columns[f"{column}.{field}"], table.columns[choices], strict=True)
        )
    ]
    known = [field for name in _LABELS for field in same if plain(field) == name] or same
    if not known:
        raise _cant(table, f"the options in {choices} have no labels beside them: bring them into a column of lists")
    return LabelledChoices(column=column, text=text, label=known[0])


def _options(table: Table, choices: str | tuple[str, ...]) -> list[list[str]]:
    if isinstance(choices, str):
        values = table.columns[choices]
        for row, value in enumerate(values):
            if not _is_options(value):
                raise _cant(table, f"row {row}, column {choices}: {value!r} is no list of 2 to 26 options")
        return [[str(each) for each in value] for value in values]
    columns = [table.columns[name] for name in choices]
    return [["" if value is None else str(value) for value in row] for row in zip(*columns, strict=True)]


# --- the question ---


def _question(table: Table, taken: set[str], answer: str | None) -> str:
    texts = [
        name
        for name, values in table.columns.items()
        if name not in taken and name != answer and all(isinstance(value, str) for value in values)
    ]
    known = [name for name in table.named(_QUESTION) if name in texts]
    if known:
        return known[0]
    answers = set(table.named(_ANSWER))
    distinct = [name for name in texts if name not in answers and 2 * len(set(table.columns[name])) > table.n]
    if len(distinct) == 1:
        return distinct[0]
    shown = f"it may be {' or '.join(map(repr, distinct))}" if distinct else "no column of text is left"
    raise _cant(table, f"the question was not found ({shown}): name it with --question COL")


# --- the answer ---


@dataclass(frozen=True, slots=True)
class _Ways:
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


def _letter(value: Any, _: Sequence[Any]) -> int | None:
    said = value.strip().upper() if isinstance(value, str) else ""
    return ascii_uppercase.index(said) if len(said) == 1 and said in ascii_uppercase else None


def _among(value: Any, known: Sequence[Any]) -> int | None:
    words = [str(each) for each in known]
    return words.index(str(value)) if is_text(value) and words.count(str(value)) == 1 else None


def _index(value: Any, _: Sequence[Any]) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, str) and value.strip().isdecimal() else None


def _number(value: Any, known: Sequence[Any]) -> int | None:
    index = _index(value, known)
    return None if index is None else index - 1


WAYS: Mapping[str, Callable[[Any, Sequence[Any]], int | None]] = {
    "letter": _letter, "label": _among, "column": _among, "text": _among, "index": _index, "number": _number,
}  # fmt: skip
"""``answer_is`` -> the place that a value names among a row's options. Of several that fit the first is taken."""


def _answer(table: Table, named: Named, taken: set[str], ways: _Ways) -> tuple[str, dict[str, list[int]]]:
    """The column of the answer, and the ways that fit every row."""
    known = [named.answer] if named.answer else [name for name in table.named(_ANSWER) if name not in taken]
    fits = {name: ways.fitting(table.columns[name], named.answer_is) for name in known}
    fits = {name: found for name, found in fits.items() if found}
    if not fits and not known:
        others = [name for name in table.columns if name not in taken]
        fits = {name: ways.fitting(table.columns[name], named.answer_is) for name in others}
        fits = {name: found for name, found in fits.items() if found}
    if not fits:
        raise _cant(table, _no_answer(table, known, ways))
    readings = {name: set(map(tuple, found.values())) for name, found in fits.items()}
    certain = sorted(readings, key=lambda name: len(readings[name]))[0]  # the one that is read in the fewest ways
    if not all(readings[certain] <= others for others in readings.values()):
        shown = " or ".join(map(repr, fits))
        raise _cant(table, f"the answer may stand in {shown}, and they differ: say which with --answer COL")
    return certain, fits[certain]


def _no_answer(table: Table, known: Sequence[str], ways: _Ways) -> str:
    lines = []
    for name in known:
        values = table.columns[name]
        row, way = max((ways.read(way, values)[1] or 0, way) for way in WAYS)
        lines.append(f"{name} names no option in row {row} ({values[row]!r}; read as {way} up to there)")
    tried = "; ".join(lines) or "no column of a known name (answer, label, target ...), and no other fits every row"
    return (
        f"the answer was not found: {tried}. Looked for a letter, an index from 0, a number from 1, a column's name, "
        "or an option's text in every row: name the column with --answer COL"
    )

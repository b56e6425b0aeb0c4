"""Rows of a table -> where multiple-choice questions, their options and their answers stand.

Every row is held against each way to read it; what fits in two ways that differ is refused, not decided. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from localeval.datasets.answers import is_text
from localeval.datasets.parts import LabelledChoices
from localeval.drafting.answers import ANSWER, Ways, find_answer, refuse_several
from localeval.drafting.table import Table, cant, groups_of, is_texts, plain
from localeval.nearest import nearest
from localeval.templates import places

_QUESTION = (
    "question", "questiontext", "questionstem", "query", "stem", "problem", "prompt", "q", "input", "text", "sentence",
    "ctx",
)  # fmt: skip
_LISTS = ("choices", "options", "choices.text", "options.text", "alternatives", "candidates", "answers", "endings")
_LABELS = ("label", "labels", "key", "letter", "id")
_CONTEXT = ("passage", "florespassage", "context", "article", "paragraph", "premise", "story")
_STEMS = ("option", "choice", "op", "opt", "", "answer", "mcanswer", "ans", "ending", "sol")


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

    options: the fewest and the most of a row. context: the column of what a question is about, which stands before it.
    """

    question: str
    choices: str | tuple[str, ...] | LabelledChoices
    answer: str
    answer_is: str
    options: tuple[int, int]
    groups: tuple[str, ...]
    context: str = ""

    @property
    def used(self) -> list[str]:
        """The columns that a row is read from."""
        return [*([self.context] if self.context else []), self.question, *self.choice_columns, self.answer]

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
            raise cant(table, f"there is no column {name!r}{nearest(name, list(table.columns))}")
    choices = _choices(table, named)
    rows = _options(table, choices)
    labelled = _labelled(table, choices) if isinstance(choices, str) else None
    taken = {choices} if isinstance(choices, str) else set(choices)
    taken |= {f"{labelled.column}.{labelled.label}"} if labelled else set()
    question = named.question or _question(table, taken, named.answer)
    context = "" if named.question else _context(table, taken, question)
    columns = () if isinstance(choices, str) else choices
    labels = table.columns[f"{labelled.column}.{labelled.label}"] if labelled else [()] * len(rows)
    answer, ways = find_answer(table, named.answer, named.answer_is, taken | {question}, Ways(rows, labels, columns))
    way = next(iter(ways))  # those that differ are refused
    refuse_several(table, answer, ways, rows)
    sizes = [len(options) for options in rows]
    used = {question, context, answer, *taken, *table.named(ANSWER)}  # by the answer it would tell nothing
    groups = tuple(groups_of(table, used))
    return Questions(question, labelled or choices, answer, way, (min(sizes), max(sizes)), groups, context)


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
            raise cant(table, f"the options may stand in {shown}: say which with --choices")
    raise cant(
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
        if stem in (*_QUESTION, *_CONTEXT):  # two sentences that are compared are no options
            continue
        for first in ("A", "a", "0", "1"):
            series = [chr(ord(first) + i) for i in range(26)]
            if first.isdecimal():
                series = [str(int(first) + i) for i in range(26)]
            if first in columns and sorted(columns) == sorted(series[: len(columns)]) and len(columns) > 1:
                sets.setdefault(stem, tuple(columns[mark] for mark in series[: len(columns)]))
                _refuse_part(
                    table,
                    sets[stem],
                    plain(columns[first])[: -len(first)] + "".join(series[len(columns) : len(columns) + 1]),
                )
    return sets


def _refuse_part(table: Table, columns: Sequence[str], following: str) -> None:
    """Options that go on in a column which some rows lack: without it those rows would be asked with fewer."""
    more = [name for name in table.partly if plain(name) == plain(following)]
    if more:
        raise cant(
            table,
            f"the options {' '.join(columns)} go on in {more[0]}, which not every row has: give it to every row (null "
            "where there is none), or bring the options into a column of lists",
        )


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
        raise cant(table, f"the options in {choices} have no labels beside them: bring them into a column of lists")
    return LabelledChoices(column=column, text=text, label=known[0])


def _options(table: Table, choices: str | tuple[str, ...]) -> list[list[str]]:
    if isinstance(choices, str):
        values = table.columns[choices]
        for row, value in enumerate(values):
            if not _is_options(value):
                raise cant(table, f"row {row}, column {choices}: {value!r} is no list of 2 to 26 options")
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
    lacking = [name for name in table.partly if plain(name) in _QUESTION]
    if lacking:
        raise cant(table, f"the question may stand in {lacking[0]!r}, which not every row has")
    others = set(table.named((*ANSWER, *_CONTEXT)))
    others |= {name for name in texts if plain(name).endswith(("id", "link", "url"))}
    distinct = [name for name in texts if name not in others and 2 * len(set(table.columns[name])) > table.n]
    if len(distinct) == 1:
        return distinct[0]
    shown = f"it may be {' or '.join(map(repr, distinct))}" if distinct else "no column of text is left"
    raise cant(table, f"the question was not found ({shown}): name it with --question COL")


def _context(table: Table, taken: set[str], question: str) -> str:
    """The column of a passage, without which a question can't be answered; some rows may have an empty one."""
    texts = [
        name
        for name in table.named(_CONTEXT)
        if name not in {*taken, question}
        and any(table.columns[name])
        and all(value is None or isinstance(value, str) for value in table.columns[name])
    ]
    both = [*texts[:1], question]
    return texts[0] if texts and places(question_of(texts[0], question)) == both else ""  # what a template can name


def question_of(context: str, question: str) -> str:
    """``columns.question`` of a dataset: one column, or a text of two."""
    return f"{{{context}}}\n\n{{{question}}}" if context else question

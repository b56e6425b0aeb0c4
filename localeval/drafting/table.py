"""Rows as columns, and what a column may be. Pure; knows nothing about tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from localeval.datasets.answers import is_text
from localeval.schema import LocalevalError

MOST_GROUPS = 60
"""Values of a column, more of which are no groups that a report would be read by."""
LONGEST_GROUP = 60
"""Characters of a group's name."""


@dataclass(frozen=True, slots=True)
class Table:
    """columns: name -> its value in each row; those that every row has. partly: columns that some rows lack.

    A column that holds mappings, or lists of them, is one column for each of their keys, ``choices.text``.
    """

    columns: Mapping[str, Sequence[Any]]
    n: int
    partly: tuple[str, ...] = ()

    def named(self, known: Sequence[str]) -> list[str]:
        """The columns that are called so, in the order of the known names; case, ``_`` and ``-`` are ignored."""
        by_name = {plain(name): name for name in reversed(list(self.columns))}
        return [by_name[name] for name in known if name in by_name]

    def told(self) -> str:
        """What it has, for a message."""
        have = ", ".join(f"{name} ({kind_of(values)})" for name, values in self.columns.items()) or "none"
        return have + (f"; not in every row: {', '.join(self.partly)}" if self.partly else "")


def table_of(rows: Iterable[Mapping[str, Any]]) -> Table:
    """All rows, column by column."""
    columns: dict[str, list[Any]] = {}
    n = 0
    for row in rows:
        n += 1
        for name, value in _flat(row):
            columns.setdefault(name, []).append(value)
    whole = {name: values for name, values in columns.items() if len(values) == n}
    return Table(whole, n, tuple(name for name in columns if name not in whole))


def _flat(row: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", each) for inner, each in value.items())
        elif isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
            keys = dict.fromkeys(key for each in value for key in each)
            yield from ((f"{name}.{key}", [each.get(key) for each in value]) for key in keys)
        else:
            yield str(name), value


def cant(table: Table, why: str) -> LocalevalError:
    """What is not told by the columns, with the columns."""
    return LocalevalError(f"{why}; the columns are: {table.told()}")


def plain(name: str) -> str:
    """A column's name as names are compared: ``Answer_Key`` is ``answerkey``."""
    return re.sub(r"[\s_-]", "", name.casefold())


def is_texts(value: Any) -> bool:
    """Whether a value is a list of such."""
    return isinstance(value, list) and all(map(is_text, value))


def kind_of(values: Sequence[Any]) -> str:
    """What a column holds, in a word."""
    kinds = {type(value).__name__ for value in values if value is not None}
    if kinds == {"list"}:
        inner = {type(each).__name__ for value in values for each in value or ()}
        return f"lists of {_word(inner)}"
    return _word(kinds)


def _word(kinds: set[str]) -> str:
    words = {"str": "text", "int": "whole numbers", "float": "numbers", "bool": "true/false", "NoneType": "nothing"}
    return " or ".join(sorted(words.get(kind, kind) for kind in kinds)) or "nothing"


def groups_of(table: Table, used: Iterable[str]) -> list[str]:
    """Columns with few distinct values, none of them used otherwise: a report by each of these can be read."""
    taken = set(used)
    found = []
    for name, values in table.columns.items():
        if name in taken or "." in name or not all(isinstance(value, (str, int)) for value in values):
            continue
        distinct = {str(value) for value in values}
        short = all(0 < len(value) <= LONGEST_GROUP and "\n" not in value for value in distinct)
        if short and 2 <= len(distinct) <= min(MOST_GROUPS, table.n // 2):
            found.append(name)
    return found

"""A row -> a sample, checked. What can't be right is refused with file, row, column and value.

Knows nothing about files, splits or subsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from string import ascii_uppercase
from typing import Any

from localeval.datasets.answers import WAYS, is_text
from localeval.datasets.parts import Group, LabelledChoices, McqColumns, NerColumns
from localeval.datasets.reading import Row
from localeval.datasets.spec import DatasetSpec, apply_case
from localeval.nearest import nearest
from localeval.schema import LocalevalError, Sample
from localeval.templates import fill

# --- multiple choice ---


def mcq_sample(row: Row, sample_id: str, subset: str, columns: McqColumns, spec: DatasetSpec) -> Sample:
    """A question. Raises LocalevalError for a row that is none."""
    choices = _choices(row, columns)
    if not 2 <= len(choices) <= len(ascii_uppercase):
        raise _wrong(row, ", ".join(columns.choice_columns), list(choices), "expected 2 to 26 options")
    letter = _answer_letter(row, columns, choices)
    return Sample(sample_id, subset, _question(row, columns), (letter,), choices=choices, meta=_meta(row, spec))


def _question(row: Row, columns: McqColumns) -> str:
    if columns.question_columns == [columns.question]:
        return _text(row, columns.question)
    return fill(columns.question, {name: _text(row, name) for name in columns.question_columns})


def _choices(row: Row, columns: McqColumns) -> tuple[str, ...]:
    if isinstance(columns.choices, list):
        return tuple(_text(row, name) for name in columns.choices)
    if isinstance(columns.choices, LabelledChoices):
        return _listed(row, columns.choices, columns.choices.text)
    return _as_texts(row, columns.choices, row.values[columns.choices])


def _listed(row: Row, choices: LabelledChoices, field: str) -> tuple[str, ...]:
    """One field of every option: out of a mapping of lists, or a list of mappings."""
    held = row.values[choices.column]
    options = held if isinstance(held, list) else [held]
    if not all(isinstance(option, dict) and field in option for option in options):
        raise _wrong(row, choices.column, held, f"expected {{{choices.text}: [...], {choices.label}: [...]}}")
    return _as_texts(row, choices.column, [option[field] for option in held] if held is options else held[field])


def _as_texts(row: Row, column: str, values: Any) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise _wrong(row, column, values, "expected a list of options")
    return tuple(_as_text(row, column, value) for value in values)


def _answer_letter(row: Row, columns: McqColumns, choices: Sequence[str]) -> str:
    value = row.values[columns.answer]
    known, expected = _answers(row, columns, choices)
    place = WAYS[columns.answer_is](value, known)
    if place is None or not 0 <= place < len(choices):
        raise _wrong(row, columns.answer, value, f"expected {expected}")
    return ascii_uppercase[place]


def _answers(row: Row, columns: McqColumns, choices: Sequence[str]) -> tuple[Sequence[str], str]:
    """What an answer may be one of, where that is in words; and what it should be, for a message."""
    match columns.answer_is:
        case "column":
            names = columns.choices if isinstance(columns.choices, list) else []
            return names, f"one of {', '.join(names)}"
        case "letter":
            return (), f"one of {', '.join(ascii_uppercase[: len(choices)])}"
        case "index":
            return (), f"a whole number from 0 to {len(choices) - 1}"
        case "number":
            return (), f"a whole number from 1 to {len(choices)}"
        case _:
            labelled = columns.choices if isinstance(columns.choices, LabelledChoices) else None
            labels = _listed(row, labelled, labelled.label) if labelled and columns.answer_is == "label" else choices
            return labels, f"the {columns.answer_is} of exactly one option"


# --- entities ---


class LabelMap:
    """The data's tags -> tags in the dataset's own labels; remembers what it has seen."""

    def __init__(self, spec: DatasetSpec, subset: str, names: Sequence[str] | None) -> None:
        self._case = partial(apply_case, spec.label_case)
        self.spec = spec
        self._known = list(spec.tags_of(subset))
        self._names = names
        self._seen: dict[Any, str] = {}

    def tag(self, value: Any, row: Row, column: str) -> str:
        """Raises LocalevalError for a tag of no known label."""
        if isinstance(value, (str, int)) and not isinstance(value, bool) and value in self._seen:
            return self._seen[value]
        name = value
        if isinstance(value, int) and not isinstance(value, bool):
            if self._names is None:
                raise _wrong(row, column, value, "a number, and neither the file nor the YAML (tag_names) names it")
            if not 0 <= value < len(self._names):
                raise _wrong(row, column, value, f"expected a number from 0 to {len(self._names) - 1}")
            name = self._names[value]
        if not isinstance(name, str):
            raise _wrong(row, column, value, "expected a tag such as 'B-PER'")
        prefix, _, label = name.partition("-")
        tag = name if name == "O" else f"{prefix}-{self._case(label)}"
        if tag != "O" and (prefix not in ("B", "I") or self._case(label) not in self._known):
            hint = nearest(self._case(label), self._known)
            raise _wrong(row, column, name, f"expected O, or B- or I- and one of {', '.join(self._known)}{hint}")
        self._seen[value] = tag
        return tag


def ner_sample(row: Row, sample_id: str, subset: str, columns: NerColumns, labels: LabelMap) -> Sample:
    """A sentence. Raises LocalevalError for a row that is none, and for tags that are not IOB2."""
    tokens, values = row.values[columns.tokens], row.values[columns.tags]
    for name, value in ((columns.tokens, tokens), (columns.tags, values)):
        if not isinstance(value, list):
            raise _wrong(row, name, value, "expected a list")
    if not tokens:
        raise _wrong(row, columns.tokens, tokens, "a sentence without tokens")
    if len(tokens) != len(values):
        raise _wrong(row, columns.tags, values, f"{len(values)} tags for {len(tokens)} tokens")
    for token in tokens:
        if not isinstance(token, str) or not token.strip():
            raise _wrong(row, columns.tokens, token, "expected tokens that are text and not empty")
    tags = tuple(labels.tag(value, row, columns.tags) for value in values)
    before = "O"
    for index, tag in enumerate(tags):
        if tag[0] == "I" and before[1:] != tag[1:]:
            raise _wrong(
                row,
                columns.tags,
                tag,
                f"token {index} ({tokens[index]!r}) goes on with an entity that did not begin; "
                f"tags are IOB2: the first of each entity is B{tag[1:]}",
            )
        before = tag
    return Sample(sample_id, subset, " ".join(tokens), tags, tokens=tuple(tokens), meta=_meta(row, labels.spec))


# --- both ---


def _meta(row: Row, spec: DatasetSpec) -> dict[str, str]:
    return {name: _group(row, group) for name, group in spec.groups.items()}


def _group(row: Row, group: str | Group) -> str:
    if isinstance(group, str):
        return str(row.values[group])
    value = str(row.values[group.column])
    if value not in group.of_value:
        raise _wrong(row, group.column, value, f"the YAML file (groups) puts it into none of {', '.join(group.parts)}")
    return group.of_value[value]


def _text(row: Row, column: str) -> str:
    return _as_text(row, column, row.values[column])


def _as_text(row: Row, column: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if is_text(value):
        return str(value)
    raise _wrong(row, column, value, "expected text")


def _wrong(row: Row, column: str, value: Any, why: str) -> LocalevalError:
    shown = repr(value)
    return LocalevalError(f"{row.place}, column {column}: {shown if len(shown) <= 200 else shown[:200] + '...'}: {why}")

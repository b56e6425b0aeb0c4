"""The parts of a dataset's YAML file: columns, entity types, groups, what differs by subset, what is published.

Each is checked by itself here; ``spec.py`` puts them together.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Literal

from pydantic import Field, field_validator, model_validator

from localeval import templates
from localeval.reply import REASONING_TAGS
from localeval.strict import Strict


def check_inside(what: str, path: str) -> None:
    """Raises ValueError for a relative path that leads out of its folder, or that no file can have."""
    if not path or path.startswith("/") or ".." in path.split("/") or re.search(r"[\\\x00-\x1f\x7f]", path):
        raise ValueError(
            f"{what} {path!r} must stay inside its folder: no '..', no backslash, no beginning '/' (rows that lie "
            "elsewhere are named with --dataset-dir)"
        )


def check_files(files: str) -> None:
    """Raises ValueError for a pattern of file names with a place that nothing fills, or one that leads elsewhere."""
    if files:
        check_inside("files", files)
        templates.check("files", files, {"subset", "split"}, set())


# --- where a row keeps what ---


class LabelledChoices(Strict):
    """Options with labels of their own, in one column: a mapping of two lists, or a list of mappings."""

    column: str
    text: str
    label: str


class McqColumns(Strict):
    """Where a multiple-choice row keeps its parts.

    question: a column, or a text of several: ``"{passage} {question}"``. choices: a column each, or one column that
    holds a list, or one that holds texts and labels.
    """

    question: str
    choices: list[str] | str | LabelledChoices
    answer: str
    answer_is: Literal["column", "letter", "index", "number", "text", "label"]
    """column: the name of the right option's column; letter: ``B``; index: from 0; number: from 1; text: its text;
    label: the row's own label of it."""

    @model_validator(mode="after")
    def _labels_are_there(self) -> McqColumns:
        if self.answer_is == "label" and not isinstance(self.choices, LabelledChoices):
            raise ValueError("answer_is: label needs labels: choices: {column: ..., text: ..., label: ...}")
        return self

    @cached_property
    def question_columns(self) -> list[str]:
        """The columns that make a question."""
        return templates.places(self.question) or [self.question]

    @cached_property
    def choice_columns(self) -> list[str]:
        """The columns that hold the options."""
        if isinstance(self.choices, LabelledChoices):
            return [self.choices.column]
        return [self.choices] if isinstance(self.choices, str) else self.choices


class NerColumns(Strict):
    """Where an entity row keeps its parts: lists of equal length. tag_names: needed where tags are whole numbers."""

    tokens: str = "tokens"
    tags: str = "ner_tags"
    tag_names: list[str] | None = None


class Conll(Strict):
    """Which column of a CoNLL or BIO file holds what; negative numbers count from the right."""

    token: int = 0
    tag: int = -1


# --- what is asked ---


class Entity(Strict):
    """label: as the report names it. tag: as the prompt names it. description: as the prompt explains it."""

    label: str
    tag: str
    description: str

    @field_validator("label", "tag")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if not re.fullmatch(r"[^\s<>/`]+", value):
            raise ValueError(f"{value!r} is no name (white space, '<', '>', '/' and '`' can't stand in a tag)")
        if value.casefold() == "response" or any(f"<{value.casefold()}>" == tags.open for tags in REASONING_TAGS):
            raise ValueError(
                f"{value!r} is taken: replies stand in <response>, and reasoning in <think>, <thought> and the like"
            )
        return value


def check_entities(entities: list[Entity]) -> None:
    """Raises ValueError where two types share a label or a tag."""
    labels = [entity.label for entity in entities]
    tags = [entity.tag.lower() for entity in entities]
    if len(set(labels)) < len(labels) or len(set(tags)) < len(tags):
        raise ValueError("entities: two of them share a label or a tag")


class OfSubset(Strict):
    """What one subset has of its own; what it leaves out is the dataset's."""

    files: str = ""
    prompt: str = ""
    entities: list[Entity] = []


class Group(Strict):
    """A column's values, several to a group. parts: the group's name in the report -> the values."""

    column: str
    parts: dict[str, list[str]]

    @cached_property
    def of_value(self) -> dict[str, str]:
        """Value -> the group's name."""
        return {value: name for name, values in self.parts.items() for value in values}

    @model_validator(mode="after")
    def _once_each(self) -> Group:
        if sum(map(len, self.parts.values())) > len(self.of_value):
            raise ValueError("parts: a value stands in two of them, or twice")
        return self


# --- what is known of it ---


class Published(Strict):
    """What others have counted, to hold the data at hand against. source: who, and where.

    shots: with how many the prompts were measured. prompts: subset, ``all``, or ``each`` for every subset ->
    ``[prompts]``, or ``[prompts, mean, least, most]`` with the characters of the user's message. entities: label -> how
    many are in the split that is asked.
    """

    source: str
    shots: int | None = Field(default=None, ge=0)
    prompts: dict[str, tuple[int] | tuple[int, float, int, int]] = {}
    entities: dict[str, int] = {}

    @model_validator(mode="after")
    def _says_of_what(self) -> Published:
        if self.shots is None and any(len(figures) > 1 for figures in self.prompts.values()):
            raise ValueError("shots is missing: with how many the prompts were measured")
        return self

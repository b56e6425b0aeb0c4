"""What was found of some rows -> the YAML file that defines them as a dataset, with a comment to each key. Pure.

Values are written by a YAML library, so that any column name and label is read back as it was; the rest is a template.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from localeval.datasets.parts import LabelledChoices
from localeval.drafting.entities import Sentences, Type
from localeval.drafting.questions import Questions, question_of
from localeval.templates import Templates


@dataclass(frozen=True, slots=True)
class Place:
    """Where the rows are. command: what wrote the file. folder: relative to it. stem: of the file of rows."""

    command: str
    folder: str
    stem: str
    suffix: str


_ANSWER_IS = {
    "letter": "the right option's letter, A for the first",
    "label": "the row's own label of the right option",
    "column": "the name of the right option's column",
    "text": "the right option's own text",
    "index": "the right option's number, 0 for the first",
    "number": "the right option's number, 1 for the first",
}

_HEAD = """\
# Written by {command}
# docs/datasets.md describes every key. Edit what you like: an unknown key or place is an error that names the nearest.
task: {task}  # mcq: one letter of several; ner: entities in a sentence
title: ""  # one line for the list of datasets

# The rows: {file}. path: its folder, seen from this file.
path: {folder}
files: "{{split}}{suffix}"  # this one, where others of the same name stand beside it
split: {stem}  # the name of the file of rows, without its ending
shots: 0  # examples before each question: the first rows of `shots_split`, another file beside this one
shots_split: train  # train{suffix}
"""

_GROUPS = """
# The result is also reported for each value of these columns (name in the report: column).
groups: {groups}
"""

_MCQ = """
columns:
  question: {question}
  choices: {choices}  # {choices_note}
  answer: {answer}
  # {answer_note}
  answer_is: {answer_is}  # letter, index (from 0), number (from 1), column, text, or label
{groups}
# The user's message. {{letters}} is A,B,C,D, as many as a row has options; {{choices}} is one line an option: A) text
prompt: |-
{prompt}
# One example, and how examples and prompt stand together: needed only where there are shots.
shot: |-
{shot}
shots_prompt: |-
{shots_prompt}
"""

_NER = """
{where}{groups}
# The types of entities. label: as the data has it. tag: as prompt and reply name it. description: a part of the prompt.
{describe}
entities:
{entities}

# The user's message. {{entities}} is: tag (description), ...; {{entity_list}} is <tag>, ...; {{text}} is the sentence
prompt: |
  You are a named entity recognition system that identifies the following entity types:
  {{entities}}

  Process the provided text and mark all named entities with XML-style tags, such as <{tag}>...</{tag}>.

  Available entity tags: {{entity_list}}

  INSTRUCTIONS:
  1. Wrap your entire response in <response>...</response> tags.
  2. Inside these tags, include the original text with entity tags inserted.
  3. Do not change the original text in any way (preserve spacing, punctuation, case, etc.).
  4. Tag ALL entities you can identify using the exact tag names provided.
  5. Do not include explanations, just the tagged text.
  6. Ensure every opening tag has a matching closing tag.

  Text to process:
  {{text}}
# One example, and how examples and prompt stand together: needed only where there are shots.
shot: |-
  Input:
  {{text}}

  Output:
  {{target}}
shots_prompt: |-
  Here are some examples of named entity recognition:

  {{shots}}

  {{prompt}}
"""


def definition(place: Place, found: Questions | Sentences, asked: Templates) -> str:
    """The whole file. asked: how questions are asked."""
    head = _HEAD.format(
        command=_comment(place.command),
        task="mcq" if isinstance(found, Questions) else "ner",
        file=_comment(place.stem + place.suffix),
        folder=_value(place.folder),
        stem=_value(place.stem),
        suffix=place.suffix,
    )
    return head + (_questions(found, asked) if isinstance(found, Questions) else _sentences(found))


def _value(of: Any) -> str:
    """A value as YAML in one line."""
    text: str = yaml.safe_dump([of], default_flow_style=True, allow_unicode=True, width=2**20, sort_keys=False)
    return text.strip()[1:-1]


def _comment(text: str) -> str:
    return " ".join(text.splitlines())


def _questions(found: Questions, asked: Templates) -> str:
    fewest, most = found.options
    many = f"{most}" if fewest == most else f"{fewest} to {most}"
    if isinstance(found.choices, LabelledChoices):
        choices, note = _value(found.choices.model_dump()), "one column that holds texts and labels"
    elif isinstance(found.choices, str):
        choices, note = _value(found.choices), "one column that holds a list"
    else:
        choices, note = _value(list(found.choices)), "a column each"
    return _MCQ.format(
        question=json.dumps(question_of(found.context, found.question)) if found.context else _value(found.question),
        choices=choices,
        choices_note=f"{note}; {many} options",
        answer=_value(found.answer),
        answer_note=f"It holds {_ANSWER_IS[found.answer_is]}, in every row.",
        answer_is=found.answer_is,
        groups=_groups(found.groups),
        **{name: _block(getattr(asked, name)) for name in ("prompt", "shot", "shots_prompt")},
    )


def _block(text: str) -> str:
    return textwrap.indent(text, "  ", lambda _: True)


def _groups(columns: Sequence[str]) -> str:
    return _GROUPS.format(groups=_value({name: name for name in columns})) if columns else ""


def _sentences(found: Sentences) -> str:
    unknown = [each.label for each in found.types if not each.told]
    describe = (
        f"# Say what these are: {_comment(', '.join(unknown))}." if unknown else "# Say it as your data means it."
    )
    return _NER.format(
        where=_where(found),
        groups=_groups(found.groups),
        describe=describe,
        entities="\n".join(map(_entity, found.types)),
        tag=found.types[0].tag,
    )


def _where(found: Sentences) -> str:
    if found.conll is not None:
        token, tag = found.conll.token, found.conll.tag
        note = "# which column of a line holds what, from 0; negative numbers count from the right"
        return f"conll: {{token: {token}, tag: {tag}}}  {note}\n"
    columns: dict[str, Any] = {"tokens": found.tokens, "tags": found.tags}
    lines = "".join(f"  {name}: {_value(column)}\n" for name, column in columns.items())
    named = f"  tag_names: {_value(list(found.tag_names))}  # of the numbers, from 0 on\n" if found.tag_names else ""
    return f"columns:\n{lines}{named}"


def _entity(each: Type) -> str:
    return f"  - {_value({'label': each.label, 'tag': each.tag, 'description': each.description})}"

"""Named entities: a reply -> one IOB2 tag a token, from the part of the reply that repeats the sentence best."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from localeval.reply import MOST_READ, Tags, shortened, without_reasoning
from localeval.schema import Invented
from localeval.spans import tags_from_spans
from localeval.tasks.ner.alignment import project
from localeval.tasks.ner.copies import Copy, best_copy
from localeval.tasks.ner.letters import Sentence, bare, sentence_of
from localeval.tasks.ner.lists import (
    items_of,
    json_in,
    looks_like_json,
    names_types,
    only_tagged,
    spans_of,
    strings_in,
    types_beside,
)
from localeval.tasks.ner.marks import Kind, Marked, label_of, mark, names_of, tags_of_words

Reason = Literal["reasoning", "other_format", "other_text", "cut", "empty"]
"""Why a reply gives no tags: it never left its reasoning, lists entities in another form, says other things, was cut
before it could be read, or says nothing."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reply says. tags: IOB2, one a token, or None with the reason.

    invented: entities of which no character stands in the sentence. malformed: tags that were dropped or mended.
    text_changed: whether the sentence was repeated with changes, white space aside.
    """

    tags: list[str] | None
    invented: tuple[Invented, ...] = ()
    malformed: int = 0
    text_changed: bool = False
    reason: Reason | None = None


def tags_from_reply(
    reply: str, tokens: Sequence[str], entities: Mapping[str, str], finish_reason: str = "stop"
) -> list[str]:
    """Return the IOB2 tags, one a token, that a reply gives to a sentence; all ``O`` if it can't be read.

    tokens: the sentence's tokens. entities: label -> tag name, as ``{"PER": "person"}``. A reply that was cut is read
    as far as it goes.
    """
    return read(reply, tokens, entities, finish_reason).tags or ["O"] * len(tokens)


def read(
    reply: str,
    tokens: Sequence[str],
    entities: Mapping[str, str],
    finish_reason: str = "stop",
    reasoning_opened: bool = False,
    reasoning_tags: Sequence[Tags] = (),
    *,
    lists: bool = False,
) -> Reading:
    """Read a reply to a prompt that may have opened the reasoning itself, with the model's own ``reasoning_tags``.

    lists: read also a list of names with their types, if each name stands in the sentence once.
    """
    answer = without_reasoning(reply, reasoning_opened, reasoning_tags)
    if answer is None or (not answer.strip() and reply.strip()):
        return Reading(None, reason="reasoning")
    sentence, names = sentence_of(tuple(tokens)), names_of(tuple(entities.items()))
    most = max(MOST_READ, 4 * len(sentence.text))
    lists = lists and len(answer) <= most  # of a longer one, names in the middle would be missing
    answer = tags_of_words(_undressed(shortened(answer, most), sentence.text), sentence)
    cut = finish_reason == "length"
    reading = _read_copy(answer, sentence, names, cut)
    if reading.tags is None and (lists or (not cut and only_tagged(answer, names))):
        items = items_of(answer, names)
        spans = spans_of(items, sentence) if items or _is_empty(json_in(answer)) else None
        if spans is not None:
            return Reading(tags_from_spans(spans, len(tokens)), text_changed=True)
    return reading


_FENCE = re.compile(r"^[ \t]*```[^\n`]*$\n?", re.MULTILINE)
_BOLD = ("```", "**", "__", "*", "`")


def _undressed(answer: str, sentence: str) -> str:
    """Return an answer without code fences and Markdown's marks for bold and code, if the sentence has none."""
    if "```" not in sentence:
        answer = _FENCE.sub("", answer)
    for dress in _BOLD:
        if dress not in sentence:
            answer = answer.replace(dress, "")
    return answer


def _is_empty(values: Sequence[object]) -> bool:
    return bool(values) and not strings_in(values)


def _read_copy(answer: str, sentence: Sentence, names: Mapping[str, str], cut: bool) -> Reading:
    """Read the best copy of the sentence in an answer."""
    values = json_in(answer) if answer.lstrip().startswith(("{", "[")) else []
    marked = mark("\n".join(strings_in(values)) or answer, names, sentence)
    copy = best_copy(marked, sentence, cut)
    if copy is None:
        return Reading(None, reason=_reason(answer, marked, sentence, names, cut))
    if not copy.spans:
        rest = answer if values else _without(copy, marked, sentence, names)
        if names_types(items_of(rest, names), rest, sentence) or _has_types_beside(copy, marked, answer, names):
            return Reading(None, reason="other_format")
    spans = project(copy.stretch, copy.spans, sentence.places(copy.ours), copy.theirs)
    said = bare(copy.theirs.written(copy.stretch.start, copy.stretch.end)).text
    wanted = sentence.bare.text if copy.stretch.whole else sentence.bare.text[: len(said)]
    changed = said != wanted or bool(copy.invented)
    return Reading(tags_from_spans(spans, len(sentence.tokens)), copy.invented, copy.malformed, changed)


def _without(copy: Copy, marked: Marked, sentence: Sentence, names: Mapping[str, str]) -> str:
    """Return a reply with one word in place of its copy of the sentence; as it is, if the copy has changes.

    The sentence may look like a list ("Location : Munich"); the word keeps "Germany: location" one.
    """
    if copy.stretch.similarity < 1:
        return marked.text
    word = next((token for token in sentence.tokens if token.isalnum() and not label_of(token, names)), "")
    origin = copy.theirs.origin
    return marked.text[: origin[copy.stretch.start]] + word + marked.text[origin[copy.stretch.end - 1] + 1 :]


def _has_types_beside(copy: Copy, marked: Marked, answer: str, names: Mapping[str, str]) -> bool:
    """Return whether types stand beside their names: "Ann <person> left", or "Ann (person) left"."""
    after = (marked.text[each.at : each.at + 1] for each in copy.marks if each.kind is Kind.START)
    if any(not character.strip() for character in after):
        return True
    return copy.stretch.similarity < 1 and types_beside(answer, names)


def _reason(answer: str, marked: Marked, sentence: Sentence, names: Mapping[str, str], cut: bool) -> Reason:
    """Return why an answer without a copy of the sentence is not read."""
    items = items_of(answer, names)
    if items or looks_like_json(answer) or names_types(items, answer, sentence) or types_beside(answer, names):
        return "other_format"
    if cut:
        return "cut"
    return "other_text" if any(map(str.isalnum, marked.text)) else "empty"

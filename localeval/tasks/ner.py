"""Named entities: how a sentence is asked, how a tagged reply is read, how a reading is scored.

Pure functions; knows nothing about engines, files or the dataset's format. Tags are strict IOB2.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from localeval.alignment import folded, most_letters, project
from localeval.grammar import CLOSE, OPEN, TaggedSentence
from localeval.reply import Tags, without_reasoning
from localeval.schema import Invented, Sample, Score, Tally
from localeval.spans import (
    TaggedText,
    read_tagged_text,
    spans_from_tags,
    tagged_text,
    tags_from_spans,
    without_tags,
)
from localeval.templates import Templates, fill

SIMILAR_ENOUGH = 0.7
"""A reply's text less like the sentence than this (normalised Indel similarity) is not a reading of it."""


@dataclass(frozen=True, slots=True)
class EntityType:
    """label: as data and report name it. tag: as prompt and reply name it. description: as the prompt explains it."""

    label: str
    tag: str
    description: str


# --- asking ---


def ask(sample: Sample, shots: Sequence[Sample], templates: Templates, types: Sequence[EntityType]) -> str:
    """The user's message: the instruction and the sentence, after the examples if there are any."""
    values = {
        "entities": ", ".join(f"{kind.tag} ({kind.description})" for kind in types),
        "entity_list": ", ".join(f"<{kind.tag}>" for kind in types),
        "text": sample.text,
    }
    prompt = fill(templates.prompt, values)
    if not shots:
        return prompt
    entities = {kind.label: kind.tag for kind in types}
    examples = "\n\n".join(
        fill(templates.shot, {"text": shot.text, "target": target(shot, entities)}) for shot in shots
    )
    return fill(templates.shots_prompt, {"shots": examples, "prompt": prompt})


def target(sample: Sample, entities: Mapping[str, str]) -> str:
    """The reply that is exactly right: the sentence with its gold tags, in ``<response>``."""
    return f"{OPEN}{tagged_text(sample.tokens, spans_from_tags(sample.gold), entities)}{CLOSE}"


def constraint(sample: Sample, entities: Mapping[str, str], after_reasoning: bool) -> TaggedSentence:
    """What a constrained reply may be: the sentence, with whole tokens tagged."""
    return TaggedSentence(sample.tokens, tuple(entities.values()), after_reasoning)


def stop_of(sample: Sample) -> tuple[str, ...]:
    """The string that ends a reply; none where the sentence itself holds it."""
    return () if CLOSE in sample.text else (CLOSE,)


# --- reading ---


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reply says. tags: IOB2, one a token, or None where the reply is no reading of the sentence.

    invented: entities of which no character stands in the sentence. reason: why ``tags`` is None.
    """

    tags: list[str] | None
    invented: tuple[Invented, ...] = ()
    malformed: int = 0
    text_changed: bool = False
    reason: str | None = None


_RESPONSE = re.compile(r"<\s*+(/?)\s*+response(?:\s[^<>]*)?>", re.IGNORECASE)
_FENCE = re.compile(r"^[ \t]*```[^\n`]*$\n?", re.MULTILINE)


def read(
    reply: str,
    tokens: Sequence[str],
    entities: Mapping[str, str],
    reasoning_opened: bool = False,
    reasoning_tags: Sequence[Tags] = (),
    *,
    lists: bool = False,
) -> Reading:
    """Reads the tagged sentence out of a reply.

    entities: label -> tag name; both are understood in a tag, in any case. reasoning_tags: as in
    ``without_reasoning``.
    """
    answer = without_reasoning(reply, reasoning_opened, reasoning_tags)
    if answer is None:
        return Reading(None, reason="reasoning")
    sentence = " ".join(tokens)
    if "```" in answer and "```" not in sentence:
        answer = _FENCE.sub("", answer).replace("```", "")
    labels = {label.lower(): label for label in entities} | {tag.lower(): label for label, tag in entities.items()}
    chosen = _most_similar(_candidates(answer, sentence), labels, sentence)
    if chosen is None:
        return Reading(None, reason="other_text")
    tagged, closed = chosen
    projection = project(tagged.text, tagged.spans, tokens)
    return Reading(
        tags_from_spans(projection.spans, len(tokens)),
        tuple(Invented(span.label, tagged.text[span.start : span.end].strip()) for span in projection.invented),
        tagged.malformed,
        not _same_text(tagged.text, sentence, closed),
    )


def _candidates(answer: str, sentence: str) -> list[tuple[str, bool]]:
    """The parts of a reply that may be the tagged sentence, in order, each with whether its end tag stands."""
    marks = list(_RESPONSE.finditer(answer))
    starts = [mark for mark in marks if not mark[1]]
    if not starts:
        return [(answer, True)]
    if _RESPONSE.search(sentence):  # the tags are part of the sentence: only the outermost ones are ours
        ends = [mark for mark in marks if mark[1]]
        return [(answer[starts[0].end() : ends[-1].start() if ends else None], bool(ends))]
    found = []
    start: int | None = None
    for mark in marks:
        if not mark[1]:
            start = mark.end()
        elif start is not None:
            found.append((answer[start : mark.start()], True))
            start = None
    if start is not None:
        found.append((answer[start:], False))
    return found


def _most_similar(
    candidates: Sequence[tuple[str, bool]], labels: Mapping[str, str], sentence: str
) -> tuple[TaggedText, bool] | None:
    """The last candidate that says the sentence, else the most similar one (the later of two), if similar enough."""
    whole = folded(sentence)
    best: tuple[TaggedText, bool] | None = None
    best_similarity = 0.0
    for marked, closed in reversed(candidates):
        if _too_long_or_short(marked, closed, len(whole)):
            continue
        tagged = read_tagged_text(marked, labels, sentence)
        if len(candidates) == 1 and _same_text(tagged.text, sentence, closed):
            return (tagged, closed) if tagged.text.strip() else None  # nearly every reply ends here
        similarity = _similarity(tagged.text, whole, closed)
        if similarity >= SIMILAR_ENOUGH and similarity > best_similarity:
            best, best_similarity = (tagged, closed), similarity
        if best_similarity == 1.0:
            break
    return best


def _similarity(text: str, whole: str, closed: bool) -> float:
    from rapidfuzz.distance import Indel

    letters = folded(text)
    if not letters:
        return 0.0
    return Indel.normalized_similarity(letters, whole if closed else whole[: len(letters)])


def _too_long_or_short(marked: str, closed: bool, letters: int) -> bool:
    """Whether a candidate can't be similar to a sentence of so many letters, for the number of its own alone."""
    if closed and most_letters(marked) < letters * SIMILAR_ENOUGH / (2 - SIMILAR_ENOUGH) - 1:
        return True
    most = letters * (2 - SIMILAR_ENOUGH) / SIMILAR_ENOUGH + 1
    beginning = _up_to(marked, 64 * int(most))  # enough of nearly every reply that is too long
    return any(len(one) > 2 * most and len(folded(without_tags(one))) > most for one in (beginning, marked))


def _up_to(marked: str, most: int) -> str:
    """The beginning of a text, so many characters at most; no tag and no HTML entity is cut."""
    text = marked[:most]
    opens = [at for at, end in ((text.rfind("<"), text.rfind(">")), (text.rfind("&"), text.rfind(";"))) if at > end]
    return text[: min(opens, default=len(text))]


def _same_text(text: str, sentence: str, closed: bool) -> bool:
    """Equal but for white space; a reply that was never closed need only be the sentence's beginning."""
    ours, theirs = "".join(sentence.split()), "".join(text.split())
    return theirs == (ours if closed else ours[: len(theirs)])


def tags_from_reply(
    reply: str, tokens: Sequence[str], entities: Mapping[str, str], finish_reason: str = "stop"
) -> list[str]:
    """IOB2 tags, one a token, that a reply gives to a sentence; all ``O`` where it can't be read.

    tokens: the sentence's tokens. entities: label -> tag name, as ``{"PER": "person"}``. finish_reason is taken for
    symmetry with ``parse_choice``: a reply that was cut is read like any other, as far as it goes.
    """
    return read(reply, tokens, entities).tags or ["O"] * len(tokens)


# --- scoring ---


def score(sample: Sample, reading: Reading, entities: Mapping[str, str], finish_reason: str = "stop") -> Score:
    """Entity tallies by label (``entity:PER``) and a ``token`` tally.

    A reply that can't be read finds no entity and has every token wrong; an invented entity counts as predicted.
    """
    gold = set(spans_from_tags(sample.gold))
    predicted = set(spans_from_tags(reading.tags)) if reading.tags is not None else set()
    in_both = Counter(span.label for span in gold & predicted)
    in_reply = Counter([span.label for span in predicted] + [each.label for each in reading.invented])
    in_gold = Counter(span.label for span in gold)
    tallies = {
        f"entity:{label}": Tally(in_both[label], in_reply[label], in_gold[label])
        for label in entities
        if label in in_reply or label in in_gold
    }
    right = sum(a == b for a, b in zip(sample.gold, reading.tags or (), strict=False))
    tallies["token"] = Tally(right, len(reading.tags or ()), len(sample.gold))
    notes = {
        "unparsed": int(reading.tags is None),
        "truncated": int(finish_reason == "length"),
        "malformed": reading.malformed,
        "text_changed": int(reading.text_changed),
        "invented": len(reading.invented),
    }
    parsed = None if reading.tags is None else " ".join(reading.tags)
    counted = {name: count for name, count in notes.items() if count}
    return Score(sample.id, parsed, tallies, counted, invented=reading.invented, unparsed_reason=reading.reason)

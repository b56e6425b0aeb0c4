"""A reply's text beside its sentence, letter by letter: which stretch repeats it, and to which tokens entities go.

Use it when the tags are out of the text (``marks.py``). Letters are those of ``letters.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from localeval.schema import Span
from localeval.tasks.ner.letters import Letters, Sentence

SIMILAR_ENOUGH = 0.7
"""A text less like the sentence than this (normalised Indel similarity) is not a copy of it."""
_MOST_TRIED = 8
"""So many lines, those most like the sentence, are aligned with it."""
_LINE = re.compile(r"[^\n]+")

Counterpart = Sequence[int | None]
"""For each letter of the sentence, the letter of the reply that stands for it, or None."""


class Part(NamedTuple):
    """Letters of a reply among which the sentence may stand: the first and the end.

    cut: whether they may end within the sentence. block: whether they stand in ``<response>``.
    """

    first: int
    last: int
    cut: bool
    block: bool


@dataclass(frozen=True, slots=True)
class Stretch:
    """A copy of the sentence among a reply's letters. start, end: where; similarity: how alike the two are.

    line: the similarity of all that stands beside it, too. whole: not only a beginning of the sentence.
    """

    start: int
    end: int
    counterpart: Counterpart
    similarity: float = 1.0
    line: float = 1.0
    whole: bool = True


# --- which stretch ---


def equal_stretches(wanted: str, letters: Letters, part: Part) -> Iterator[Stretch]:
    """Find the stretches of a part that are exactly the sentence's letters, and end no word halfway."""
    at = letters.text.find(wanted, part.first, part.last) if wanted else -1
    while at >= 0:
        after = at + len(wanted)
        whole_words = not letters.joined(at - 1) and not letters.joined(after - 1)
        if whole_words:
            yield Stretch(at, after, range(at, after))
        at = letters.text.find(wanted, after if whole_words else at + 1, part.last)


def similar_stretches(sentence: Sentence, letters: Letters, parts: Sequence[Part]) -> Iterator[tuple[Stretch, Part]]:
    """Find the stretches that are like the sentence: one in each part, and one in each line of it."""
    from rapidfuzz.distance import Indel

    wanted = sentence.folded.text
    first_word = sentence.places(sentence.folded)[0]
    for low, high, part in _pieces(wanted, letters, parts):
        words, starts = _words(letters, *_window(wanted, letters, low, high))
        counterpart = _counterparts(sentence, letters, words, starts)
        first, last = _core(counterpart, starts)
        kept = [at if at is not None and first <= at < last else None for at in counterpart]
        similarity = Indel.normalized_similarity(wanted, letters.text[first:last])
        if similarity >= SIMILAR_ENOUGH:
            line = Indel.normalized_similarity(wanted, letters.text[low:high])
            yield Stretch(first, last, kept, similarity, line), part
        elif part.cut and high == part.last and first < last and None not in kept[: first_word.stop]:
            said = wanted[: 1 + max(n for n, at in enumerate(kept) if at is not None)]
            similarity = Indel.normalized_similarity(said, letters.text[first:high])
            if similarity >= SIMILAR_ENOUGH:
                yield Stretch(first, high, kept, similarity, similarity, whole=False), part


def _pieces(wanted: str, letters: Letters, parts: Sequence[Part]) -> list[tuple[int, int, Part]]:
    """Return where to look: the parts and their lines that are most like the sentence; of a cut one, the last line."""
    from rapidfuzz import fuzz, process

    pieces: list[tuple[int, int, Part]] = []
    cut: list[tuple[int, int, Part]] = []
    for part in parts:
        start, end = letters.origin[part.first], letters.origin[part.last - 1] + 1
        lines = [(start, end), *(line.span() for line in _LINE.finditer(letters.source, start, end))]
        spans = ((letters.before(low), letters.before(high)) for low, high in lines if 8 * (high - low) > len(wanted))
        pieces += [(low, high, part) for low, high in dict.fromkeys(spans) if 2 * (high - low) > len(wanted)]
        if part.cut:
            last_line = letters.before(letters.source.rfind("\n", 0, end) + 1)
            cut += [(low, part.last, part) for low in {part.first, max(part.first, last_line)}]
    if len(pieces) > _MOST_TRIED:
        said = [letters.text[low:high] for low, high, _ in reversed(pieces)]  # of equal ones, the later
        best = process.extract(wanted, said, scorer=fuzz.partial_ratio, limit=_MOST_TRIED)
        pieces = [pieces[-1 - index] for _, _, index in best]
    return [*pieces, *(piece for piece in cut if piece not in pieces)]


def _window(wanted: str, letters: Letters, start: int, end: int) -> tuple[int, int]:
    """Return the part of a long piece that is most like the sentence, with as much again on both sides."""
    from rapidfuzz import fuzz

    if end - start <= 4 * len(wanted):
        return start, end
    place = fuzz.partial_ratio_alignment(wanted, letters.text[start:end])
    if place is None:
        return start, start
    margin = len(wanted)
    return max(start, start + place.dest_start - margin), min(end, start + place.dest_end + margin)


def _core(counterpart: Counterpart, starts: Sequence[int]) -> tuple[int, int]:
    """Return the run of words with the most in common with the sentence: the maximum sum, a letter at a time.

    A stretch is similar enough when twice its letters in common outweigh 0.7 times all of its own and the sentence's.
    """
    common = {at for at in counterpart if at is not None}
    best = total = 0.0
    core = (0, 0)
    first = starts[0]
    for start, end in pairwise(starts):
        if total <= 0:
            total, first = 0.0, start
        total += 2 * sum(at in common for at in range(start, end)) - SIMILAR_ENOUGH * (end - start)
        if total > best:
            best, core = total, (first, end)
    return core


# --- letter by letter ---


def _counterparts(sentence: Sentence, letters: Letters, theirs: Sequence[str], starts: Sequence[int]) -> Counterpart:
    """Align words first, then, if words differ, letters: letters alone would tear a word apart to save one edit."""
    from rapidfuzz.distance import Indel

    ours, our_starts = _words(sentence.folded, 0, len(sentence.folded.text))
    counterpart: list[int | None] = [None] * len(sentence.folded.text)
    after_ours = after_theirs = 0
    equal = [
        (step.src_start, step.src_end, step.dest_start) for step in Indel.opcodes(ours, theirs) if step.tag == "equal"
    ]
    for first, last, other in [*equal, (len(ours), len(ours), len(theirs))]:
        a1, a2, b1, b2 = our_starts[after_ours], our_starts[first], starts[after_theirs], starts[other]
        for step in Indel.opcodes(sentence.folded.text[a1:a2], letters.text[b1:b2]):
            if step.tag == "equal":
                there = b1 + step.dest_start
                counterpart[a1 + step.src_start : a1 + step.src_end] = range(
                    there, there + step.src_end - step.src_start
                )
        _forget_coincidences(counterpart, range(a1, a2), starts[after_theirs : other + 1])
        after_ours, after_theirs = last, other + last - first
        counterpart[a2 : our_starts[last]] = range(b2, starts[after_theirs])
    return counterpart


def _forget_coincidences(counterpart: list[int | None], ours: range, starts: Sequence[int]) -> None:
    """Let go of a reply's word of which no more than half stands in the sentence: "Yemen" is not in "Syria"."""
    letter_of = {at: letter for letter in ours if (at := counterpart[letter]) is not None}
    for start, end in pairwise(starts):
        common = [letter_of[at] for at in range(start, end) if at in letter_of]
        if 2 * len(common) <= end - start:
            for letter in common:
                counterpart[letter] = None


def _words(letters: Letters, start: int, end: int) -> tuple[list[str], list[int]]:
    """Return the words among some letters, and where each begins, with the end as a last entry."""
    starts = [at for at in range(start, end) if at == start or not letters.joined(at - 1)] + [end]
    return [letters.text[a:b] for a, b in pairwise(starts)], starts


# --- entities over letters -> entities over tokens ---


def project(stretch: Stretch, spans: Sequence[Span], places: Sequence[range], letters: Letters) -> list[Span]:
    """Carry entities from a reply's letters over to the tokens of its sentence.

    places: each token's letters. A token belongs to an entity when more than half of its letters do; one that the
    reply changed or left out belongs to none, and splits the entity around it.
    """
    owner = {
        at: number
        for number, span in enumerate(spans)
        for at in range(max(span.start, stretch.start), min(span.end, stretch.end))
    }
    found: list[Span] = []
    before: int | None = None
    for token, place in enumerate(places):
        number = _owner(place, stretch.counterpart, owner, letters)
        if number is not None and number == before:
            found[-1] = Span(found[-1].label, found[-1].start, token + 1)
        elif number is not None:
            found.append(Span(spans[number].label, token, token + 1))
        before = number
    return found


def _owner(place: range, counterpart: Counterpart, owner: Mapping[int, int], letters: Letters) -> int | None:
    """Return which entity holds more than half of a token; None for none, and for a changed or missing token."""
    there = [at for at in counterpart[place.start : place.stop] if at is not None]
    if not there or len(there) < len(place) or there[-1] - there[0] != len(there) - 1:
        return None
    owners = [owner.get(at) for at in there]
    number = max(set(owners), key=owners.count)
    if number is None or 2 * owners.count(number) <= len(there):
        return None
    before = counterpart[place.start - 1] if place.start else None
    after = counterpart[place.stop] if place.stop < len(counterpart) else None
    first, last = there[0], there[-1]
    if (before != first - 1 and letters.joined(first - 1)) or (after != last + 1 and letters.joined(last)):
        return None  # a letter more: another word
    return number

"""Carries entities from a reply's text over to its sentence's tokens, also where the two texts differ. Pure.

Three coordinate systems meet here and are always named: *tokens* (the sentence's), *letters* (characters that are not
white space, folded so that case, Unicode form, HTML entities and quote style do not matter), and *characters* of a
string as it stands.
"""

from __future__ import annotations

import html
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from localeval.schema import Span

if TYPE_CHECKING:
    from rapidfuzz.distance import Opcode

# --- folding ---

_LONGEST_FOLDED = 18
"""The most letters that one character is folded to (U+FDFA)."""

_QUOTES = str.maketrans({**dict.fromkeys("‘’‚‛", "'"), **dict.fromkeys("“”„‟", '"')})
# No name and no number of a character is longer; int() takes no number of more than 4,300 digits.
_HTML_ENTITY = re.compile(r"&(?:#\d{1,32}|#[xX][0-9a-fA-F]{1,32}|[A-Za-z][A-Za-z0-9]{0,63});")
_NOT_SPACE = re.compile(r"\S+")


@lru_cache(maxsize=65536)
def _fold_character(character: str) -> str:
    # Decomposed, not composed: folding one character at a time must not depend on its neighbours.
    folded = unicodedata.normalize("NFKD", character.translate(_QUOTES)).casefold()
    return "".join(unicodedata.normalize("NFKD", folded).split())


@dataclass(frozen=True, slots=True)
class Letters:
    """A text folded to its letters; ``origin[i]`` is the character of the text that letter i comes from."""

    text: str
    origin: Sequence[int]


def fold(text: str) -> Letters:
    """Lower case, compatibility forms, HTML entities undone, straight quotes, no white space; with origins."""
    letters: list[str] = []
    origin: list[int] = []

    def take(character: str, position: int) -> None:
        for letter in _fold_character(character):
            letters.append(letter)
            origin.append(position)

    for piece in _NOT_SPACE.finditer(text):
        position = piece.start()
        while position < piece.end():
            entity = _HTML_ENTITY.match(text, position) if text[position] == "&" else None
            if entity:
                for character in html.unescape(entity.group()):
                    take(character, position)
                position = entity.end()
            else:
                take(text[position], position)
                position += 1
    return Letters("".join(letters), origin)


def folded(text: str) -> str:
    """The letters of ``fold``, without their origins: a long text is folded several times as fast."""
    if "&" in text:
        text = _HTML_ENTITY.sub(lambda entity: html.unescape(entity.group()), text)
    if text.isascii():
        return "".join(text.lower().split())
    return text.translate({ord(character): _fold_character(character) for character in set(text)})


def most_letters(text: str) -> int:
    """No more letters than so many are in a text when it is folded."""
    return len(text) if text.isascii() else _LONGEST_FOLDED * len(text)


# --- alignment: spans over a reply's characters -> spans over the sentence's tokens ---


@dataclass(frozen=True, slots=True)
class Projection:
    """spans: over tokens. invented: those, over the reply's characters, of which none stands in the sentence."""

    spans: tuple[Span, ...]
    invented: tuple[Span, ...]


def project(text: str, spans: Sequence[Span], tokens: Sequence[str]) -> Projection:
    """Carries the spans of a reply over to the tokens of its sentence.

    Reply and sentence are walked together, white space ignored. A token belongs to a span when more than half of its
    letters do; a token that the reply changed or left out belongs to none, and splits the span around it.
    """
    if not spans:
        return Projection((), ())
    reply = "".join(text.split())
    if reply == "".join("".join(tokens).split()):
        places = _letters_before(text, sorted({place for span in spans for place in (span.start, span.end)}))
        return _project_equal([Span(span.label, places[span.start], places[span.end]) for span in spans], tokens)
    return _project_changed(text, spans, tokens)


def _letters_before(text: str, places: Sequence[int]) -> dict[int, int]:
    """How many characters before each of some ascending places are not white space."""
    found = {}
    last = count = 0
    for place in places:
        count += len("".join(text[last:place].split()))
        found[place], last = count, place
    return found


def _project_equal(spans: Sequence[Span], tokens: Sequence[str]) -> Projection:
    """The spans are over the letters of the sentence itself: one walk, no search."""
    result = []
    index, start = 0, 0  # token and its first letter
    lengths = [len("".join(token.split())) for token in tokens]
    for span in spans:
        while index < len(tokens) and start + lengths[index] <= span.start:
            start += lengths[index]
            index += 1
        first = None
        while index < len(tokens) and start < span.end:
            inside = min(span.end, start + lengths[index]) - max(span.start, start)
            if 2 * inside > lengths[index]:
                first = index if first is None else first
                after = index + 1
            if start + lengths[index] > span.end:
                break
            start += lengths[index]
            index += 1
        if first is not None:
            result.append(Span(span.label, first, after))
    return Projection(tuple(result), ())


def _project_changed(text: str, tagged: Sequence[Span], tokens: Sequence[str]) -> Projection:
    reply = fold(text)
    sentence_text = " ".join(tokens)
    sentence = fold(sentence_text)
    counterpart = _counterparts(sentence, sentence_text, reply, text)
    found = {place for place in counterpart if place is not None}

    # Which span each letter of the reply lies in; -1 for none.
    owner = [-1] * len(reply.text)
    invented = []
    for number, span in enumerate(tagged):
        letters = range(bisect_left(reply.origin, span.start), bisect_left(reply.origin, span.end))
        for letter in letters:
            owner[letter] = number
        if not any(letter in found for letter in letters):
            invented.append(span)

    owners = [_owner_of_token(letters, counterpart, owner, reply, text) for letters in _by_token(sentence, tokens)]
    spans: list[Span] = []
    for index, number in enumerate(owners):
        if number < 0:
            continue
        label = tagged[number].label
        if spans and index and owners[index - 1] == number:
            spans[-1] = Span(label, spans[-1].start, index + 1)
        else:
            spans.append(Span(label, index, index + 1))
    return Projection(tuple(spans), tuple(invented))


def _by_token(sentence: Letters, tokens: Sequence[str]) -> list[list[int]]:
    """For each token, its letters' places in the folded sentence (the tokens joined by one space)."""
    letters: list[list[int]] = [[] for _ in tokens]
    token, end = 0, len(tokens[0]) if tokens else 0
    for letter, position in enumerate(sentence.origin):
        while position >= end:
            token += 1
            end += 1 + len(tokens[token])
        letters[token].append(letter)
    return letters


def _owner_of_token(
    letters: list[int], counterpart: list[int | None], owner: list[int], reply: Letters, text: str
) -> int:
    """The span that holds more than half of a token, or -1: for no such span, and for a changed or missing token."""
    places = [place for letter in letters if (place := counterpart[letter]) is not None]
    if not letters or len(places) < len(letters) or places[-1] - places[0] != len(places) - 1:
        return -1
    if _glued(places[0], -1, counterpart, letters[0], reply, text):
        return -1
    if _glued(places[-1], +1, counterpart, letters[-1], reply, text):
        return -1
    number = max(set(spans := [owner[place] for place in places]), key=spans.count)
    return number if 2 * spans.count(number) > len(letters) else -1


def _glued(place: int, step: int, counterpart: list[int | None], letter: int, reply: Letters, text: str) -> bool:
    """Whether the reply has a letter of its own right beside this one, so that the word is another ("Syrian")."""
    beside = place + step
    if not 0 <= beside < len(reply.text):
        return False
    other = letter + step
    if 0 <= other < len(counterpart) and counterpart[other] == beside:
        return False  # it is the sentence's own neighbour
    a, b = sorted((reply.origin[place], reply.origin[beside]))
    return b - a <= 1 and _in_word(text[a]) and _in_word(text[b])


@lru_cache(maxsize=65536)
def _in_word(character: str) -> bool:
    """Letters, digits, and the marks and joiners that Indic words are made of."""
    return unicodedata.category(character)[0] in "LNM" or character in "\u200c\u200d"


def _counterparts(sentence: Letters, sentence_text: str, reply: Letters, reply_text: str) -> list[int | None]:
    """For each letter of the sentence, the letter of the reply that stands for it, or None.

    Words are aligned first, then, where the words differ, letters: an edit script over letters alone may tear a word
    apart to save one edit.
    """
    from rapidfuzz.distance import Indel

    counterpart: list[int | None] = [None] * len(sentence.text)
    if sentence.text == reply.text:
        return list(range(len(sentence.text)))
    ours, our_starts = _words(sentence, sentence_text)
    theirs, their_starts = _words(reply, reply_text)
    for i1, i2, j1, j2, equal in _blocks(Indel.opcodes(ours, theirs)):
        a1, a2, b1, b2 = our_starts[i1], our_starts[i2], their_starts[j1], their_starts[j2]
        if equal:
            counterpart[a1:a2] = range(b1, b2)
        else:
            for step in Indel.opcodes(sentence.text[a1:a2], reply.text[b1:b2]):
                if step.tag == "equal":
                    here, there = a1 + step.src_start, b1 + step.dest_start
                    for offset in range(step.src_end - step.src_start):
                        counterpart[here + offset] = there + offset
            _forget_coincidences(counterpart, (a1, a2), their_starts[j1 : j2 + 1])
    return counterpart


def _forget_coincidences(counterpart: list[int | None], ours: tuple[int, int], word_starts: Sequence[int]) -> None:
    """Lets go of a reply's word of which no more than half stands in the sentence: "Yemen" is not in "Syria".

    ours: the letters of the sentence in question. word_starts: of the reply's words there, and the end of the last.
    """
    place_of = {place: letter for letter in range(*ours) if (place := counterpart[letter]) is not None}
    for start, end in pairwise(word_starts):
        common = [place_of[place] for place in range(start, end) if place in place_of]
        if 2 * len(common) <= end - start:
            for letter in common:
                counterpart[letter] = None


def _words(letters: Letters, text: str) -> tuple[list[str], list[int]]:
    """The folded words of a text, and where each begins among its letters (with the end as a last entry)."""
    starts = []
    for letter, at in enumerate(letters.origin):
        before = letters.origin[letter - 1] if letter else -1
        # A word goes on where this letter's character stands beside the last one's, and both belong in words.
        goes_on = at == before or (at == before + 1 and letter > 0 and _in_word(text[before]) and _in_word(text[at]))
        if not goes_on:
            starts.append(letter)
    ends = [*starts[1:], len(letters.text)]
    return [letters.text[a:b] for a, b in zip(starts, ends, strict=True)], [*starts, len(letters.text)]


def _blocks(steps: Iterable[Opcode]) -> list[tuple[int, int, int, int, bool]]:
    """An edit script as blocks: neighbouring insertions and deletions become one block that differs."""
    blocks: list[tuple[int, int, int, int, bool]] = []
    for step in steps:
        equal = step.tag == "equal"
        if not equal and blocks and not blocks[-1][4]:
            start, _, other, _, _ = blocks[-1]
            blocks[-1] = (start, step.src_end, other, step.dest_end, False)
        else:
            blocks.append((step.src_start, step.src_end, step.dest_start, step.dest_end, equal))
    return blocks

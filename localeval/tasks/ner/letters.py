"""Texts without what a model may change in a copy: white space, and when folded also case, accents, quotes, dashes."""

from __future__ import annotations

import html
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

_SAME_LETTERS = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛`´′", "'"),
        **dict.fromkeys('"“”„‟«»″', "''"),
        **dict.fromkeys("‐‑‒–—―−⁃", "-"),
        "⁄": "/",
        **dict(zip("øłđıħ", "oldih", strict=True)),
        # What is said with a joiner in old texts is one character in new ones; joiners are dropped.
        **dict(zip("ൺൻർൽൾൿৎ", ("ണ്", "ന്", "ര്", "ല്", "ള്", "ക്", "ত্"), strict=True)),
    }
)
_DROPPED = re.compile(
    r"[\s\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
"""White space, marks of Latin, Greek, Cyrillic, Hebrew and Arabic letters, variation selectors. Indic signs stay."""
_LONGEST = 4
"""A character that stands for more letters, as U+FDFA does for 18, is kept as it is."""

# No name and no number of a character is longer; int() takes no number of more than 4,300 digits.
_PIECE = re.compile(r"&(?:#\d{1,32}|#[xX][0-9a-fA-F]{1,32}|[A-Za-z][A-Za-z0-9]{0,63});|\S")


@dataclass(frozen=True, slots=True)
class Letters:
    """What is compared of a text, its source; ``origin[i]`` is the character there from which letter i comes."""

    text: str
    origin: Sequence[int]
    source: str

    def before(self, character: int) -> int:
        """Return how many letters come from before a character of the source."""
        return bisect_left(self.origin, character)

    def written(self, start: int, end: int) -> str:
        """Return the source of some letters."""
        return self.source[self.origin[start] : self.origin[end - 1] + 1] if start < end else ""

    def around(self, start: int, end: int) -> tuple[int, int]:
        """Return between which characters some letters stand alone: after the letter before, before the one after."""
        before = self.origin[start - 1] + 1 if start else 0
        return before, self.origin[end] if end < len(self.origin) else len(self.source)

    def joined(self, at: int) -> bool:
        """Return whether a letter and the next one are of one word."""
        if not 0 <= at < len(self.text) - 1:
            return False
        one, other = self.origin[at], self.origin[at + 1]
        return one == other or all(map(in_word, self.source[one : other + 1]))


def bare(text: str) -> Letters:
    """Return the characters of a text that are no white space."""
    return Letters("".join(text.split()), [at for at, character in enumerate(text) if not character.isspace()], text)


def fold(text: str) -> Letters:
    """Return the letters of a text that matter: a copy with other accents, case, quotes or dashes has the same."""
    pieces = [(piece.start(), _fold(piece.group())) for piece in _PIECE.finditer(text)]
    return Letters("".join(folded for _, folded in pieces), [at for at, folded in pieces for _ in folded], text)


@lru_cache(maxsize=16384)
def _fold(piece: str) -> str:
    return "".join(map(_fold_character, html.unescape(piece)))


def _fold_character(character: str) -> str:
    # Decomposed, not composed: folding one character at a time must not depend on its neighbours.
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", character).casefold())
    if len(folded) > _LONGEST:
        return character
    return "".join(x for x in _DROPPED.sub("", folded.translate(_SAME_LETTERS)) if unicodedata.category(x) != "Cf")


@lru_cache(maxsize=65536)
def in_word(character: str) -> bool:
    """Whether a character is one of letters, digits, and the marks and joiners that Indic words are made of."""
    return unicodedata.category(character)[0] in "LNM" or character in "\u200c\u200d"


@dataclass(frozen=True, slots=True)
class Sentence:
    """The sentence that a reply repeats: its tokens, joined by one space."""

    tokens: tuple[str, ...]
    text: str
    bare: Letters
    folded: Letters

    def places(self, letters: Letters) -> list[range]:
        """Return for each token which of the sentence's letters are its own."""
        ends = list(accumulate((len(token) + 1 for token in self.tokens), initial=0))
        edges = [letters.before(end) for end in ends]
        return [range(start, end) for start, end in pairwise(edges)]


@lru_cache(maxsize=64)
def sentence_of(tokens: tuple[str, ...]) -> Sentence:
    """Return a sentence with its letters."""
    text = " ".join(tokens)
    return Sentence(tokens, text, bare(text), fold(text))

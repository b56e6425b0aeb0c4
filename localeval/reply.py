"""What is done to every reply before its task reads it. Pure functions on text; knows nothing about tasks."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

_THINK_START = re.compile(r"<think>", re.IGNORECASE)
_REASONING = re.compile(r"(?s:.*)</think>", re.IGNORECASE)

MOST_READ = 16_384
"""So many characters of an answer are read at the most: of a longer one, its first and its last half of them."""
_WORD_AT_END, _WORD_AT_START = re.compile(r"\S{1,64}\Z"), re.compile(r"\S{1,64}")
_LONG = 1_000
_LIGATURES, _MOST_LIGATURES = ("\ufdfa", "\ufdfb"), 1_000
"""Characters that are 18 and 8 letters, and in how many of each these are told apart."""
_MANY_MARKS = re.compile(rb"[^\0][^\0]{29}")
"""By combining class, so many marks on one letter as are kept together: UAX #15, section 13 (stream-safe text)."""


def without_reasoning(reply: str, reasoning_opened: bool = False) -> str | None:
    """The part of a reply after its reasoning, or None where the reasoning never ended.

    Everything up to the last ``</think>`` is reasoning, whether or not a ``<think>`` opened it: many chat templates put
    the opening tag into the prompt (``reasoning_opened``), and then a reply without an end tag is reasoning throughout.
    """
    reasoning = _REASONING.match(reply)
    if reasoning is None and reasoning_opened:
        return None
    rest = reply[reasoning.end() :] if reasoning else reply
    return None if _THINK_START.search(rest) else rest


def shortened(answer: str) -> str:
    """Return what is read of an answer; no word is cut in two, but for one of more than 64 characters."""
    if len(answer) <= MOST_READ:
        return answer
    half = MOST_READ // 2
    return _WORD_AT_END.sub("", answer[:half]) + "\n" + _WORD_AT_START.sub("", answer[-half:], count=1)


def composed(text: str) -> str:
    """A text's compatibility composition (NFKC), in time that grows with its length.

    Thousands of the two longest ligatures become U+FFFD. Putting many marks of one letter into order takes the square
    of their number, so that a long text is cut after each 30 of them by a character of its own (U+034F), as Unicode
    advises.
    """
    if len(text) > _LONG and not unicodedata.is_normalized("NFKC", text):
        for ligature in _LIGATURES:
            if text.count(ligature) > _MOST_LIGATURES:
                text = text.replace(ligature, "\ufffd")
        classes = bytes(map(unicodedata.combining, text))
        cuts = [0, *(marks.end() for marks in _MANY_MARKS.finditer(classes)), len(text)]
        text = "\u034f".join(text[start:end] for start, end in pairwise(cuts))
    return unicodedata.normalize("NFKC", text)

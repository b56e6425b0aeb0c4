"""How a row's answer names one of its options: by a letter, by a number, or in words. Pure.

Knows nothing about rows and files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from string import ascii_uppercase
from typing import Any


def is_text(value: Any) -> bool:
    """Whether a value can be shown as it is: text or a number."""
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


def _letter(value: Any, _: Sequence[Any]) -> int | None:
    said = value.strip().upper() if isinstance(value, str) else ""
    return ascii_uppercase.index(said) if len(said) == 1 and said in ascii_uppercase else None


def _among(value: Any, known: Sequence[Any]) -> int | None:
    words = [str(each) for each in known]
    return words.index(str(value)) if is_text(value) and words.count(str(value)) == 1 else None


def _index(value: Any, _: Sequence[Any]) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, str) and value.strip().isdecimal() else None  # CSV knows only text


def _number(value: Any, known: Sequence[Any]) -> int | None:
    index = _index(value, known)
    return None if index is None else index - 1


WAYS: Mapping[str, Callable[[Any, Sequence[Any]], int | None]] = {
    "letter": _letter, "label": _among, "column": _among, "text": _among, "index": _index, "number": _number,
}  # fmt: skip
"""``answer_is`` -> a function of a value, and of what it is one of (the options' columns, texts or labels), that gives
the option's place, from 0. It may lie outside the row's options; None for a value that names none."""

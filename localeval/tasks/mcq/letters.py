"""The letters of a row's options."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase


def letters_of(choices: Sequence[str]) -> str:
    """The letters of a row: ``ABCD`` for four options. Raises ValueError for fewer than 2 or more than 26."""
    if not 2 <= len(choices) <= len(ascii_uppercase):
        raise ValueError(f"a question has 2 to 26 options, not {len(choices)}")
    return ascii_uppercase[: len(choices)]

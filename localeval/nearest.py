"""The right name that a wrong one was meant for. Knows nothing about what is named."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)``, or nothing where no known name is like it."""
    by_fold = {name.casefold(): name for name in known}
    close = difflib.get_close_matches(word.casefold(), by_fold, n=1)
    return f" (did you mean {by_fold[close[0]]!r}?)" if close else ""

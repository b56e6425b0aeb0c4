"""Text of strangers on a terminal: what would steer it, or turn the order of the text, is shown, not obeyed."""

from __future__ import annotations

import os
import re
import sys
from typing import TextIO

# C0 but for the newline, DEL, C1, and what embeds or overrides a direction. Joiners stay: Indic scripts need them.
_STEERING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """The text with control characters as escapes (``x1b`` after a backslash); a newline stays one."""
    return _STEERING.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def tell(text: str, file: TextIO | None = None) -> None:
    """Prints a text, to the standard output unless it is said. Nothing of localeval prints in another way.

    Raises OSError where the standard output takes no more. A standard error that takes no more is no reason to stop:
    no result is there, and what can't be said is not said.
    """
    try:
        print(visible(text), file=file, flush=True)
    except OSError as error:
        if file is None or file is not sys.stderr:
            error.filename = error.filename or "standard output"
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())

"""What is done to every reply before its task reads it. Pure functions on text; knows nothing about tasks."""

from __future__ import annotations

import re

_THINK_START = re.compile(r"<think>", re.IGNORECASE)
_THINK_END = re.compile(r"</think>", re.IGNORECASE)


def without_reasoning(reply: str, reasoning_opened: bool = False) -> str | None:
    """The part of a reply after its reasoning, or None where the reasoning never ended.

    Everything up to the last ``</think>`` is reasoning, whether or not a ``<think>`` opened it: many chat templates put
    the opening tag into the prompt (``reasoning_opened``), and then a reply without an end tag is reasoning throughout.
    """
    end = 0
    for match in _THINK_END.finditer(reply):
        end = match.end()
    if end == 0 and reasoning_opened:
        return None
    rest = reply[end:]
    return None if _THINK_START.search(rest) else rest

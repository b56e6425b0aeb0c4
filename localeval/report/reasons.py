"""Why a reply could not be read, in words: the one table that reports, pages and comparisons take them from. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """name: as readers and files have it. tasks: those that know it. short: after a count. words: what happened."""

    name: str
    tasks: tuple[str, ...]
    short: str
    words: str


_BOTH = ("mcq", "ner")
REASONS = {
    reason.name: reason
    for reason in (
        Reason("reasoning", _BOTH, "still reasoning", "the reply never left its reasoning"),
        Reason("cut", _BOTH, "cut", "the reply was cut before it answered"),
        Reason("several", ("mcq",), "several answers", "the reply gives two or more answers at once"),
        Reason("refused", ("mcq",), "refused", "the reply declines to answer"),
        Reason("no_claim", ("mcq",), "no answer", "the reply gives no answer"),
        Reason("other_format", ("ner",), "other format", "the reply is a list, JSON or BIO tags, not the sentence"),
        Reason("other_text", ("ner",), "other text", "the reply says another text than the sentence"),
        Reason("empty", ("ner",), "empty", "the reply is empty"),
    )
}
"""By name, in the order in which reports have them."""


def reasons_of(task: str) -> list[Reason]:
    """The reasons that a task's replies can have."""
    return [reason for reason in REASONS.values() if task in reason.tasks]


def most_first(unparsed: Mapping[str, int]) -> list[tuple[Reason, int]]:
    """Those that occur, each with its count. unparsed: by name, as a report has it."""
    found = [(REASONS[name], count) for name, count in unparsed.items() if count]
    return sorted(found, key=lambda each: -each[1])


def why_text(unparsed: Mapping[str, int]) -> str:
    """``40 cut, 15 several answers``; empty where every reply was read, or no reason is known."""
    return ", ".join(f"{count:,} {reason.short}" for reason, count in most_first(unparsed))

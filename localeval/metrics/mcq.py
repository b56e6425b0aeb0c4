"""Accuracy of multiple-choice answers, from tallies. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from localeval.metrics.intervals import wilson
from localeval.schema import Estimate, Group, Score, Tally


def accuracy(scores: Sequence[Score]) -> Estimate:
    """Right answers over all questions (an answer that can't be read is wrong), with its Wilson interval."""
    total = sum((score.tallies["answer"] for score in scores), Tally())
    return wilson(total.correct, total.gold)


def group(scores: Sequence[Score]) -> Group:
    """The accuracy of some of the samples."""
    return Group(len(scores), {"accuracy": accuracy(scores)})


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of what is defined; None where nothing is."""
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else None

"""Scores against training steps, as values. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from localeval.report.build import HEADLINE
from localeval.schema import Estimate, title_of


@dataclass(frozen=True, slots=True)
class Point:
    """One metric of one checkpoint over the rows of one subset.

    series: the training run; empty where there is one or none. checkpoint: as tables call it.
    step: None for a model that is no checkpoint of a run, such as the base model: a horizontal line in the charts.
    dataset: with its mode, as ``milu, logprob``. subset: empty for all rows together. n: samples.
    low, high: the 95% interval.
    """

    series: str
    checkpoint: str
    step: int | None
    dataset: str
    subset: str
    metric: str
    n: int
    value: float | None
    low: float | None
    high: float | None

    @property
    def estimate(self) -> Estimate:
        return Estimate(self.value, self.low, self.high)


def points_of(report: Mapping[str, Any], series: str, checkpoint: str, step: int | None) -> Iterator[Point]:
    """The metric that names a result, over all rows and by subset. report: the content of report.json."""
    subsets = report["subsets"] if len(report["subsets"]) > 1 else {}
    metric = HEADLINE[report["task"]]
    for subset, part in {"": report, **subsets}.items():
        yield Point(
            series=series,
            checkpoint=checkpoint,
            step=step,
            dataset=title_of(report["dataset"], report["mode"]),
            subset=subset,
            metric=metric,
            n=part["n"],
            **part["metrics"][metric],
        )


def ordered(points: Iterable[Point]) -> list[Point]:
    """Line by line, in the order in which datasets, metrics, subsets and runs come; what has no step, then by step."""
    points = list(points)
    line = attrgetter("dataset", "metric", "subset", "series")
    names = [list(dict.fromkeys(["", *column])) for column in zip(*map(line, points), strict=True)]
    rank = [{name: place for place, name in enumerate(column)} for column in names]
    return sorted(points, key=lambda p: (*map(dict.__getitem__, rank, line(p)), -1 if p.step is None else p.step))


def grouped(points: Iterable[Point]) -> list[list[Point]]:
    """What is drawn together: the points of one dataset and metric."""
    return [list(group) for _, group in groupby(ordered(points), key=attrgetter("dataset", "metric"))]

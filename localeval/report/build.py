"""Scores -> a Report, and a Report -> report.json. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from localeval.metrics import mcq, ner
from localeval.schema import Group, Report, Sample, Score

MCQ_COUNTS = ("unparsed", "truncated")
NER_COUNTS = ("unparsed", "truncated", "malformed", "text_changed", "invented")
ALL_COUNTS = (*NER_COUNTS, "constraint_violations", "reused")
"""What report.json always has; null where a task has no such thing."""


def build_report(
    *,
    dataset: str,
    model: str,
    task: str,
    samples: Sequence[Sample],
    scores: Sequence[Score],
    subsets: Sequence[str],
    group_names: Sequence[str],
    labels: Sequence[str],
    limited: bool,
    comparable: bool,
    reused: int,
    notes: Sequence[str] = (),
) -> Report:
    """Samples and scores: one each, in one order. subsets: also those without samples. labels: entity types."""
    grouped = mcq.group if task == "mcq" else ner.group
    by_subset = _split(samples, scores, lambda sample: sample.subset, subsets)
    overall = grouped(scores)
    subset_groups = {name: overall if len(part) == len(scores) else grouped(part) for name, part in by_subset.items()}
    types = ner.by_type(scores, labels) if task == "ner" else {}
    total: Counter[str] = Counter()
    for score in scores:
        total.update(score.notes)
    over = subset_groups if task == "mcq" else types
    counts = {name: total[name] for name in (MCQ_COUNTS if task == "mcq" else NER_COUNTS)}
    names = ("accuracy",) if task == "mcq" else ("precision", "recall", "f1")
    return Report(
        dataset=dataset,
        model=model,
        task=task,
        n=len(samples),
        limited=limited,
        comparable=comparable,
        metrics=overall.metrics,
        macro_over="subsets" if task == "mcq" else "types",
        macro={name: mcq.mean(group.metrics[name].value for group in over.values()) for name in names},
        subsets=subset_groups,
        groups={name: _groups(samples, scores, name, grouped) for name in group_names},
        types=types,
        counts={**counts, "reused": reused},
        notes=tuple(notes),
    )


def _split(
    samples: Sequence[Sample], scores: Sequence[Score], key: Callable[[Sample], str], names: Sequence[str] = ()
) -> dict[str, list[Score]]:
    parts: dict[str, list[Score]] = {name: [] for name in names}
    for sample, score in zip(samples, scores, strict=True):
        parts.setdefault(key(sample), []).append(score)
    return parts


def _groups(
    samples: Sequence[Sample], scores: Sequence[Score], name: str, grouped: Callable[[Sequence[Score]], Group]
) -> dict[str, Group]:
    parts = _split(samples, scores, lambda sample: sample.meta[name])
    return {value: grouped(parts[value]) for value in sorted(parts)}


def report_json(report: Report) -> dict[str, Any]:
    """The report as plain values; null for what is not defined."""
    value = asdict(report)
    value["macro"] = {"over": value.pop("macro_over"), **value["macro"]}
    value["notes"] = list(value["notes"])
    value["counts"] = {name: report.counts.get(name) for name in ALL_COUNTS}
    return value


def headline(report: Report) -> str:
    """The metric that names the result: accuracy (MCQ) or f1 (NER)."""
    return "accuracy" if report.task == "mcq" else "f1"


def counts_of(report: Report) -> Mapping[str, int]:
    """What stands beside the metrics."""
    return {name: count for name, count in report.counts.items() if name != "reused"}

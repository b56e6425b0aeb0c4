"""Scores -> a Report, and a Report -> report.json. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from string import ascii_uppercase
from typing import Any

from localeval.metrics import mcq, ner
from localeval.report.reasons import reasons_of
from localeval.schema import Forced, Group, Mode, Report, Sample, Score

COUNTS: dict[tuple[str, Mode], tuple[str, ...]] = {
    ("mcq", "generate"): ("unparsed", "truncated", "label_mismatch"),
    ("mcq", "constrained"): ("unparsed", "truncated", "constraint_violations"),
    ("mcq", "logprob"): (),
    ("mcq", "cloze"): (),
    ("ner", "generate"): ("unparsed", "truncated", "malformed", "text_changed", "invented"),
    ("ner", "constrained"): (
        "unparsed", "truncated", "malformed", "text_changed", "invented", "constraint_violations",
    ),
}  # fmt: skip
"""By task and mode: what is counted beside the metrics."""
OF_SAMPLES = (
    "unparsed", "truncated", "label_mismatch", "malformed", "text_changed", "invented", "constraint_violations",
)  # fmt: skip
"""All that is counted of samples, in order."""
ALL_COUNTS = (*OF_SAMPLES, "reused")
"""What report.json always has; null where a task has no such thing."""
HEADLINE = {"mcq": "accuracy", "ner": "f1"}
"""The metric that names a result."""
MACRO = {"mcq": ("accuracy",), "ner": ("precision", "recall", "f1")}


NOT_CONSTRAINED = "NOT CONSTRAINED"
READING = 2
"""The version of the rules by which replies are read and scored: raised where the same reply may give another number.
Results that were read by other rules are not compared."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a report says of its run beside the scores. subsets: also those without samples. labels: entity types.

    forced: whether unread replies were asked once more.
    """

    dataset: str
    model: str
    task: str
    mode: Mode
    subsets: Sequence[str]
    group_names: Sequence[str]
    labels: Sequence[str]
    limited: bool
    comparable: bool
    reused: int
    notes: tuple[str, ...] = ()
    forced: bool = False


def build_report(asked: Asked, samples: Sequence[Sample], scores: Sequence[Score]) -> Report:
    """Samples and scores: one each, in one order."""
    is_mcq = asked.task == "mcq"
    grouped = partial(mcq.group, mode=asked.mode) if is_mcq else ner.group
    by_subset = _split(samples, scores, lambda sample: sample.subset, asked.subsets)
    overall = grouped(scores)
    subset_groups = {name: overall if len(part) == len(scores) else grouped(part) for name, part in by_subset.items()}
    types = {} if is_mcq else ner.by_type(scores, asked.labels)
    total: Counter[str] = Counter()
    for score in scores:
        total.update(score.notes)
    over = subset_groups if is_mcq else types
    return Report(
        dataset=asked.dataset,
        model=asked.model,
        task=asked.task,
        mode=asked.mode,
        n=len(samples),
        limited=asked.limited,
        comparable=asked.comparable,
        metrics=overall.metrics,
        macro_over="subsets" if is_mcq else "types",
        macro={name: mean_of(group.metrics[name].value for group in over.values()) for name in MACRO[asked.task]},
        subsets=subset_groups,
        groups={name: _groups(samples, scores, name, grouped) for name in asked.group_names},
        types=types,
        letters=mcq.by_letter(scores, ascii_uppercase[: max((len(sample.choices) for sample in samples), default=0)]),
        reliability=mcq.reliability(scores) if asked.mode == "logprob" else (),
        counts={**{name: total[name] for name in COUNTS[asked.task, asked.mode]}, "reused": asked.reused},
        notes=(*asked.notes, *_broken(scores), *(_without_forced(scores) if asked.forced else ())),
        confusion=mcq.confusion(scores) if is_mcq else ner.confusion((s.gold for s in samples), scores),
        forced=_forced(scores, by_subset.values()) if asked.forced else None,
        unparsed=_unparsed(scores, asked.task) if "unparsed" in COUNTS[asked.task, asked.mode] else {},
    )


def _forced(scores: Sequence[Score], subsets: Iterable[Sequence[Score]]) -> Forced:
    return Forced(
        n=sum(score.forced is not None for score in scores),
        correct=sum(map(mcq.forced_right, scores)),
        accuracy=mcq.with_forced(scores),
        macro=mean_of(mcq.with_forced(part).value for part in subsets),
    )


def _without_forced(scores: Sequence[Score]) -> list[str]:
    """A reply that was read before, and is not by the rules of now, has never been asked."""
    count = sum(score.parsed is None and score.forced is None for score in scores)
    return [f"{count:,} unread replies have no forced answer yet: run the command again"] if count else []


def _unparsed(scores: Sequence[Score], task: str) -> dict[str, int]:
    """By reason how many replies could not be read. Raises ValueError for one without a reason that the task has."""
    found = Counter(score.unparsed_reason for score in scores if score.notes.get("unparsed"))
    counts = {reason.name: found.pop(reason.name, 0) for reason in reasons_of(task)}
    if found:
        raise ValueError(f"{task}: replies are unread without a known reason: {dict(found)}")
    return counts


def mean_of(values: Iterable[float | None]) -> float | None:
    """The mean of what is defined; None where nothing is."""
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else None


def _broken(scores: Sequence[Score]) -> list[str]:
    """A reply that was not cut and yet breaks its grammar was never held to it."""
    count = sum("constraint_violations" in score.notes and "truncated" not in score.notes for score in scores)
    if not count:
        return []
    return [
        f"{NOT_CONSTRAINED}: {count:,} replies break their grammar although they were not cut, so the engine did not "
        "hold them to it; read these numbers as those of free replies"
    ]


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
    value["reliability"] = list(value["reliability"]) or None
    value["letters"] = value["letters"] or None
    value["confusion"] = list(value["confusion"])
    value["reading"] = READING
    value["counts"] = {name: report.counts.get(name) for name in ALL_COUNTS}
    return value


def report_of(value: Mapping[str, Any]) -> Report:
    """The report again, out of the content of report.json. Raises ValueError for one of another version."""
    from pydantic import TypeAdapter

    try:
        macro = dict(value["macro"])
        fields = {
            **{name: value[name] for name in value if name != "reading"},
            "macro_over": macro.pop("over"),
            "macro": macro,
            "letters": value["letters"] or {},
            "reliability": value["reliability"] or (),
            "confusion": value["confusion"],
            "counts": {name: count for name, count in value["counts"].items() if count is not None},
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no report of this version: {error!r}") from error
    return TypeAdapter(Report).validate_python(fields)


def headline(report: Report) -> str:
    """The metric that names the result: accuracy (MCQ) or f1 (NER)."""
    return HEADLINE[report.task]


def counts_of(report: Report) -> Mapping[str, int]:
    """What stands beside the metrics."""
    return {name: count for name, count in report.counts.items() if name != "reused"}

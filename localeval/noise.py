"""How much a score moves by itself: the same requests several times, in another order each time. Knows no engine.

Greedy replies are not always the same: what runs beside a request changes the rounding of its logits, and a near tie
then falls the other way.
"""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from localeval.jobs import Job
from localeval.metrics import mcq, ner
from localeval.receiving import Received
from localeval.schema import Request, Score, Tally
from localeval.store import RunFolder

_PIECES = 3


@dataclass(frozen=True, slots=True)
class Noise:
    """values: the metric each time. changed_replies, changed_readings: samples for which not all times agree."""

    metric: str
    values: tuple[float | None, ...]
    n: int
    changed_replies: int
    changed_readings: int

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation; None for fewer than two values."""
        values = [value for value in self.values if value is not None]
        return statistics.stdev(values) if len(values) > 1 else None


def pieces_of(requests: Sequence[Request], time: int) -> list[list[Request]]:
    """The first time all as they are; then shuffled and cut in three, so that others share a batch. Seeded by the time.

    The engine takes one piece when it has answered the one before.
    """
    ordered = list(requests)
    if time == 1 or len(ordered) < _PIECES:
        return [ordered]
    draw = random.Random(time)
    draw.shuffle(ordered)
    cuts = [0, *sorted(draw.sample(range(1, len(ordered)), _PIECES - 1)), len(ordered)]
    return [ordered[start:end] for start, end in itertools.pairwise(cuts)]


def measure(job: Job, folder: RunFolder, times: Sequence[Received]) -> Noise:
    """times: what was received each time. Also writes noise.json."""
    scored = [time.whole() for time in times]
    metric = "f1" if job.task == "ner" else "accuracy"
    noise = Noise(
        metric,
        tuple(_headline(job, scores) for scores in scored),
        len(job.dataset.samples),
        _differing([_replies(time.folder, job) for time in times]),
        _differing([[score.parsed for score in scores] for scores in scored]),
    )
    folder.write_json("noise.json", {**asdict(noise), "deviation": noise.deviation})
    return noise


def _replies(folder: RunFolder, job: Job) -> list[Any]:
    """What was said to each sample, in the order of the samples."""
    said = {row.sample_id: (row.text, row.continuations) for row in folder.rows()}
    return [said[sample.id] for sample in job.dataset.samples]


def _headline(job: Job, scores: Sequence[Score]) -> float | None:
    if job.task == "ner":
        return sum((ner.entity_tally(score) for score in scores), Tally()).f1
    return mcq.accuracy(scores).value


def _differing(times: Sequence[Sequence[Any]]) -> int:
    """Positions at which not all are equal."""
    return sum(any(one != each[0] for one in each[1:]) for each in zip(*times, strict=True))


def noise_text(noise: Noise) -> str:
    """One line for the console."""
    values = [value for value in noise.values if value is not None]
    if not values:
        return f"noise, asked {len(noise.values)} times: {noise.metric} is not defined"
    return (
        f"noise, asked {len(noise.values)} times in another order: {noise.metric} {min(values):.4f} to "
        f"{max(values):.4f}, standard deviation {noise.deviation or 0.0:.4f}; of {noise.n:,} samples "
        f"{noise.changed_replies:,} had not always the same reply, {noise.changed_readings:,} not the same reading"
    )

"""95% intervals of ratios. Pure functions over counts; knows nothing about tasks or reports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from localeval.schema import Estimate, Tally

CONFIDENCE = 0.95
RESAMPLES = 1000
SEED = 0


def wilson(correct: int, n: int) -> Estimate:
    """Correct / n with its Wilson score interval (E. B. Wilson, 1927); all None for n = 0.

    Right also for small n and for ratios near 0 and 1, where the normal interval is not.
    """
    if n == 0:
        return Estimate(None)
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    p = correct / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
    return Estimate(p, max(0.0, centre - half), min(1.0, centre + half))


def mean(values: Sequence[float], least: float = -math.inf, most: float = math.inf) -> Estimate:
    """The mean with its normal interval, mean +- z s / sqrt(n) (central limit theorem); no interval for n < 2.

    least, most: what a value can be; the interval ends there.
    """
    n = len(values)
    if n == 0:
        return Estimate(None)
    centre = math.fsum(values) / n
    if n == 1:
        return Estimate(centre)
    deviation = math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (n - 1))
    half = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * deviation / math.sqrt(n)
    return Estimate(centre, max(least, centre - half), min(most, centre + half))


def bootstrap(tallies: Sequence[Tally]) -> dict[str, Estimate]:
    """Micro precision, recall and F1 of per-sentence tallies, each with its percentile bootstrap interval.

    Sentences are drawn with replacement (B. Efron, 1979), for entities of one sentence are not independent. The draw is
    seeded, so the same tallies give the same interval. A resample in which the ratio is 0/0 is left out.
    """
    import numpy as np

    total = sum(tallies, Tally())
    values = {"precision": total.precision, "recall": total.recall, "f1": total.f1}
    if not tallies:
        return {name: Estimate(None) for name in values}
    counts = np.array([(t.correct, t.predicted, t.gold) for t in tallies], dtype=float)
    draw = np.random.default_rng(SEED)
    sums = np.empty((RESAMPLES, 3))
    for row in range(RESAMPLES):  # one resample at a time keeps memory flat in the number of sentences
        times_drawn = np.bincount(draw.integers(0, len(counts), len(counts)), minlength=len(counts))
        sums[row] = times_drawn @ counts
    correct, predicted, gold = sums.T
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = {"precision": correct / predicted, "recall": correct / gold, "f1": 2 * correct / (predicted + gold)}
    tail = (1 - CONFIDENCE) / 2
    estimates = {}
    for name, value in values.items():
        defined = drawn[name][np.isfinite(drawn[name])]
        if value is None or not len(defined):
            estimates[name] = Estimate(value)
        else:
            low, high = np.quantile(defined, [tail, 1 - tail])
            estimates[name] = Estimate(value, float(low), float(high))
    return estimates

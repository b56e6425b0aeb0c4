"""Two systems on the same samples: the difference, its 95% interval, a p-value, and what so many samples can show.

Pure functions over counts and values, the first system's and the second's in the same order of samples; differences are
second minus first. Knows nothing about tasks, files or reports. All draws are seeded: the same in, the same out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from localeval.metrics.intervals import CONFIDENCE, SEED, mean
from localeval.schema import Estimate, Tally

if TYPE_CHECKING:
    from numpy.typing import NDArray

POWER = 0.8
"""How often a difference of the detectable size gets a p-value below 1 - CONFIDENCE."""

RESAMPLES = 2000
SHUFFLES = 10_000
CELLS = 1 << 22
"""So many swaps are held at a time: memory is flat in the number of samples."""

ROUNDING = 1e-12
"""Shuffles tie with what was observed up to this part of its terms; a standard error below it is none."""


@dataclass(frozen=True, slots=True)
class Paired:
    """A comparison of two systems on the same n samples; None for what is not defined, all of it where n is 0.

    test: what p is by: ``McNemar, exact``, ``approximate randomisation`` or ``paired permutation``; p is two-sided.
    first, second: the metric's values; difference: second - first, with its 95% interval from low to high.
    detectable: the smallest true difference, in either direction, that n such samples show with probability POWER;
    None where none can be shown.
    gained, lost: the samples that only the second, and only the first, has right (proportions; else None).
    """

    n: int
    test: str
    first: float | None = None
    second: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    detectable: float | None = None
    gained: int | None = None
    lost: int | None = None


def _samples(first: Sequence[object], second: Sequence[object]) -> int:
    if len(first) != len(second):
        raise ValueError(f"{len(first)} samples of the first system but {len(second)} of the second")
    return len(first)


# --- proportions ---


def paired_proportions(first: Sequence[bool], second: Sequence[bool]) -> Paired:
    """Shares of right samples: McNemar's exact test, Tango's interval, and what the test detects.

    Raises ValueError for unequal lengths.
    """
    n = _samples(first, second)
    if not n:
        return Paired(0, "McNemar, exact")
    gained = sum(1 for one, two in zip(first, second, strict=True) if two and not one)
    lost = sum(1 for one, two in zip(first, second, strict=True) if one and not two)
    right = sum(map(bool, first))
    shares = right / n, (right - lost + gained) / n
    interval = tango(gained, lost, n)
    p, least = mcnemar(gained, lost), detectable(n, (gained + lost) / n)
    return Paired(n, "McNemar, exact", *shares, interval.value, interval.low, interval.high, p, least, gained, lost)


def mcnemar(gained: int, lost: int) -> float:
    """Two-sided p of McNemar's exact test (Q. McNemar, 1947): the samples that differ are as fair coins; 1 for none."""
    from scipy.stats import binomtest

    return float(binomtest(gained, gained + lost, 0.5).pvalue) if gained + lost else 1.0


def tango(gained: int, lost: int, n: int) -> Estimate:
    """(gained - lost) / n with its score interval (T. Tango, Statistics in Medicine 17, 1998); all None for n = 0.

    It holds the differences that the score test does not reject, and so stays in [-1, 1] and has a width even where
    no sample differs: +- z^2 / (n + z^2). Raises ValueError for counts that are no table.
    """
    if min(gained, lost) < 0 or gained + lost > n:
        raise ValueError(f"{gained} gained and {lost} lost of {n} samples")
    if n == 0:
        return Estimate(None)
    return Estimate((gained - lost) / n, -_upper_limit(lost, gained, n), _upper_limit(gained, lost, n))


def _upper_limit(gained: int, lost: int, n: int) -> float:
    """Where, above the estimate, the score statistic is -z: Tango's equations 24 to 26, in differences of this sign."""
    from scipy.optimize import brentq

    estimate = (gained - lost) / n
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)

    def excess(difference: float) -> float:
        """How far the squared statistic t is above z^2, as t / (t + z^2) - 1/2: bounded also where t is not."""
        linear = (2 * n - gained + lost) * difference - gained - lost
        product = lost * difference * (1 - difference)
        root = math.sqrt(max(0.0, linear * linear + 8 * n * product))
        # The share of lost samples that is most likely given the difference; each form where it does not cancel.
        share = 2 * product / (linear + root) if linear > 0 else (root - linear) / (4 * n)
        variance = max(0.0, 2 * share + difference * (1 - difference))
        distance = n * (estimate - difference) ** 2
        return distance / (distance + z * z * variance) - 0.5 if distance else -0.5

    return 1.0 if gained == n else float(brentq(excess, estimate, 1.0))


def power(n: int, discordant: float, difference: float) -> float:
    """How often McNemar's exact test finds p < 1 - CONFIDENCE among n samples; exact but for 1e-9.

    discordant: the probability that the systems differ on a sample; difference: that of gained minus that of lost.
    Of n samples m ~ Binomial(n, discordant) differ, of which Binomial(m, (discordant + difference) / (2 discordant))
    are gained. Raises ValueError for a difference beyond what is discordant, and for a share that is none.
    """
    import numpy as np
    from scipy.stats import binom

    if not abs(difference) <= discordant <= 1:
        raise ValueError(f"a difference of {difference} where a share of {discordant} differs")
    if discordant == 0:
        return 0.0
    least, most = binom.interval(1 - 1e-9, n, discordant)
    pairs = np.arange(int(least), int(most) + 1)
    # Significant is at most so many on the rarer side: -1, and so never, below 6 pairs.
    critical = binom.ppf((1 - CONFIDENCE) / 2, pairs, 0.5) - 1
    gain = (discordant + difference) / (2 * discordant)
    shown = binom.cdf(critical, pairs, gain) + binom.sf(pairs - critical - 1, pairs, gain)
    return float(binom.pmf(pairs, n, discordant) @ shown)


def detectable(n: int, discordant: float) -> float | None:
    """The smallest difference of proportions whose power among n samples is POWER; None below 6 samples.

    discordant: the share of samples on which the systems differ. A larger difference needs, and is given, a share as
    large as itself, all on one side. The exact test's saw-tooth lies in n and in the share of discordant samples; along
    the difference the power only rises (the wider share too only adds pairs on the one side), so there is one root.
    """
    from scipy.optimize import brentq

    if power(n, 1.0, 1.0) < POWER:
        return None
    return float(brentq(lambda size: power(n, max(discordant, size), size) - POWER, 0.0, 1.0, xtol=1e-9))


# --- F1 ---


def paired_f1(first: Sequence[Tally], second: Sequence[Tally]) -> Paired:
    """Micro F1 of tallies, one a sentence: approximate randomisation, and the paired percentile bootstrap.

    p: E. W. Noreen, Computer-intensive methods for testing hypotheses (1989); for F1 A. Yeh, COLING 2000.
    Interval: both systems are drawn together, RESAMPLES times; a resample without F1 (0/0) is left out. Where all
    resamples agree, as where no sentence differs, there is none: one of no width would claim to be certain.
    Raises ValueError for unequal lengths.
    """
    import numpy as np

    n = _samples(first, second)
    one, two = sum(first, Tally()).f1, sum(second, Tally()).f1
    if one is None or two is None:
        return Paired(n, "approximate randomisation", one, two)
    # of each sentence the numerator of F1, halved, and its denominator
    counts, others = (np.array([(t.correct, t.predicted + t.gold) for t in ts], dtype=float) for ts in (first, second))
    total, other_total = counts.sum(axis=0), others.sum(axis=0)
    changes = counts - others
    changes = changes[changes.any(axis=1)]  # to swap what is equal changes nothing
    p = _swap_test(changes, lambda moved: _f1(other_total + moved) - _f1(total - moved), ROUNDING)
    paired = Paired(n, "approximate randomisation", one, two, two - one, p=p)
    drawn = _resampled_differences(counts, others)
    error = float(drawn.std(ddof=1)) if len(drawn) > 1 else 0.0
    if error <= ROUNDING:
        return paired
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return replace(paired, low=float(low), high=float(high), detectable=_detectable_at(error))


def _f1(sums: NDArray[Any]) -> NDArray[Any]:
    """(..., 2) -> (...); NaN for 0/0."""
    import numpy as np

    with np.errstate(invalid="ignore"):
        return np.asarray(2 * sums[..., 0] / sums[..., 1])


def _resampled_differences(counts: NDArray[Any], others: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    draw, n = np.random.default_rng(SEED), len(counts)
    rows = np.hstack([counts, others])
    sums = np.empty((RESAMPLES, 4))
    for index in range(RESAMPLES):  # one resample at a time keeps memory flat in the number of sentences
        sums[index] = np.bincount(draw.integers(0, n, n), minlength=n) @ rows
    differences = _f1(sums[:, 2:]) - _f1(sums[:, :2])
    return np.asarray(differences[np.isfinite(differences)])


# --- means ---


def paired_means(first: Sequence[float], second: Sequence[float]) -> Paired:
    """Means of one value a sample: the permutation test of signs (R. A. Fisher, 1935), and the normal interval.

    Where all differences are equal there is no interval: one of no width would claim to be certain.
    Raises ValueError for unequal lengths and for a value that is not finite.
    """
    import numpy as np

    n = _samples(first, second)
    if not n:
        return Paired(0, "paired permutation")
    for name, values in (("first", first), ("second", second)):
        for index, value in enumerate(values):
            if not math.isfinite(value):
                raise ValueError(f"value {index} of the {name} system is {value}; expected a finite number")
    differences = np.array(second, dtype=float) - np.array(first, dtype=float)
    changes = differences[differences != 0, None]
    total, scale = changes.sum(), float(np.abs(changes).sum())
    p = _swap_test(changes, lambda moved: total - 2 * moved[:, 0], ROUNDING * scale)
    estimate = mean(differences.tolist())
    paired = Paired(n, "paired permutation", math.fsum(first) / n, math.fsum(second) / n, estimate.value, p=p)
    error = float(differences.std(ddof=1)) / math.sqrt(n) if n > 1 else 0.0
    if error <= ROUNDING * scale / n:
        return paired
    return replace(paired, low=estimate.low, high=estimate.high, detectable=_detectable_at(error))


# --- swaps, standard errors, families ---


def _swap_test(changes: NDArray[Any], statistic: Callable[[NDArray[Any]], NDArray[Any]], tolerance: float) -> float:
    """Two-sided p of a statistic under swaps of the two systems on each sample, as likely as not.

    changes: (m, k), what a swap of each of m samples moves; statistic: (r, k) sums of what moved -> (r,).
    All 2^m swaps where they are at most SHUFFLES: their share that is as far from 0 as what was observed. Else SHUFFLES
    of them, and what was observed counts as one more: p is never 0 (Noreen). Swaps without a statistic are left out;
    each of those has its mirror image, which has none either, so the rest stay as likely as one another.
    """
    import numpy as np

    observed = abs(float(statistic(np.zeros((1, changes.shape[1])))[0])) - tolerance
    every = len(changes) < SHUFFLES.bit_length()  # that is, 2^m <= SHUFFLES
    extreme = defined = 0
    for swaps in _swaps(len(changes), every):
        values = statistic(swaps @ changes)
        values = np.abs(values[np.isfinite(values)])
        defined += len(values)
        extreme += int(np.count_nonzero(values >= observed))
    return extreme / defined if every else (extreme + 1) / (defined + 1)


def _swaps(m: int, every: bool) -> Iterator[NDArray[Any]]:
    """Rows of 0 and 1, (r, m) at a time: all 2^m of them, or SHUFFLES that are drawn."""
    import numpy as np

    if every:
        yield (np.arange(2**m)[:, None] >> np.arange(m) & 1).astype(float)
        return
    draw = np.random.default_rng(SEED)
    rows = max(1, CELLS // m)
    for start in range(0, SHUFFLES, rows):
        bits = draw.integers(0, 256, (min(rows, SHUFFLES - start), -(-m // 8)), dtype=np.uint8)
        yield np.unpackbits(bits, axis=1, count=m).astype(float)


def _detectable_at(error: float) -> float:
    """The difference that a normal test at 1 - CONFIDENCE shows with probability POWER, of its standard error."""
    normal = NormalDist()
    return (normal.inv_cdf((1 + CONFIDENCE) / 2) + normal.inv_cdf(POWER)) * error


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjusted p-values, in the order given (S. Holm, A simple sequentially rejective multiple test procedure, 1979).

    None stays None, and counts for no test. Raises ValueError for what is no probability.
    """
    ranked = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    if not all(0 <= p <= 1 for p, _ in ranked):
        raise ValueError(f"{list(p_values)}: a p-value is from 0 to 1")
    adjusted: list[float | None] = [None] * len(p_values)
    least = 0.0
    for rank, (p, index) in enumerate(ranked):
        least = max(least, min(1.0, (len(ranked) - rank) * p))
        adjusted[index] = least
    return adjusted

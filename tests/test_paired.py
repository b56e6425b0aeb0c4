"""Paired comparisons, against hand-worked and published values, brute force, scipy and simulation."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar

from localeval.metrics import paired
from localeval.metrics.paired import (
    Paired,
    detectable,
    holm,
    mcnemar,
    paired_f1,
    paired_means,
    paired_proportions,
    power,
    tango,
)
from localeval.schema import Tally

Z = 1.959963984540054

# --- all three ---


def test_nothing_heavy_is_loaded() -> None:
    code = "import sys, localeval.metrics.paired; print([name for name in ('numpy', 'scipy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("compare", [paired_proportions, paired_f1, paired_means])
def test_no_samples_and_unequal_lengths(compare: Callable[[Sequence[Any], Sequence[Any]], Paired]) -> None:
    nothing = compare([], [])
    assert nothing == Paired(0, nothing.test)
    assert nothing.p is nothing.difference is nothing.low is nothing.gained is None
    with pytest.raises(ValueError, match=r"^2 samples of the first system but 1 of the second$"):
        compare([Tally(1, 1, 1), Tally(1, 1, 1)], [Tally(1, 1, 1)])


# --- proportions ---


def test_proportions_by_hand() -> None:
    result = paired_proportions([True, True, False, False, False], [True, False, True, True, False])
    assert (result.n, result.first, result.second, result.test) == (5, 0.4, 0.6, "McNemar, exact")
    assert (result.gained, result.lost, result.p) == (2, 1, 1.0)
    assert result.difference == pytest.approx(0.2)
    assert result.detectable is None  # below 6 samples p is never below 0.05


def test_proportions_put_the_parts_together() -> None:
    result = paired_proportions([False] * 9 + [True] * 31, [True] * 9 + [False] + [True] * 30)
    assert (result.gained, result.lost, result.first, result.second) == (9, 1, 31 / 40, 39 / 40)
    assert result.p == 0.021484375
    assert (result.difference, result.low, result.high) == (0.2, tango(9, 1, 40).low, tango(9, 1, 40).high)
    assert result.detectable == detectable(40, 0.25)


@pytest.mark.parametrize(
    ("gained", "lost", "p"), [(9, 1, 0.021484375), (5, 5, 1.0), (3, 0, 0.25), (6, 0, 0.03125), (0, 0, 1.0)]
)
def test_mcnemar_by_hand(gained: int, lost: int, p: float) -> None:
    assert mcnemar(gained, lost) == pytest.approx(p, abs=1e-15)
    assert mcnemar(lost, gained) == pytest.approx(p, abs=1e-15)


def test_mcnemar_is_twice_the_tail_of_fair_coins() -> None:
    for gained in range(0, 60, 3):
        for lost in range(0, 60, 4):
            m = gained + lost
            tail = sum(math.comb(m, k) for k in range(min(gained, lost) + 1))
            assert mcnemar(gained, lost) == pytest.approx(float(min(Fraction(1), Fraction(2 * tail, 2**m))), rel=1e-9)
    assert mcnemar(75_400, 74_600) == pytest.approx(2 * stats.norm.sf(799 / math.sqrt(150_000)), rel=1e-3)


def test_tango_published(monkeypatch: pytest.MonkeyPatch) -> None:
    # Airway hyper-responsiveness (Bentur 2009): 1, 1, 7, 12; M. Fagerland, S. Lydersen, P. Laake, Stat. Med. 33, 2014
    airway = tango(1, 7, 21)
    assert (airway.value, airway.low, airway.high) == pytest.approx((-0.286, -0.517, -0.026), abs=5e-4)
    # Soft contact lenses: 43, 0, 1, 0; Tango 1998, section 6.1 gives the lower 90 % limit
    monkeypatch.setattr(paired, "CONFIDENCE", 0.9)
    assert tango(0, 1, 44).low == pytest.approx(-0.096, abs=5e-4)


def _score(gained: int, lost: int, n: int, difference: float) -> float:
    """The score statistic, its nuisance parameter found by maximising the multinomial likelihood."""

    def surprise(share: float) -> float:
        cells = [(gained, share + difference), (lost, share), (n - gained - lost, 1 - 2 * share - difference)]
        return -sum(count * math.log(max(p, 1e-300)) for count, p in cells if count)

    ends = (max(0.0, -difference), (1 - difference) / 2)
    share = float(minimize_scalar(surprise, bounds=ends, method="bounded", options={"xatol": 1e-12}).x)
    return (gained - lost - n * difference) / math.sqrt(n * (2 * share + difference - difference**2))


@pytest.mark.parametrize(
    ("gained", "lost", "n"), [(9, 3, 40), (1, 7, 21), (0, 3, 25), (4, 0, 4000), (30, 30, 60), (1, 1, 2), (2, 9, 12)]
)
def test_tango_limits_are_where_the_score_is_z(gained: int, lost: int, n: int) -> None:
    estimate = tango(gained, lost, n)
    assert estimate.low is not None
    assert estimate.high is not None
    assert _score(gained, lost, n, estimate.low) == pytest.approx(Z, abs=1e-3)
    assert _score(gained, lost, n, estimate.high) == pytest.approx(-Z, abs=1e-3)


def test_tango_at_the_edges() -> None:
    for n in (1, 7, 500, 150_000):
        width = Z**2 / (n + Z**2)
        same = tango(0, 0, n)
        assert (same.value, same.low, same.high) == pytest.approx((0.0, -width, width), rel=1e-6)
        # all gained: T^2 = n (1 - D) / (1 + D), so the lower limit is (n - z^2) / (n + z^2)
        assert tango(n, 0, n).low == pytest.approx((n - Z**2) / (n + Z**2))
        assert tango(n, 0, n).high == 1.0
        assert tango(0, n, n).low == -1.0
    assert tango(0, 0, 0).value is None
    with pytest.raises(ValueError, match="3 gained and 3 lost of 5"):
        tango(3, 3, 5)


def test_tango_is_symmetric_in_range_and_normal_for_many() -> None:
    for gained, lost in product(range(0, 13, 2), repeat=2):
        if gained + lost <= 12:
            one, other = tango(gained, lost, 12), tango(lost, gained, 12)
            assert one.low is not None
            assert one.high is not None
            assert (one.low, one.high) == (-(other.high or 0), -(other.low or 0))
            assert -1 <= one.low <= (gained - lost) / 12 <= one.high <= 1
            assert one.low < one.high
    many = tango(8000, 7000, 150_000)
    error = math.sqrt((0.1 - (1000 / 150_000) ** 2) / 150_000)
    assert (many.low, many.high) == pytest.approx((1 / 150 - Z * error, 1 / 150 + Z * error), abs=2e-6)


@pytest.mark.parametrize(
    ("gained", "lost"), [(0.02, 0.02), (0.01, 0.0), (0.05, 0.01), (0.2, 0.2), (0.3, 0.1), (0.9, 0.05), (0.98, 0.01)]
)
def test_tango_covers(gained: float, lost: float) -> None:
    """The coverage among 30 samples, summed over all tables that they can give."""
    covered = 0.0
    for b in range(31):
        for c in range(31 - b):
            limits = _tango_of_30(b, c)
            if limits[0] <= gained - lost <= limits[1]:
                cells = [gained, lost, 1 - gained - lost]
                covered += float(stats.multinomial.pmf([b, c, 30 - b - c], 30, cells))
    assert covered >= 0.93
    if gained in (0.2, 0.3):  # not by being wide: at the edges a few tables carry all, and exact coverage is none's
        assert covered <= 0.965


@cache
def _tango_of_30(gained: int, lost: int) -> tuple[float, float]:
    estimate = tango(gained, lost, 30)
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low, estimate.high


# --- power ---


@cache
def _rejects(gained: int, lost: int) -> bool:
    return mcnemar(gained, lost) < 0.05


@pytest.mark.parametrize(("n", "discordant", "difference"), [(5, 1, 1), (6, 1, 1), (12, 0.5, 0.3), (25, 0.8, 0.8)])
def test_power_is_the_sum_over_all_tables(n: int, discordant: float, difference: float) -> None:
    gain, loss = (discordant + difference) / 2, (discordant - difference) / 2
    shown = sum(
        math.comb(n, b) * math.comb(n - b, c) * gain**b * loss**c * (1 - discordant) ** (n - b - c)
        for b in range(n + 1)
        for c in range(n + 1 - b)
        if _rejects(b, c)
    )
    assert power(n, discordant, difference) == pytest.approx(shown, abs=2e-9)
    assert power(n, discordant, -difference) == pytest.approx(shown, abs=2e-9)


def _simulated_power(n: int, discordant: float, difference: float, times: int = 4000) -> float:
    cells = [(discordant + difference) / 2, (discordant - difference) / 2, 1 - discordant]
    tables = np.random.default_rng(11).multinomial(n, cells, size=times)
    return sum(_rejects(int(b), int(c)) for b, c, _ in tables) / times


@pytest.mark.parametrize(
    ("n", "discordant", "difference"), [(50, 0.9, 0.4), (200, 0.3, 0.1), (1000, 0.1, 0.02), (3000, 0.02, 0.0)]
)
def test_power_agrees_with_simulation(n: int, discordant: float, difference: float) -> None:
    exact = power(n, discordant, difference)
    error = math.sqrt(exact * (1 - exact) / 4000)
    assert abs(_simulated_power(n, discordant, difference) - exact) < 3 * error


def test_power_of_what_can_not_be() -> None:
    assert power(100, 0.0, 0.0) == 0.0
    for discordant, difference in [(0.1, 0.2), (0.1, -0.2), (1.1, 0.5), (math.nan, 0.0)]:
        with pytest.raises(ValueError, match="a difference of"):
            power(100, discordant, difference)


def test_detectable_by_hand() -> None:
    assert detectable(0, 0.5) is None
    assert detectable(5, 1.0) is None
    for discordant in (0.0, 0.5):  # of 6 samples all must be gained: D^6 = 0.8
        assert detectable(6, discordant) == pytest.approx(0.8 ** (1 / 6), abs=1e-6)
    # of 8 that all differ all must be gained, for p of 7 and 1 is 18/256: ((1 + D) / 2)^8 = 0.8
    assert detectable(8, 1.0) == pytest.approx(2 * 0.8 ** (1 / 8) - 1, abs=1e-4)
    # of very many it is that of the normal test
    assert detectable(150_000, 0.25) == pytest.approx((Z + 0.8416212) * math.sqrt(0.25 / 150_000), rel=5e-3)


@pytest.mark.parametrize(("n", "discordant"), [(20, 0.1), (100, 0.2), (1000, 0.25), (1000, 0.0), (14_000, 0.01)])
def test_detectable_is_detected(n: int, discordant: float) -> None:
    size = detectable(n, discordant)
    assert size is not None
    assert 0.77 <= _simulated_power(n, max(discordant, size), size) <= 0.86
    for larger in np.linspace(size + 1e-6, 1, 25):  # and so is all that is larger
        assert power(n, max(discordant, larger), larger) >= 0.8


# --- F1 ---


def _tallies(n: int, seed: int, most: int = 4) -> list[Tally]:
    draw = random.Random(seed)
    tallies = []
    for _ in range(n):
        gold, said = draw.randint(0, most), draw.randint(0, most)
        tallies.append(Tally(draw.randint(0, min(gold, said)), said, gold))
    return tallies


def _f1(tallies: Sequence[Tally]) -> Fraction:
    total = sum(tallies, Tally())
    return Fraction(2 * total.correct, total.predicted + total.gold)


def _share_of_swaps(first: Sequence[Tally], second: Sequence[Tally]) -> float:
    """p by enumeration, in whole numbers."""
    observed = abs(_f1(second) - _f1(first))
    extreme = 0
    for swaps in product([False, True], repeat=len(first)):
        one = [b if swap else a for a, b, swap in zip(first, second, swaps, strict=True)]
        two = [a if swap else b for a, b, swap in zip(first, second, swaps, strict=True)]
        extreme += abs(_f1(two) - _f1(one)) >= observed
    return float(Fraction(extreme, 2 ** len(first)))


def test_f1_by_hand() -> None:
    # 1 of 2 + 2, then 2 of 2 + 2: the first entity is found only by the second system
    result = paired_f1([Tally(0, 1, 1), Tally(1, 1, 1), Tally()], [Tally(1, 1, 1), Tally(1, 1, 1), Tally()])
    assert (result.n, result.first, result.second, result.difference) == (3, 0.5, 1.0, 0.5)
    assert (result.p, result.test) == (1.0, "approximate randomisation")
    assert (result.gained, result.lost) == (None, None)
    # 6 such sentences: of 64 swaps only none and all go as far
    assert paired_f1([Tally(0, 1, 1)] * 6, [Tally(1, 1, 1)] * 6).p == 2 / 64


@pytest.mark.parametrize("seed", range(6))
def test_f1_p_is_the_share_of_all_swaps(seed: int) -> None:
    first, second = _tallies(7, seed), _tallies(7, seed + 100)  # gold differs too
    same = _tallies(3, seed + 200)
    expected = _share_of_swaps(first + same, second + same)
    assert paired_f1(first + same, second + same).p == pytest.approx(expected, abs=1e-12)
    assert paired_f1(second + same, first + same).p == pytest.approx(expected, abs=1e-12)


def test_f1_p_by_shuffles_is_near_the_share_of_all_swaps(monkeypatch: pytest.MonkeyPatch) -> None:
    first = [Tally(right, 3, 3) for right in (1, 2, 0, 1, 2, 1, 0, 2, 1)]
    second = [Tally(right, 4, 3) for right in (2, 1, 3, 2, 3, 2, 1, 0, 3)]
    expected = _share_of_swaps(first, second)
    assert 0.05 < expected < 0.5
    monkeypatch.setattr(paired, "SHUFFLES", 500)  # fewer than the 512 swaps, so they are drawn
    p = paired_f1(first, second).p or math.nan
    assert p == pytest.approx(expected, abs=3 * math.sqrt(expected / 500))
    assert p * 501 == pytest.approx(round(p * 501))
    monkeypatch.setattr(paired, "SHUFFLES", 100)
    assert paired_f1([Tally(0, 1, 1)] * 60, [Tally(1, 1, 1)] * 60).p == 1 / 101


def test_f1_interval_agrees_with_scipy() -> None:
    draw = random.Random(5)
    first = _tallies(300, 3)
    second = [
        Tally(min(t.correct + draw.randint(0, 1), t.gold), max(t.predicted, t.correct + 1), t.gold) for t in first
    ]
    ours = paired_f1(first, second)
    columns: Any = [np.array([(t.correct, t.predicted + t.gold) for t in ts]).T for ts in (first, second)]

    def difference(c1: Any, t1: Any, c2: Any, t2: Any, axis: int = -1) -> Any:
        return 2 * np.sum(c2, axis=axis) / np.sum(t2, axis=axis) - 2 * np.sum(c1, axis=axis) / np.sum(t1, axis=axis)

    theirs: Any = stats.bootstrap(
        [*columns[0], *columns[1]], difference, paired=True, method="percentile", n_resamples=5000, rng=1
    )
    low, high = theirs.confidence_interval
    assert ours.low == pytest.approx(low, abs=0.15 * (high - low) / 2)
    assert ours.high == pytest.approx(high, abs=0.15 * (high - low) / 2)
    assert ours.detectable == pytest.approx((Z + 0.8416212) * theirs.standard_error, rel=0.06)
    assert ours.difference == float(ours.second or 0) - float(ours.first or 0)
    assert paired_f1(first, second) == ours


def test_f1_where_no_sentence_differs() -> None:
    same = _tallies(50, 1)
    result = paired_f1(same, same)
    assert (result.difference, result.p) == (0.0, 1.0)
    assert (result.low, result.high, result.detectable) == (None, None, None)


def test_f1_where_it_is_not_defined() -> None:
    nothing = paired_f1([Tally(), Tally()], [Tally(), Tally()])
    assert nothing == Paired(2, "approximate randomisation")
    half = paired_f1([Tally()], [Tally(1, 1, 1)])
    assert (half.first, half.second, half.difference, half.p) == (None, 1.0, None, None)
    # Of 4 swaps those of one sentence leave one system without anything: of the other two both go as far.
    assert paired_f1([Tally(1, 1, 1), Tally()], [Tally(), Tally(0, 1, 1)]).p == 1.0
    # One in 13 resamples draws neither of the first two sentences; the rest hold differences from -1 to 1.
    rare = paired_f1([Tally(1, 1, 1), Tally(0, 1, 1), *[Tally()] * 3], [Tally(0, 1, 1), Tally(1, 1, 1), *[Tally()] * 3])
    assert (rare.difference, rare.low, rare.high, rare.p) == (0.0, -1.0, 1.0, 1.0)


# --- means ---


def test_means_by_hand() -> None:
    result = paired_means([1.0, 1.0, 1.0, 5.0], [2.0, 3.0, 4.0, 5.0])
    # differences 1, 2, 3, 0: mean 1.5, variance 5/3; of 8 signs of the three two go as far
    assert (result.n, result.first, result.second, result.difference, result.p) == (4, 2.0, 3.5, 1.5, 2 / 8)
    error = math.sqrt(5 / 3 / 4)
    assert (result.low, result.high) == pytest.approx((1.5 - Z * error, 1.5 + Z * error))
    assert result.detectable == pytest.approx((Z + 0.8416212) * error)
    assert (result.test, result.gained, result.lost) == ("paired permutation", None, None)


def test_means_tie_in_spite_of_rounding() -> None:
    # 0.1 + 0.2 - 0.3 is 5.6e-17 in floating point, and 0 in truth: all signs go as far
    assert paired_means([0.0, 0.0, 0.3], [0.1, 0.2, 0.0]).p == 1.0
    draw = random.Random(2)
    for _ in range(20):
        tenths = [draw.randint(-3, 6) for _ in range(9)]
        sums = [abs(sum(s * t for s, t in zip(signs, tenths, strict=True))) for signs in product((-1, 1), repeat=9)]
        expected = sum(value >= abs(sum(tenths)) for value in sums) / 2**9
        assert paired_means([0.7] * 9, [0.7 + t / 10 for t in tenths]).p == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("n", "tolerance"), [(8, 1e-12), (40, 0.02)])
def test_means_agree_with_scipy(n: int, tolerance: float) -> None:
    draw = np.random.default_rng(n)
    first = draw.gamma(1.0, size=n)
    second = first + draw.normal(0.4, 1.0, size=n)

    def statistic(a: Any, b: Any, axis: int) -> Any:
        return np.mean(b - a, axis=axis)

    theirs = stats.permutation_test(
        (first, second), statistic, permutation_type="samples", vectorized=True, n_resamples=20_000, rng=1
    )
    ours = paired_means(first.tolist(), second.tolist())
    assert 0.01 < theirs.pvalue < 0.9
    assert ours.p == pytest.approx(theirs.pvalue, abs=tolerance)
    differences = second - first
    low, high = stats.norm.interval(0.95, loc=differences.mean(), scale=stats.sem(differences))
    assert (ours.low, ours.high) == pytest.approx((low, high))
    assert paired_means(first.tolist(), second.tolist()) == ours


def test_means_of_many() -> None:
    """Drawn in several pieces; the sum of signs is all but normal then."""
    differences = np.random.default_rng(4).normal(0.04, 1.0, size=1500)
    assert 1500 * paired.SHUFFLES > 2 * paired.CELLS
    expected = 2 * stats.norm.sf(abs(differences.sum()) / math.sqrt(float((differences**2).sum())))
    assert 0.02 < expected < 0.5
    p = paired_means([0.0] * 1500, differences.tolist()).p
    assert p == pytest.approx(expected, abs=3.5 * math.sqrt(expected / 10_000))


def test_means_without_spread() -> None:
    same = paired_means([0.1, 0.2, 0.3], [0.1, 0.2, 0.3])
    assert (same.difference, same.p, same.low, same.high, same.detectable) == (0.0, 1.0, None, None, None)
    shifted = paired_means([0.1, 0.2, 0.3], [0.2, 0.3, 0.4])  # differences that are equal but for rounding
    assert (shifted.p, shifted.low, shifted.detectable) == (2 / 8, None, None)
    one = paired_means([1.0], [3.0])
    assert (one.difference, one.p, one.low, one.detectable) == (2.0, 1.0, None, None)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_means_refuse_what_is_not_finite(value: float) -> None:
    with pytest.raises(ValueError, match=f"value 1 of the second system is {value}"):
        paired_means([0.0, 0.0], [0.0, value])
    with pytest.raises(ValueError, match=f"value 0 of the first system is {value}"):
        paired_means([value, 0.0], [0.0, 0.0])


# --- families ---


def test_holm_by_hand() -> None:
    # in order 0.005 x 4, 0.01 x 3, 0.03 x 2, 0.04 x 1, of which the last may not be below the one before
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.01, None, 0.04, 0.03, None, 0.005]) == [
        *(pytest.approx(0.03), None, pytest.approx(0.06)),
        *(pytest.approx(0.06), None, pytest.approx(0.02)),
    ]
    assert holm([0.6, 0.7, 0.0]) == [1.0, 1.0, 0.0]
    assert (holm([]), holm([None]), holm([0.2])) == ([], [None], [0.2])
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="a p-value is from 0 to 1"):
            holm([0.5, wrong])


# --- simulation ---

NULLS = 2000


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paired, "SHUFFLES", 199)
    monkeypatch.setattr(paired, "RESAMPLES", 2)
    monkeypatch.setattr(paired, "detectable", lambda n, discordant: None)


def _null_proportions(draw: np.random.Generator) -> Paired:
    hard = draw.random(100)  # samples differ in how often they are right, which pairs the systems
    first, second = draw.random((2, 100)) < hard
    return paired_proportions(first.tolist(), second.tolist())


def _found(draw: np.random.Generator, sentences: int, rate: float) -> list[Tally]:
    return [Tally(int(k), 3, 3) for k in draw.binomial(3, rate, size=sentences)]


def _null_f1(draw: np.random.Generator) -> Paired:
    said = 3 + draw.integers(0, 3, size=(2, 30))
    right = draw.binomial(3, 0.6, size=(2, 30))
    first, second = (
        [Tally(int(k), int(m), 3) for k, m in zip(*rows, strict=True)] for rows in zip(right, said, strict=True)
    )
    return paired_f1(first, second)


def _null_means(draw: np.random.Generator) -> Paired:
    first, second = draw.gamma(0.5, size=(2, 30))  # as skewed as the surprise of answers
    return paired_means(first.tolist(), second.tolist())


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("compare", [_null_proportions, _null_f1, _null_means])
def test_equal_systems_seldom_differ(compare: Callable[[np.random.Generator], Paired]) -> None:
    draw = np.random.default_rng(17)
    p_values = [compare(draw).p for _ in range(NULLS)]
    below = sum(p is not None and p < 0.05 for p in p_values) / NULLS
    assert 0.015 <= below <= 0.06  # the exact test of few pairs is the one that keeps well below


def test_a_detectable_mean_is_detected(few_draws: None) -> None:
    scores = stats.norm.ppf((np.arange(60) + 0.5) / 60)
    size = paired_means([0.0] * 60, (scores / scores.std(ddof=1)).tolist()).detectable
    assert size == pytest.approx((Z + 0.8416212) / math.sqrt(60))
    assert size is not None
    draw = np.random.default_rng(23)
    p_values = [paired_means([0.0] * 60, draw.normal(size, 1.0, size=60).tolist()).p for _ in range(500)]
    assert 0.7 <= sum(p is not None and p < 0.05 for p in p_values) / 500 <= 0.9


def test_a_detectable_f1_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(29)
    pilots = [paired_f1(_found(draw, 100, 0.6), _found(draw, 100, 0.7)).detectable for _ in range(10)]
    size = sum(pilot or math.nan for pilot in pilots) / 10
    monkeypatch.setattr(paired, "SHUFFLES", 499)
    monkeypatch.setattr(paired, "RESAMPLES", 2)
    p_values = [paired_f1(_found(draw, 100, 0.6), _found(draw, 100, 0.6 + size)).p for _ in range(500)]
    assert 0.7 <= sum(p is not None and p < 0.05 for p in p_values) / 500 <= 0.9

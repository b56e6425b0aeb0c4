"""Metrics and intervals, against hand-worked values, seqeval and scipy."""

from __future__ import annotations

import random
from typing import Any

import pytest

from localeval import score_tags
from localeval.metrics.intervals import bootstrap, wilson
from localeval.report.build import mean_of
from localeval.schema import Tally


def test_score_tags_by_hand() -> None:
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-PER"]]
    said = [["B-PER", "I-PER", "O", "B-PER"], ["O", "O"]]
    scores = score_tags(gold, said)
    # 3 gold entities, 2 predicted, 1 right; tokens: 4 of 6
    assert (scores.precision, scores.recall, scores.f1) == (1 / 2, 1 / 3, 2 / 5)
    assert scores.accuracy == 4 / 6
    assert scores.by_type["PER"] == Tally(1, 2, 2)
    assert scores.by_type["LOC"].precision is None
    assert scores.by_type["LOC"].f1 == 0.0


def test_score_tags_where_nothing_is_defined() -> None:
    nothing = score_tags([["O", "O"]], [["O", "O"]])
    assert (nothing.precision, nothing.recall, nothing.f1, nothing.accuracy) == (None, None, None, 1.0)
    empty = score_tags([], [])
    assert (empty.f1, empty.accuracy, empty.by_type) == (None, None, {})


def test_score_tags_refuses_unequal_lengths() -> None:
    with pytest.raises(ValueError, match="2 gold sentences but 1 predicted"):
        score_tags([["O"], ["O"]], [["O"]])
    with pytest.raises(ValueError, match="sentence 1: 2 gold tags but 1 predicted"):
        score_tags([["O"], ["O", "O"]], [["O"], ["O"]])
    with pytest.raises(ValueError, match="'PER'"):
        score_tags([["PER"]], [["O"]])


def test_score_tags_agrees_with_seqeval() -> None:
    from seqeval.metrics import accuracy_score, classification_report
    from seqeval.scheme import IOB2

    draw = random.Random(7)
    tags = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG"]
    checked = 0
    for _ in range(1000):
        lengths = [draw.randint(1, 12) for _ in range(draw.randint(1, 4))]
        gold = [[draw.choice(tags) for _ in range(length)] for length in lengths]
        said = [[tag if draw.random() < 0.6 else draw.choice(tags) for tag in row] for row in gold]
        ours = score_tags(gold, said)
        if not ours.entities.gold and not ours.entities.predicted:
            continue
        theirs = classification_report(gold, said, mode="strict", scheme=IOB2, output_dict=True, zero_division=0)
        assert ours.accuracy == pytest.approx(accuracy_score(gold, said))
        for name, tally in {"micro avg": ours.entities, **ours.by_type}.items():
            expected = theirs[name]
            assert (tally.precision or 0.0) == pytest.approx(expected["precision"])
            assert (tally.recall or 0.0) == pytest.approx(expected["recall"])
            assert (tally.f1 or 0.0) == pytest.approx(expected["f1-score"])
            assert tally.gold == expected["support"]
            checked += 1
    assert checked > 3000


def test_wilson_agrees_with_scipy() -> None:
    from scipy.stats import binomtest

    for correct, n in [(0, 5), (1, 3), (50, 100), (13535, 13535), (777, 1000)]:
        estimate = wilson(correct, n)
        theirs = binomtest(correct, n).proportion_ci(confidence_level=0.95, method="wilson")
        assert estimate.value == correct / n
        assert (estimate.low, estimate.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    assert wilson(0, 0).value is None


def test_bootstrap_agrees_with_scipy() -> None:
    import numpy as np
    from scipy.stats import bootstrap as reference

    draw = random.Random(3)
    tallies = []
    for _ in range(300):
        gold = draw.randint(0, 4)
        said = draw.randint(0, 4)
        tallies.append(Tally(draw.randint(0, min(gold, said)), said, gold))
    ours = bootstrap(tallies)["f1"]
    columns: Any = [
        np.array(column) for column in zip(*((t.correct, t.predicted, t.gold) for t in tallies), strict=True)
    ]

    def f1(correct: Any, said: Any, gold: Any, axis: int = -1) -> Any:
        return 2 * np.sum(correct, axis=axis) / (np.sum(said, axis=axis) + np.sum(gold, axis=axis))

    theirs = reference(columns, f1, paired=True, method="percentile", n_resamples=5000, rng=1).confidence_interval
    assert ours.low == pytest.approx(theirs.low, abs=0.01)
    assert ours.high == pytest.approx(theirs.high, abs=0.01)
    assert bootstrap(tallies) == bootstrap(tallies)


def test_bootstrap_without_anything_to_draw() -> None:
    assert bootstrap([])["f1"].value is None
    nothing = bootstrap([Tally(), Tally()])
    assert (nothing["f1"].value, nothing["f1"].low) == (None, None)


def test_mean_of_what_is_defined() -> None:
    assert mean_of([0.5, None, 1.0]) == 0.75
    assert mean_of([None]) is None


def test_tally_adds() -> None:
    assert Tally(1, 2, 3) + Tally(1, 0, 1) == Tally(2, 2, 4)
    assert Tally(0, 0, 5).f1 == 0.0

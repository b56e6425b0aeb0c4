"""Multiple choice by likelihood: prompts, spellings, probabilities, and the metrics of them; worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from scipy import stats

from localeval.metrics import mcq
from localeval.metrics.intervals import mean
from localeval.schema import Bin, Estimate, Sample, Score, Tally
from localeval.tasks import likelihood
from localeval.templates import Templates


def sample(gold: str = "A", choices: tuple[str, ...] = ("one", "two", "three"), number: int = 0) -> Sample:
    return Sample(f"d:{number}", "d", "How many?", (gold,), choices=choices)


def log(**probabilities: float) -> dict[str, float]:
    return {letter: math.log(p) for letter, p in probabilities.items()}


# --- asking and reading ---


def test_a_cloze_prompt_is_the_question_after_the_shown_answers() -> None:
    templates = Templates("", "", "", "Question: {question}\nAnswer:")
    shown = [sample("B"), Sample("d:9", "d", "{choices}?", ("C",), choices=("x", "y", "z"))]
    assert likelihood.ask_cloze(sample(), shown, templates) == (
        "Question: How many?\nAnswer: two\n\nQuestion: {choices}?\nAnswer: z\n\nQuestion: How many?\nAnswer:"
    )


def test_a_letters_spellings_are_added() -> None:
    found = {" A": math.log(0.5), "A": math.log(0.25), " B": math.log(0.125)}
    logprobs = likelihood.letter_logprobs("AB", found)
    assert math.exp(logprobs["A"]) == pytest.approx(0.75)
    assert math.exp(logprobs["B"]) == pytest.approx(0.125)
    with pytest.raises(ValueError, match="no log probability of C"):
        likelihood.letter_logprobs("ABC", found)


def test_a_letter_that_is_nearly_impossible_is_still_a_number() -> None:
    logprobs = likelihood.letter_logprobs("AB", {" A": -2000.0, "A": -2000.0, " B": -3000.0})
    assert logprobs == {"A": pytest.approx(-2000.0 + math.log(2)), "B": -3000.0}
    score = likelihood.score_letters(sample("B", ("x", "y")), logprobs)
    assert score.parsed == "A"
    assert mcq.group([score], "logprob").metrics["nll"].value == 3000.0


def test_a_text_is_weighed_by_its_characters() -> None:
    # "one" and "two" have 3 characters, "three" has 5, an empty option counts as one
    found = {"text A": -6.0, "text B": -3.0, "text C": -4.0, "text D": -2.5}
    assert likelihood.text_logprobs(("one", "two", "three", ""), found) == {"A": -2.0, "B": -1.0, "C": -0.8, "D": -2.5}
    assert likelihood.text_logprobs(("नमस्ते", "x"), {"text A": -6.0, "text B": -1.0})["A"] == -1.0  # six code points
    with pytest.raises(ValueError, match="no log probability of text C, text D"):
        likelihood.text_logprobs(("one", "two", "three", ""), {"text A": -1.0, "text B": -1.0})


def test_the_most_likely_option_answers_and_the_first_of_equal_ones() -> None:
    score = likelihood.score_texts(sample("B"), log(A=0.1, B=0.2, C=0.2))
    assert score == Score(
        "d:0", "B", {"answer": Tally(1, 1, 1), "letter:B": Tally(1, 1, 1)}, {}, log(A=0.1, B=0.2, C=0.2)
    )
    assert likelihood.score_letters(sample("C"), log(A=0.1, B=0.2, C=0.2)).tallies == {
        "answer": Tally(0, 1, 1),
        "letter:B": Tally(0, 1, 0),
        "letter:C": Tally(0, 0, 1),
    }


# --- metrics ---

# Four questions of two letters; the letters' probabilities and the gold letter.
FOUR: list[tuple[Mapping[str, float], str]] = [
    ({"A": 0.6, "B": 0.2}, "A"),  # among the letters: 0.75, 0.25; outside 0.2
    ({"A": 0.1, "B": 0.3}, "A"),  # 0.25, 0.75; outside 0.6
    ({"A": 0.45, "B": 0.05}, "A"),  # 0.9, 0.1; outside 0.5
    ({"A": 0.5, "B": 0.5}, "B"),  # 0.5, 0.5, and A is the first; outside 0
]


def four() -> list[Score]:
    return [
        likelihood.score_letters(sample(gold, ("x", "y"), number), log(**probabilities))
        for number, (probabilities, gold) in enumerate(FOUR)
    ]


def test_metrics_of_probabilities_by_hand() -> None:
    metrics = mcq.group(four(), "logprob").metrics
    assert list(metrics) == ["accuracy", "nll", "probability", "brier", "outside", "ece"]
    values = {name: estimate.value for name, estimate in metrics.items()}
    assert values["accuracy"] == 0.5  # right, wrong, right, wrong
    assert values["nll"] == pytest.approx(-(math.log(0.6) + math.log(0.1) + math.log(0.45) + math.log(0.5)) / 4)
    assert values["probability"] == pytest.approx((0.6 + 0.1 + 0.45 + 0.5) / 4)
    # Brier: 2 * 0.25^2, 2 * 0.75^2, 2 * 0.1^2, 2 * 0.5^2
    assert values["brier"] == pytest.approx((0.125 + 1.125 + 0.02 + 0.5) / 4)
    assert values["outside"] == pytest.approx((0.2 + 0.6 + 0.5 + 0.0) / 4)
    # Bins: 0.75 twice (one right), 0.9 once (right), 0.5 once (wrong): (2 |0.5 - 0.75| + |1 - 0.9| + |0 - 0.5|) / 4
    assert values["ece"] == pytest.approx((0.5 + 0.1 + 0.5) / 4)


def test_the_reliability_table() -> None:
    bins = mcq.reliability(four())
    assert [(row.low, row.high) for row in bins] == [(n / 10, (n + 1) / 10) for n in range(10)]
    assert {row.low: (row.n, row.correct) for row in bins if row.n} == {0.5: (1, 0), 0.7: (2, 1), 0.9: (1, 1)}
    assert [row.confidence for row in bins if row.n] == pytest.approx([0.5, 1.5, 0.9])
    assert mcq.calibration_error([Bin(0, 1, 0, 0, 0.0)]) is None
    certain = mcq.reliability([likelihood.score_letters(sample("A", ("x", "y")), {"A": 0.0, "B": -900.0})])
    assert certain[9] == Bin(0.9, 1.0, 1, 1, 1.0)


def test_metrics_of_texts() -> None:
    scores = [
        likelihood.score_texts(sample("B"), {"A": -2.0, "B": -1.0, "C": -3.0}),
        likelihood.score_texts(sample("C"), {"A": -2.0, "B": -1.0, "C": -3.0}),
    ]
    metrics = mcq.group(scores, "cloze").metrics
    assert list(metrics) == ["accuracy", "nll_per_character"]
    assert (metrics["accuracy"].value, metrics["nll_per_character"].value) == (0.5, 2.0)


def test_nothing_to_measure() -> None:
    for mode in ("generate", "logprob", "cloze"):
        assert {estimate.value for estimate in mcq.group([], mode).metrics.values()} == {None}


def test_position_bias_is_counted_by_letter() -> None:
    assert mcq.by_letter(four(), "AB") == {"A": Tally(2, 3, 3), "B": Tally(0, 1, 1)}
    unread = Score("d:1", None, {"answer": Tally(0, 0, 1), "letter:C": Tally(0, 0, 1)})
    # a letter that is never the answer is shown, too
    assert mcq.by_letter([unread], "ABC") == {"A": Tally(), "B": Tally(), "C": Tally(0, 0, 1)}


def test_the_interval_of_a_mean() -> None:
    values = [0.1, 0.4, 0.35, 0.8, 0.9]
    ours = mean(values)
    low, high = stats.norm.interval(0.95, loc=sum(values) / 5, scale=stats.sem(values))
    assert ours.value == pytest.approx(0.51)
    assert ours.low == pytest.approx(low)
    assert ours.high == pytest.approx(high)
    assert mean([3.0]) == Estimate(3.0)
    assert mean([0.0, 0.03], 0.0, 1.0).low == 0.0  # a probability's interval ends at 0
    assert mean([1.0, 0.9], 0.0, 1.0).high == 1.0
    assert mean([]) == Estimate(None)

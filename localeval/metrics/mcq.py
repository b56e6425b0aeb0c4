"""Metrics of multiple-choice answers: of letters that were read, and of options that were scored. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from localeval.metrics.intervals import mean, wilson
from localeval.schema import Bin, Confused, Estimate, Group, Mode, Score, Tally

BINS = 10
"""Rows of the reliability table, of equal width."""

# --- letters ---


def accuracy(scores: Sequence[Score]) -> Estimate:
    """Right answers over all questions (an answer that can't be read is wrong), with its Wilson interval."""
    total = sum((score.tallies["answer"] for score in scores), Tally())
    return wilson(total.correct, total.gold)


def with_forced(scores: Sequence[Score]) -> Estimate:
    """The same, where a reply that can't be read counts by its forced answer."""
    right = sum(score.tallies["answer"].correct + forced_right(score) for score in scores)
    return wilson(right, sum(score.tallies["answer"].gold for score in scores))


def forced_right(score: Score) -> bool:
    """Whether a forced answer is the right one; False where there is none."""
    return score.forced is not None and score.forced == _gold(score)


def by_letter(scores: Sequence[Score], letters: str) -> dict[str, Tally]:
    """How often each letter is the answer, is right, and is the gold one: what shows a preference for a position."""
    return {
        letter: sum((score.tallies.get(f"letter:{letter}", Tally()) for score in scores), Tally()) for letter in letters
    }


def confusion(scores: Iterable[Score]) -> tuple[Confused, ...]:
    """How often each letter was answered to each right one; None for a reply that could not be read."""
    found = Counter((_gold(score), score.parsed) for score in scores)
    order = sorted(found.items(), key=lambda item: (item[0][0], item[0][1] is None, item[0][1] or ""))
    return tuple(Confused(gold, predicted, True, n) for (gold, predicted), n in order)


def group(scores: Sequence[Score], mode: Mode) -> Group:
    """The metrics of some of the samples: accuracy, and for ``logprob`` and ``cloze`` those of their probabilities."""
    metrics = {"accuracy": accuracy(scores)}
    values = [smooth(score, mode) for score in scores]
    for name, (least, most) in _RANGES[mode].items():
        metrics[name] = mean([each[name] for each in values], least, most)
    if mode == "logprob":
        metrics["ece"] = Estimate(calibration_error(reliability(scores)))
    return Group(len(scores), metrics)


# --- probabilities ---

_RANGES: dict[Mode, dict[str, tuple[float, float]]] = {
    "generate": {},
    "constrained": {},
    "logprob": {"nll": (0.0, math.inf), "probability": (0.0, 1.0), "brier": (0.0, 2.0), "outside": (0.0, 1.0)},
    "cloze": {"nll_per_character": (0.0, math.inf)},
}
"""By mode the metrics that are means over samples, and between what a value can be."""


def smooth(score: Score, mode: Mode) -> dict[str, float]:
    """A sample's share of each metric that is a mean over samples."""
    if mode == "logprob":
        gold = _of_gold(score)
        return {"nll": -gold, "probability": math.exp(gold), "brier": _brier(score), "outside": _outside(score)}
    return {"nll_per_character": -_of_gold(score)} if mode == "cloze" else {}


def _gold(score: Score) -> str:
    (kind,) = (kind for kind, tally in score.tallies.items() if kind.startswith("letter:") and tally.gold)
    return kind.removeprefix("letter:")


def _of_gold(score: Score) -> float:
    """The log likelihood of the right option."""
    return score.logprobs[_gold(score)]


def _among_options(score: Score) -> dict[str, float]:
    """Each option's probability, given that the model names one of them: they add up to 1."""
    top = max(score.logprobs.values())
    weights = {letter: math.exp(value - top) for letter, value in score.logprobs.items()}
    total = sum(weights.values())
    return {letter: weight / total for letter, weight in weights.items()}


def _brier(score: Score) -> float:
    """Squared distance from certainty of the right option, summed over the options: 0 to 2 (G. W. Brier, 1950)."""
    gold = _gold(score)
    return sum((p - (letter == gold)) ** 2 for letter, p in _among_options(score).items())


def _outside(score: Score) -> float:
    """The probability that the next token is no letter of the row; rounding may leave less than nothing."""
    return max(0.0, 1.0 - math.fsum(score.probabilities.values()))


def reliability(scores: Sequence[Score]) -> tuple[Bin, ...]:
    """Answers by confidence, the answer's probability among the options, in bins of equal width."""
    counts = [[0, 0] for _ in range(BINS)]
    confidences: list[list[float]] = [[] for _ in range(BINS)]
    for score in scores:
        confidence = max(_among_options(score).values())
        index = min(int(confidence * BINS), BINS - 1)
        counts[index][0] += 1
        counts[index][1] += score.tallies["answer"].correct
        confidences[index].append(confidence)
    return tuple(
        Bin(index / BINS, (index + 1) / BINS, n, correct, math.fsum(confidences[index]))
        for index, (n, correct) in enumerate(counts)
    )


def calibration_error(bins: Iterable[Bin]) -> float | None:
    """Expected calibration error: the mean over answers of ``|accuracy - confidence|`` of their bin.

    M. P. Naeini, G. F. Cooper, M. Hauskrecht: Obtaining well calibrated probabilities using Bayesian binning (2015).
    None for no answers.
    """
    rows = list(bins)
    total = sum(row.n for row in rows)
    return math.fsum(abs(row.correct - row.confidence) for row in rows) / total if total else None

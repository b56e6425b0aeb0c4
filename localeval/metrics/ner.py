"""Precision, recall, F1 and token accuracy of named entities: strict IOB2, entity level. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localeval.metrics.intervals import bootstrap
from localeval.schema import Estimate, Group, Score, Tally
from localeval.spans import spans_from_tags

# --- tags against tags ---


@dataclass(frozen=True, slots=True)
class TagScores:
    """entities: all types together (micro). tokens: one a token. by_type: label -> its entities. Ratios may be None."""

    entities: Tally
    tokens: Tally
    by_type: dict[str, Tally]

    @property
    def precision(self) -> float | None:
        return self.entities.precision

    @property
    def recall(self) -> float | None:
        return self.entities.recall

    @property
    def f1(self) -> float | None:
        return self.entities.f1

    @property
    def accuracy(self) -> float | None:
        """The share of tokens whose tag is right."""
        return self.tokens.recall


def score_tags(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> TagScores:
    """Scores predicted IOB2 tags against gold, both lists of sentences of tags.

    An entity is right when its type and both its ends are. Agrees with seqeval's
    ``mode="strict", scheme=IOB2``, except that what is not defined is None and not 0.
    Raises ValueError for unequal numbers of sentences or of tags in a sentence, and for a tag that is not IOB2.
    """
    if len(gold) != len(predicted):
        raise ValueError(f"{len(gold)} gold sentences but {len(predicted)} predicted ones")
    tallies: dict[str, Tally] = {}
    tokens = Tally()
    for index, (right, said) in enumerate(zip(gold, predicted, strict=True)):
        if isinstance(right, str) or isinstance(said, str):
            raise ValueError(f"sentence {index} is text; expected a list of tags")
        if len(right) != len(said):
            raise ValueError(f"sentence {index}: {len(right)} gold tags but {len(said)} predicted ones")
        tokens += Tally(sum(a == b for a, b in zip(right, said, strict=True)), len(said), len(right))
        gold_spans, said_spans = set(spans_from_tags(right)), set(spans_from_tags(said))
        for span in gold_spans | said_spans:
            in_gold, in_said = span in gold_spans, span in said_spans
            tallies[span.label] = tallies.get(span.label, Tally()) + Tally(in_gold and in_said, in_said, in_gold)
    return TagScores(sum(tallies.values(), Tally()), tokens, dict(sorted(tallies.items())))


# --- scores of replies ---


def entity_tally(score: Score) -> Tally:
    """All of a sentence's entities, whatever their type."""
    return sum((tally for kind, tally in score.tallies.items() if kind.startswith("entity:")), Tally())


def group(scores: Sequence[Score]) -> Group:
    """Micro precision, recall and F1 with bootstrap intervals, and the accuracy per token.

    That has no interval: tokens of one sentence are not independent.
    """
    tokens = sum((score.tallies["token"] for score in scores), Tally())
    metrics = bootstrap([entity_tally(score) for score in scores])
    return Group(len(scores), {**metrics, "accuracy": Estimate(tokens.recall)})


def by_type(scores: Sequence[Score], labels: Sequence[str]) -> dict[str, Group]:
    """One group a type, in the dataset's order; ``n`` counts its gold entities."""
    groups = {}
    for label in labels:
        tally = sum((score.tallies.get(f"entity:{label}", Tally()) for score in scores), Tally())
        ratios = {"precision": tally.precision, "recall": tally.recall, "f1": tally.f1}
        groups[label] = Group(tally.gold, {name: Estimate(value) for name, value in ratios.items()})
    return groups

"""Precision, recall, F1 and token accuracy of named entities: strict IOB2, entity level. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from localeval.metrics.intervals import bootstrap
from localeval.schema import Confused, Estimate, Group, Score, Span, Tally
from localeval.spans import spans_from_tags

# --- tags against tags ---


@dataclass(frozen=True, slots=True)
class TagScores:
    """Tags, scored; a ratio is None where it is not defined.

    entities: all types together (micro). tokens: one a token. by_type: label -> its entities.
    """

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


# --- what was tagged in place of what ---


@dataclass(frozen=True, slots=True)
class Pair:
    """An entity of the gold and the one that a reply has in its place; None for what is only in one of the two.

    Both are spans over tokens.
    """

    gold: Span | None
    predicted: Span | None

    @property
    def exact(self) -> bool:
        """Whether both ends agree."""
        gold, said = self.gold, self.predicted
        return gold is not None and said is not None and (gold.start, gold.end) == (said.start, said.end)


def pairs(gold: Sequence[str], predicted: Sequence[str] | None) -> list[Pair]:
    """Pairs the entities of two taggings of one sentence, each once, and gives them in the order of the tokens.

    Those with the same ends first, whatever their types; of the others the ones that overlap, from left to right; what
    is left was missed, or is spurious. predicted: None for a reply that could not be read, which has no entity.
    """
    right, said = spans_from_tags(gold), spans_from_tags(predicted or ())
    by_ends = {(span.start, span.end): span for span in said}
    found = [Pair(span, by_ends.pop((span.start, span.end), None)) for span in right]
    left = list(by_ends.values())
    for place, pair in enumerate(found):
        if pair.predicted is None and pair.gold is not None:
            overlapping = next((s for s in left if s.start < pair.gold.end and pair.gold.start < s.end), None)
            if overlapping is not None:
                left.remove(overlapping)
                found[place] = Pair(pair.gold, overlapping)
    found += [Pair(None, span) for span in left]
    return sorted(found, key=lambda pair: min(s.start for s in (pair.gold, pair.predicted) if s is not None))


def confusion(gold: Iterable[Sequence[str]], scores: Iterable[Score]) -> tuple[Confused, ...]:
    """How often each type stood in place of each. gold: the tags of each sentence; scores: one each.

    Summed over one gold type it is its entities in the gold, over one predicted type its entities in the replies.
    """
    found: Counter[tuple[str | None, str | None, bool]] = Counter()
    for tags, score in zip(gold, scores, strict=True):
        for pair in pairs(tags, None if score.parsed is None else score.parsed.split(" ")):
            found[_label(pair.gold), _label(pair.predicted), pair.exact] += 1
        found.update((None, each.label, False) for each in score.invented)

    def place(item: tuple[tuple[str | None, str | None, bool], int]) -> tuple[bool, str, bool, str, bool]:
        (right, said, exact), _ = item
        return right is None, right or "", said is None, said or "", not exact

    return tuple(Confused(*key, n) for key, n in sorted(found.items(), key=place))


def _label(span: Span | None) -> str | None:
    return None if span is None else span.label

"""Samples that one of two models has right and the other has not, as a page shows them. Pure.

Knows comparisons and samples as values; no file. All flips are in flips.jsonl.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from localeval.report.comparison import Comparison, Flip
from localeval.report.reasons import REASONS
from localeval.schema import Sample, title_of
from localeval.spans import spans_from_tags

EACH, ALL = 200, 1000
"""Rows that a page shows of one pair of models, and of all pairs together: in Indic scripts some two megabytes."""
_QUESTION, _READING = 300, 150
"""Characters that are shown of a question, and of a reading."""


@dataclass(frozen=True, slots=True)
class FlipRow:
    """change: ``gained`` or ``lost``. question: empty where the run folder does not hold its samples.

    gold, first, second: the right reading, the baseline's, the candidate's, as a reader would say them.
    """

    sample_id: str
    subset: str
    change: str
    question: str
    gold: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Flipped:
    """One candidate against the baseline. gained, lost: how many there are; rows: those that are shown."""

    title: str
    baseline: str
    candidate: str
    gained: int
    lost: int
    rows: tuple[FlipRow, ...]


def chosen_flips(comparison: Comparison) -> list[Flip]:
    """Those that a page shows: of each pair of models as many, the same samples where they flipped, in their order.

    Which ones is decided by a digest of the sample's id: as good as drawn, and always the same.
    """
    pairs = Counter(map(_pair, comparison.flips))
    share = min(EACH, max(1, ALL // max(1, len(pairs))))
    left = dict.fromkeys(list(pairs)[:ALL], share)
    chosen = set()
    for flip in sorted(comparison.flips, key=_drawn):
        if left.get(_pair(flip), 0):
            left[_pair(flip)] -= 1
            chosen.add((_pair(flip), flip.sample_id))
    return [flip for flip in comparison.flips if (_pair(flip), flip.sample_id) in chosen]


def flipped(comparison: Comparison, samples: Mapping[tuple[str, str], Sample]) -> list[Flipped]:
    """The flips by pair of models. samples: those of the chosen flips, by the dataset's title and the sample's id."""
    rows: dict[tuple[str, str, str], list[FlipRow]] = {}
    for flip in chosen_flips(comparison):
        rows.setdefault(_pair(flip), []).append(_row(flip, samples.get((_pair(flip)[0], flip.sample_id))))
    counts = Counter((_pair(flip), flip.change) for flip in comparison.flips)
    return [
        Flipped(*pair, counts[pair, "gained"], counts[pair, "lost"], tuple(rows.get(pair, ())))
        for pair in dict.fromkeys(map(_pair, comparison.flips))
    ]


def _drawn(flip: Flip) -> tuple[bytes, str]:
    return sha256(flip.sample_id.encode(errors="backslashreplace")).digest(), flip.sample_id


def _pair(flip: Flip) -> tuple[str, str, str]:
    return title_of(flip.dataset, flip.mode), flip.baseline, flip.candidate


def _row(flip: Flip, sample: Sample | None) -> FlipRow:
    first, second = (
        _unread(reason) if parsed is None else _said(parsed, sample)
        for parsed, reason in zip(flip.parsed, flip.reasons, strict=True)
    )
    if sample is None:
        return FlipRow(flip.sample_id, "", flip.change, "", "", first, second)
    gold = _said(" ".join(sample.gold), sample)
    return FlipRow(flip.sample_id, sample.subset, flip.change, _cut(sample.text, _QUESTION), gold, first, second)


def _unread(reason: str | None) -> str:
    return "not read" if reason is None else f"not read: {REASONS[reason].short}"


def _said(parsed: str, sample: Sample | None) -> str:
    """A reading in words: a letter with its option, or the entities with their types."""
    if sample is None or not (sample.tokens or sample.choices):
        return _cut(parsed, _READING)
    if sample.tokens:
        return _cut(_entities(sample.tokens, parsed.split(" ")), _READING)
    place = ord(parsed) - ord("A") if len(parsed) == 1 else -1
    known = 0 <= place < len(sample.choices)
    return _cut(f"{parsed}: {sample.choices[place]}" if known else parsed, _READING)


def _entities(tokens: Sequence[str], tags: Sequence[str]) -> str:
    found = [f"{span.label}: {' '.join(tokens[span.start : span.end])}" for span in spans_from_tags(tags)]
    return " · ".join(found) or "no entity"


def _cut(text: str, longest: int) -> str:
    """The first characters of a long text, with a sign that it goes on."""
    return text if len(text) <= longest else text[: longest - 1] + "…"

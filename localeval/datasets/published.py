"""What was measured of a dataset at hand, held against what is published of it. Pure; measures nothing itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from localeval.datasets.spec import DatasetSpec
from localeval.schema import Sample

_NAMES = ("prompts", "mean", "min", "max")
_ROUNDED = 0.0051
"""Published means are rounded to two places."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The data at hand.

    prompts: by subset, and over several as ``all``: how many, and the mean, least and most characters of the user's
    message. shots: with how many; None where it is asked in other words than the dataset's. entities: label -> how many
    the gold has.
    """

    prompts: Mapping[str, tuple[int, float, int, int]]
    shots: int | None
    entities: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Pair:
    """of: a subset, or a label. what: which figure of it."""

    of: str
    what: str
    published: float
    here: float

    @property
    def differs(self) -> bool:
        return abs(self.published - self.here) > (_ROUNDED if isinstance(self.published, float) else 0)

    def __str__(self) -> str:
        published, here = (f"{x:,.2f}" if isinstance(x, float) else f"{x:,}" for x in (self.published, self.here))
        return f"{self.what} here {here}, published {published}"


def held_against(spec: DatasetSpec, measured: Measured) -> list[str]:
    """Lines that say whether the data at hand are those that figures were published of; none where there are none.

    Lengths are compared only where as many shots are shown as were for the published ones, and ``all`` and the counts
    of entities only where every subset is here.
    """
    published = spec.published
    if published is None:
        return []
    pairs = list(_pairs(spec, measured))
    wrong = [pair for pair in pairs if pair.differs]
    lines = [f"as published ({published.source}): the same" if pairs and not wrong else ""]
    if wrong:
        lines = [f"not as published ({published.source}): {len(wrong)} of {len(pairs)} figures differ"]
        names = dict.fromkeys(pair.of for pair in wrong)
        lines += [f"{name} differs: {'; '.join(str(pair) for pair in wrong if pair.of == name)}" for name in names]
    if published.shots is not None and measured.shots != published.shots:
        asked = "other words" if measured.shots is None else f"{measured.shots} shots"
        lines.append(f"published lengths are of {published.shots} shots, here are {asked}: not compared")
    return [line for line in lines if line]


def _pairs(spec: DatasetSpec, measured: Measured) -> Iterator[_Pair]:
    published = spec.published
    assert published is not None
    subsets = [name for name in measured.prompts if name != "all"]
    whole = len(subsets) == len(spec.subsets)
    for name in [*subsets, *(["all"] if whole and "all" in measured.prompts else [])]:
        figures = published.prompts.get(name, published.prompts.get("each", ()) if name != "all" else ())
        compared = len(_NAMES) if measured.shots == published.shots else 1
        for what, theirs, ours in list(zip(_NAMES, figures, measured.prompts[name], strict=False))[:compared]:
            yield _Pair(name, what, theirs, ours)
    for label, count in published.entities.items() if whole else ():
        yield _Pair(label, "entities", count, measured.entities.get(label, 0))


def count_entities(samples: Sequence[Sample]) -> Counter[str]:
    """Label -> how many entities the gold has of it."""
    return Counter(tag[2:] for sample in samples if sample.tokens for tag in sample.gold if tag.startswith("B-"))

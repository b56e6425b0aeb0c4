"""Which samples are inside a page: a few of each kind, the same ones each time. Pure; one pass, bounded memory.

A kind is a subset with a set of outcomes (wrong and cut, right, ...). Each kind has as many rows as any other, as far
as it has them, but right answers half as many: who opens a page looks for what went wrong. Within a kind a digest of
the sample's id decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from heapq import heappop, heappush, heappushpop
from typing import Any

from localeval.report.rows import outcomes, packed, row
from localeval.report.shell import as_json
from localeval.results import SampleResult

ROWS, BYTES, LONGEST = 1000, 2_500_000, 20_000
"""At most so many rows, so many bytes of JSON, and so many characters of a prompt or a reply."""
_HELD = 16_000_000
"""At most so many characters are held on the way: prompts that begin alike take less in the page."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """rows: as ``rows.row`` makes them, in the samples' order. n: of how many samples.

    outcomes: how many of all samples are right, wrong, unparsed, ... guessing: the accuracy that a guess has (MCQ).
    """

    rows: tuple[dict[str, Any], ...]
    n: int
    outcomes: Mapping[str, int]
    guessing: float | None


class Counting:
    """Counts samples as they pass."""

    def __init__(self) -> None:
        self.n = 0
        self._outcomes: Counter[str] = Counter()
        self._guesses = 0.0

    def add(self, result: SampleResult) -> tuple[str, ...]:
        """Gives its outcomes back."""
        found = outcomes(result)
        self.n += 1
        self._outcomes.update(found)
        self._guesses += 1 / len(result.choices) if result.choices else 0.0
        return found

    def counted(self, rows: Iterable[dict[str, Any]] = ()) -> Chosen:
        """rows: those that were chosen of them."""
        return Chosen(tuple(rows), self.n, dict(self._outcomes), self._guesses / self.n if self._guesses else None)


def chosen(results: Iterable[SampleResult], rows: int = ROWS, size: int = BYTES, longest: int = LONGEST) -> Chosen:
    """rows, size: the most rows, and bytes of JSON. longest: the most characters of a prompt or reply."""
    kept = _Kept(rows)
    counting = Counting()
    for result in results:
        found = counting.add(result)
        kept.offer(counting.n, result, found, longest)
    while (taken := len(as_json(packed(kept.in_order())).encode())) > size:
        kept.shrink(int(len(kept) * size / taken * 0.97))
    return counting.counted(kept.in_order())


class _Kept:
    """The rows so far, by kind; of each kind those with the least digests. One too many goes from the largest kind."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.kinds: dict[tuple[Any, ...], list[_Held]] = {}
        self.number = 0
        self.characters = 0
        self.largest = 0

    def __len__(self) -> int:
        return self.number

    def in_order(self) -> list[dict[str, Any]]:
        held = sorted((place, content) for heap in self.kinds.values() for _, place, content in heap)
        return [content for _, content in held]

    def offer(self, place: int, result: SampleResult, found: tuple[str, ...], longest: int) -> None:
        kind = (found, result.subset)
        heap = self.kinds.setdefault(kind, [])
        order = -int.from_bytes(sha256(result.sample_id.encode("utf-8", "surrogatepass")).digest()[:8])
        full = self.number >= self.most and (len(heap) + 1) * _weight(kind) >= self.largest
        if full and (not heap or order < heap[0][0]):
            return
        held = (order, place, row(result, longest))
        self.characters += _characters(held)
        if full:
            self.characters -= _characters(heappushpop(heap, held))
        else:
            heappush(heap, held)
            self.number += 1
            self.largest = max(self.largest, len(heap) * _weight(kind))
        while self.number > self.most or self.characters > _HELD:
            self.shrink(self.number - 1)

    def drop(self) -> None:
        """Takes a row away from the largest kind."""
        kind = max(self.kinds, key=lambda each: (len(self.kinds[each]) * _weight(each), each))
        self.characters -= _characters(heappop(self.kinds[kind]))
        self.number -= 1
        self.largest = max(len(heap) * _weight(each) for each, heap in self.kinds.items())

    def shrink(self, number: int) -> None:
        self.most = number
        while self.number > number:
            self.drop()


_Held = tuple[int, int, dict[str, Any]]
"""The digest, negated: the first of the heap is the next to go; the place among the samples; the row."""


def _weight(kind: tuple[Any, ...]) -> int:
    return 2 if "right" in kind[0] else 1


def _characters(held: _Held) -> int:
    return sum(len(held[2][field]) for field in ("text", "prompt", "reply"))

"""Which part of a reply is its copy of the sentence, and which entities it tags there."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from localeval.schema import Invented, Span
from localeval.tasks.ner.alignment import SIMILAR_ENOUGH, Stretch, equal_stretches, similar_stretches
from localeval.tasks.ner.letters import Letters, Sentence, bare, fold, in_word
from localeval.tasks.ner.marks import Kind, Marked, entities_of


@dataclass(frozen=True, slots=True)
class Copy:
    """A stretch that repeats the sentence, with the entities on its lines.

    ours, theirs: the letters of sentence and reply. first, last: the characters where its lines begin and end.
    """

    stretch: Stretch
    ours: Letters
    theirs: Letters
    first: int
    last: int
    spans: Sequence[Span]
    invented: tuple[Invented, ...]
    malformed: int

    def rank(self) -> tuple[bool, bool, float, int]:
        """Return the order of copies: with entities of this sentence, whole, similar, late."""
        tagged = bool(self.spans) and not self.invented
        return tagged, self.stretch.whole, self.stretch.similarity, self.stretch.start


class _Part(NamedTuple):
    """A part of a reply: its first character and its end. block: whether ``<response>`` begins it.

    cut: whether it may end within the sentence.
    """

    first: int
    last: int
    cut: bool
    block: bool


def best_copy(marked: Marked, sentence: Sentence, cut: bool) -> Copy | None:
    """Return the best copy of the sentence: in the ``<response>`` blocks, else one with tags anywhere.

    cut: the reply may end within the sentence.
    """
    blocks = [_Part(first, last, not ended, True) for first, last, ended in marked.blocks()]
    copy = _best(marked, blocks, sentence)
    if copy is None:
        copy = _best(marked, [_Part(0, len(marked.text), cut, False)], sentence)
        if copy is not None and blocks and not copy.spans:
            return None  # an echo beside an answer that says something else
    return copy


def _best(marked: Marked, parts: Sequence[_Part], sentence: Sentence) -> Copy | None:
    """Return the best copy in some parts; an exact one with tags is not compared with others."""
    places = [each.at for each in marked.marks if each.kind is Kind.START]
    plain: list[Copy] = []
    for ours, letters_of in ((sentence.bare, bare), (sentence.folded, fold)):
        theirs = letters_of(marked.text)
        starts = [theirs.before(place) for place in places]
        exact = [
            (_has_any(starts, stretch), stretch, part)
            for part in parts
            for stretch in equal_stretches(ours.text, theirs, theirs.before(part.first), theirs.before(part.last))
        ]
        for tagged, stretch, part in reversed(exact):
            if tagged:
                return _copy(stretch, ours, theirs, marked, part)
            if not plain and _stands_alone(stretch, theirs):
                plain = [_copy(stretch, ours, theirs, marked, part)]
        if plain and not places:
            return plain[0]
    return max([*plain, *_similar(marked, parts, sentence, theirs)], key=Copy.rank, default=None)


def _has_any(starts: Sequence[int], stretch: Stretch) -> bool:
    after = bisect_left(starts, stretch.start)
    return after < len(starts) and starts[after] < stretch.end


def _stands_alone(stretch: Stretch, letters: Letters) -> bool:
    """Return whether a stretch is no part of a longer one: "Japan" in "Japan is a location" is."""
    edges = [(at, at + 1) for at in (stretch.start - 1, stretch.end - 1) if 0 <= at < len(letters.text) - 1]
    return not any(
        "\n" not in letters.written(one, other + 1)
        and in_word(letters.source[letters.origin[one]])
        and in_word(letters.source[letters.origin[other]])
        for one, other in edges
    )


def _similar(marked: Marked, parts: Sequence[_Part], sentence: Sentence, letters: Letters) -> Iterator[Copy]:
    """Find copies with changes. One without tags is alone on its lines; unfinished, it stands in a block."""
    for part in parts:
        low, high = letters.before(part.first), letters.before(part.last)
        if _only_names(marked, letters, part):
            continue
        for stretch in similar_stretches(sentence, letters, low, high, part.cut):
            copy = _copy(stretch, sentence.folded, letters, marked, part)
            if copy.spans or (stretch.line >= SIMILAR_ENOUGH and (stretch.whole or part.block)):
                yield copy


def _only_names(marked: Marked, letters: Letters, part: _Part) -> bool:
    """Return whether a part is a list of tagged names, with nothing between them."""
    spans, _ = entities_of(marked.within(part.first, part.last), letters)
    places = [letters.before(part.first), *(at for span in spans for at in (span.start, span.end))]
    between = zip(places[::2], [*places[1::2], letters.before(part.last)], strict=True)
    return len(spans) > 1 and not any(any(map(str.isalnum, letters.text[start:end])) for start, end in between)


def _copy(stretch: Stretch, ours: Letters, theirs: Letters, marked: Marked, part: _Part) -> Copy:
    """Gather the entities on a stretch's lines: those in the stretch, and those that are not in the sentence at all."""
    first, last = _lines(stretch, theirs, part)
    spans, malformed = entities_of(marked.within(first, last), theirs)
    counterparts = set(stretch.counterpart)
    inside, invented = [], []
    for span in spans:
        text = theirs.written(span.start, span.end)
        if span.start < stretch.end and stretch.start < span.end:
            inside.append(span)
            is_new = counterparts.isdisjoint(range(span.start, span.end))
        else:
            is_new = fold(text).text not in fold(ours.source).text
        if is_new:
            invented.append(Invented(span.label, text))
    return Copy(stretch, ours, theirs, first, last, inside, tuple(invented), malformed)


def _lines(stretch: Stretch, letters: Letters, part: _Part) -> tuple[int, int]:
    """Return the characters where a stretch's lines begin and end, with the blank lines before and after."""
    text, first, last = letters.source, letters.origin[stretch.start], letters.origin[stretch.end - 1]
    before = letters.origin[stretch.start - 1] if stretch.start else part.first
    after = letters.origin[stretch.end] if stretch.end < len(letters.origin) else part.last
    start = text.find("\n", max(before, part.first), first)
    start = start if start >= 0 else text.rfind("\n", part.first, first)
    end = text.rfind("\n", last, min(after, part.last))
    end = end if end >= 0 else text.find("\n", last, part.last)
    before_all, after_all = letters.before(part.first) >= stretch.start, letters.before(part.last) <= stretch.end
    return (
        part.first if before_all or start < 0 else start + 1,
        part.last if after_all or end < 0 else end,
    )

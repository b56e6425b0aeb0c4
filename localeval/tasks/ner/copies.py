"""Which part of a reply is its copy of the sentence, and which entities it tags there."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from localeval.schema import Invented, Span
from localeval.tasks.ner.alignment import SIMILAR_ENOUGH, Part, Stretch, equal_stretches, similar_stretches
from localeval.tasks.ner.letters import Letters, Sentence, bare, fold, in_word
from localeval.tasks.ner.marks import Kind, Mark, Marked, entities_of


@dataclass(frozen=True, slots=True)
class Copy:
    """A stretch that repeats the sentence, with the entities on its lines.

    ours, theirs: the letters of sentence and reply. marks: all tags on its lines.
    """

    stretch: Stretch
    ours: Letters
    theirs: Letters
    marks: Sequence[Mark]
    spans: Sequence[Span]
    invented: tuple[Invented, ...]
    malformed: int

    def rank(self) -> tuple[bool, bool, float, int]:
        """Return the order of copies: with entities that stand in the sentence, whole, similar, late."""
        return 2 * len(self.invented) < len(self.spans), self.stretch.whole, self.stretch.similarity, self.stretch.start


def best_copy(marked: Marked, sentence: Sentence, cut: bool) -> Copy | None:
    """Return the best copy of the sentence: in the ``<response>`` blocks, else one with tags anywhere.

    cut: the reply may end within the sentence.
    """
    blocks = [(first, last, not ended, True) for first, last, ended in marked.blocks()]
    copy = _best(marked, blocks, sentence) if blocks else None
    if copy is not None and copy.spans:
        return copy
    anywhere = _best(marked, [(0, len(marked.text), cut, False)], sentence)
    if anywhere is None or (blocks and not anywhere.spans):  # an echo beside an answer that says something else
        return copy
    return max(filter(None, (copy, anywhere)), key=Copy.rank)


def _best(marked: Marked, places: Sequence[tuple[int, int, bool, bool]], sentence: Sentence) -> Copy | None:
    """Return the best copy in some parts of a text; an exact one with tags is not compared with others."""
    tags = [each for each in marked.marks if each.kind in (Kind.START, Kind.END)]
    plain: list[Copy] = []
    for ours, letters_of in ((sentence.bare, bare), (sentence.folded, fold)):
        theirs = letters_of(marked.text)
        parts = [Part(theirs.before(first), theirs.before(last), *kind) for first, last, *kind in places]
        parts = [part for part in parts if part.first < part.last]
        edges = [(theirs.before(tag.at), tag.kind is Kind.START) for tag in tags]
        exact = [stretch for part in parts for stretch in equal_stretches(ours.text, theirs, part)]
        for stretch in reversed(exact):
            if _has_entity(edges, stretch):
                return _copy(stretch, ours, theirs, marked)
            if not plain and _stands_alone(stretch, theirs):
                plain = [_copy(stretch, ours, theirs, marked)]
        if plain and not any(begins for _, begins in edges):
            return plain[0]
    return max([*plain, *_similar(marked, parts, sentence, theirs)], key=Copy.rank, default=None)


def _has_entity(edges: Sequence[tuple[int, bool]], stretch: Stretch) -> bool:
    """Return whether a start tag stands in a stretch and any tag behind it. edges: where tags stand, if they start."""
    first = bisect_left(edges, (stretch.start, True))
    last = bisect_left(edges, (stretch.end + 1,))
    starts = [at for at, begins in edges[first:last] if begins]
    return bool(starts) and edges[last - 1][0] > starts[0]


def _stands_alone(stretch: Stretch, letters: Letters) -> bool:
    """Return whether a stretch is no part of a longer one: "Japan" in "Japan is a location" is."""
    edges = [(at, at + 1) for at in (stretch.start - 1, stretch.end - 1) if 0 <= at < len(letters.text) - 1]
    return not any(
        "\n" not in letters.written(one, other + 1)
        and in_word(letters.source[letters.origin[one]])
        and in_word(letters.source[letters.origin[other]])
        for one, other in edges
    )


def _similar(marked: Marked, parts: Sequence[Part], sentence: Sentence, letters: Letters) -> Iterator[Copy]:
    """Find copies with changes. One without tags is alone on its lines; unfinished, it stands in a block."""
    parts = [part for part in parts if not _only_names(marked, letters, part)]
    for stretch, part in similar_stretches(sentence, letters, parts):
        copy = _copy(stretch, sentence.folded, letters, marked)
        if copy.spans or (stretch.line >= SIMILAR_ENOUGH and (stretch.whole or part.block)):
            yield copy


def _only_names(marked: Marked, letters: Letters, part: Part) -> bool:
    """Return whether a part is a list of tagged names, with nothing between them."""
    marks = _marks(marked, letters, part.first, part.last, letters.around(part.first, part.last))
    spans, _ = entities_of(marks, letters)
    edges = [part.first, *(at for span in spans for at in (span.start, span.end)), part.last]
    between = zip(edges[::2], edges[1::2], strict=True)
    return len(spans) > 1 and not any(any(map(str.isalnum, letters.text[start:end])) for start, end in between)


def _copy(stretch: Stretch, ours: Letters, theirs: Letters, marked: Marked) -> Copy:
    """Gather the entities on a stretch's lines: those in the stretch, and those that are not in the sentence at all."""
    marks = _marks(marked, theirs, stretch.start, stretch.end, _lines(stretch, theirs))
    spans, malformed = entities_of(marks, theirs)
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
    return Copy(stretch, ours, theirs, marks, inside, tuple(invented), malformed)


def _marks(marked: Marked, letters: Letters, first: int, last: int, lines: tuple[int, int]) -> Sequence[Mark]:
    """Return the tags on some lines, as far as they are in one block with some letters on them."""
    marks = marked.within(*lines)
    ends = [index for index, mark in enumerate(marks) if mark.kind in (Kind.RESPONSE, Kind.RESPONSE_END)]
    before = [index for index in ends if marks[index].at <= letters.origin[first]]
    after = [index for index in ends if marks[index].at > letters.origin[last - 1]]
    return marks[before[-1] + 1 if before else 0 : after[0] if after else None]


def _lines(stretch: Stretch, letters: Letters) -> tuple[int, int]:
    """Return the characters where a stretch's lines begin and end, with the blank lines before and after."""
    text, first, last = letters.source, letters.origin[stretch.start], letters.origin[stretch.end - 1]
    before, after = letters.around(stretch.start, stretch.end)
    start, end = text.find("\n", before, first), text.rfind("\n", last, after)
    if start < 0:
        start = text.rfind("\n", 0, first)
    if end < 0:
        end = text.find("\n", last)
    return (
        0 if stretch.start == 0 else start + 1,
        len(text) if stretch.end == len(letters.origin) or end < 0 else end,
    )

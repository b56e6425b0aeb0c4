"""IOB2 tags of a sentence <-> its entities as spans over tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from localeval.schema import Span


def spans_from_tags(tags: Sequence[str]) -> list[Span]:
    """Return the entities of one sentence under strict IOB2: an I- that continues nothing is no entity.

    Raises ValueError for a tag that is not ``O``, ``B-<label>`` or ``I-<label>``.
    """
    spans = []
    start, label = 0, ""
    for index, tag in enumerate(tags):
        prefix, _, name = tag.partition("-")
        if not (tag == "O" or (prefix in ("B", "I") and name)):
            raise ValueError(f"tag {index} is {tag!r}; expected 'O', 'B-<label>' or 'I-<label>'")
        if label and (prefix != "I" or name != label):
            spans.append(Span(label, start, index))
            label = ""
        if prefix == "B":
            start, label = index, name
    if label:
        spans.append(Span(label, start, len(tags)))
    return spans


def tags_from_spans(spans: Iterable[Span], length: int) -> list[str]:
    """Return the IOB2 tags of a sentence of ``length`` tokens. The spans must not overlap."""
    tags = ["O"] * length
    for span in spans:
        tags[span.start] = f"B-{span.label}"
        for index in range(span.start + 1, span.end):
            tags[index] = f"I-{span.label}"
    return tags

"""Tagged text <-> spans <-> BIO tags. Pure; ``alignment.py`` carries spans from a reply over to its sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from localeval.alignment import fold
from localeval.schema import Span

# --- BIO tags <-> spans over tokens ---


def spans_from_tags(tags: Sequence[str]) -> list[Span]:
    """Entities of one sentence under strict IOB2: each begins with B-; an I- that continues nothing is no entity.

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
    """IOB2 tags of a sentence of ``length`` tokens. The spans must not overlap."""
    tags = ["O"] * length
    for span in spans:
        tags[span.start] = f"B-{span.label}"
        for index in range(span.start + 1, span.end):
            tags[index] = f"I-{span.label}"
    return tags


def tagged_text(tokens: Sequence[str], spans: Iterable[Span], entities: Mapping[str, str]) -> str:
    """The tokens joined by one space, each span wrapped in the tag of its label (``entities``: label -> tag name)."""
    pieces = list(tokens)
    for span in spans:
        name = entities[span.label]
        pieces[span.start] = f"<{name}>{pieces[span.start]}"
        pieces[span.end - 1] = f"{pieces[span.end - 1]}</{name}>"
    return " ".join(pieces)


# --- tagged text -> plain text and spans over its characters ---

_ANGLE = re.compile(r"<[^<>]*>")


@dataclass(frozen=True, slots=True)
class TaggedText:
    """``text`` without its tags; ``spans`` over its characters, in order, never overlapping.

    malformed: start tags never closed, end tags without a start or of another type, empty tags, unknown tags.
    """

    text: str
    spans: tuple[Span, ...]
    malformed: int


def read_tagged_text(marked: str, labels: Mapping[str, str], sentence: str) -> TaggedText:
    """Takes the tags out of ``marked``.

    labels: what may stand in a tag, in lower case, -> the label it means. sentence: a ``<...>`` that is no such tag is
    text where it stands in the sentence; elsewhere it is dropped and counted.
    """
    pieces: list[str] = []
    length = 0
    opened: list[tuple[str, int, int]] = []  # label, where it begins, how many began before it
    closed: list[tuple[int, Span]] = []
    started = 0
    malformed = 0
    last = 0
    flat: str | None = None
    for match in _ANGLE.finditer(marked):
        pieces.append(marked[last : match.start()])
        length += match.start() - last
        last = match.end()
        name, closes, is_empty = _tag_name(match.group())
        label = labels.get(name)
        if label is None:
            if flat is None:
                flat = fold(sentence).text
            if fold(match.group()).text in flat:
                pieces.append(match.group())
                length += match.end() - match.start()
            else:
                malformed += 1
        elif is_empty:
            malformed += 1
        elif not closes:
            opened.append((label, length, started))
            started += 1
        elif not opened:
            malformed += 1
        else:
            same = [index for index, (other, _, _) in enumerate(opened) if other == label]
            index = same[-1] if same else len(opened) - 1
            malformed += index != len(opened) - 1 or not same
            own, start, order = opened.pop(index)
            closed.append((order, Span(own, start, length)))
    pieces.append(marked[last:])
    text = "".join(pieces)
    full = [span for _, span in sorted(closed, key=lambda one: one[0]) if text[span.start : span.end].strip()]
    malformed += len(opened) + len(closed) - len(full)
    return TaggedText(text, tuple(_outermost(full)), malformed)


def _tag_name(tag: str) -> tuple[str, bool, bool]:
    """Of ``< /Person id="1" >``: the name in lower case, whether it is an end tag, whether it is a whole empty one."""
    inner = tag[1:-1].strip()
    words = inner.removeprefix("/").removesuffix("/").split(None, 1)
    return words[0].lower() if words else "", inner.startswith("/"), inner.endswith("/") and not inner.startswith("/")


def _outermost(spans: list[Span]) -> list[Span]:
    """Where spans overlap, the one whose start tag stands first stays. spans: in the order of their start tags."""
    kept: list[Span] = []
    for span in spans:
        if not kept or span.start >= kept[-1].end:
            kept.append(span)
    return kept

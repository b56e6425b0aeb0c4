"""Tagged text <-> spans <-> BIO tags. Pure; ``alignment.py`` carries spans from a reply over to its sentence."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from localeval.alignment import folded
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

_ANGLE = re.compile(r"(<[^<>]*>)")
_NOT_SPACE = re.compile(r"\S+")


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
    parts = _ANGLE.split(marked)  # text, tag, text, ... text
    kinds = {tag: _kind(tag, labels, sentence) for tag in set(parts[1::2])}
    if all(kind is _Kind.NONE for kind, _ in kinds.values()):
        return TaggedText("".join(parts[::2]), (), len(parts) // 2)
    opened = _Opened()
    pieces = [parts[0]]
    length = len(parts[0])
    closed: list[tuple[int, int, int, str]] = []  # how many began before it, where it begins and ends, label
    malformed = 0
    start_tag, end_tag = _Kind.START, _Kind.END  # looked up once: there may be 100,000 tags
    for tag, after in zip(parts[1::2], parts[2::2], strict=True):
        kind, label = kinds[tag]
        if kind is start_tag:
            opened.push(label, length)
        elif kind is end_tag and (tag_and_doubt := opened.pop(label)):
            (order, start, own), differs = tag_and_doubt
            malformed += differs
            closed.append((order, start, length, own))
        elif kind is _Kind.TEXT:
            pieces.append(tag)
            length += len(tag)
        else:
            malformed += 1
        if after:
            pieces.append(after)
            length += len(after)
    text = "".join(pieces)
    full = _not_blank(sorted(closed), text)
    malformed += len(opened) + len(closed) - len(full)
    return TaggedText(text, tuple(_outermost(full)), malformed)


def without_tags(marked: str) -> str:
    """A text without all that stands in angle brackets."""
    return _ANGLE.sub("", marked)


class _Kind(Enum):
    """What a ``<...>`` is."""

    START = "a start tag"
    END = "an end tag"
    TEXT = "part of the sentence"
    NONE = "an empty element, or no tag that is known"


def _kind(tag: str, labels: Mapping[str, str], sentence: str) -> tuple[_Kind, str]:
    """What a ``<...>`` is, and its label."""
    name, closes, is_empty = _tag_name(tag)
    label = labels.get(name)
    if label is not None:
        return (_Kind.NONE if is_empty else _Kind.END if closes else _Kind.START), label
    letters = _sentence_letters(sentence)
    return (_Kind.TEXT if "<" in letters and folded(tag) in letters else _Kind.NONE), ""


_sentence_letters = lru_cache(maxsize=64)(folded)


class _Opened:
    """The start tags that are open: how many began before it, where it begins, label. None is looked for in a list."""

    def __init__(self) -> None:
        self._all: list[tuple[int, int, str]] = []  # some of them are closed already
        self._of_label: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        self._closed: set[int] = set()
        self._started = 0

    def __len__(self) -> int:
        return sum(map(len, self._of_label.values()))

    def push(self, label: str, start: int) -> None:
        """Takes in a start tag."""
        tag = (self._started, start, label)
        self._all.append(tag)
        self._of_label[label].append(tag)
        self._started += 1

    def pop(self, label: str) -> tuple[tuple[int, int, str], bool] | None:
        """The tag that an end tag closes, the last of its label or else the last; and whether they cross, or differ."""
        while self._all and self._all[-1][0] in self._closed:
            self._all.pop()
        if not self._all:
            return None
        last, same = self._all[-1], self._of_label[label]
        if same and same[-1] is last:
            self._all.pop()
            return same.pop(), False
        tag = same[-1] if same else last
        self._of_label[tag[2]].pop()
        self._closed.add(tag[0])
        return tag, True


def _not_blank(closed: Sequence[tuple[int, int, int, str]], text: str) -> list[tuple[int, int, int, str]]:
    """Those with anything but white space in them."""
    words = [match.span() for match in _NOT_SPACE.finditer(text)] if closed else []
    ends = [end for _, end in words]

    found = []
    for each in closed:
        _, start, end, _ = each
        next_word = bisect_right(ends, start)
        if start < end and next_word < len(words) and words[next_word][0] < end:
            found.append(each)
    return found


def _tag_name(tag: str) -> tuple[str, bool, bool]:
    """Of ``< /Person id="1" >``: the name in lower case, whether it is an end tag, whether it is a whole empty one."""
    inner = tag[1:-1].strip()
    words = inner.removeprefix("/").removesuffix("/").split(None, 1)
    return words[0].lower() if words else "", inner.startswith("/"), inner.endswith("/") and not inner.startswith("/")


def _outermost(closed: Iterable[tuple[int, int, int, str]]) -> list[Span]:
    """Where spans overlap, the one whose start tag stands first stays. closed: in the order of their start tags."""
    kept: list[Span] = []
    for _, start, end, label in closed:
        if not kept or start >= kept[-1].end:
            kept.append(Span(label, start, end))
    return kept

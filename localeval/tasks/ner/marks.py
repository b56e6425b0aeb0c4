"""The tags of a reply: which names mean which entity type, where tags stand, and which entities they enclose."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

from localeval.schema import Span
from localeval.tasks.ner.letters import Letters, Sentence, fold, in_word

# --- names of types ---

_JOINTS = re.compile(r"[\s_\-\\]+")
_PLURALS = (("people", "person"), ("ies", "y"), ("es", ""), ("s", ""))


def _key(name: str) -> str:
    return _JOINTS.sub("", name).casefold().replace("isation", "ization")


def _singulars(key: str) -> list[str]:
    return [key, *(key.removesuffix(plural) + single for plural, single in _PLURALS if key.endswith(plural))]


@lru_cache(maxsize=64)
def names_of(entities: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Return the label of each name of a type. entities: pairs of a label and its tag name."""
    exact = {_key(name): label for label, tag in entities for name in (label, tag)}
    return {form: label for key, label in exact.items() for form in _singulars(key) if form} | exact


def label_of(name: str, names: Mapping[str, str]) -> str:
    """Return the label that a name means in any case, spacing and number; empty if it is no type's name."""
    if len(name) > _LONGEST:
        return ""
    return next((names[key] for key in _singulars(_key(name)) if key in names), "")


# --- marks ---

_WORD_WITH_TAG = re.compile(r"(?<![^\s>])([^\s<>]{1,64}?)[/|_](?:(O)|([BIESLU])-(\w{1,64}))(?=\s|<|\Z)")
_CONTINUES = frozenset("IEL")
_MARK = re.compile(
    r"\\?<(?P<tag>[^<>]*)>|(?:&lt;|&#60;)(?P<escaped>(?:(?!&lt;|&gt;|&#6)[^<>]){1,200})(?:&gt;|&#62;)"
    r"|\[(?P<square>[^\[\]<>&]{1,64})\](?!\()|\[(?P<name>[^\[\]<>\n]{1,200})\]\((?P<link>[^()\[\]<>\n]{1,64})\)"
)
_COMMENT = re.compile(r"\s*+\(([^()\[\]<>&]{1,64})\)")
"""The type of an entity, repeated behind it."""
_SQUARE_END = re.compile(r"\[\s*/[^\[\]<>]{1,64}\]")
_ATTRIBUTES = re.compile(r"\s+[^\s=]+\s*=")
_WORD = re.compile(r"""[^\s=<>"'“”&;]+""")
_CUT = re.compile(r"(?:<[^<>]*|&lt;[^<>&]*)\Z")
_DEEPEST = 64
"""So many tags may be open at once; of more, the outer ones are dropped."""
_LONGEST = 256
"""So many characters of a tag are looked at."""


class Kind(Enum):
    """What a mark does."""

    START = "begins an entity"
    END = "ends one"
    RESPONSE = "begins the answer"
    RESPONSE_END = "ends it"
    UNKNOWN = "is dropped and counted"


class Mark(NamedTuple):
    """A tag. at: the character of the text without tags before which it stands. name: of its element."""

    kind: Kind
    at: int
    label: str
    name: str


class Marked(NamedTuple):
    """A reply's text without its tags, and the tags in order."""

    text: str
    marks: Sequence[Mark]

    def blocks(self) -> list[tuple[int, int, bool]]:
        """Return the ``<response>`` blocks: first character, end, whether an end tag stands there."""
        found = []
        start = None
        for mark in self.marks:
            if mark.kind is Kind.RESPONSE:
                start = mark.at
            elif mark.kind is Kind.RESPONSE_END and start is not None:
                found.append((start, mark.at, True))
                start = None
        return found if start is None else [*found, (start, len(self.text), False)]

    def within(self, start: int, end: int) -> Sequence[Mark]:
        """Return the tags between two characters, and those at either."""
        place = attrgetter("at")
        return self.marks[bisect_left(self.marks, start, key=place) : bisect_right(self.marks, end, key=place)]


def tags_of_words(answer: str, sentence: Sentence) -> str:
    """Return an answer that tags each word as ``Ann/B-PER`` with tags around its entities; any other one as it is."""
    words = list(_WORD_WITH_TAG.finditer(answer))
    if 2 * len(words) <= len(sentence.tokens) or _WORD_WITH_TAG.search(sentence.text):
        return answer
    pieces: list[str] = []
    end, opened = 0, ""
    for word in words:
        name = word[4] or ""
        goes_on = opened != "" and name == opened and word[3] in _CONTINUES
        pieces.append(f"</{opened}>" if opened and not goes_on else "")
        pieces.append(answer[end : word.start()])
        pieces.append(f"<{name}>" if name and not goes_on else "")
        pieces.append(word[1])
        end, opened = word.end(), name
    return "".join(pieces) + (f"</{opened}>" if opened else "") + answer[end:]


def mark(answer: str, names: Mapping[str, str], sentence: Sentence) -> Marked:
    """Take the tags out of an answer; what stands in the sentence in angle brackets stays."""
    squares = bool(_SQUARE_END.search(answer))
    known: dict[str, tuple[Kind, str, str] | None] = {}
    pieces: list[str] = []
    marks: list[Mark] = []
    length = end = 0
    for match in _MARK.finditer(answer):
        written = match.group()
        if match["link"] is not None:  # [Ann](person)
            label = label_of(match["link"], names)
            if label and not _stands_in(written, sentence):
                pieces += [answer[end : match.start()], match["name"]]
                start = length + len(pieces[-2])
                length = start + len(pieces[-1])
                marks += [Mark(Kind.START, start, label, label), Mark(Kind.END, length, label, label)]
                end = match.end()
            continue
        if written not in known:
            known[written] = _meaning(match, names, sentence, squares)
        meaning = known[written]
        if meaning is None:
            continue
        pieces.append(answer[end : match.start()])
        length += len(pieces[-1])
        marks.append(Mark(meaning[0], length, *meaning[1:]))
        end = match.end()
        comment = _COMMENT.match(answer, end) if meaning[0] is Kind.END else None
        if comment and label_of(comment[1], names) and not _stands_in(comment.group().strip(), sentence):
            end = comment.end()
    rest = answer[end:]
    pieces.append(rest if "<" in sentence.text else _CUT.sub("", rest))
    return Marked("".join(pieces), marks)


def _meaning(
    match: re.Match[str], names: Mapping[str, str], sentence: Sentence, squares: bool
) -> tuple[Kind, str, str] | None:
    """Return what something in brackets is, its label and its element's name; None if it is text."""
    form = match.lastgroup or ""
    inner = match[form].replace("\\", "").strip()[:_LONGEST]
    closes = inner.startswith("/")
    name, label = _element(inner.strip("/ "), names)
    known = bool(label) or name == "response"
    if form == "square" and not (known and squares):
        return None
    if (form == "escaped" and not known) or ((form == "square" or not label) and _stands_in(match.group(), sentence)):
        return None
    if name == "response":
        return (Kind.RESPONSE_END if closes else Kind.RESPONSE), "", name
    if closes or (label and inner.endswith("/")):
        return Kind.END, label, name
    return (Kind.START if label else Kind.UNKNOWN), label, name


def _element(inner: str, names: Mapping[str, str]) -> tuple[str, str]:
    """Return the name of an element, and the label that it or one of its attributes' values means."""
    attributes = _ATTRIBUTES.search(inner)
    name = inner[: attributes.start()] if attributes else inner
    words = name.split(None, 1)
    label = label_of(name, names) or (label_of(words[0], names) if words else "")
    if attributes and not label:
        values = _WORD.findall(inner[attributes.start() :])
        label = next((found for value in values if (found := label_of(value, names))), "")
    return _key(words[0]) if words else "", label


def _stands_in(written: str, sentence: Sentence) -> bool:
    return written[0] in sentence.text and fold(written).text in sentence.folded.text


# --- marks -> entities ---


class _Open(NamedTuple):
    order: int
    start: int
    label: str
    name: str


def entities_of(marks: Sequence[Mark], letters: Letters) -> tuple[list[Span], int]:
    """Return the outermost entities over a reply's letters, and how many tags are malformed."""
    opened: list[_Open] = []
    closed: list[tuple[int, Span]] = []
    malformed = 0
    for order, mark in enumerate(marks):
        at = letters.before(mark.at)
        in_place_of_end = bool(opened) and opened[-1].start < at and opened[-1].label == mark.label
        if mark.kind is Kind.START and not (in_place_of_end and looks_like_end(letters.source, mark.at)):
            opened.append(_Open(order, at, mark.label, mark.name))
            if len(opened) > _DEEPEST:
                del opened[0]
                malformed += 1
            continue
        index = _closes(opened, mark)
        if index is None:
            malformed += 1
            continue
        tag = opened.pop(index)
        straight = index == len(opened) and mark.kind is Kind.END and mark.label in (tag.label, "")
        malformed += int(not straight) + int(tag.start == at)
        if tag.start < at:
            closed.append((tag.order, Span(tag.label, tag.start, at)))
    spans: list[Span] = []
    for _, span in sorted(closed):
        if not spans or span.start >= spans[-1].end:
            spans.append(span)
    return spans, malformed + len(opened)


def looks_like_end(text: str, at: int) -> bool:
    """Whether a word ends where a tag stands, and none begins."""
    return at > 0 and not text[at - 1].isspace() and not (at < len(text) and in_word(text[at]))


def _closes(opened: Sequence[_Open], mark: Mark) -> int | None:
    """Return which open tag an end tag closes: the innermost of its type or element, else the innermost."""
    if mark.kind is Kind.UNKNOWN or not opened:
        return None
    for index in range(len(opened) - 1, -1, -1):
        if opened[index].name == mark.name or (mark.label and opened[index].label == mark.label):
            return index
    return len(opened) - 1 if mark.label or not mark.name else None

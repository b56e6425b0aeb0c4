"""Replies that name entities and their types and do not repeat the sentence: JSON, lines, links, BIO."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from localeval.schema import Span
from localeval.tasks.ner.letters import Sentence, fold
from localeval.tasks.ner.marks import label_of

Item = tuple[str, str]
"""A name and the label of its type."""

_OPENING = re.compile(r"""[\[{]\s*+[\[{"\]}]""")
_TEXT_KEYS = ("text", "name", "word", "entity", "mention", "value", "span")
_NOTHING = frozenset({"none", "null", "nil", "n/a", "na", "no entities"})
_DRESS = " \t\r\"'“”‘’«»*_`|,;•·-–—()[]"
_NUMBER = re.compile(r"[\s>#*•·-]*(?:\d{1,3}[.)]\s+)?")
_RESPONSE = re.compile(r"<\s*+/?\s*+response\b[^<>]*>", re.IGNORECASE)
_LONGEST = 512
"""So many characters of a line are searched for an item."""
_BETWEEN_ITEMS = re.compile(r"(?<=[)\]])\s*[,;]\s*")
_BETWEEN = re.compile(r"\s*(?:[-=]>|→|[–—:=|\t])\s*|\s+-\s+|\s*[(\[]|\s+is an?\s+")
_LINK = re.compile(r"\[([^\[\]\n]{1,200})\]\(([^()\n]{1,64})\)")
_TAGGED = re.compile(r"<([^<>/\n]{1,64})>([^<>\n]{1,200})</[^<>\n]{1,64}>")
_BESIDE = re.compile(r"[(\[{/|_:=][ \t]?([^()\[\]{}<>/|:=\s]{1,64})|<[ \t]?([^<>/|:=\s]{1,64})[ \t]?[|:=]")
_BIO = re.compile(r"""(?<![^\s/|_:,(\[{"'])(?:O|[BIESLU]-\w+)(?![^\s,)\]}"'/|;])""")


def json_in(text: str) -> list[object]:
    """Return the lists and objects of JSON in a text; none if one of them is broken, or cut."""
    found: list[object] = []
    end = 0
    while opening := _OPENING.search(text, end):
        try:
            value, end = json.JSONDecoder().raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            return []
        found.append(value)
    return found


def looks_like_json(text: str) -> bool:
    """Return whether a text holds the beginning of a list or object of JSON, whole or not."""
    return bool(_OPENING.search(text))


def strings_in(value: object) -> list[str]:
    """Return the texts in a value of JSON in order, keys left out."""
    found: list[str] = []
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            found.append(each)
        elif isinstance(each, list | dict):
            waiting.extend(reversed(list(each.values()) if isinstance(each, dict) else each))
    return found


def items_of(text: str, names: Mapping[str, str]) -> list[Item]:
    """Return the names of entities that a reply lists, with their labels; other types are left out."""
    lines = _RESPONSE.sub("\n", text).split("\n")
    found = list(_json_items(json_in(text), names)) or [
        item for line in dict.fromkeys(lines) for item in _line_items(line.strip(), names)
    ]
    return list(dict.fromkeys((name, label) for name, label in found if name.casefold().strip() not in _NOTHING))


def _json_items(value: object, names: Mapping[str, str]) -> Iterator[Item]:
    """Read ``{"text": "Ann", "label": "PER"}``, ``{"person": ["Ann"]}`` and ``{"Ann": "person"}``, however deep."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting.extend(each)
        if not isinstance(each, dict):
            continue
        fields = {key.casefold(): content for key, content in each.items()}
        labels = {key: label_of(said, names) for key, said in fields.items() if isinstance(said, str)}
        text = next((key for key in _TEXT_KEYS if labels.get(key) == ""), None)
        label = next(filter(None, labels.values()), "")
        if text is not None and label:
            yield fields[text], label
            continue
        for key, content in each.items():
            if label := label_of(key, names):
                named = content if isinstance(content, list) else [content] if content else []
                yield from ((one if isinstance(one, str) else repr(one), label) for one in named)
            elif label := labels.get(key.casefold(), ""):
                yield key, label
            else:
                waiting.append(content)


def _line_items(line: str, names: Mapping[str, str]) -> Iterator[Item]:
    """Read ``Ann (person)``, ``Ann - person``, ``person: Ann, Bo``, ``[Ann](person)``, ``<person>Ann</person>``."""
    links = [(link[1], label) for link in _LINK.finditer(line) if (label := label_of(link[2], names))]
    if links or not _TAGGED.sub("", line).strip(_DRESS + "."):
        yield from links
        yield from ((tagged[2], label) for tagged in _TAGGED.finditer(line) if (label := label_of(tagged[1], names)))
        return
    number = _NUMBER.match(line)
    for part in _BETWEEN_ITEMS.split(line[number.end() if number else 0 :]):
        for between in _BETWEEN.finditer(part, 0, _LONGEST):
            left, right = part[: between.start()].strip(_DRESS), part[between.end() :].strip(_DRESS + ".")
            if label := label_of(right, names):
                yield left, label
                break
            if label := label_of(left, names):
                yield from ((name.strip(_DRESS), label) for name in re.split("[,;]", right))
                break
        else:
            words = dict.fromkeys(word.strip(_DRESS + ".") for word in part.split())
            types = [label for word in words if (label := label_of(word, names))]
            if types and not part.endswith(":"):
                yield part, types[0]  # a name that is not found: what a list says in other words is not left out


def only_tagged(text: str, names: Mapping[str, str]) -> bool:
    """Return whether a reply is nothing but names in the tags that were asked for."""
    inside = _RESPONSE.sub("", text)
    tagged = list(_TAGGED.finditer(inside))
    return bool(tagged) and all(label_of(each[1], names) for each in tagged) and not _has_words(_TAGGED.sub("", inside))


def _has_words(text: str) -> bool:
    return any(map(str.isalnum, text))


def spans_of(items: Sequence[Item], sentence: Sentence) -> list[Span] | None:
    """Return the entities over tokens; None if a name doesn't stand in the sentence once, or has two types."""
    places = sentence.places(sentence.folded)
    starts = {place.start: token for token, place in enumerate(places) if place}
    ends = {place.stop: token + 1 for token, place in enumerate(places) if place}
    spans: dict[tuple[int, int], Span] = {}
    for name, label in items:
        letters = fold(name).text
        found = [
            (starts[at], ends[at + len(letters)])
            for at in starts
            if at + len(letters) in ends and sentence.folded.text.startswith(letters, at)
        ]
        if len(found) != 1 or not letters or spans.setdefault(found[0], Span(label, *found[0])).label != label:
            return None
    outer: list[Span] = []
    for span in sorted(spans.values(), key=lambda span: (span.start, -span.end)):
        if not outer or span.start >= outer[-1].end:
            outer.append(span)
    return outer


def names_types(items: Sequence[Item], text: str, sentence: Sentence) -> bool:
    """Return whether a text lists names of the sentence with their types, or tags its tokens in the BIO way."""
    listed = any(letters and letters in sentence.folded.text for letters in (fold(name).text for name, _ in items))
    return listed or 2 * (len(_BIO.findall(text)) - len(_BIO.findall(sentence.text))) > len(sentence.tokens)


def types_beside(text: str, names: Mapping[str, str]) -> bool:
    """Return whether types stand beside names in a text: ``Ann (person) met Bo/person``, ``[person Ann]``."""
    return any(label_of(found[1] or found[2], names) for found in _BESIDE.finditer(text))

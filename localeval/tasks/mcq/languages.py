"""The words by which replies are read: one YAML table a language in ``languages/``, joined into a lexicon."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from localeval.tasks.mcq.tokens import Token, is_latin, tokenize

FOLDER = Path(__file__).parent / "languages"

CLASSES = {
    "answer": "A", "option": "O", "options_heading": "O", "correct": "K", "best": "B", "wrong": "X", "not": "N",
    "is": "=", "would": "~", "so": "S", "choose": "P", "because": "c", "if": "I", "some": "R", "example": "E",
    "revise": "V", "but": "U", "and": "&", "or": "|", "both": "b", "question": "Q", "others": "h", "summary": "Y",
    "refuse": "F", "none": "0", "filler": "f",
}  # fmt: skip
"""Key of a table -> the class of its words, one character: claims are found by patterns over classes."""
LONGEST_STEM = 24
"""No stem of a table is longer."""
_TELLING = ("answer", "option", "correct")
"""The keys whose words tell that a reply is in a language."""


@dataclass(slots=True)
class Node:
    """A place in a tree of words. value: of the phrase that ends here; stems: beginnings of a last word."""

    value: str | None = None
    next: dict[str, Node] = field(default_factory=dict)
    stems: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lexicon:
    """The words of some languages.

    root: phrase -> class. foreign: the words of those in Latin script, but for English. labels: a label in another
    script -> the letters that it may mean, each with the series that it is of (empty for a letter's name).
    """

    root: Node
    foreign: frozenset[str]
    labels: Mapping[str, Sequence[tuple[str, Sequence[str]]]]

    def match(self, tokens: Sequence[Token], at: int) -> tuple[str, int] | None:
        """Return the class of the longest phrase that begins at a token, and how many tokens it takes."""
        node, found, here = self.root, None, at
        while here < len(tokens):
            word = tokens[here].text
            for size in range(min(len(word), LONGEST_STEM), 2 if is_latin(word[0]) else 0, -1) if node.stems else ():
                if word[:size] in node.stems:
                    found = node.stems[word[:size]], here + 1 - at
                    break
            following = node.next.get(word)
            if following is None:
                break
            node, here = following, here + 1
            if node.value is not None:
                found = node.value, here - at
        return found


def add_phrase(root: Node, tokens: Sequence[str], value: str, is_stem: bool = False) -> None:
    """Put a phrase into a tree; the first value of a phrase stays."""
    for word in tokens[:-1] if is_stem else tokens:
        root = root.next.setdefault(word, Node())
    if is_stem:
        root.stems.setdefault(tokens[-1], value)
    elif root.value is None:
        root.value = value


@lru_cache(maxsize=1)
def _tables() -> dict[str, dict[str, Any]]:
    import yaml

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    return {file.stem: yaml.load(file.read_text("utf-8"), loader) for file in sorted(FOLDER.glob("*.yaml"))}


def words_of(entry: str) -> tuple[tuple[str, ...], bool]:
    """Return the tokens of an entry of a table, and whether the last is a stem (``word*``)."""
    folded = unicodedata.normalize("NFKC", entry)
    return tuple(token.text for token in tokenize(folded.rstrip("*")) if token.text != "\n"), folded.endswith("*")


@lru_cache(maxsize=1)
def _signs() -> dict[str, tuple[frozenset[str], frozenset[str], frozenset[str]]]:
    """Return, of each language, its words, its stems, and those of them that tell it."""
    found = {}
    for code, table in _tables().items():
        words: set[str] = set()
        stems: set[str] = set()
        telling: set[str] = set()
        for key in CLASSES:
            for entry in table.get(key, ()):
                tokens, is_stem = words_of(entry)
                if tokens and len(tokens[0]) > 1:
                    (stems if is_stem and len(tokens) == 1 else words).add(tokens[0])
                    if key in _TELLING and len(tokens[0]) > 2:
                        telling.add(tokens[0])
        found[code] = frozenset(words), frozenset(stems), frozenset(telling)
    return found


@lru_cache(maxsize=65536)
def _known_in(text: str) -> tuple[tuple[str, str], ...]:
    """Return the languages that have a word, each with the word or stem of its table that it is."""
    found = []
    for code, (words, stems, _) in _signs().items():
        beginnings = (text[:size] for size in range(3, min(len(text), LONGEST_STEM) + 1))
        hit = text if text in words else next((each for each in beginnings if each in stems), "")
        if hit:
            found.append((code, hit))
    return tuple(found)


def lexicon_for(tokens: Iterable[Token]) -> Lexicon:
    """Return the words of the languages that a reply may be in.

    English and all that are not in Latin script always. Another one in Latin script if two of its own words are there,
    of which one is for answer, option or correct; or if as many of its words are there as of English and of any other.
    Where two languages of one script have a word, it is taken for that of which more words are there.
    """
    english = _signs()["en"][0]
    hits: dict[str, dict[str, set[str]]] = {kind: {code: set() for code in _signs()} for kind in ("latin", "word")}
    for kind, text in {(token.kind, token.text) for token in tokens if token.kind in hits and len(token.text) < 32}:
        for code, hit in _known_in(text):
            hits[kind][code].add(hit)
    active = set()
    for of_kind in hits.values():
        most = max(map(len, of_kind.values()))
        active |= {code for code, said in of_kind.items() if said and len(said) == most}
    for code, said in hits["latin"].items():
        own = said - english
        if len(own) > 1 and own & _signs()[code][2]:
            active.add(code)
    return _lexicon(frozenset(active - {"en"}))


@lru_cache(maxsize=1)
def and_words() -> frozenset[str]:
    """Return the words for "and" by which an option's text is the same as with another of them."""
    entries = [words_of(entry)[0] for table in _tables().values() for entry in table.get("and", ())]
    return frozenset(entry[0] for entry in entries if len(entry) == 1 and (len(entry[0]) > 1 or not is_latin(entry[0])))


@lru_cache(maxsize=1)
def particles() -> frozenset[str]:
    """Return the copulas and particles that some languages write at the end of a word."""
    entries = [
        words_of(entry)[0] for table in _tables().values() for key in ("is", "filler") for entry in table.get(key, ())
    ]
    return frozenset(entry[0] for entry in entries if len(entry) == 1 and not is_latin(entry[0][0]))


@lru_cache(maxsize=64)
def _lexicon(active: frozenset[str]) -> Lexicon:
    root = Node()
    labels: dict[str, list[tuple[str, Sequence[str]]]] = defaultdict(list)
    for code in sorted(_tables(), key=lambda code: (code not in active, code != "en", code)):
        table = _tables()[code]
        for key, value in CLASSES.items():
            for entry in table.get(key, ()):
                tokens, is_stem = words_of(entry)
                in_latin = any(is_latin(word[0]) for word in tokens)
                is_word = any(word[0].isalnum() or unicodedata.category(word[0]) == "So" for word in tokens)
                if is_word and (code == "en" or code in active or not in_latin):
                    add_phrase(root, tokens, value, is_stem)
        for letter, names in table.get("letters", {}).items():
            for name in names:
                _add_label(labels, name, letter, ())
        for series in table.get("series", ()):
            for place, name in enumerate(series):
                _add_label(labels, name, chr(ord("A") + place), tuple(fold_label(name) for name in series))
    english = _signs()["en"][0]
    foreign = frozenset(word for code in active for word in _signs()[code][0] if word not in english)
    return Lexicon(root, foreign, labels)


def _add_label(
    labels: dict[str, list[tuple[str, Sequence[str]]]], name: str, letter: str, series: Sequence[str]
) -> None:
    entry = (letter, series)
    if not is_latin(name[0]) and entry not in labels[fold_label(name)]:
        labels[fold_label(name)].append(entry)


def fold_label(name: str) -> str:
    """Return a label as tokens have it."""
    return "".join(words_of(name)[0])

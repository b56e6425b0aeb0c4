"""Rows of a table, or a CoNLL text -> where sentences and their tags stand, and which types of entities there are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localeval.datasets.conll import read_sentences
from localeval.datasets.parts import Conll
from localeval.drafting.table import Table, groups_of
from localeval.schema import LocalevalError

_TOKENS = ("tokens", "words", "sentence", "text")
_TAGS = ("nertags", "nertag", "ner", "nerlabels", "tags", "labels", "biotags", "bio", "iob", "entities")
_IOB2 = re.compile(r"O|[BI]-\S+")
_OTHER = re.compile(r"O|[A-Z]-\S+|[A-Z][\w-]*")
"""What tags of another scheme look like: ``S-PER``, ``E-PER``, or ``PER`` alone."""

# Label, as corpora write it -> the tag for prompt and reply, and what it means there.
_WELL_KNOWN = {
    "PER": ("person", "Names of people, including first and last names"),
    "PERSON": ("person", "Names of people, including first and last names"),
    "ORG": ("organization", "Names of companies, institutions, organizations, etc."),
    "ORGANIZATION": ("organization", "Names of companies, institutions, organizations, etc."),
    "CORPORATION": ("corporation", "Names of companies"),
    "GROUP": ("group", "Names of groups such as bands, sports teams and clubs"),
    "LOC": ("location", "Names of locations, cities, states, countries, etc."),
    "LOCATION": ("location", "Names of locations, cities, states, countries, etc."),
    "GPE": ("geopolitical_entity", "Countries, cities and states"),
    "FAC": ("facility", "Buildings, airports, roads, bridges, etc."),
    "NORP": ("group", "Nationalities, religious and political groups"),
    "MISC": ("miscellaneous", "Named entities of none of the other types"),
    "PRODUCT": ("product", "Products: objects, vehicles, foods, etc. (not services)"),
    "EVENT": ("event", "Named events: wars, sports events, storms, etc."),
    "WORK_OF_ART": ("work_of_art", "Titles of books, songs, films, etc."),
    "CREATIVE-WORK": ("creative_work", "Titles of books, songs, films, etc."),
    "LAW": ("law", "Named documents that are made into laws"),
    "LANGUAGE": ("language", "Named languages"),
    "DATE": ("date", "Absolute or relative dates and periods of a day or longer"),
    "TIME": ("time", "Times that are shorter than a day"),
    "PERCENT": ("percent", "Percentages, with the sign or word"),
    "MONEY": ("money", "Amounts of money, with the unit"),
    "QUANTITY": ("quantity", "Measurements, as of weight or distance"),
    "ORDINAL": ("ordinal", "Ordinal numbers: first, second, etc."),
    "CARDINAL": ("cardinal", "Numbers that are of no other type"),
    "DISEASE": ("disease", "Names of diseases and disorders"),
    "CHEMICAL": ("chemical", "Names of chemicals and drugs"),
    "GENE": ("gene", "Names of genes and proteins"),
    "PROTEIN": ("protein", "Names of proteins"),
    "SPECIES": ("species", "Names of species and organisms"),
}


@dataclass(frozen=True, slots=True)
class Type:
    """As ``entities`` of a dataset's YAML has it. told: whether the description says more than the label."""

    label: str
    tag: str
    description: str
    told: bool


@dataclass(frozen=True, slots=True)
class Sentences:
    """tokens, tags: columns of a table, with the names of numbered tags; or of a text its layout."""

    types: tuple[Type, ...]
    entities: Mapping[str, int]
    """Label -> how many there are."""
    tokens: str = ""
    tags: str = ""
    tag_names: tuple[str, ...] = ()
    conll: Conll | None = None
    groups: tuple[str, ...] = ()

    @property
    def used(self) -> list[str]:
        """The columns that a row is read from."""
        return [self.tokens, self.tags]


def find_sentences(table: Table, declared: Mapping[str, Sequence[str]], given: Sequence[str] = ()) -> Sentences:
    """Of a table. declared: column -> class names that the file itself has. given: the user's, in their place.

    Raises LocalevalError that names the columns and what was looked for.
    """
    lists = _lists(table)
    tokens, tags = _pair(table, lists)
    names = tuple(declared.get(tags) or given)
    values: Iterable[Any] = (tag for row in lists[tags] for tag in row)
    if any(isinstance(tag, int) for row in lists[tags] for tag in row):
        values = _spelled(tags, lists[tags], names)
    found = _labels(values, f"column {tags}")
    written = () if declared.get(tags) else names
    return Sentences(_types(found), found, tokens, tags, written, groups=tuple(groups_of(table, [tokens, tags])))


def looks_like_sentences(table: Table) -> bool:
    """Whether there are tokens and tags in it: by the tags, or by the names of both."""
    lists = _lists(table)
    tokens, tags = _tokens(lists), _tags(table, lists)
    named = [name for name in table.named(_TOKENS) if name in lists], [n for n in table.named(_TAGS) if n in lists]
    return all(named) or any(_alike(lists, a, b) for a in tokens for b in tags if _in_iob2(lists[b]))


def _lists(table: Table) -> dict[str, Sequence[list[Any]]]:
    """The columns of lists; those inside another column are read of no sentence."""
    return {
        name: values
        for name, values in table.columns.items()
        if "." not in name and all(isinstance(value, list) for value in values)
    }


def _alike(lists: Mapping[str, Sequence[list[Any]]], one: str, other: str) -> bool:
    return one != other and all(len(a) == len(b) for a, b in zip(lists[one], lists[other], strict=True))


def _in_iob2(rows: Sequence[Sequence[Any]]) -> bool:
    return any(rows) and all(isinstance(each, str) and _IOB2.fullmatch(each) for row in rows for each in row)


def _pair(table: Table, lists: Mapping[str, Sequence[list[Any]]]) -> tuple[str, str]:
    tokens, tags = _tokens(lists), _tags(table, lists)
    for tag in tags:
        for token in _by_name(table, _TOKENS, tokens):
            if _alike(lists, token, tag):
                _refuse_several(table, lists, tag)
                return token, tag
    wanted = "a column of lists of tokens, and one of as many IOB2 tags (O, B-PER, I-PER) or numbers of tags"
    raise LocalevalError(f"no tagged sentences were found: looked for {wanted}; the columns are: {table.told()}")


def _refuse_several(table: Table, lists: Mapping[str, Sequence[list[Any]]], tags: str) -> None:
    """Columns of tags of which none is called as such: chunks are in IOB2, too."""
    several = [
        name for name in lists if _in_iob2(lists[name]) and any(tag != "O" for row in lists[name] for tag in row)
    ]
    if len(several) > 1 and tags not in table.named(_TAGS):
        shown = " or ".join(map(repr, several))
        raise LocalevalError(
            f"the tags may stand in {shown}: call the one that is meant ner_tags; the columns are: {table.told()}"
        )


def _by_name(table: Table, known: Sequence[str], among: Sequence[str]) -> list[str]:
    first = [name for name in table.named(known) if name in among]
    return [*first, *(name for name in among if name not in first)]


def _tokens(lists: Mapping[str, Sequence[list[Any]]]) -> list[str]:
    return [
        name
        for name, rows in lists.items()
        if all(isinstance(each, str) for row in rows for each in row)
        and not all(_OTHER.fullmatch(each) for row in rows for each in row)
    ]


def _tags(table: Table, lists: Mapping[str, Sequence[list[Any]]]) -> list[str]:
    """Columns of tags: those in IOB2 first, then numbers, and tags of another scheme for the message."""

    def of(fits: Any) -> list[str]:
        return [name for name, rows in lists.items() if any(rows) and all(fits(each) for row in rows for each in row)]

    words = [name for name, rows in lists.items() if _in_iob2(rows)]
    numbers = of(lambda each: isinstance(each, int) and not isinstance(each, bool))
    others = of(lambda each: isinstance(each, str) and _OTHER.fullmatch(each))
    known = [name for name in table.named(_TAGS) if name in (*words, *numbers)]
    return list(dict.fromkeys([*known, *words, *numbers, *others]))


def _spelled(column: str, rows: Sequence[Sequence[int]], names: Sequence[str]) -> Iterable[str]:
    highest = max(tag for row in rows for tag in row)
    if not names:
        raise LocalevalError(
            f"column {column} holds tags as numbers up to {highest}, and nothing in the file names them: name them in "
            "their order: --tag-names O B-PER I-PER ..."
        )
    if highest >= len(names):
        raise LocalevalError(f"column {column} holds the tag {highest}, and there are {len(names)} names, from 0")
    return (names[tag] for row in rows for tag in row)


def find_layout(path: Path) -> Sentences:
    """Of a CoNLL or BIO text: which of its columns are the tags. Raises LocalevalError where none is."""
    first = None
    tags: list[str] = []
    for tag in (-1, 0, 1, 2, 3):
        layout = Conll(token=-1 if tag == 0 else 0, tag=tag)
        try:
            tags = [tag for sentence in read_sentences(path, layout) for tag in sentence.tags]
            found = _labels(tags, str(path))
        except LocalevalError as error:
            if first is None and "O" in tags and all(map(_OTHER.fullmatch, tags)):
                raise  # entities in another scheme: what is in IOB2 beside them are chunks
            first = first or error
            continue
        return Sentences(_types(found), found, conll=_past_numbers(path, layout))
    raise LocalevalError(f"no column of {path} holds IOB2 tags (O, B-PER, I-PER): {first}")


def _past_numbers(path: Path, layout: Conll) -> Conll:
    """The same, or with the next column as that of tokens, where the first numbers them."""
    numbered = all(
        sentence.tokens == [str(first + i) for i in range(len(sentence.tokens))]
        for sentence in read_sentences(path, layout)
        for first in [1 if sentence.tokens[0] == "1" else 0]
    )
    if layout.token != 0 or not numbered or layout.tag == 1:
        return layout
    beside = Conll(token=1, tag=layout.tag)
    words = any(sentence.tokens != sentence.tags for sentence in read_sentences(path, beside))
    return beside if words else layout


def _labels(tags: Iterable[Any], where: str) -> dict[str, int]:
    """Label -> how many entities begin with it, the most frequent first."""
    counts: Counter[str] = Counter()
    inside: set[str] = set()
    for tag in tags:
        if not isinstance(tag, str) or not _IOB2.fullmatch(tag):
            raise LocalevalError(f"{where}: {tag!r} is no IOB2 tag (O, B-PER, I-PER)")
        if tag != "O":
            counts[tag[2:]] += tag[0] == "B"
            inside.add(tag[2:])
    if not inside:
        raise LocalevalError(f"{where}: every tag is O: no type of entity is told")
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _types(labels: Iterable[str]) -> tuple[Type, ...]:
    types: list[Type] = []
    for label in labels:
        tag, description = _WELL_KNOWN.get(label.upper(), ("", ""))
        words = re.sub(r"(?<=[a-z])(?=[A-Z])|[_\s-]+", " ", label).lower()
        tag = _free(tag or label.lower(), label, [each.tag for each in types])
        types.append(Type(label, tag, description or words[:1].upper() + words[1:], bool(description)))
    return tuple(types)


def _free(tag: str, label: str, taken: Sequence[str]) -> str:
    """The tag, or one like it that is not taken."""
    tries = [tag, label.lower(), *(f"{label.lower()}_{i}" for i in range(2, 100))]
    return next(each for each in tries if each not in taken and each not in ("response", "think"))

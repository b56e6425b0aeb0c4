"""CoNLL and BIO text files: one token a line, a blank line after each sentence. Knows nothing about labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localeval.datasets.parts import Conll
from localeval.schema import LocalevalError

_GAP = re.compile(r"[ \t]+")
DOCSTART = "-DOCSTART-"


@dataclass(frozen=True, slots=True)
class Sentence:
    """line: where it begins in its file, from 1."""

    tokens: list[str]
    tags: list[str]
    line: int


def read_sentences(path: Path, layout: Conll) -> Iterator[Sentence]:
    """The sentences of a file, without ``-DOCSTART-`` rows.

    Columns are separated by tabs or spaces; every line of a file has the same number of them, at least two. Raises
    LocalevalError that names file, line and text.
    """
    tokens: list[str] = []
    tags: list[str] = []
    width = start = 0
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                columns = _GAP.split(line.strip(" \t\r\n"))
                if columns == [""]:
                    if tokens:
                        yield Sentence(tokens, tags, start)
                    tokens, tags = [], []
                    continue
                width = width or len(columns)
                if len(columns) != width or width < 2:
                    expected = "at least 2" if width < 2 else f"{width} as before"
                    raise LocalevalError(
                        f"{path}, line {number}: {len(columns)} columns, expected {expected}: {line!r}"
                    )
                try:
                    token, tag = columns[layout.token], columns[layout.tag]
                except IndexError as error:
                    raise LocalevalError(
                        f"{path}, line {number}: no column {layout.token} or {layout.tag} in {line.rstrip()!r}"
                    ) from error
                if token == DOCSTART:
                    continue
                if not tokens:
                    start = number
                tokens.append(token)
                tags.append(tag)
    except UnicodeDecodeError as error:
        raise LocalevalError(f"{path} is not UTF-8: {error}") from error
    if tokens:
        yield Sentence(tokens, tags, start)

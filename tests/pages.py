"""The documentation, as what can be run and looked at: blocks of code, commands, tables. It knows no meanings.

A block of commands (``sh``, ``python``) is run by the long tests, in the order of its page; where that can't be, the
line above it says why: ``<!-- not run: needs a GPU -->``. Above a block of text, ``<!-- prints -->`` says that this is
what the commands before it print: a line ``...`` stands for any lines, and figures for any figures.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]

_FENCE = re.compile(r"^ *```(\w*)$")
_MARK = re.compile(r"^ *<!-- (not run|prints)(?:: (.+))? -->$")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. line: of its fence, from 1. mark: the words of the comment above it, and its reason."""

    page: Path
    line: int
    language: str
    text: str
    mark: str | None = None
    reason: str | None = None

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}"

    @property
    def runs(self) -> bool:
        return self.language in ("sh", "python") and self.mark is None


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    start: int | None = None
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            continue
        if start is None:
            start = number
            continue
        indent = len(lines[start]) - len(lines[start].lstrip())
        text = "\n".join(line[indent:] for line in lines[start + 1 : number])
        mark = _MARK.match(lines[start - 1]) if start else None
        opened = _FENCE.match(lines[start])
        assert opened is not None
        found.append(Block(page, start + 1, opened[1], text, *(mark.groups() if mark else ())))
        start = None
    assert start is None, f"{page}:{start}: a fence is not closed"
    return found


def outside_blocks(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"(?ms)^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"))


def commands(script: str) -> Iterator[list[str]]:
    """The words of each simple command of a shell script, without what it sets in the environment."""
    script = re.sub(r"(?ms)<<'(\w+)'(.*?)$.*?^\1$", r"\2", script)
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set("&|;"):
                yield from [words] if words else []
                words = []
            elif words or not re.match(r"\w+=", word):
                words.append(word)


def rows(text: str) -> list[list[str]]:
    """The cells of all rows of a text's tables, heads left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    rules = {index for index, row in enumerate(cells) if all(set(cell) <= set("-:") for cell in row)}
    return [row for index, row in enumerate(cells) if index not in rules and index + 1 not in rules]


def sections(page: Path) -> dict[str, str]:
    """What stands below each heading of the second level."""
    parts = re.split(r"(?m)^## (.+)$", page.read_text(encoding="utf-8"))
    return dict(zip(parts[1::2], parts[2::2], strict=True))

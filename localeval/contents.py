"""What ``localeval bundle`` shows: what is in a bundle, and whether it is whole."""

from __future__ import annotations

from pathlib import Path

from localeval.bundle import problems, read_manifest
from localeval.progress import measure, size
from localeval.report.text import words_table


def contents(bundle: Path) -> str:
    """The items of a bundle by its manifest, a line each; no file of theirs is looked at."""
    items = read_manifest(bundle)
    rows = [
        [item.kind, item.name, item.revision, item.licence, f"{len(item.files):,}", size(item.size)] for item in items
    ]
    return words_table(["kind", "name", "revision", "licence", "files", "size"], rows)


def verify(bundle: Path) -> tuple[list[str], str]:
    """Every problem as a line, and a line of figures. Reads every byte, and shows how far it is."""
    items = read_manifest(bundle)
    total = sum(item.size for item in items)
    with measure(total, "verifying") as passed:
        wrong = problems(bundle, passed)
    found = "whole" if not wrong else f"{len(wrong)} problem{'s' if wrong[1:] else ''}"
    counts = [(len(items), "item"), (sum(len(item.files) for item in items), "file")]
    words = [f"{count:,} {what}{'' if count == 1 else 's'}" for count, what in counts]
    return wrong, f"{', '.join(words)}, {size(total)}: {found}"

"""What `mkdocs build` does to the documentation: it is written to be read as plain Markdown, in the repository.

The files beside docs/ that belong to it become pages of it, the README the first one, and links that lead from docs/ to
them, or back, are turned to where they are among the pages. Knows nothing about what they say.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

BESIDE = {
    "README.md": "index.md",
    "SECURITY.md": "SECURITY.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "scripts/bench/README.md": "benchmarks.md",
}
"""Path in the repository -> path among the pages."""

_LINK = re.compile(r"(\]\(|(?:src|href)=\")([^)#\"\s]+)")


def on_files(files: Files, *, config: Any) -> Files:
    """Adds the files beside docs/."""
    from mkdocs.structure.files import File

    top = Path(config.config_file_path).parent
    for place, page in BESIDE.items():
        files.append(File.generated(config, page, abs_src_path=str(top / place)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Turns the links of a page."""
    places = {name: place for place, name in BESIDE.items()}
    here = page.file.src_uri
    return _LINK.sub(lambda link: link[1] + turned(link[2], places.get(here, f"docs/{here}"), here), markdown)


def turned(target: str, place: str, page: str) -> str:
    """Where a link leads among the pages. place, page: of the file that it is in, in the repository and there.

    What is neither below docs/ nor one of the files beside it is left, and is an error of the build.
    """
    if ":" in target or target.startswith("/"):
        return target
    meant = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
    among = BESIDE.get(meant, meant.removeprefix("docs/") if meant.startswith("docs/") else None)
    return target if among is None else posixpath.relpath(among, posixpath.dirname(page) or ".")

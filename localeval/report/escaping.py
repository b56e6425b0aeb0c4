"""Text of strangers in Markdown: it stays the text that it is. Pure.

CommonMark 0.31 and GitHub's extensions (tables, bare addresses as links, footnotes).
"""

from __future__ import annotations

import re

from localeval.visible import visible

_MARKUP = re.compile(
    r"[\\`*|~]|(?<!\w)_|_(?!\w)"
    r"|<(?=[A-Za-z/!?])|&(?=[#A-Za-z])"  # an element, an address, an entity
    r"|\](?=[(\[:])|!(?=\[)|(?<=\[)\^"  # a link, an image, a footnote
    r"|:(?=//)|(?<=www)\.|(?<=WWW)\.|@"  # a bare address
)


def as_markdown(text: str) -> str:
    """One line of Markdown that shows the text: no markup of its own, no link, no line break, no new table cell."""
    line = " ".join(text.split())
    return _MARKUP.sub(lambda match: f"\\{match[0]}", visible(line))

"""What the charts of all pages are made of: colours, a layer, a tooltip, a place in the page. Pure.

Pieces of Vega-Lite specifications (https://vega.github.io/vega-lite/docs/), as values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# Each has a contrast of at least 3:1 (WCAG 2.2, 1.4.11) on white and on the page's dark background.
COLOURS = [
    "#2f7ed8", "#d9541e", "#1f9254", "#a355c9", "#b5850b", "#d6398a",
    "#0d93a6", "#8b6f4e", "#6a72e0", "#7d8c1f", "#c9474e", "#70808f",
]  # fmt: skip
BLUE, GREY = COLOURS[0], COLOURS[-1]
INK = "currentColor"
"""That of the page's text."""


def layer(mark: str, only: Any, encoding: Mapping[str, Any], **look: Any) -> dict[str, Any]:
    """Marks for some of the data. only: the filter."""
    return {"transform": [{"filter": only}], "mark": {"type": mark, **look}, "encoding": dict(encoding)}


def tooltip(texts: Mapping[str, str]) -> dict[str, Any]:
    """As an encoding. texts: field -> what it is called; fields hold texts, as Vega would format a null as 0."""
    return {"tooltip": [{"field": field, "title": title, "type": "nominal"} for field, title in texts.items()]}


def chart(
    description: str, height: int, values: Sequence[Mapping[str, Any]], drawn: Mapping[str, Any]
) -> dict[str, Any]:
    """As wide as its place in the page; height: of what is drawn, in pixels, without axes."""
    size = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}, "height": height}
    return {"description": description, **size, "data": {"values": list(values)}, **drawn}

"""Points -> Vega-Lite specifications (https://vega.github.io/vega-lite/docs/): charts as values. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

from localeval.report.marks import COLOURS, layer, tooltip
from localeval.report.points import Point, grouped
from localeval.report.text import count, interval, number

_STEP = "datum.step != null"
_OVERLAID, _TICKS = 12, 40
"""So many subsets lie over each other in one chart (of more, one at a time); so many steps have a tick each."""
_SHAPES = ["circle", "square", "diamond", "triangle-up", "cross", "triangle-down"]
_DASHES = [[1, 0], [7, 4], [2, 3], [10, 3, 2, 3]]


@dataclass(frozen=True, slots=True)
class _Lines:
    """What tells lines apart: a field of the data, its values, and their colours (in turns).

    singled_out: a click on a name in the legend fades the others. ink: the colour of what is no checkpoint.
    """

    field: str
    names: Sequence[str]
    colours: Sequence[str]
    singled_out: bool
    ink: str

    @property
    def near(self) -> Any:
        """The filter for what is shown with its interval."""
        return {"or": ["datum.overall", {"param": "singled", "empty": False}]} if self.singled_out else "true"


def charts(points: Iterable[Point], ink: str) -> list[dict[str, Any]]:
    """For each dataset and metric its title, what it shows, and its Vega-Lite specification without a config.

    shows: ``one`` line a run, a run's subsets ``overlaid``, or one subset at a time, as ``chosen``, where colours must
    tell runs apart or subsets are too many. ink: the colour of text, and of all rows together among subsets.
    """
    groups = grouped(points)
    runs = list(dict.fromkeys(point.series for group in groups for point in group if point.step is not None))
    return [_chart(group, runs, ink) for group in groups]


def _chart(points: Sequence[Point], runs: Sequence[str], ink: str) -> dict[str, Any]:
    subsets = list(dict.fromkeys(point.subset for point in points if point.subset))
    everything = "all rows"
    while everything in subsets:
        everything = f"({everything})"
    parts = [*([everything] if not points[0].subset else []), *subsets]
    overlaid = len(runs) <= 1 and len(subsets) <= _OVERLAID
    shows = "one" if len(parts) == 1 else "overlaid" if overlaid else "chosen"
    if overlaid:
        lines = _Lines("part", parts, [*([ink] if everything in parts else []), *COLOURS], shows == "overlaid", ink)
    else:
        lines = _Lines("series", runs, COLOURS, False, ink)
    steps = sorted({point.step for point in points if point.step is not None})
    title = f"{points[0].dataset}: {points[0].metric}"
    spec: dict[str, Any] = {
        "description": f"{title} against the training step, with 95% intervals",
        "width": "container",
        "height": 320,
        # What comes last lies on top: all rows together.
        "data": {"values": [_datum(point, point.subset or everything) for point in reversed(points)]},
        "layer": [
            *(_layers(lines, points[0].metric, steps) if steps else []),
            *(_levels(lines, points[0].metric) if None in {point.step for point in points} else []),
        ],
    }
    if shows == "chosen":
        choice = {"input": "select", "options": parts, "name": "rows "}
        chosen = [{"name": "chosen", "value": parts[0], "bind": choice}]
        spec |= {"params": chosen, "transform": [{"filter": "datum.part == chosen"}]}
    return {"title": title, "shows": shows, "spec": spec}


def _datum(point: Point, part: str) -> dict[str, Any]:
    """A point as the charts read it."""
    unknown = {"low": None, "high": None} if None in astuple(point.estimate) else {}
    texts = {"shown": number(point.value), "interval": interval(point.estimate), "at": count(point.step)}
    return {**asdict(point), **unknown, **texts, "part": part, "overall": not point.subset}


def _layers(lines: _Lines, metric: str, steps: Sequence[int]) -> list[dict[str, Any]]:
    """From the bottom: the interval as a band and as error bars, lines, points."""
    axis = {"format": ",d", "tickMinStep": 1, "grid": False, "labelOverlap": "greedy", "labelSeparation": 8}
    axis |= {"values": steps} if len(steps) <= _TICKS else {}
    scale = {"zero": False, "nice": False, "padding": 16}
    x = {"field": "step", "type": "quantitative", "title": "training step", "axis": axis, "scale": scale}
    y = _height(metric)
    here = {"x": x, "y": y, "detail": {"field": "series"}, "color": _told_apart(lines, lines.colours)}
    extent = {**here, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
    faded = {"opacity": {"condition": {"param": "singled", "value": 1}, "value": 0.12}} if lines.singled_out else {}
    bold = {"strokeWidth": {"condition": {"test": "datum.overall", "value": 3}, "value": 1.5}}
    large = {"size": {"condition": {"test": "datum.overall", "value": 70}, "value": 40}}
    dots = {**here, **faded, **large, "shape": _told_apart(lines, _SHAPES), **_told(lines, metric)}
    dash = {"strokeDash": _told_apart(lines, _DASHES)} if lines.field == "series" else {}
    line = layer("line", _STEP, {**here, **dash, **faded, **bold})
    select = {"name": "singled", "select": {"type": "point", "fields": ["part"]}, "bind": "legend"}
    line |= {"params": [select]} if lines.singled_out else {}
    return [
        layer("area", {"and": [_STEP, lines.near]}, extent, opacity=0.14),
        layer("rule", {"and": [f"{_STEP} && datum.low != null", lines.near]}, extent, opacity=0.6),
        line,
        layer("point", _STEP, dots, filled=True, opacity=1),
    ]


def _levels(lines: _Lines, metric: str) -> list[dict[str, Any]]:
    """What has no step: a dashed line with its name."""
    only = {"and": [f"!({_STEP}) && datum.value != null", lines.near]}
    colour = _told_apart(lines, lines.colours) if lines.field == "part" else {"value": lines.ink}
    rule = {"y": _height(metric), "color": colour, **_told(lines, metric)}
    name = {"x": {"value": "width"}, "text": {"field": "checkpoint"}, "color": {"value": lines.ink}}
    return [
        layer("rule", only, rule, strokeDash=[5, 4], strokeWidth=1.5),
        layer("text", only, {**name, "y": _height(metric)}, align="right", dy=-7, fontSize=12),
    ]


def _height(metric: str) -> dict[str, Any]:
    return {"field": "value", "type": "quantitative", "title": metric, "scale": {"zero": False, "padding": 8}}


def _told(lines: _Lines, metric: str) -> dict[str, Any]:
    """The tooltip."""
    texts = {"series": "run"} if lines.field == "series" else {}
    texts |= {"checkpoint": "checkpoint", "at": "step", "part": "rows", "shown": metric}
    texts |= {"interval": "95% interval", "n": "n"}
    return tooltip(texts)


def _told_apart(lines: _Lines, looks: Sequence[Any]) -> dict[str, Any]:
    """An encoding that gives each line one of the looks, in turns; a legend where there is something to tell apart."""
    scale = {"domain": lines.names, "range": [looks[i % len(looks)] for i in range(len(lines.names))]}
    legend = {"orient": "bottom", "columns": {"expr": "max(1, floor(width / 120))"}, "labelLimit": 220}
    shown = {**legend, "symbolOpacity": 1, "symbolStrokeWidth": 0} if len(lines.names) > 1 else None
    return {"field": lines.field, "type": "nominal", "title": None, "scale": scale, "legend": shown}

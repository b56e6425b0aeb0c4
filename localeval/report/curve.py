"""Scores against training steps: a CSV file, a picture in text, a page, a drawing. Pure functions of Points.

Knows nothing of run folders and checkpoints' files. The charts are Vega-Lite (https://vega.github.io/vega-lite/docs/),
and the page holds the JavaScript that draws them. What is not defined is a gap, an empty cell or a dash, never a 0.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import groupby
from operator import attrgetter
from typing import Any

from localeval.report.text import DASH, interval, number, table
from localeval.schema import Estimate

_COLUMNS = 100
"""The most columns of a line on the console."""
_NAME = 32
_PICTURE = 40
_OVERLAID = 12
"""So many subsets lie over each other in one chart; of more, one at a time is shown."""
_DARK = "#1b1f24"
_SHAPES = ["circle", "square", "diamond", "triangle-up", "cross", "triangle-down"]
_DASHES = [[1, 0], [7, 4], [2, 3], [10, 3, 2, 3]]
# Each has a contrast of at least 3:1 (WCAG 2.2, 1.4.11) both on white and on the page's dark background.
_COLOURS = [
    "#2f7ed8", "#d9541e", "#1f9254", "#a355c9", "#b5850b", "#d6398a",
    "#0d93a6", "#8b6f4e", "#6a72e0", "#7d8c1f", "#c9474e", "#70808f",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Point:
    """One metric of one checkpoint over the rows of one subset.

    series: the training run; empty where there is one or none. checkpoint: as tables call it.
    step: None for a model that is no checkpoint of a run, such as the base model: a horizontal line in the charts.
    dataset: with its mode, as ``milu, logprob``. subset: empty for all rows together. n: samples.
    low, high: the 95% interval.
    """

    series: str
    checkpoint: str
    step: int | None
    dataset: str
    subset: str
    metric: str
    n: int
    value: float | None
    low: float | None
    high: float | None

    @property
    def estimate(self) -> Estimate:
        return Estimate(self.value, self.low, self.high)


def curve_csv(points: Iterable[Point]) -> str:
    """One row a point under the names of Point's fields: full floats, an empty cell for None, lines end with a newline."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([field.name for field in fields(Point)])
    writer.writerows(astuple(point) for point in _ordered(points))
    return file.getvalue()


def curve_text(points: Iterable[Point]) -> str:
    """What the console shows of all rows together: one block a dataset and metric, one row a checkpoint.

    The picture beside the numbers shows the value in its interval, on one scale for the block whose ends stand above.
    """
    return "\n\n".join(_block(group) for group in _groups([point for point in points if not point.subset]))


def curve_html(points: Iterable[Point], title: str, facts: Mapping[str, str]) -> str:
    """One file that opens from disk and loads nothing: facts, a chart a dataset and metric, and all numbers as a table.

    facts: what the reader must know of the run, name -> text. Its Content-Security-Policy allows no request at all and
    no script but its own two, so that a name in the data can't become one.
    """
    from base64 import b64encode
    from hashlib import sha256
    from importlib.resources import files

    import vl_convert
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page.policies["json.dumps_kwargs"] = {"allow_nan": False, "ensure_ascii": False}
    page.filters["sha256"] = lambda script: b64encode(sha256(str(script).encode()).digest()).decode()
    points = list(points)
    template = page.from_string((files("localeval.report") / "curve.html.j2").read_text(encoding="utf-8"))
    header, rows = _number_rows(points)
    return template.render(
        title=title,
        facts=facts,
        charts=[_chart(group, "currentColor") for group in _groups(points)],
        config=_config("currentColor"),
        header=header,
        rows=rows,
        vega=Markup(vl_convert.javascript_bundle()),
    )


def curve_svg(points: Iterable[Point], title: str = "") -> str:
    """A drawing of all rows together, for a README: one panel a dataset and metric, two in a row, on white."""
    import vl_convert

    charts = [_chart(group, _DARK) for group in _groups([point for point in points if not point.subset])]
    panels = [{**chart.spec, "title": chart.title, "width": 340, "height": 200} for chart in charts]
    spec = {
        "background": "white",
        "config": _config(_DARK),
        "concat": panels,
        "columns": 2,
        "resolve": {"scale": {"color": "shared", "strokeDash": "shared"}},
        **({"title": {"text": title, "fontSize": 16, "offset": 12}} if title else {}),
    }
    return vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])


def _ordered(points: Iterable[Point]) -> list[Point]:
    """Line by line, in the order in which datasets, metrics, subsets and runs come; what has no step, then by step."""
    points = list(points)
    ranks = []
    for field in map(attrgetter, ("dataset", "metric", "subset", "series")):
        ranks.append((field, {name: rank for rank, name in enumerate(dict.fromkeys(["", *map(field, points)]))}))
    return sorted(points, key=lambda point: (*(rank[field(point)] for field, rank in ranks), _place(point)))


def _place(point: Point) -> tuple[bool, int]:
    return point.step is not None, point.step or 0


def _groups(points: Iterable[Point]) -> list[list[Point]]:
    """What is drawn together: the points of one dataset and metric."""
    return [list(group) for _, group in groupby(_ordered(points), key=attrgetter("dataset", "metric"))]


def _step(point: Point) -> str:
    return DASH if point.step is None else f"{point.step:,}"


def _number_rows(points: Iterable[Point]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the page's table: names, then from ``step`` on numbers."""
    found = _ordered(points)
    several = any(point.series for point in found)
    header = ["dataset", "rows", "metric", *(["run"] if several else []), "checkpoint"]
    rows = []
    for point in found:
        names = [point.dataset, point.subset or "all", point.metric, *([point.series] if several else [])]
        rows.append([*names, point.checkpoint, _step(point), f"{point.n:,}", number(point.value)])
        rows[-1].append(interval(point.estimate))
    return [*header, "step", "n", "value", "95% interval"], rows


# --- the console ---


def _block(points: Sequence[Point]) -> str:
    rows = [
        ["…" + point.checkpoint[1 - _NAME :] if len(point.checkpoint) > _NAME else point.checkpoint, _step(point)]
        for point in points
    ]
    for row, point in zip(rows, points, strict=True):
        row += [number(point.value), interval(point.estimate)]
    header = ["checkpoint", "step", "value", "95% interval"]
    taken = sum(max(map(len, column)) + 2 for column in zip(header, *rows, strict=True))
    ends, draw = _scale(points, min(_PICTURE, _COLUMNS - taken))
    for row, point in zip(rows, points, strict=True):
        row.append(draw(point))
    head, rule, *lines = table([*header, ends], rows).split("\n")
    shown = [f"{points[0].dataset}: {points[0].metric}", "", head, rule]
    for series, group in groupby(zip(points, lines, strict=True), key=lambda pair: pair[0].series):
        shown += [f"{series}:"] if series else []
        shown += [line for _, line in group]
    return "\n".join(shown)


def _scale(points: Sequence[Point], width: int) -> tuple[str, Callable[[Point], str]]:
    """The ends of the scale that all of these points fit on, and how a point is drawn on it: both ``width`` long."""
    known = [value for point in points for value in (point.value, point.low, point.high) if value is not None]
    if not known:
        return "", lambda point: ""
    low, high = min(known), max(known)

    def column(value: float) -> int:
        return round((value - low) / (high - low) * (width - 1)) if low < high else width // 2

    def draw(point: Point) -> str:
        cells = [" "] * width
        if point.low is not None and point.high is not None:
            left, right = column(point.low), column(point.high)
            cells[left : right + 1] = ["─"] * (right - left + 1)
            cells[left], cells[right] = "├", "┤"
        if point.value is not None:
            cells[column(point.value)] = "●"
        return "".join(cells)

    ends = f"{low:.4f}" + f"{high:.4f}".rjust(width - len(f"{low:.4f}")) if low < high else f"{low:.4f}".center(width)
    return ends, draw


# --- the charts ---


@dataclass(frozen=True, slots=True)
class _Chart:
    """how: what its reader must know. spec: Vega-Lite, without a config."""

    title: str
    how: str
    spec: dict[str, Any]


def _chart(points: Sequence[Point], ink: str) -> _Chart:
    """ink: the colour of what stands for all rows together, and of what is no checkpoint.

    One run's subsets lie over each other, each in its colour. Of several runs, or of too many subsets, one subset is
    shown at a time, and colours tell runs apart.
    """
    subsets = list(dict.fromkeys(point.subset for point in points if point.subset))
    runs = list(dict.fromkeys(point.series for point in points if point.step is not None))
    everything = "all rows"
    while everything in subsets:
        everything = f"({everything})"
    parts = ([everything] if any(not point.subset for point in points) else []) + subsets
    overlaid = len(runs) <= 1 and len(subsets) <= _OVERLAID
    colours = [ink, *_COLOURS] if parts[0] == everything else _COLOURS
    lines = _Lines("part", parts, colours) if overlaid else _Lines("run", runs, _COLOURS)
    metric = points[0].metric
    title = f"{points[0].dataset}: {metric}"
    spec: dict[str, Any] = {
        "description": f"{title} against the training step, with 95% intervals",
        "width": "container",
        "height": 320,
        # What is drawn last lies on top: all rows together.
        "data": {"values": [_datum(point, point.subset or everything) for point in reversed(points)]},
        "layer": _layers(lines, metric, ink),
    }
    if overlaid:
        return _Chart(title, _OVERLAID_HOW if len(parts) > 1 else _ONE_HOW, spec)
    if len(parts) > 1:
        chosen = {"input": "select", "options": parts, "name": "rows "}
        spec["params"] = [{"name": "chosen", "value": parts[0], "bind": chosen}]
        spec["transform"] = [{"filter": "datum.part == chosen"}]
    return _Chart(title, _CHOSEN_HOW if len(parts) > 1 else _ONE_HOW, spec)


@dataclass(frozen=True, slots=True)
class _Lines:
    """What tells lines apart: a field of the data, its values, and their colours (in turns)."""

    field: str
    names: Sequence[str]
    colours: Sequence[str]

    @property
    def singled_out(self) -> bool:
        """Whether a name in the legend can be clicked."""
        return self.field == "part" and len(self.names) > 1


_ONE_HOW = "With 95% intervals; a dashed horizontal line is a model that is no checkpoint."
_OVERLAID_HOW = (
    "The thick line is over all rows, with its 95% interval; the thin ones are subsets. Click a name below the chart to "
    "single it out, with its interval; hold Shift for several; double-click the chart to show all again. "
    "A dashed horizontal line is a model that is no checkpoint."
)
_CHOSEN_HOW = f"One set of rows at a time: choose it below the chart. {_ONE_HOW}"


def _datum(point: Point, part: str) -> dict[str, Any]:
    """A point as the charts read it. Its texts are made here, as Vega would write a null as 0."""
    known = point.value is not None and point.low is not None and point.high is not None
    return {
        "run": point.series, "checkpoint": point.checkpoint, "step": point.step, "part": part,
        "overall": not point.subset, "n": point.n, "value": point.value,
        "low": point.low if known else None, "high": point.high if known else None,
        "shown": number(point.value), "interval": interval(point.estimate),
    }  # fmt: skip


def _layers(lines: _Lines, metric: str, ink: str) -> list[dict[str, Any]]:
    """Band, error bars, lines and points of the checkpoints; a dashed line with a name for what has no step."""
    x = {
        "field": "step", "type": "quantitative", "title": "training step",
        "axis": {"format": ",d", "tickMinStep": 1, "grid": False, "labelOverlap": True},
        "scale": {"zero": False, "nice": False, "padding": 16},
    }  # fmt: skip
    y = {"field": "value", "type": "quantitative", "title": metric, "scale": {"zero": False}}
    across = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
    look, faded = _look(lines)
    focus: dict[str, Any] = {"param": "singled", "empty": False}
    near: Any = {"or": ["datum.overall", focus]} if lines.singled_out else "true"
    width = {"condition": {"test": "datum.overall", "value": 3}, "value": 1.5}
    size = {"condition": {"test": "datum.overall", "value": 70}, "value": 40}
    single = [{"name": "singled", "select": {"type": "point", "fields": ["part"]}, "bind": "legend"}]
    tooltip = [("checkpoint", "checkpoint"), ("step", "step"), ("run", "run"), ("part", "rows"), ("shown", metric)]
    told = [
        {"field": field, "type": "nominal", "title": name}
        for field, name in [*tooltip, ("interval", "95% interval"), ("n", "n")]
    ]

    def layer(mark: dict[str, Any], only: Any, encoding: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"transform": [{"filter": only}], "mark": mark, "encoding": encoding, **more}

    step = "datum.step != null"
    here = {"x": x, "y": y, **look}
    name = {"y": y, "x": {"value": "width"}, "text": {"field": "checkpoint"}, "color": {"value": ink}}
    band = {**here, **across}
    return [
        layer({"type": "area", "opacity": 0.14}, {"and": [step, near]}, band),
        layer({"type": "rule", "opacity": 0.6}, {"and": [f"{step} && datum.low != null", near]}, band),
        layer({"type": "line"}, step, {**here, "strokeWidth": width, **faded}, params=single),
        layer({"type": "point"}, f"{step} && datum.value != null", {**here, "size": size, "tooltip": told, **faded}),
    ]


def _config(ink: str) -> dict[str, Any]:
    """Vega-Lite's config for text and axes in one colour, ``currentColor`` for that of the page around it."""
    return {
        "font": "system-ui, sans-serif",
        "view": {"stroke": None},
        "axis": {
            "labelColor": ink, "titleColor": ink, "domainColor": ink, "tickColor": ink, "gridColor": ink,
            "gridOpacity": 0.15, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal",
        },
        "legend": {"labelColor": ink, "titleColor": ink, "labelFontSize": 12},
        "title": {"color": ink, "anchor": "start"},
    }  # fmt: skip

"""Scores against training steps: a CSV file, a picture in text, a page, a drawing. Pure functions of Points.

Knows nothing of run folders and of checkpoints' files. Charts are Vega-Lite (https://vega.github.io/vega-lite/docs/);
the page holds the JavaScript that draws them. What is not defined is a gap, an empty cell or a dash, never a 0.
"""

from __future__ import annotations

import csv
import io
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import groupby
from operator import attrgetter
from typing import Any

from localeval.report.text import DASH, interval, number, table
from localeval.schema import Estimate

_COLUMNS, _PICTURE, _NAME = 100, 40, 32
"""The most columns that a line on the console has, and in it the picture and a checkpoint's name."""
_STEP = "datum.step != null"
_OVERLAID, _TICKS = 12, 40
"""So many subsets lie over each other in one chart (of more, one at a time); so many steps have a tick each."""
# Each has a contrast of at least 3:1 (WCAG 2.2, 1.4.11) on white and on the page's dark background.
_COLOURS = [
    "#2f7ed8", "#d9541e", "#1f9254", "#a355c9", "#b5850b", "#d6398a",
    "#0d93a6", "#8b6f4e", "#6a72e0", "#7d8c1f", "#c9474e", "#70808f",
]  # fmt: skip
_SHAPES = ["circle", "square", "diamond", "triangle-up", "cross", "triangle-down"]
_DASHES = [[1, 0], [7, 4], [2, 3], [10, 3, 2, 3]]


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
    """One row a point, under the names of Point's fields: full floats, an empty cell for None, no carriage returns."""
    file = io.StringIO()
    header = [field.name for field in fields(Point)]
    csv.writer(file, lineterminator="\n").writerows([header, *map(astuple, _ordered(points))])
    return file.getvalue()


def curve_text(points: Iterable[Point]) -> str:
    """What the console shows of all rows together: one block a dataset and metric, one row a checkpoint.

    The picture beside the numbers shows the value in its interval, on one scale for the block whose ends stand above.
    """
    return "\n\n".join(_block(group) for group in _groups(point for point in points if not point.subset))


@cache
def _vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script: over a second's work, and always the same."""
    import vl_convert

    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return script


def curve_html(points: Iterable[Point], title: str, facts: Mapping[str, str]) -> str:
    """One file that opens from disk and loads nothing: facts, a chart a dataset and metric, and all numbers as a table.

    facts: what the reader must know of the run, name -> text. The page's Content-Security-Policy allows no request, and
    no script but its own two, by their digests (https://www.w3.org/TR/CSP3/): a name in the data can't become one.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page.policies["json.dumps_kwargs"] = {"allow_nan": False, "ensure_ascii": False}
    page.filters |= {"number": number, "interval": interval, "step": _step}
    page.filters["sha256"] = lambda script: b64encode(sha256(script.encode()).digest()).decode()
    vega = Markup(_vega())
    found = _ordered(points)
    return page.from_string((files("localeval.report") / "curve.html.j2").read_text(encoding="utf-8")).render(
        title=title, facts=facts, charts=_charts(found, "currentColor"), points=found, vega=vega
    )


def curve_svg(points: Iterable[Point], title: str = "") -> str:
    """A drawing of all rows together, for a README: one panel a dataset and metric, two in a row, on white."""
    import vl_convert

    charts = _charts([point for point in points if not point.subset], "black")
    spec = {
        "background": "white",
        "title": {"text": title, "fontSize": 16, "offset": 12},
        "concat": [{**chart["spec"], "title": chart["title"], "width": 340, "height": 200} for chart in charts],
        "columns": 2,
        "resolve": {"scale": {"color": "shared", "shape": "shared", "strokeDash": "shared"}},
    }
    return vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])


def _ordered(points: Iterable[Point]) -> list[Point]:
    """Line by line, in the order in which datasets, metrics, subsets and runs come; what has no step, then by step."""
    points = list(points)
    line = attrgetter("dataset", "metric", "subset", "series")
    names = [list(dict.fromkeys(["", *column])) for column in zip(*map(line, points), strict=True)]
    rank = [{name: place for place, name in enumerate(column)} for column in names]
    return sorted(points, key=lambda p: (*map(dict.__getitem__, rank, line(p)), -1 if p.step is None else p.step))


def _groups(points: Iterable[Point]) -> list[list[Point]]:
    """What is drawn together: the points of one dataset and metric."""
    return [list(group) for _, group in groupby(_ordered(points), key=attrgetter("dataset", "metric"))]


def _step(step: int | None) -> str:
    return DASH if step is None else f"{step:,}"


def _block(points: Sequence[Point]) -> str:
    header = ["checkpoint", "step", "value", "95% interval"]
    rows = []
    for point in points:
        name = point.checkpoint if len(point.checkpoint) <= _NAME else "…" + point.checkpoint[1 - _NAME :]
        rows.append([name, _step(point.step), number(point.value), interval(point.estimate)])
    taken = sum(max(map(len, column)) + 2 for column in zip(header, *rows, strict=True))
    ends, draw = _scale(points, min(_PICTURE, _COLUMNS - taken))
    drawn = [[*row, draw(point)] for row, point in zip(rows, points, strict=True)]
    head, rule, *lines = table([*header, ends], drawn).split("\n")
    shown = [f"{points[0].dataset}: {points[0].metric}", "", head, rule]
    for series, group in groupby(zip(points, lines, strict=True), key=lambda pair: pair[0].series):
        shown += [*([f"{series}:"] if series else []), *(line for _, line in group)]
    return "\n".join(shown)


def _scale(points: Sequence[Point], width: int) -> tuple[str, Callable[[Point], str]]:
    """The ends of the scale that all of these points fit on, and how a point is drawn on it: both ``width`` long."""
    known = [value for point in points for value in (point.value, point.low, point.high) if value is not None]
    if not known:
        return "", lambda _: ""
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

    left, right = f"{low:.4f}", f"{high:.4f}"
    return (left + right.rjust(width - len(left)) if low < high else left.center(width)), draw


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


def _charts(points: Iterable[Point], ink: str) -> list[dict[str, Any]]:
    """For each dataset and metric its title, what it shows, and its Vega-Lite specification without a config.

    shows: ``one`` line a run, a run's subsets ``overlaid``, or one subset at a time, as ``chosen``, where colours must
    tell runs apart or subsets are too many. ink: the colour of text, and of all rows together among subsets.
    """
    groups = _groups(points)
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
        lines = _Lines("part", parts, [*([ink] if everything in parts else []), *_COLOURS], shows == "overlaid", ink)
    else:
        lines = _Lines("series", runs, _COLOURS, False, ink)
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
    """A point as the charts read it. Tooltips get texts made here, as Vega would format a null as 0."""
    unknown = {"low": None, "high": None} if None in astuple(point.estimate) else {}
    texts = {"shown": number(point.value), "interval": interval(point.estimate), "at": _step(point.step)}
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
    line = _layer("line", _STEP, {**here, **dash, **faded, **bold})
    select = {"name": "singled", "select": {"type": "point", "fields": ["part"]}, "bind": "legend"}
    line |= {"params": [select]} if lines.singled_out else {}
    return [
        _layer("area", {"and": [_STEP, lines.near]}, extent, opacity=0.14),
        _layer("rule", {"and": [f"{_STEP} && datum.low != null", lines.near]}, extent, opacity=0.6),
        line,
        _layer("point", _STEP, dots, filled=True, opacity=1),
    ]


def _levels(lines: _Lines, metric: str) -> list[dict[str, Any]]:
    """What has no step: a dashed line with its name."""
    only = {"and": [f"!({_STEP}) && datum.value != null", lines.near]}
    colour = _told_apart(lines, lines.colours) if lines.field == "part" else {"value": lines.ink}
    rule = {"y": _height(metric), "color": colour, **_told(lines, metric)}
    name = {"x": {"value": "width"}, "text": {"field": "checkpoint"}, "color": {"value": lines.ink}}
    return [
        _layer("rule", only, rule, strokeDash=[5, 4], strokeWidth=1.5),
        _layer("text", only, {**name, "y": _height(metric)}, align="right", dy=-7, fontSize=12),
    ]


def _height(metric: str) -> dict[str, Any]:
    return {"field": "value", "type": "quantitative", "title": metric, "scale": {"zero": False, "padding": 8}}


def _told(lines: _Lines, metric: str) -> dict[str, Any]:
    """The tooltip."""
    texts = {"series": "run"} if lines.field == "series" else {}
    texts |= {"checkpoint": "checkpoint", "at": "step", "part": "rows", "shown": metric}
    texts |= {"interval": "95% interval", "n": "n"}
    return {"tooltip": [{"field": field, "title": name, "type": "nominal"} for field, name in texts.items()]}


def _layer(mark: str, only: Any, encoding: Mapping[str, Any], **look: Any) -> dict[str, Any]:
    return {"transform": [{"filter": only}], "mark": {"type": mark, **look}, "encoding": dict(encoding)}


def _told_apart(lines: _Lines, looks: Sequence[Any]) -> dict[str, Any]:
    """An encoding that gives each line one of the looks, in turns; a legend where there is something to tell apart."""
    scale = {"domain": lines.names, "range": [looks[i % len(looks)] for i in range(len(lines.names))]}
    legend = {"orient": "bottom", "columns": {"expr": "max(1, floor(width / 120))"}, "labelLimit": 220}
    shown = {**legend, "symbolOpacity": 1, "symbolStrokeWidth": 0} if len(lines.names) > 1 else None
    return {"field": lines.field, "type": "nominal", "title": None, "scale": scale, "legend": shown}

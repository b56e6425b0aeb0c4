"""A leaderboard -> a Vega-Lite specification: a dot with its interval for each model, the best on top. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localeval.report.leaderboard import Board, Place
from localeval.report.text import DASH, interval, number

# Each has a contrast of at least 3:1 (WCAG 2.2, 1.4.11) on white and on the page's dark background.
_LEADING, _OTHER = "#2f7ed8", "#70808f"
_ROW, _NAME = 22, 24
"""Pixels a model; the most characters of its name."""


def dots(board: Board, ink: str) -> dict[str, Any]:
    """The values of all models on one scale. ink: the colour of text.

    Filled dots: the best, and those that are not shown to differ from it; all, where nothing was tested. The value of
    the baseline is a dashed line.
    """
    values = [_datum(place, board.tested) for place in board.places]
    by_value = {"field": "value", "type": "quantitative", "title": board.metric, "axis": {"tickCount": 6}}
    x = {**by_value, "scale": {"zero": False, "padding": 10}}
    # What stands beside it must have room on a phone, too; names of checkpoints differ at their ends.
    label = f"length(datum.label) > {_NAME} ? '…' + slice(datum.label, {1 - _NAME}) : datum.label"
    axis = {"title": None, "labelExpr": label, "labelLimit": 200, "ticks": False, "domain": False, "labelPadding": 8}
    y = {"field": "label", "type": "nominal", "sort": None, "axis": axis}
    colour = {"condition": {"test": "datum.leads", "value": _LEADING}, "value": _OTHER}
    texts = {"label": "model", "shown": board.metric, "interval": "95% interval", "n": "n", "rank": "rank"}
    tooltip = [{"field": field, "title": name, "type": "nominal"} for field, name in texts.items()]
    here = {"x": x, "y": y, "color": colour, "tooltip": tooltip}
    known = [{"filter": "datum.value != null"}]
    bar: dict[str, Any] = {
        "transform": [{"filter": "datum.low != null"}],
        "mark": {"type": "rule", "strokeWidth": 2.5, "opacity": 0.75},
    }
    fill = {"condition": {"test": "datum.leads", "value": 1}, "value": 0}
    dot: dict[str, Any] = {"transform": known, "mark": {"type": "point", "size": 80, "strokeWidth": 2, "opacity": 1}}
    level: dict[str, Any] = {
        "transform": [*known, {"filter": "datum.baseline"}],
        "mark": {"type": "rule", "strokeDash": [5, 4]},
    }
    layers = [
        {**level, "encoding": {"x": x, "color": {"value": ink}, "opacity": {"value": 0.5}}},
        {**bar, "encoding": {**here, "x": {**x, "field": "low"}, "x2": {"field": "high"}}},
        {**dot, "encoding": {**here, "fill": colour, "fillOpacity": fill}},
    ]
    # A layer without data would have Vega warn.
    there = [any(d["baseline"] and d["value"] is not None for d in values), any(d["low"] is not None for d in values)]
    return {
        "description": f"{board.title}: {board.metric} of each model with its 95% interval, the highest first",
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "height": _ROW * len(values),
        "data": {"values": values},
        "layer": [layer for layer, shown in zip(layers, [*there, True], strict=True) if shown],
    }


def _datum(place: Place, tested: bool) -> Mapping[str, Any]:
    """Tooltips get texts made here, as Vega would format a null as 0."""
    estimate = place.estimate
    known = None not in (estimate.low, estimate.high)
    return {
        "label": place.entry.run.label,
        "value": estimate.value,
        "low": estimate.low if known else None,
        "high": estimate.high if known else None,
        "shown": number(estimate.value),
        "interval": interval(estimate),
        "n": f"{place.entry.run.report['n']:,}",
        "rank": DASH if place.rank is None else str(place.rank),
        "leads": not tested or place.standing in ("best", "leading"),
        "baseline": place.is_baseline,
    }

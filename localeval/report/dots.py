"""A leaderboard -> a Vega-Lite specification: a dot with its interval for each model, the best on top. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from localeval.report.leaderboard import Board, Place
from localeval.report.marks import BLUE, GREY, chart, layer, tooltip
from localeval.report.text import DASH, interval, number

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
    colour = {"condition": {"test": "datum.leads", "value": BLUE}, "value": GREY}
    texts = {"label": "model", "shown": board.metric, "interval": "95% interval", "n": "n", "rank": "rank"}
    here = {"x": x, "y": y, "color": colour, **tooltip(texts)}
    level = {"x": x, "color": {"value": ink}, "opacity": {"value": 0.5}}
    extent = {**here, "x": {**x, "field": "low"}, "x2": {"field": "high"}}
    fill = {"condition": {"test": "datum.leads", "value": 1}, "value": 0}
    known, baseline = "datum.value != null", any(d["baseline"] and d["value"] is not None for d in values)
    layers = [  # one without data would have Vega warn
        *([layer("rule", {"and": [known, "datum.baseline"]}, level, strokeDash=[5, 4])] if baseline else []),
        *([layer("rule", "datum.low != null", extent, strokeWidth=2.5, opacity=0.75)] if _known(values) else []),
        layer("point", known, {**here, "fill": colour, "fillOpacity": fill}, size=80, strokeWidth=2, opacity=1),
    ]
    described = f"{board.title}: {board.metric} of each model with its 95% interval, the highest first"
    return chart(described, _ROW * len(values), values, {"layer": layers})


def _known(values: Sequence[Mapping[str, Any]]) -> bool:
    """Whether any interval is."""
    return any(each["low"] is not None for each in values)


def _datum(place: Place, tested: bool) -> Mapping[str, Any]:
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

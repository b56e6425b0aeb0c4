"""Groups, letters and confidences -> Vega-Lite specifications: charts as values. Pure.

Names and numbers come as text made here. A mark that shows some of the samples has their address in the page, as href.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from localeval.report.shell import shown, to_samples
from localeval.report.text import interval, number, share
from localeval.schema import Bin, Group, Tally

MOST = 80
"""A chart of more groups shows the first and the last ones."""
# Contrast of at least 3:1 (WCAG 2.2, 1.4.11) on white and on the page's dark background.
_BLUE, _GREY = "#2f7ed8", "#7b8794"
_INK = "currentColor"
_FIT = {"type": "fit-x", "contains": "padding"}


def ranked(
    groups: Mapping[str, Group], metric: str, href: Callable[[str], str], overall: float | None
) -> dict[str, Any] | None:
    """Bars of one metric between 0 and 1, best first, with their intervals; None where fewer than two are defined.

    overall: over all rows, a dashed line. Of more than MOST groups the best and the lowest half of so many.
    """
    found = [(name, group) for name, group in groups.items() if group.metrics[metric].value is not None]
    if len(found) < 2:
        return None
    found.sort(key=lambda item: (-(item[1].metrics[metric].value or 0.0), item[0]))
    if len(found) > MOST:
        found = found[: MOST // 2] + found[-MOST // 2 :]
    values = [
        {
            "name": shown(name),
            "value": group.metrics[metric].value,
            "low": group.metrics[metric].low,
            "high": group.metrics[metric].high,
            "n": f"{group.n:,}",
            "shown": number(group.metrics[metric].value),
            "interval": interval(group.metrics[metric]),
            "href": href(name),
        }
        for name, group in found
    ]
    told = {"name": "group", "shown": metric, "interval": "95% interval", "n": "n"}
    tooltip = [{"field": field, "title": title, "type": "nominal"} for field, title in told.items()]
    x = {
        "field": "value",
        "type": "quantitative",
        "title": metric,
        "scale": {"domain": [0, 1]},
        "axis": {"tickCount": 5},
    }
    y = {"field": "name", "type": "nominal", "sort": None, "title": None, "axis": _NAMES}
    bar = {"type": "bar", "color": _BLUE, "cursor": "pointer", "height": {"band": 0.62}, "cornerRadiusEnd": 2}
    layers: list[dict[str, Any]] = [{"mark": bar, "encoding": {"x": x, "y": y, "tooltip": tooltip}}]
    if any(value["low"] is not None for value in values):
        ends = {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y, "tooltip": tooltip}
        rule = {"type": "rule", "color": _INK, "strokeWidth": 2, "opacity": 0.6, "cursor": "pointer"}
        layers.append({"transform": [{"filter": "datum.low != null"}], "mark": rule, "encoding": ends})
    if overall is not None:
        line = {"type": "rule", "color": _INK, "strokeDash": [4, 4], "opacity": 0.7}
        layers.append({"data": {"values": [{"value": overall}]}, "mark": line, "encoding": {"x": x}})
    described = f"{metric} of {len(values)} groups, best first; the table has the numbers"
    return {
        "description": described,
        "width": "container",
        "autosize": _FIT,
        "height": 22 * len(values),
        "data": {"values": values},
        "layer": layers,
    }


_NAMES = {"labelLimit": 170, "ticks": False, "domain": False, "labelPadding": 6, "labelOverlap": False}


def positions(letters: Mapping[str, Tally], n: int) -> dict[str, Any]:
    """How often each letter is answered, of the answers that could be read, beside how often it is right, of n."""
    answers = sum(tally.predicted for tally in letters.values())
    values = []
    for letter, tally in letters.items():
        for what, part, whole, href in (
            ("answered", tally.predicted, answers, to_samples(read=letter)),
            ("right answer", tally.gold, n, to_samples(gold=letter)),
        ):
            value = part / whole if whole else 0.0
            values.append(
                {
                    "letter": letter,
                    "what": what,
                    "value": value,
                    "shown": f"{part:,} ({share(part, whole)})",
                    "href": href,
                }
            )
    tooltip = [
        {"field": field, "type": "nominal", "title": field if field != "shown" else "n"}
        for field in ("letter", "what", "shown")
    ]
    colour = {
        "field": "what",
        "type": "nominal",
        "title": None,
        "scale": {"domain": ["answered", "right answer"], "range": [_BLUE, _GREY]},
        "legend": {"orient": "bottom"},
    }
    return {
        "description": "How often each letter is answered, and how often it is right; the table has the numbers",
        "width": "container",
        "autosize": _FIT,
        "height": 13 * len(values),
        "data": {"values": values},
        "mark": {"type": "bar", "cursor": "pointer"},
        "encoding": {
            "y": {"field": "letter", "type": "nominal", "sort": None, "title": None, "axis": _NAMES},
            "yOffset": {"field": "what", "sort": None},
            "x": {"field": "value", "type": "quantitative", "title": "share", "axis": {"format": "%", "tickCount": 5}},
            "color": colour,
            "tooltip": tooltip,
        },
    }  # fmt: skip


def reliability(bins: Sequence[Bin]) -> dict[str, Any]:
    """Accuracy against confidence: on the dashed line a model is as often right as it is sure. Larger: more answers."""
    values = [
        {
            "confidence": row.confidence / row.n,
            "accuracy": row.correct / row.n,
            "n": row.n,
            "range": f"{row.low:.1f} to {row.high:.1f}",
            "mean": number(row.confidence / row.n),
            "right": number(row.correct / row.n),
            "answers": f"{row.n:,}",
        }
        for row in bins
        if row.n
    ]
    told = {"range": "confidence", "mean": "mean confidence", "right": "accuracy", "answers": "answers"}
    unit = {"domain": [0, 1]}
    x = {"field": "confidence", "type": "quantitative", "title": "confidence", "scale": unit, "axis": {"tickCount": 5}}
    y = {"field": "accuracy", "type": "quantitative", "title": "accuracy", "scale": unit, "axis": {"tickCount": 5}}
    ends = {"values": [{"confidence": 0, "accuracy": 0}, {"confidence": 1, "accuracy": 1}]}
    return {
        "description": "Accuracy against confidence in ten bins; the table has the numbers",
        "width": "container",
        "autosize": _FIT,
        "height": 300,
        "data": {"values": values},
        "layer": [
            {
                "data": ends,
                "mark": {"type": "line", "color": _INK, "strokeDash": [4, 4], "opacity": 0.7},
                "encoding": {"x": x, "y": y},
            },
            {
                "mark": {"type": "rule", "color": _BLUE, "strokeWidth": 2, "opacity": 0.6},
                "encoding": {"x": x, "y": y, "y2": {"field": "confidence"}},
            },
            {
                "mark": {"type": "circle", "color": _BLUE, "opacity": 1},
                "encoding": {
                    "x": x,
                    "y": y,
                    "size": {"field": "n", "type": "quantitative", "legend": None, "scale": {"range": [30, 500]}},
                    "tooltip": [{"field": f, "title": title, "type": "nominal"} for f, title in told.items()],
                },
            },
        ],
    }  # fmt: skip

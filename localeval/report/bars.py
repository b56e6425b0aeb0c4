"""Groups, letters and confidences -> Vega-Lite specifications: charts as values. Pure.

Names and numbers come as text made here. A mark that shows some of the samples has their address in the page, as href.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from localeval.report.marks import BLUE, GREY, INK, chart, layer, tooltip
from localeval.report.shell import shown, to_samples
from localeval.report.text import interval, number, share
from localeval.schema import Bin, Group, Tally

MOST = 80
"""A chart of more groups shows the first and the last ones."""
_LEADS = {"cursor": "pointer", "color": BLUE}
"""The look of a mark that leads to its samples."""
_NAMES = {"labelLimit": 170, "ticks": False, "domain": False, "labelPadding": 6, "labelOverlap": False}


def ranked(
    groups: Mapping[str, Group], metric: str, href: Callable[[str], str], overall: float | None
) -> dict[str, Any] | None:
    """Dots of one metric between 0 and 1, best first, with their intervals; None where fewer than two are defined.

    overall: over all rows, a dashed line. Of more than MOST groups the best and the lowest half of so many.
    """
    found = [(name, group) for name, group in groups.items() if group.metrics[metric].value is not None]
    if len(found) < 2:
        return None
    found.sort(key=lambda item: (-(item[1].metrics[metric].value or 0.0), item[0]))
    if len(found) > MOST:
        found = found[: MOST // 2] + found[-MOST // 2 :]
    values = [_group(name, group, metric) | {"href": href(name)} for name, group in found]
    told = tooltip({"name": "group", "shown": metric, "interval": "95% interval", "n": "n"})
    x = _between_0_and_1("value", metric)
    here = {"x": x, "y": {"field": "name", "type": "nominal", "sort": None, "title": None, "axis": _NAMES}, **told}
    layers: list[dict[str, Any]] = [
        {"mark": {"type": "bar", **_LEADS, "opacity": 0.3, "height": {"band": 0.6}}, "encoding": here}
    ]
    if any(value["low"] is not None for value in values):
        ends = {**here, "x": {**x, "field": "low"}, "x2": {"field": "high"}}
        layers.append(layer("rule", "datum.low != null", ends, **_LEADS, strokeWidth=2))
    layers.append({"mark": {"type": "circle", **_LEADS, "opacity": 1, "size": 70}, "encoding": here})
    if overall is not None:
        line = {"type": "rule", "color": INK, "strokeDash": [4, 4], "opacity": 0.7}
        layers.append({"data": {"values": [{"value": overall}]}, "mark": line, "encoding": {"x": x}})
    described = f"{metric} of {len(values)} groups, best first; the table has the numbers"
    return chart(described, 22 * len(values), values, {"layer": layers})


def _group(name: str, group: Group, metric: str) -> dict[str, Any]:
    estimate = group.metrics[metric]
    texts = {"n": f"{group.n:,}", "shown": number(estimate.value), "interval": interval(estimate)}
    return {"name": shown(name), "value": estimate.value, "low": estimate.low, "high": estimate.high, **texts}


def positions(letters: Mapping[str, Tally], n: int) -> dict[str, Any]:
    """How often each letter is answered, of the answers that could be read, beside how often it is right, of n."""
    answers = sum(tally.predicted for tally in letters.values())
    values = []
    for letter, tally in letters.items():
        values.append(_position(letter, "answered", (tally.predicted, answers), to_samples(read=letter)))
        values.append(_position(letter, "right answer", (tally.gold, n), to_samples(gold=letter)))
    colours = {"domain": ["answered", "right answer"], "range": [BLUE, GREY]}
    encoding = {
        "y": {"field": "letter", "type": "nominal", "sort": None, "title": None, "axis": _NAMES},
        "yOffset": {"field": "what", "sort": None},
        "x": {"field": "value", "type": "quantitative", "title": "share", "axis": {"format": "%", "tickCount": 5}},
        "color": {"field": "what", "type": "nominal", "title": None, "scale": colours, "legend": {"orient": "bottom"}},
        **tooltip({"letter": "letter", "what": "what", "shown": "n"}),
    }
    described = "How often each letter is answered, and how often it is right; the table has the numbers"
    return chart(described, 13 * len(values), values, {"mark": {"type": "bar", **_LEADS}, "encoding": encoding})


def _position(letter: str, what: str, part: tuple[int, int], href: str) -> dict[str, Any]:
    some, whole = part
    value = some / whole if whole else 0.0
    return {"letter": letter, "what": what, "value": value, "shown": f"{some:,} ({share(some, whole)})", "href": href}


def reliability(bins: Sequence[Bin]) -> dict[str, Any]:
    """Accuracy against confidence: on the dashed line a model is as often right as it is sure. Larger: more answers."""
    x, y = _between_0_and_1("confidence", "confidence"), _between_0_and_1("accuracy", "accuracy")
    told = tooltip({"range": "confidence", "mean": "mean confidence", "right": "accuracy", "answers": "answers"})
    size = {"field": "n", "type": "quantitative", "legend": None, "scale": {"range": [30, 500]}}
    sure = {"values": [{"confidence": 0, "accuracy": 0}, {"confidence": 1, "accuracy": 1}]}
    dashed = {"type": "line", "color": INK, "strokeDash": [4, 4], "opacity": 0.7}
    away = {"type": "rule", "color": BLUE, "strokeWidth": 2, "opacity": 0.6}
    dot = {"type": "circle", "color": BLUE, "opacity": 1}
    layers = [
        {"data": sure, "mark": dashed, "encoding": {"x": x, "y": y}},
        {"mark": away, "encoding": {"x": x, "y": y, "y2": {"field": "confidence"}}},
        {"mark": dot, "encoding": {"x": x, "y": y, "size": size, **told}},
    ]
    described = "Accuracy against confidence in ten bins; the table has the numbers"
    return chart(described, 300, [_bin(row) for row in bins if row.n], {"layer": layers})


def _bin(row: Bin) -> dict[str, Any]:
    confidence, accuracy = row.confidence / row.n, row.correct / row.n
    texts = {"range": f"{row.low:.1f} to {row.high:.1f}", "mean": number(confidence), "right": number(accuracy)}
    return {"confidence": confidence, "accuracy": accuracy, "n": row.n, "answers": f"{row.n:,}", **texts}


def _between_0_and_1(field: str, title: str) -> dict[str, Any]:
    scale, axis = {"domain": [0, 1]}, {"tickCount": 5}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, "axis": axis}

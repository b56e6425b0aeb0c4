"""Scores against training steps: a CSV file, a picture in text, a drawing. Pure functions of Points.

Knows nothing of run folders and of checkpoints' files. What is not defined is a gap, an empty cell or a dash, never 0.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, fields, replace
from itertools import groupby

from localeval.report.chart import charts
from localeval.report.points import Point, grouped, ordered
from localeval.report.text import count, interval, number, table
from localeval.visible import visible

_NOT_XML = re.compile(r"[\ud800-\udfff\ufffe\uffff]")
_COLUMNS, _PICTURE, _NAME = 100, 40, 32
"""The most columns that a line on the console has, and in it the picture and a checkpoint's name."""


def curve_csv(points: Iterable[Point]) -> str:
    """One row a point, under the names of Point's fields: full floats, an empty cell for None, no carriage returns.

    A name that a spreadsheet would take for a formula has an apostrophe before it
    (https://owasp.org/www-community/attacks/CSV_Injection).
    """
    file = io.StringIO()
    rows = ([_no_formula(cell) for cell in astuple(point)] for point in ordered(points))
    csv.writer(file, lineterminator="\n").writerows([[field.name for field in fields(Point)], *rows])
    return file.getvalue()


def _no_formula(cell: str | float | None) -> str | float | None:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def curve_text(points: Iterable[Point]) -> str:
    """What the console shows of all rows together: one block a dataset and metric, one row a checkpoint.

    The picture beside the numbers shows the value in its interval, on one scale for the block whose ends stand above.
    """
    return "\n\n".join(_block(group) for group in grouped(point for point in points if not point.subset))


def curve_svg(points: Iterable[Point], title: str = "") -> str:
    """A drawing of all rows together, for a README: one panel a dataset and metric, two in a row, on white."""
    import vl_convert

    drawn = charts([_drawable(point) for point in points if not point.subset], "black")
    spec = {
        "background": "white",
        "title": {"text": _in_xml(title), "fontSize": 16, "offset": 12},
        "concat": [{**chart["spec"], "title": chart["title"], "width": 340, "height": 200} for chart in drawn],
        "columns": 2,
        "resolve": {"scale": {"color": "shared", "shape": "shared", "strokeDash": "shared"}},
    }
    return vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])


def _drawable(point: Point) -> Point:
    """The same with names that can stand in a drawing: of any other the library ends the whole process."""
    return replace(
        point,
        series=_in_xml(point.series),
        checkpoint=_in_xml(point.checkpoint),
        dataset=_in_xml(point.dataset),
        metric=_in_xml(point.metric),
    )


def _in_xml(text: str) -> str:
    """https://www.w3.org/TR/xml/#charsets; what is none of these is shown as an escape."""
    return _NOT_XML.sub(lambda match: match[0].encode("unicode_escape").decode(), visible(text))


def _block(points: Sequence[Point]) -> str:
    header = ["checkpoint", "step", "value", "95% interval"]
    rows = []
    for point in points:
        name = point.checkpoint if len(point.checkpoint) <= _NAME else "…" + point.checkpoint[1 - _NAME :]
        rows.append([name, count(point.step), number(point.value), interval(point.estimate)])
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

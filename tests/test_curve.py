"""Scores against steps: as CSV, on the console, as charts and a drawing, and as TensorBoard's events."""

from __future__ import annotations

import csv
import hashlib
import io
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import vl_convert

from localeval.report.chart import charts
from localeval.report.curve import curve_csv, curve_svg, curve_text
from localeval.report.points import Point
from localeval.report.tensorboard import write_events
from localeval.schema import LocalevalError

HOSTILE = "</script><b onclick=alert(1)>x{{ 7 * 7 }}&amp;<!--"
LANGUAGES = ["हिन्दी", "தமிழ்", "తెలుగు", "ଓଡ଼ିଆ"]


def point(step: int | None, value: float | None, half: float | None = None, **fields: Any) -> Point:
    """A point of dataset ``quiz`` whose interval is the value and ``half`` to both sides."""
    known = value is not None and half is not None
    low, high = (value - half, value + half) if known else (None, None)  # type: ignore[operator]
    name = "base" if step is None else f"checkpoint-{step}"
    whole = Point("", name, step, "quiz", "", "accuracy", 200, value, low, high)
    return replace(whole, **fields)


def milu(**fields: Any) -> list[Point]:
    """A base model and three checkpoints, over all rows and over four subsets; nothing is known of one of them."""
    found = []
    for subset in ["", *LANGUAGES]:
        found += [
            point(None, 0.25, 0.125, dataset="milu", subset=subset, **fields),
            point(500, 0.375, 0.125, dataset="milu", subset=subset, **fields),
            point(1000, None if subset == "தமிழ்" else 0.5, 0.125, dataset="milu", subset=subset, **fields),
            point(1500, 0.75, 0.125, dataset="milu", subset=subset, **fields),
        ]
    return found


# --- CSV ---


def test_csv() -> None:
    points = [
        point(1000, 2 / 3, n=3),
        point(500, 0.5, 0.25),
        point(500, 0.1, subset='a "b", c'),
        point(None, None, series=""),
        point(500, None, dataset="wnut, constrained", metric="f1", n=0),
    ]
    assert curve_csv(iter(points)) == (
        "series,checkpoint,step,dataset,subset,metric,n,value,low,high\n"
        ",base,,quiz,,accuracy,200,,,\n"
        ",checkpoint-500,500,quiz,,accuracy,200,0.5,0.25,0.75\n"
        ",checkpoint-1000,1000,quiz,,accuracy,3,0.6666666666666666,,\n"
        ',checkpoint-500,500,quiz,"a ""b"", c",accuracy,200,0.1,,\n'
        ',checkpoint-500,500,"wnut, constrained",,f1,0,,,\n'
    )


def test_a_name_is_no_formula_in_a_spreadsheet() -> None:
    points = [point(1, -0.5, subset=name) for name in ("=HYPERLINK(1)", "@a", "-b", "+c", "\td", "e=f")]
    rows = list(csv.DictReader(io.StringIO(curve_csv(points))))
    assert sorted(row["subset"] for row in rows) == ["'\td", "'+c", "'-b", "'=HYPERLINK(1)", "'@a", "e=f"]
    assert {row["value"] for row in rows} == {"-0.5"}


# --- the console ---


def test_picture_by_hand() -> None:
    # From 0 to 0.39 over 40 columns: a hundredth is a column.
    points = [
        Point("", "checkpoint-20", 20, "quiz", "", "accuracy", 9, 0.10, 0.05, 0.20),
        Point("", "checkpoint-1000", 1000, "quiz", "", "accuracy", 9, None, None, None),
        Point("", "checkpoint-1500", 1500, "quiz", "", "accuracy", 9, 0.35, 0.30, 0.39),
        Point("", "base", None, "quiz", "", "accuracy", 9, 0.0, None, None),
        Point("", "checkpoint-20", 20, "quiz", "a subset", "accuracy", 9, 0.9, 0.8, 1.0),
    ]
    assert curve_text(points).split("\n") == [
        "quiz: accuracy",
        "",
        "checkpoint        step   value      95% interval  0.0000                            0.3900",
        "---------------  -----  ------  ----------------  ----------------------------------------",
        "base                 –  0.0000                 –  ●",
        "checkpoint-20       20  0.1000  [0.0500, 0.2000]       ├────●─────────┤",
        "checkpoint-1000  1,000       –                 –",
        "checkpoint-1500  1,500  0.3500  [0.3000, 0.3900]                                ├────●───┤",
    ]


def test_runs_apart_on_one_scale_and_nothing_known() -> None:
    points = [
        point(2, 0.5, series="runs/b"),
        point(2, 0.5, series="runs/a"),
        point(1, 0.5, series="runs/b"),
        point(1, None, metric="f1"),
    ]
    middle = " " * 20 + "●"
    assert curve_text(points).split("\n") == [
        "quiz: accuracy",
        "",
        "checkpoint    step   value  95% interval                   0.5000",
        "------------  ----  ------  ------------  ----------------------------------------",
        "runs/b:",
        f"checkpoint-1     1  0.5000             –  {middle}",
        f"checkpoint-2     2  0.5000             –  {middle}",
        "runs/a:",
        f"checkpoint-2     2  0.5000             –  {middle}",
        "",
        "quiz: f1",
        "",
        "checkpoint    step  value  95% interval",
        "------------  ----  -----  ------------",
        "checkpoint-1     1      –             –",
    ]


def test_a_long_name_keeps_its_end_and_lines_their_length() -> None:
    name = "a-very-long-name-of-a-checkpoint-" * 3 + "000500"
    shown = curve_text([point(500, 0.5, 0.25, checkpoint=name), point(123456789, 0.75, 0.125)])
    assert "\n…" + name[-31:] + "  " in shown
    assert max(map(len, shown.split("\n"))) == 100


# --- the charts ---


def specs(points: Iterable[Point]) -> list[dict[str, Any]]:
    return [chart["spec"] for chart in charts(points, "currentColor")]


def values(spec: dict[str, Any], *names: str) -> set[tuple[Any, ...]]:
    return {tuple(datum[name] for name in names) for datum in spec["data"]["values"]}


def drawn(spec: dict[str, Any]) -> str:
    return vl_convert.vegalite_to_svg({**spec, "width": 600})


def test_charts_hold_the_numbers() -> None:
    first, second = specs([*milu(), point(7, 1 / 3, dataset="wnut", metric="f1", n=0)])
    names = ("checkpoint", "step", "subset", "value", "low", "high", "n")
    assert len(first["data"]["values"]) == 20
    assert values(first, *names) == {
        row
        for subset in ["", *LANGUAGES]
        for row in [
            ("base", None, subset, 0.25, 0.125, 0.375, 200),
            ("checkpoint-500", 500, subset, 0.375, 0.25, 0.5, 200),
            ("checkpoint-1000", 1000, subset, *((None,) * 3 if subset == "தமிழ்" else (0.5, 0.375, 0.625)), 200),
            ("checkpoint-1500", 1500, subset, 0.75, 0.625, 0.875, 200),
        ]
    }
    assert values(second, *names) == {("checkpoint-7", 7, "", 1 / 3, None, None, 0)}
    assert ("–", "–") in values(first, "shown", "interval")


def test_hostile_names_stay_text() -> None:
    points = [
        point(step, 0.5, 0.25, series=HOSTILE, checkpoint=HOSTILE, dataset=HOSTILE, subset=subset, metric=HOSTILE)
        for step in (None, 1)
        for subset in ("", HOSTILE)
    ]
    (spec,) = specs(points)
    assert values(spec, "checkpoint", "subset") == {(HOSTILE, ""), (HOSTILE, HOSTILE)}
    assert not ElementTree.fromstring(drawn(spec)).findall(".//{http://www.w3.org/2000/svg}b")
    ElementTree.fromstring(curve_svg(points, HOSTILE))


def test_no_points() -> None:
    assert curve_text([]) == ""
    assert specs([]) == []


def lines_of(svg: str) -> list[str]:
    """The paths of the lines, in the order in which they are drawn."""
    found = []
    for group in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}g"):
        if "mark-line" in group.get("class", ""):
            found += [path.get("d", "") for path in group]
    return found


def texts_of(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize(
    ("points", "lines"),
    [
        (milu(), 5),
        (milu(series="runs/a") + milu(series="runs/b"), 2),  # one subset at a time, a line a run
        ([point(1, 0.5, subset=f"s{n}") for n in range(13)], 1),  # too many to lie over each other
        ([point(1, 0.5, subset="only a subset")], 1),
        ([point(1, 0.5, 0.25)], 1),
        ([point(1, None)], 1),
    ],
)
def test_charts_compile(points: Sequence[Point], lines: int) -> None:
    (spec,) = specs(points)
    vega = vl_convert.vegalite_to_vega({**spec, "width": 600})
    assert vega["marks"]
    assert len(lines_of(drawn(spec))) == lines


def test_a_gap_is_a_gap() -> None:
    known = [point(step, 0.5) for step in (1, 2, 4, 5)]
    (whole,) = specs(known)
    (gap,) = specs([*known, point(3, None)])
    assert [path.count("M") for path in lines_of(drawn(whole))] == [1]
    assert [path.count("M") for path in lines_of(drawn(gap))] == [2]
    assert drawn(gap).count('aria-roledescription="point"') == 4


def test_what_has_no_step_is_a_level_with_its_name() -> None:
    (spec,) = specs([point(None, 0.25), point(None, None, checkpoint="unknown"), point(1, 0.5)])
    texts = texts_of(drawn(spec))
    assert "base" in texts
    assert "unknown" not in texts
    (alone,) = specs([point(None, 0.25)])
    assert "base" in texts_of(drawn(alone))


def test_every_step_is_a_tick() -> None:
    (spec,) = specs([point(step, 0.5) for step in (7, 1300)])
    assert {"7", "1,300"} <= set(texts_of(drawn(spec)))


def test_a_subset_named_as_all_rows_is_not_taken_for_them() -> None:
    (spec,) = specs([point(1, 0.5), point(1, 0.25, subset="all rows")])
    assert values(spec, "part", "overall", "value") == {("(all rows)", True, 0.5), ("all rows", False, 0.25)}


def test_drawing_for_a_readme() -> None:
    points = [*milu(series="runs/a"), *milu(series="runs/b"), point(3, 0.5, dataset="wnut, constrained", metric="f1")]
    svg = curve_svg(points, "Two runs")
    texts = texts_of(svg)
    assert {"Two runs", "milu: accuracy", "wnut, constrained: f1", "runs/a", "runs/b", "500", "1,500"} <= set(texts)
    assert not set(LANGUAGES) & set(texts)
    assert not re.search(r'(?:href|src)="', svg)


# --- TensorBoard ---


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Tag -> its steps and values, as TensorBoard's own reader gives them."""
    from tensorboard.backend.event_processing.event_accumulator import TENSORS, EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    reader = EventAccumulator(str(folder), size_guidance={TENSORS: 0})
    reader.Reload()
    return {
        tag: [(event.step, float(make_ndarray(event.tensor_proto))) for event in reader.Tensors(tag)]
        for tag in reader.Tags()["tensors"]
    }


TENTH = 13421773 / 2**27  # 0.1 as a float32


def test_events_and_what_is_added_to_them(tmp_path: Path) -> None:
    points = [
        point(500, 0.5, 0.25),
        point(500, 0.1, 0.05, subset="தமிழ்"),
        point(None, 0.25),
        point(1000, None),
    ]
    assert write_events(tmp_path, points) == 4
    expected = {
        "quiz/accuracy": [(500, 0.5)],
        "quiz/accuracy_low": [(500, 0.25)],
        "quiz/accuracy_high": [(500, 0.75)],
        "quiz/accuracy/தமிழ்": [(500, TENTH)],
    }
    assert events(tmp_path) == expected
    files = list(tmp_path.iterdir())
    assert write_events(tmp_path, points) == 0
    assert list(tmp_path.iterdir()) == files
    assert write_events(tmp_path, [*points, point(1500, 0.625)]) == 1
    assert events(tmp_path) == {**expected, "quiz/accuracy": [(500, 0.5), (1500, 0.625)]}


def test_named_runs_have_folders_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    points = [point(1, 0.5, series=series) for series in ("runs/a", "runs/b", "../out", "/etc/x", "..")]
    assert write_events(folder, points) == 5
    names = {path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*tfevents*")}
    digests = {series: hashlib.sha256(series.encode()).hexdigest()[:8] for series in ("../out", "/etc/x", "..")}
    assert names == {
        "log/runs/a", "log/runs/b", f"log/out-{digests['../out']}", f"log/etc_x-{digests['/etc/x']}",
        f"log/-{digests['..']}",
    }  # fmt: skip
    assert write_events(folder, points) == 0


def test_a_step_back_is_followed_by_the_later_steps(tmp_path: Path) -> None:
    # TensorBoard's fast reader drops 1000 when 700 comes after it.
    assert write_events(tmp_path, [point(500, 0.5), point(1000, 0.625), point(1500, 0.75)]) == 3
    assert write_events(tmp_path, [point(700, 0.125), point(1000, 0.25)]) == 3
    assert events(tmp_path)["quiz/accuracy"][3:] == [(700, 0.125), (1000, 0.25), (1500, 0.75)]
    assert write_events(tmp_path, [point(500, 0.5), point(700, 0.125), point(1000, 0.25), point(1500, 0.75)]) == 0


def test_what_a_crash_lost_is_written_again(tmp_path: Path) -> None:
    points = [point(500, 0.5), point(1000, 0.625)]
    write_events(tmp_path, points)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    assert write_events(tmp_path, points) == 1
    assert events(tmp_path) == {"quiz/accuracy": [(500, 0.5), (1000, 0.625)]}


def test_without_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.summary", None)
    with pytest.raises(LocalevalError, match=r"pip install 'localeval\[tensorboard\]'"):
        write_events(tmp_path, [point(1, 0.5)])

"""report.html of several models: leaderboards, the curve over steps, what flipped, what the format costs. Pure.

One file that opens from disk. Takes runs and comparisons as values; knows no file but its template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from localeval.report.chart import charts
from localeval.report.comparison import ALPHA, Block, Comparison, Contrast, contrast_rows, how_text, p_text
from localeval.report.dots import dots
from localeval.report.flipped import Flipped, flipped
from localeval.report.identity import identity
from localeval.report.leaderboard import Board, Entry, Place, boards
from localeval.report.marks import INK
from localeval.report.points import Point, ordered, points_of
from localeval.report.reasons import REASONS
from localeval.report.shell import render, to_samples
from localeval.report.side_by_side import asked_ways
from localeval.report.text import DASH, count, interval, number, row_stamps, signed, signed_interval
from localeval.schema import Sample, title_of

_POINTS = 3000
"""So many values stand in the charts and their table; of more, only those over all rows: curve.csv has all."""
_FOLDED = 20


@dataclass(frozen=True, slots=True)
class Several:
    """What the page shows.

    facts: what was asked, name -> text. comparison: of the entries with a baseline; None where there is none.
    leaders: each run against the best of its table. samples: those of the flips that are shown, by the dataset's title
    and the sample's id. failed: models that could not be evaluated, and why. notes: what else must be known before.
    """

    title: str
    facts: Mapping[str, str]
    entries: Sequence[Entry]
    comparison: Comparison | None = None
    leaders: Sequence[Block] = ()
    samples: Mapping[tuple[str, str], Sample] = field(default_factory=dict)
    failed: Sequence[tuple[str, str]] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Around:
    """Addresses that a served page has, and one on the disk has not.

    home: of all runs. forced: of the same page with what is refused, on the samples that the runs share; else empty.
    """

    home: str = ""
    forced: str = ""


def several_page(several: Several, around: Around | None = None) -> str:
    """The whole page, as HTML."""
    comparison = several.comparison
    found = boards(several.entries, comparison, several.leaders)
    points, left_out = _points(several.entries)
    curve = charts(points, INK) if any(point.step is not None for point in points) else []
    values = {
        "title": several.title,
        "home": around.home if around else "",
        "forced": around.forced if around and comparison and comparison.refused else "",
        "facts": several.facts,
        "stamps": _stamps(several),
        "failed": several.failed,
        "boards": [_board(board) for board in found],
        "how": how_text(comparison) if comparison and comparison.blocks else "",
        "alpha": ALPHA,
        "charts": curve,
        "points": _point_rows(points) if curve else None,
        "folded": len(points) > _FOLDED,
        "left_out": left_out,
        "parts": [_parts(board) for board in found if board.block],
        "flips": _flips(flipped(comparison, several.samples), found) if comparison else [],
        "compared": comparison is not None,
        "ways": [asked for asked in asked_ways([entry.run for entry in several.entries]) if asked.ways > 1],
        "measured": _measured(found),
    }
    return render("several.html.j2", values, ["page.js"], "'self'" if around else "'none'")


def _stamps(several: Several) -> list[str]:
    reports = [entry.run.report for entry in several.entries]
    found = row_stamps(all(report["comparable"] for report in reports), any(report["limited"] for report in reports))
    if several.comparison is not None:
        found += [f"not compared: {reason}" for reason in several.comparison.refused]
        found += [stamp for block in several.comparison.blocks for stamp in block.stamps if stamp not in found]
    for entry in several.entries:
        found += [f"{entry.run.label}, {_title(entry)}: {note}" for note in entry.run.report["notes"]]
    return [*found, *several.notes]


def _title(entry: Entry) -> str:
    return title_of(entry.run.dataset, entry.run.mode)


# --- the leaderboard ---


def _board(board: Board) -> dict[str, Any]:
    rows = [_place(place) for place in board.places]
    baseline = next((place.entry.run.label for place in board.places if place.is_baseline), "")
    return {
        "title": board.title,
        "metric": board.metric,
        "macro_over": board.macro_over,
        "spec": dots(board, INK) if any(place.estimate.value is not None for place in board.places) else None,
        "rows": rows,
        "steps": any(place.entry.step is not None for place in board.places),
        "tested": board.tested,
        "best": next((row["label"] for row in rows if row["standing"] == "best"), ""),
        "leading": [row["label"] for row in rows if row["standing"] == "leading"],
        "lags": sum(place.lag is not None for place in board.places),
        "baseline": baseline,
        "unread": _unread(board),
        "spent": any(row["output"] != DASH for row in rows),
        "tests": _tests([t for t in board.block.tests if not t.kind]) if board.block else None,
    }


def _place(place: Place) -> dict[str, Any]:
    report, spent, change = place.entry.run.report, place.tokens, place.change
    return {
        "label": place.entry.run.label,
        "link": place.entry.link,
        "rank": DASH if place.rank is None else str(place.rank),
        "standing": place.standing,
        "p_best": p_text(place.lag.p_holm) if place.lag else DASH,
        "is_baseline": place.is_baseline,
        "step": count(place.entry.step),
        "value": number(place.estimate.value),
        "interval": interval(place.estimate),
        "macro": number(place.macro),
        "difference": signed(change.result.difference) if change else DASH,
        "change": signed_interval(change.result.low, change.result.high) if change else DASH,
        "p": p_text(change.p_holm) if change else DASH,
        "verdict": change.verdict if change else "",
        "n": f"{report['n']:,}",
        "unparsed": count(report["counts"].get("unparsed")),
        "truncated": count(report["counts"].get("truncated")),
        "output": count(spent["output"]),
        "seconds": DASH if spent["seconds"] is None else f"{spent['seconds']:,.1f}",
    }


def _unread(board: Board) -> dict[str, Any] | None:
    """The table of why replies were not read, one row a model; None where all were, or no reason is known.

    links: to the unread samples in the run's own page.
    """
    entries = [place.entry for place in board.places]
    found = [entry.run.report.get("unparsed") or {} for entry in entries]
    reasons = [reason for reason in REASONS.values() if any(known.get(reason.name) for known in found)]
    if not reasons:
        return None
    totals = [count(entry.run.report["counts"].get("unparsed")) for entry in entries]
    rows = [
        [entry.run.label, total, *(count(known.get(reason.name)) for reason in reasons)]
        for entry, total, known in zip(entries, totals, found, strict=True)
    ]
    links = [entry.link and entry.link + to_samples(outcome="unparsed") for entry in entries]
    return {"header": ["model", "unparsed", *(reason.short for reason in reasons)], "rows": rows, "links": links}


def _tests(tests: Sequence[Contrast]) -> tuple[list[str], list[list[str]]]:
    """A table of tests, each of its columns with a name."""
    header, rows = contrast_rows(tests)
    return ["model", *(name or "verdict" for name in header[1:])], rows


# --- the curve ---


def _points(entries: Sequence[Entry]) -> tuple[list[Point], bool]:
    """The values of the curve, and whether those by subset are left out."""
    found = ordered(
        point for entry in entries for point in points_of(entry.run.report, entry.series, entry.run.label, entry.step)
    )
    if len(found) <= _POINTS:
        return found, False
    return [point for point in found if not point.subset], True


def _point_rows(points: Sequence[Point]) -> tuple[list[str], list[list[str]]]:
    several = len({point.series for point in points if point.series}) > 1
    header = ["checkpoint", *(["run"] if several else []), "dataset", "rows", "metric", "step", "n", "value"]
    rows = [
        [
            point.checkpoint,
            *([point.series] if several else []),
            point.dataset,
            point.subset or "all",
            point.metric,
            count(point.step),
            f"{point.n:,}",
            number(point.value),
            interval(point.estimate),
        ]
        for point in points
    ]
    return [*header, "95% interval"], rows


# --- parts and flips ---


def _parts(board: Board) -> dict[str, Any]:
    """The subsets, domains, types ... that differ from the baseline beyond chance, the greatest differences first."""
    assert board.block is not None
    tests = [test for test in board.block.tests if test.kind]
    beyond = sorted(
        (test for test in tests if test.verdict != "not shown"), key=lambda test: -abs(test.result.difference or 0.0)
    )
    kinds = dict.fromkeys(test.kind for test in tests)
    return {
        "title": board.title,
        "kinds": ", ".join(kinds),
        "tested": len(tests),
        "table": _tests(beyond[:_PARTS]) if beyond else None,
        "more": max(0, len(beyond) - _PARTS),
    }


_PARTS = 200


def _flips(pairs: Sequence[Flipped], found: Sequence[Board]) -> list[dict[str, Any]]:
    links = {(board.title, place.entry.run.label): place.entry.link for board in found for place in board.places}

    def sample(title: str, label: str, sample_id: str) -> str:
        page = links.get((title, label), "")
        return page and page + to_samples(sample=sample_id)

    return [
        {
            "title": pair.title,
            "baseline": pair.baseline,
            "candidate": pair.candidate,
            "gained": pair.gained,
            "lost": pair.lost,
            "rows": [
                {
                    "flip": row,
                    "first": sample(pair.title, pair.baseline, row.sample_id),
                    "second": sample(pair.title, pair.candidate, row.sample_id),
                }
                for row in pair.rows
            ],
        }
        for pair in pairs
    ]


# --- what was measured ---


def _measured(found: Sequence[Board]) -> list[dict[str, Any]]:
    """For each table what was the same in all its runs, and what was not, run by run."""
    shown = []
    for board in found:
        runs = [(place.entry.run.label, _identity(place.entry)) for place in board.places]
        names = list(dict.fromkeys(name for _, known in runs for name in known))
        alike = [name for name in names if len({known.get(name) for _, known in runs}) == 1]
        unlike = [name for name in names if name not in alike]
        rows = [[label, *(known.get(name, DASH) for name in unlike)] for label, known in runs]
        shown.append(
            {
                "title": board.title,
                "alike": {name: runs[0][1][name] for name in alike},
                "table": (["run", *unlike], rows) if unlike else None,
            }
        )
    return shown


def _identity(entry: Entry) -> dict[str, str]:
    """All that a run's own page says of it, but for what depends on the moment; and its folder."""
    parts = identity(entry.run.facts)
    found = {
        f"{heading.lower()}: {name}": text
        for heading, facts in parts.items()
        for name, text in facts.items()
        if heading != "This run"
    }
    return {**found, "run folder": str(entry.run.folder)}

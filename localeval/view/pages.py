"""What a catalogue lists -> the page of all runs. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from localeval.report.build import HEADLINE
from localeval.report.finished import Finished, of_this_version
from localeval.report.reasons import why_text
from localeval.report.shell import render
from localeval.report.text import count, interval, number
from localeval.schema import Estimate, LocalevalError, title_of
from localeval.view.catalogue import Listed, Models

SELF = "'self'"
"""Where a served page may send requests and forms to."""


def home_page(places: Sequence[str], runs: Iterable[Listed], several: Iterable[Models]) -> str:
    """All runs: the finished ones by dataset, the best first, and what became of the others."""
    several = list(several)
    groups, others = _groups(runs)
    values = {
        "title": "Runs",
        "places": places,
        "groups": groups,
        "several": [_models_row(each) for each in several],
        "several_links": [f"models/{each.key}/" if each.outcomes else "" for each in several],
        "others": others,
    }
    return render("view.html.j2", values, ["page.js"], SELF)


def said_page(title: str, lines: Sequence[str], home: str = "") -> str:
    """Something in words. home: the address of all runs; empty where there is no way to it."""
    return render("said.html.j2", {"title": title, "lines": lines, "home": home}, ["page.js"], SELF)


def _groups(runs: Iterable[Listed]) -> tuple[list[dict[str, Any]], list[list[str]]]:
    """A table for each dataset and way of asking; and what has no place in one, with the reason."""
    tables: dict[tuple[str, str], list[tuple[float, dict[str, str]]]] = {}
    others = []
    for listed in runs:
        try:
            if listed.run is None:
                raise LocalevalError(listed.reason)
            with of_this_version():
                key = title_of(listed.run.dataset, listed.run.mode), _metric(listed.run)
                place = _order(listed.run), _row(listed, listed.run)
            tables.setdefault(key, []).append(place)
        except LocalevalError as error:
            others.append([str(listed.folder), listed.model, listed.dataset, str(error)])
    groups = [
        {"title": title, "metric": metric, "rows": _apart([row for _, row in sorted(found, key=lambda each: each[0])])}
        for (title, metric), found in sorted(tables.items())
    ]
    return groups, others


def _apart(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """With the end of the folder where models of one name stand together."""
    times = Counter(row["model"] for row in rows)
    return [{**row, "where": "/".join(Path(row["folder"]).parts[-2:]) * (times[row["model"]] > 1)} for row in rows]


def _metric(run: Finished) -> str:
    return HEADLINE[run.task]


def _order(run: Finished) -> float:
    """The highest value first, what has none last."""
    return math.inf if run.headline is None else -run.headline


def _row(listed: Listed, run: Finished) -> dict[str, str]:
    report, metric = run.report, _metric(run)
    estimate = Estimate(**report["metrics"][metric])
    notes = [*([] if report["comparable"] else ["SAMPLES"]), *(["LIMITED"] if report["limited"] else [])]
    return {
        "key": listed.key,
        "folder": str(listed.folder),
        "model": run.label,
        "value": number(estimate.value),
        "interval": interval(estimate),
        "macro": number(report["macro"].get(metric)),
        "n": f"{report['n']:,}",
        "unparsed": count(report["counts"].get("unparsed")),
        "why": why_text(report.get("unparsed") or {}),
        "truncated": count(report["counts"].get("truncated")),
        "shots": str(run.facts["dataset"]["shots"]),
        "notes": "; ".join([*notes, *report["notes"]]),
        "asked": str(run.facts["asked"])[:8],
        "finished": f"{datetime.fromtimestamp(listed.finished):%Y-%m-%d %H:%M}",
    }


def _models_row(models: Models) -> list[str]:
    failed = sum(bool(outcome.failure) for outcome in models.outcomes)
    finished = f"{datetime.fromtimestamp(models.finished):%Y-%m-%d %H:%M}"
    return [models.folder.name, f"{len(models.outcomes):,}", f"{failed:,}", finished, models.reason or "–"]

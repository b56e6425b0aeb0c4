"""What a catalogue lists -> the page of all runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from localeval.report.build import HEADLINE
from localeval.report.finished import Finished
from localeval.report.shell import render
from localeval.report.text import count, interval, number
from localeval.schema import Estimate, title_of
from localeval.view.catalogue import Listed, Models

SELF = "'self'"
"""Where a served page may send requests and forms to."""


def home_page(places: Sequence[str], runs: Iterable[Listed], several: Iterable[Models]) -> str:
    """All runs: the finished ones by dataset, the best first, and what became of the others."""
    runs, several = list(runs), list(several)
    values = {
        "title": "Runs",
        "places": places,
        "groups": _groups(runs),
        "several": [_models_row(each) for each in several],
        "several_links": [f"models/{each.key}/" if each.outcomes else "" for each in several],
        "others": [[str(each.folder), each.model, each.dataset, each.reason] for each in runs if each.run is None],
    }
    return render("view.html.j2", values, ["page.js"], SELF)


def said_page(title: str, lines: Sequence[str], home: str = "") -> str:
    """Something in words. home: the address of all runs; empty where there is no way to it."""
    return render("said.html.j2", {"title": title, "lines": lines, "home": home}, ["page.js"], SELF)


def _groups(runs: Iterable[Listed]) -> list[dict[str, Any]]:
    tables: dict[tuple[str, str], list[tuple[Listed, Finished]]] = {}
    for listed in runs:
        if listed.run is not None:
            key = title_of(listed.run.dataset, listed.run.mode), HEADLINE[listed.run.task]
            tables.setdefault(key, []).append((listed, listed.run))
    return [
        {"title": title, "metric": metric, "rows": [_row(*each) for each in sorted(found, key=_descending)]}
        for (title, metric), found in sorted(tables.items())
    ]


def _descending(listed: tuple[Listed, Finished]) -> tuple[bool, float]:
    value = listed[1].headline
    return value is None, -(value or 0.0)


def _row(listed: Listed, run: Finished) -> dict[str, str]:
    report, metric = run.report, HEADLINE[run.task]
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

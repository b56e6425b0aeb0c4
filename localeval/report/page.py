"""A Report and its samples -> report.html: one file that opens from disk and asks for nothing. Pure.

Numbers, tables and what was measured stand in the page itself; charts and the browser of samples need its scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from localeval.report.bars import MOST, positions, ranked, reliability
from localeval.report.build import counts_of, headline
from localeval.report.chosen import Chosen, chosen
from localeval.report.command import command
from localeval.report.identity import dataset_shots, identity, in_one_line
from localeval.report.markdown import COUNTED, FORCED, HOW, letter_rows, reliability_rows
from localeval.report.reasons import Reason, most_first, reasons_of
from localeval.report.rows import OUTCOMES, packed
from localeval.report.shell import render, to_samples
from localeval.report.text import forced_text, group_rows, interval, number, stamps
from localeval.results import SampleResult
from localeval.schema import Confused, Group, Report

SCRIPTS = ("page.js", "samples.js")
_ROWS = 400
"""The most groups that a table has, and that can be chosen from."""
_MODES = {
    "generate": "free replies",
    "constrained": "replies held to a grammar",
    "logprob": "answered by the probability of a letter",
    "cloze": "answered by the probability of an option's text",
}


def run_page(report: Report, facts: Mapping[str, Any], results: Iterable[SampleResult]) -> str:
    """report.html. facts: the content of run.json; results: one a sample, of which some are put into the page."""
    inside = chosen(results)
    return render("run.html.j2", {**page_values(report, facts, inside), "rows": packed(list(inside.rows))}, SCRIPTS)


def served_page(report: Report, facts: Mapping[str, Any], counted: Chosen, rows_at: str) -> str:
    """The same page with no rows in it, which asks ``rows_at`` (an address on the same server) for them.

    counted: what ``chosen`` counts, without rows. samples.js says what is asked for and what must come back.
    """
    values = page_values(report, facts, counted)
    return render("run.html.j2", {**values, "rows": None, "rows_at": rows_at}, SCRIPTS, connect="'self'")


def page_values(report: Report, facts: Mapping[str, Any], inside: Chosen) -> dict[str, Any]:
    """What the template is told."""
    filters = _filters(report, inside)
    return {
        "title": f"{report.dataset}: {report.model}",
        "report": report,
        "about": _about(report, facts),
        "stamps": stamps(report),
        "headline": {"name": headline(report), **_headline(report, inside)},
        "metrics": _metric_rows(report),
        "counts": _counts(report),
        "reasons": {reason.name: (reason.short, reason.words) for reason in reasons_of(report.task)},
        "forced": f"{forced_text(report)}. {FORCED}" if report.forced else "",
        "how": HOW[report.task, report.mode],
        "parts": _parts(report),
        "confusion": confusion_table(report.confusion),
        "letters": _letters(report),
        "reliability": _reliability(report),
        "filters": filters,
        # Their values to the character: in the page's text what is not seen stands as an escape.
        "choices": {each["name"]: [value for value, _ in each["options"]] for each in filters},
        "inside": inside,
        "rows_at": None,
        "identity": identity(facts),
        "prints": in_one_line(facts),
        "command": command(facts),
        "packages": facts.get("versions", {}),
    }


def _about(report: Report, facts: Mapping[str, Any]) -> dict[str, Any]:
    shots = dataset_shots(facts)
    return {
        "task": report.task,
        "mode": _MODES[report.mode],
        "n": report.n,
        "shots": "no example" if not shots else "1 example" if shots == 1 else f"{shots} examples",
        "types": list(report.types),
    }


def _headline(report: Report, inside: Chosen) -> dict[str, Any]:
    name = headline(report)
    value = report.metrics[name]
    return {
        "value": value,
        "text": number(value.value),
        "interval": interval(value),
        "guessing": inside.guessing if report.task == "mcq" else None,
    }


def _metric_rows(report: Report) -> list[list[str]]:
    rows = [[name, number(value.value), interval(value)] for name, value in report.metrics.items()]
    return rows + [[f"macro {name} (over {report.macro_over})", number(v), "–"] for name, v in report.macro.items()]


def _counts(report: Report) -> list[tuple[str, str, str, str]]:
    """What is counted beside the metrics: name, number, in words, address. Below ``unparsed`` why, the most first."""
    found = []
    for name, n in counts_of(report).items():
        found.append((name, f"{n:,}", COUNTED[name], to_samples(outcome=name) if n else ""))
        if name == "unparsed":
            why = most_first(report.unparsed)
            found += [(_unread_as(each), f"{k:,}", each.words, to_samples(outcome=each.name)) for each, k in why]
    return found


def _unread_as(reason: Reason) -> str:
    return f"unparsed: {reason.short}"


# --- parts ---


def _parts(report: Report) -> list[dict[str, Any]]:
    found = []
    if report.types:
        found.append(_part("type", report.types, report, lambda name: to_samples(type=name)))
    if len(report.subsets) > 1:
        found.append(_part("subset", report.subsets, report, lambda name: to_samples(subset=name)))
    for group, values in report.groups.items():
        found.append(_part(group, values, report, partial(_in_group, group)))
    return found


def _in_group(group: str, name: str) -> str:
    return to_samples(**{f"by.{group}": name})


def _part(what: str, groups: Mapping[str, Group], report: Report, href: Callable[[str], str]) -> dict[str, Any]:
    metric = headline(report)
    header, rows = group_rows(what, groups)
    return {
        "what": what,
        "metric": metric,
        "chart": ranked(groups, metric, href, report.metrics[metric].value),
        "some": len(groups) > MOST,
        "header": header,
        "rows": rows[:_ROWS],
        "more": max(0, len(rows) - _ROWS),
        "links": [href(name) for name in list(groups)[:_ROWS]],
    }


def confusion_table(confusion: Sequence[Confused]) -> dict[str, Any] | None:
    """Columns and rows of the table: what was answered (across) in place of what (down). None for nothing.

    A cell: those with the same ends, those with others, what share of the row they are, whether they are right.
    """
    golds = list(dict.fromkeys(each.gold for each in confusion))
    named = [name for name in golds if name is not None]
    others = {each.predicted for each in confusion} - set(named)
    said = [*named, *sorted(others, key=lambda name: (name is None, name or ""))]
    if not confusion:
        return None
    counts = {(each.gold, each.predicted, each.exact): each.n for each in confusion}
    rows = []
    for gold in golds:
        whole = sum(each.n for each in confusion if each.gold == gold)
        cells = [_cell(gold, name, counts, whole) for name in said]
        rows.append({"gold": gold, "cells": cells, "sum": f"{whole:,}"})
    return {"columns": said, "rows": rows}


def _cell(
    gold: str | None, said: str | None, counts: Mapping[tuple[str | None, str | None, bool], int], whole: int
) -> dict[str, Any]:
    same, other = counts.get((gold, said, True), 0), counts.get((gold, said, False), 0)
    links = []
    for n, ends in ((same, "same"), (other, "other")):
        if n:
            wanted = {"gold": gold, "read": said, **({"ends": ends} if gold is not None and said is not None else {})}
            links.append((f"{n:,}", ends, to_samples(**wanted)))
    return {
        "links": links,
        "overlap": bool(other) and gold is not None and said is not None,
        "share": f"{(same + other) / whole:.3f}",
        "right": gold == said and bool(same),
    }


def _letters(report: Report) -> dict[str, Any] | None:
    if not report.letters:
        return None
    header, rows = letter_rows(report)
    links = [to_samples(read=letter) for letter in report.letters]
    return {"chart": positions(report.letters, report.n), "header": header, "rows": rows, "links": links}


def _reliability(report: Report) -> dict[str, Any] | None:
    if not any(row.n for row in report.reliability):
        return None
    header, rows = reliability_rows(report.reliability)
    ece = report.metrics["ece"].value if "ece" in report.metrics else None
    return {"chart": reliability(report.reliability), "header": header, "rows": rows, "ece": number(ece)}


# --- filters ---


def _filters(report: Report, inside: Chosen) -> list[dict[str, Any]]:
    """The choices above the samples: name in the address, what it is called, and (value, text) of each option."""
    found = [("outcome", "outcome", _outcome_options(report, inside))]
    if len(report.subsets) > 1:
        found.append(("subset", _label("subset", len(report.subsets)), _counted(report.subsets)))
    for group, values in report.groups.items():
        found.append((f"by.{group}", _label(group, len(values)), _counted(values)))
    if report.task == "ner":
        found.append(("type", "entity type", [(name, name) for name in report.types]))
    golds = sorted({each.gold for each in report.confusion}, key=lambda name: (name is None, name or ""))
    said = sorted({each.predicted for each in report.confusion}, key=lambda name: (name is None, name or ""))
    none = ("unread", "none") if report.task == "mcq" else ("missed", "none (spurious)")
    found.append(("gold", "gold", [(name or "", none[1] if name is None else name) for name in golds]))
    found.append(("read", "read as", [(name or "", none[0] if name is None else name) for name in said]))
    if report.task == "ner":
        found.append(("ends", "ends", [("same", "the same"), ("other", "others, overlapping")]))
    return [{"name": name, "label": label, "options": options} for name, label, options in found if len(options) > 1]


def _outcome_options(report: Report, inside: Chosen) -> list[tuple[str, str]]:
    texts = {}
    for name in OUTCOMES:
        texts[name] = name
        if name == "unparsed":
            texts |= {reason.name: _unread_as(reason) for reason in reasons_of(report.task)}
    counts = inside.outcomes
    return [(name, f"{text} ({counts[name]:,})") for name, text in texts.items() if counts.get(name)]


def _label(what: str, n: int) -> str:
    return what if n <= _ROWS else f"{what} (the first {_ROWS})"


def _counted(groups: Mapping[str, Group]) -> list[tuple[str, str]]:
    """As many as the table has."""
    return [(name, f"{name} ({group.n:,})") for name, group in list(groups.items())[:_ROWS]]

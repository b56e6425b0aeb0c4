"""Finished runs of one model next to each other, by how they were asked. Pure functions of report.json and run.json.

Only what was asked of the same samples, with the same shots, stands in one table; anything else gets one of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from localeval.report.build import ALL_COUNTS
from localeval.report.text import DASH, number, table

_ORDER = ("generate", "constrained", "logprob", "cloze")


@dataclass(frozen=True, slots=True)
class Finished:
    """A run folder's path, and the content of its report.json and run.json."""

    folder: str
    report: Mapping[str, Any]
    facts: Mapping[str, Any]

    @property
    def asked_of(self) -> tuple[str, ...]:
        """What must be equal for two runs to be compared: the weights, and what they were asked, row by row."""
        facts, report = self.facts, self.report
        data = sorted(facts["dataset"]["fingerprints"].items())
        return report["dataset"], report["model"], facts["model"]["fingerprint"], facts["asked"], str(data)

    @property
    def drawn(self) -> list[Any]:
        """How tokens are drawn, whatever the budget, and by which engine."""
        generation = self.facts["config"]["generation_config"]
        identity = self.facts["model"]["identity"]
        return [
            {name: value for name, value in generation.items() if name not in ("max_tokens", "stop")},
            {name: value for name, value in identity.items() if name != "template_args"},
        ]

    @property
    def mode(self) -> str:
        return str(self.report["mode"])


def side_by_side(runs: Sequence[Finished]) -> str:
    """One table for each model and set of samples; one column a run, and what constraining changed."""
    groups: dict[tuple[str, ...], list[Finished]] = {}
    for run in sorted(runs, key=lambda run: (run.asked_of, _ORDER.index(run.mode), run.folder)):
        groups.setdefault(run.asked_of, []).append(run)
    titles = {key: _title(group[0]) for key, group in groups.items()}
    shared = Counter(titles.values())
    return "\n\n".join(
        _block(
            titles[key] if shared[titles[key]] == 1 else f"{titles[key]}, asked as {group[0].facts['asked'][:8]}", group
        )
        for key, group in groups.items()
    )


def _title(run: Finished) -> str:
    report, facts = run.report, run.facts
    model = f"{report['model']} ({facts['model']['fingerprint'][:8]})"
    limited = ", LIMITED" if report["limited"] else ""
    return f"{report['dataset']}: {model}, n {report['n']:,}, {facts['dataset']['shots']} shots{limited}"


def _block(title: str, runs: Sequence[Finished]) -> str:
    report = runs[0].report
    lines = [title]
    if not report["comparable"]:
        lines.append("! SAMPLES: the rows that ship with localeval; not comparable with any published figure")
    lines += [f"! {run.mode}: {note}" for run in runs for note in run.report["notes"]]
    return "\n".join([*lines, "", table(*_rows(runs))])


def _rows(runs: Sequence[Finished]) -> tuple[list[str], list[list[str]]]:
    names = list(dict.fromkeys(name for run in runs for name in run.report["metrics"]))
    counts = [name for name in ALL_COUNTS if name != "reused" and any(_count(run, name) is not None for run in runs)]
    header = ["", *(_label(run, runs) for run in runs)]
    rows = []
    for name in names:
        rows.append([name, *(number(_value(run, name)) for run in runs)])
        if any(_interval(run, name) != DASH for run in runs):
            rows.append(["  95% interval", *(_interval(run, name) for run in runs)])
    for name in counts:
        found = [_count(run, name) for run in runs]
        rows.append([name, *(DASH if value is None else f"{value:,}" for value in found)])
    if any(run.facts["thinking"] in ("on", "off") for run in runs):
        rows.append(["thinking", *(run.facts["thinking"] or DASH for run in runs)])
    for side in ("prompt", "output"):
        rows.append([f"{side} tokens", *(f"{run.facts['tokens'][side]:,}" for run in runs)])
    by_mode = {run.mode: run for run in runs}
    if len(by_mode) == len(runs) and {"generate", "constrained"} <= set(by_mode):
        free, held = by_mode["generate"], by_mode["constrained"]
        if free.drawn == held.drawn:
            header.append("constrained - generate")
            for row in rows:
                row.append(_difference(_value(held, row[0]), _value(free, row[0])) if row[0] in names else "")
    if runs[0].report["task"] == "ner":
        rows = [["accuracy (tokens)", *row[1:]] if row[0] == "accuracy" else row for row in rows]
    return header, rows


def _label(run: Finished, runs: Sequence[Finished]) -> str:
    """How it was asked; where two were asked in one mode, also by which engine, and the folder as far as needed."""
    alike = [other for other in runs if other.mode == run.mode]
    if len(alike) == 1:
        return run.mode
    name = run.folder.rsplit("/", 1)[-1].rsplit("-", 1)[-1]
    if sum(other.folder.endswith(name) for other in alike) > 1:
        name = run.folder
    return f"{run.mode} ({run.facts['model']['identity']['engine']}, {name})"


def _value(run: Finished, name: str) -> float | None:
    value = run.report["metrics"].get(name, {}).get("value")
    return None if value is None else float(value)


def _interval(run: Finished, name: str) -> str:
    value = run.report["metrics"].get(name) or {"low": None}
    return DASH if value["low"] is None else f"[{value['low']:.4f}, {value['high']:.4f}]"


def _count(run: Finished, name: str) -> int | None:
    value = run.report["counts"].get(name)
    return None if value is None else int(value)


def _difference(new: float | None, old: float | None) -> str:
    return DASH if new is None or old is None else f"{new - old:+.4f}"

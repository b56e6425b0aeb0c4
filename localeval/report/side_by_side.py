"""Finished runs of one model next to each other, by how they were asked. Pure functions of report.json and run.json.

Only what was asked of the same samples, with the same shots, stands in one table; anything else gets one of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from localeval.report.build import ALL_COUNTS
from localeval.report.finished import Finished
from localeval.report.reasons import REASONS
from localeval.report.text import DASH, count, interval, number, row_stamps, signed, table
from localeval.schema import Estimate

_ORDER = ("generate", "constrained", "logprob", "cloze")


def _asked_of(run: Finished) -> tuple[str, ...]:
    """What must be equal for two runs to stand in one table: the weights, and what they were asked, row by row."""
    facts, report = run.facts, run.report
    data = sorted(facts["dataset"]["fingerprints"].items())
    return report["dataset"], report["model"], run.fingerprint, facts["asked"], str(data)


def _drawn(run: Finished) -> list[Any]:
    """How tokens are drawn, whatever the budget, and by which engine."""
    generation = run.facts["config"]["generation_config"]
    identity = run.facts["model"]["identity"]
    return [
        {name: value for name, value in generation.items() if name not in ("max_tokens", "stop")},
        {name: value for name, value in identity.items() if name != "template_args"},
    ]


@dataclass(frozen=True, slots=True)
class Asked:
    """One model and set of samples, one column a way in which they were asked; stamps: what must be known before.

    ways: how many there are. header, rows: texts; the first column says what a row is.
    """

    title: str
    stamps: tuple[str, ...]
    ways: int
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def side_by_side(runs: Sequence[Finished]) -> str:
    """One table for each model and set of samples; one column a run, and what constraining changed."""
    return "\n\n".join(
        "\n".join([asked.title, *(f"! {stamp}" for stamp in asked.stamps), "", table(asked.header, asked.rows)])
        for asked in asked_ways(runs)
    )


def asked_ways(runs: Sequence[Finished]) -> list[Asked]:
    """The tables of ``side_by_side`` as values."""
    groups: dict[tuple[str, ...], list[Finished]] = {}
    for run in sorted(runs, key=lambda run: (_asked_of(run), _ORDER.index(run.mode), run.folder)):
        groups.setdefault(_asked_of(run), []).append(run)
    titles = {key: _title(group[0]) for key, group in groups.items()}
    shared = Counter(titles.values())
    return [
        Asked(
            titles[key] if shared[titles[key]] == 1 else f"{titles[key]}, asked as {group[0].facts['asked'][:8]}",
            tuple(_stamps(group)),
            len({run.mode for run in group}),
            *_rows(group),
        )
        for key, group in groups.items()
    ]


def _title(run: Finished) -> str:
    report, facts = run.report, run.facts
    model = f"{report['model']} ({facts['model']['fingerprint'][:8]})"
    limited = ", LIMITED" if report["limited"] else ""
    return f"{report['dataset']}: {model}, n {report['n']:,}, {facts['dataset']['shots']} shots{limited}"


def _stamps(runs: Sequence[Finished]) -> list[str]:
    rows = row_stamps(runs[0].report["comparable"], limited=False)  # the title has that
    return [*rows, *(f"{run.mode}: {note}" for run in runs for note in run.report["notes"])]


def _rows(runs: Sequence[Finished]) -> tuple[list[str], list[list[str]]]:
    names = list(dict.fromkeys(name for run in runs for name in run.report["metrics"]))
    counts = [name for name in ALL_COUNTS if name != "reused" and any(_count(run, name) is not None for run in runs)]
    pair = _free_and_held(runs)
    rows = []
    for name in names:
        found = [_estimate(run, name) for run in runs]
        change = [_difference(*(_estimate(run, name).value for run in pair))] if pair else []
        rows.append([_metric_name(runs[0], name), *(number(one.value) for one in found), *change])
        if any(one.low is not None for one in found):
            rows.append(["  95% interval", *map(interval, found)])
    forced = [run.report.get("forced") for run in runs]
    if any(forced):
        with_forced = [Estimate(**each["accuracy"]) if each else Estimate(None) for each in forced]
        rows.append(["accuracy, forced answers counted", *(number(each.value) for each in with_forced)])
        rows.append(["  95% interval", *map(interval, with_forced)])
        rows.append(["forced answers", *(count(each["n"] if each else None) for each in forced)])
    for name in counts:
        tally = [_count(run, name) for run in runs]
        rows.append([name, *map(count, tally)])
        rows += _why_rows(runs) if name == "unparsed" else []
    if any(run.facts["thinking"] in ("on", "off") for run in runs):
        rows.append(["thinking", *(run.facts["thinking"] or DASH for run in runs)])
    for side in ("prompt", "output"):
        rows.append([f"{side} tokens", *(f"{run.facts['tokens'][side]:,}" for run in runs)])
    header = ["", *(_label(run, runs) for run in runs), *(["constrained - generate"] if pair else [])]
    return header, [[*row, *[""] * (len(header) - len(row))] for row in rows]


def _why_rows(runs: Sequence[Finished]) -> list[list[str]]:
    """Why replies were not read: the reasons that one of the runs has."""
    found = [run.report.get("unparsed") or {} for run in runs]
    return [
        [f"  {reason.short}", *(count(each.get(reason.name)) for each in found)]
        for reason in REASONS.values()
        if any(each.get(reason.name) for each in found)
    ]


def _free_and_held(runs: Sequence[Finished]) -> list[Finished]:
    """The free run and the constrained one, where there is one of each and both were drawn alike; else nothing."""
    by_mode = {run.mode: run for run in runs}
    pair = [by_mode[mode] for mode in ("generate", "constrained") if mode in by_mode]
    alike = len(pair) == 2 and len(by_mode) == len(runs) and _drawn(pair[0]) == _drawn(pair[1])
    return pair if alike else []


def _metric_name(run: Finished, name: str) -> str:
    return "accuracy (tokens)" if run.report["task"] == "ner" and name == "accuracy" else name


def _label(run: Finished, runs: Sequence[Finished]) -> str:
    """How it was asked; where two were asked in one mode, also by which engine, and the folder as far as needed."""
    alike = [other for other in runs if other.mode == run.mode]
    if len(alike) == 1:
        return run.mode
    name = run.folder.name.rsplit("-", 1)[-1]
    if sum(other.folder.name.endswith(name) for other in alike) > 1:
        name = str(run.folder)
    return f"{run.mode} ({run.facts['model']['identity']['engine']}, {name})"


def _estimate(run: Finished, name: str) -> Estimate:
    return Estimate(**run.report["metrics"].get(name, {"value": None}))


def _count(run: Finished, name: str) -> int | None:
    value = run.report["counts"].get(name)
    return None if value is None else int(value)


def _difference(old: float | None, new: float | None) -> str:
    return signed(None if new is None or old is None else new - old)

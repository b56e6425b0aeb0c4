"""One finding, and all of them as text and as JSON. Pure; knows nothing about what is examined."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

Verdict = Literal["ok", "note", "problem"]
"""As it should be; worth knowing; something that would keep a run from working."""

FORMAT = 1
"""Of the JSON; a field that changes its meaning changes this."""


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, and what was found. mend: the command or change that helps; empty where none is needed."""

    group: str
    name: str
    verdict: Verdict
    found: str
    mend: str = ""


def status_of(checks: Sequence[Check]) -> int:
    """The exit status: 1 where anything would keep a run from working, else 0."""
    return int(any(check.verdict == "problem" for check in checks))


def as_text(checks: Sequence[Check]) -> str:
    """A list in groups, in the order of the checks, with a line at the end that sums up."""
    return f"{as_list(checks)}\n\n{_summary(checks)}"


def as_list(checks: Sequence[Check]) -> str:
    """The list alone."""
    width = max((len(check.name) for check in checks), default=0)
    lines = []
    for group in dict.fromkeys(check.group for check in checks):
        lines += [group, *(line for check in checks if check.group == group for line in _lines(check, width)), ""]
    return "\n".join(lines[:-1])


def _lines(check: Check, width: int) -> list[str]:
    mark = {"ok": "ok", "note": "note", "problem": "PROBLEM"}[check.verdict]
    head = f"  {mark:<7}  {check.name:<{width}}  "
    margin = " " * len(head)
    lines = textwrap.indent(check.found, margin).splitlines() or [""]
    mend = textwrap.indent(check.mend, margin + "   ").splitlines()
    if mend:
        mend[0] = f"{margin}-> {mend[0].lstrip()}"
    return [(head + lines[0].lstrip()).rstrip(), *lines[1:], *mend]


def _summary(checks: Sequence[Check]) -> str:
    problems, notes = (sum(check.verdict == verdict for check in checks) for verdict in ("problem", "note"))
    said = "1 problem" if problems == 1 else f"{problems} problems" if problems else "nothing is wrong"
    return said + (f", {notes} note{'s' * (notes != 1)}" if notes else "")


def as_json(checks: Sequence[Check]) -> str:
    """Strict JSON of the same."""
    content = {"format": FORMAT, "status": status_of(checks), "checks": [asdict(check) for check in checks]}
    return json.dumps(content, ensure_ascii=False, allow_nan=False, indent=2)

"""A finished run, as its folder has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localeval.report.build import HEADLINE
from localeval.schema import Mode


@dataclass(frozen=True, slots=True)
class Finished:
    """label: the model, as tables call it. facts, report: the content of its run.json and report.json."""

    label: str
    folder: Path
    facts: Mapping[str, Any]
    report: Mapping[str, Any]

    @property
    def dataset(self) -> str:
        return str(self.report["dataset"])

    @property
    def mode(self) -> Mode:
        mode: Mode = self.report["mode"]
        return mode

    @property
    def task(self) -> str:
        return str(self.report["task"])

    @property
    def fingerprint(self) -> str:
        """Of the checkpoint."""
        return str(self.facts["model"]["fingerprint"])

    @property
    def headline(self) -> float | None:
        """The value that names the result."""
        value = self.report["metrics"][HEADLINE[self.task]]["value"]
        return None if value is None else float(value)

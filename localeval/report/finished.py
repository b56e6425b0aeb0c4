"""A finished run, as its folder has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localeval.report.build import HEADLINE
from localeval.schema import LocalevalError, Mode


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


@contextmanager
def of_this_version(folder: Path | None = None) -> Iterator[None]:
    """Around what takes run.json and report.json for what they should be: LocalevalError, where one of them is not.

    folder: the run's, where it is one.
    """
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        which = "a run.json or report.json" if folder is None else f"{folder}: run.json or report.json"
        raise LocalevalError(
            f"{which} is not one of this version ({error!r}): run the command again, or, for a report.json, "
            "localeval score RUN_DIR"
        ) from error

"""Folders of runs -> the tables of those that are finished, for notebooks and scripts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from localeval.report.finished import Finished
from localeval.schema import RunFailed
from localeval.scoring import find_finished
from localeval.tables import samples_table, scores_table

if TYPE_CHECKING:
    import pandas as pd


class Tables:
    """The tables of some runs. runs: those that are in them, in order. docs/tables.md describes the columns."""

    def __init__(self, runs: Sequence[Finished], prompts: bool = False) -> None:
        """prompts: whether ``samples`` has a column of what the model was given."""
        self.runs = tuple(runs)
        self._prompts = prompts

    @cached_property
    def scores(self) -> pd.DataFrame:
        """One row a metric or count, of all samples, a subset, a group, an entity type or a letter of each run."""
        return scores_table(self.runs)

    @cached_property
    def samples(self) -> pd.DataFrame:
        """One row a sample of each run; read when it is first asked for.

        Raises LocalevalError that names the file of a run folder that is missing or broken.
        """
        return samples_table(self.runs, self._prompts)

    def __repr__(self) -> str:
        return f"<Tables of {len(self.runs)} runs: .scores, .samples>"


def load_runs(paths: str | Path | Sequence[str | Path], prompts: bool = False) -> Tables:
    """The finished runs in a folder, or in several, as two tables; one that is not finished is named and left out.

    paths: run folders, or folders that hold some. prompts: with what the model was given, in the samples. Raises
    LocalevalError for a folder without runs or files that are not of this version, RunFailed where no run is finished.
    """
    runs = find_finished([paths] if isinstance(paths, (str, Path)) else paths)
    if not runs:
        raise RunFailed("nothing to load: none of the runs is finished")
    return Tables(runs, prompts)

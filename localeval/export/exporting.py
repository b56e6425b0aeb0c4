"""Run folders -> the result files of another tool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from localeval.export.evalscope import write_evalscope
from localeval.export.lm_eval import write_lm_eval
from localeval.export.named import batches
from localeval.report.finished import of_this_version
from localeval.schema import LocalevalError, RunFailed
from localeval.scoring import find_finished


def export_runs(to: str, paths: Sequence[str | Path], output: Path) -> list[Path]:
    """Writes the finished runs in some folders as that tool does; gives back what it opens.

    to: ``evalscope`` or ``lm-eval``. output: what that tool calls its output folder; made where it is not there, and
    nothing in it is replaced. Raises LocalevalError for a run folder that can't be read or a result that is there
    already, RunFailed where no run is finished or a file can't be written.
    """
    runs = find_finished(paths)
    if not runs:
        raise RunFailed("nothing to export: none of the runs is finished")
    written: list[Path] = []
    try:
        with of_this_version():
            for batch in batches(runs):
                written += [write_evalscope(batch, output)] if to == "evalscope" else write_lm_eval(batch, output)
    except FileExistsError as error:
        raise LocalevalError(
            f"{error.filename}: is there, and nothing is replaced; --output takes another folder"
        ) from error
    except OSError as error:
        raise RunFailed(f"{output}: {error}") from error
    return written

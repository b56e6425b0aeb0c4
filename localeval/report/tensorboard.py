"""Points as TensorBoard scalars, beside what is in the log folder already.

Only adds event files, and never changes or deletes one. Needs the ``tensorboard`` package, without torch or tensorflow.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Set
from hashlib import sha256
from pathlib import Path

from localeval.report.points import Point
from localeval.schema import LocalevalError

_PLAIN = re.compile(r"[\w][\w .=+-]*")
"""A part of a run's name that can be the name of a folder: not empty, not hidden, not ``..``."""

Scalars = dict[int, float]
"""Step -> value."""


def write_events(folder: Path, points: Iterable[Point]) -> int:
    """Adds what is new or has changed to the log directory; returns how many scalars were written.

    Tags: ``<dataset>/<metric>`` with ``_low`` and ``_high`` of its interval, and ``<dataset>/<metric>/<subset>``. A
    training run that has a name gets a folder of its own in ``folder``, so that TensorBoard shows it as a run. Points
    without a step or a value are left out.

    TensorBoard takes a step that comes after a later one for a restart of the training, and drops the later ones
    (``--load_fast=true``). So what is written before known steps of its tag is followed by those again.

    Raises LocalevalError where tensorboard is not installed; OSError where the folder can't be written.
    """
    runs: dict[str, dict[str, Scalars]] = defaultdict(lambda: defaultdict(dict))
    for point in points:
        for tag, value in _tags(point).items():
            if point.step is not None and value is not None:
                runs[point.series][tag][point.step] = value
    return sum(_write_run(folder / _folder_of(series), tags) for series, tags in runs.items())


def _tags(point: Point) -> dict[str, float | None]:
    name = f"{point.dataset}/{point.metric}"
    if point.subset:
        return {f"{name}/{point.subset}": point.value}
    return {name: point.value, f"{name}_low": point.low, f"{name}_high": point.high}


def _folder_of(series: str) -> str:
    """The run's name where it is a path within the log directory; else what is left of it, with a digest of all."""
    if not series or all(map(_PLAIN.fullmatch, series.split("/"))):
        return series
    left = re.sub(r"[^\w.+-]+", "_", series).strip("._")
    return f"{left}-{sha256(series.encode()).hexdigest()[:8]}"


def _write_run(folder: Path, tags: dict[str, Scalars]) -> int:
    try:
        from tensorboard.summary import Writer
    except ImportError as error:
        raise LocalevalError("TensorBoard's files need a package: pip install 'localeval[tensorboard]'") from error
    known = _read_run(folder, tags.keys())
    rows = [(tag, *row) for tag, wanted in tags.items() for row in _missing(wanted, known[tag])]
    if not rows:
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    # Files are read in the order of their names, which begin with the second that they were made in: this one is last.
    if any(folder.glob(f"events.out.tfevents.{int(time.time()):010d}.*")):
        time.sleep(1.01 - time.time() % 1)
    writer = Writer(str(folder))
    try:
        for tag, step, value in sorted(rows, key=lambda row: row[1]):
            writer.add_scalar(tag, value, step)
        writer.flush()  # raises what the thread that writes ran into; close does not
    finally:
        writer.close()
    return len(rows)


def _missing(wanted: Scalars, known: Scalars) -> list[tuple[int, float]]:
    """What to write: all from the first step on that is new or has another value. Values are float32, as stored."""
    from numpy import float32

    values = {step: float(float32(value)) for step, value in wanted.items()}
    new = {step for step, value in values.items() if step not in known or known[step] != value}
    return [(step, value) for step, value in sorted({**known, **values}.items()) if new and step >= min(new)]


def _read_run(folder: Path, tags: Set[str]) -> dict[str, Scalars]:
    """Tag -> what TensorBoard shows of it: files in the order of their names, and a step back drops the later ones."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util.tensor_util import make_ndarray

    known: dict[str, Scalars] = {tag: {} for tag in tags}
    for path in sorted(folder.glob("*tfevents*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                if value.tag in tags:
                    before = {step: old for step, old in known[value.tag].items() if step < event.step}
                    known[value.tag] = {**before, event.step: float(make_ndarray(value.tensor))}
    return known

"""Waits for the checkpoints of a training run, and evaluates each once, when it is whole. Knows no engine.

Whole: its configuration, its index and all files of weights are there, none is cut, and nothing in its folder has
changed between two looks. What is done is recorded in the series' folder: after a restart it goes on from there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localeval.checkpoints import Checkpoint, checkpoints_in, is_model, state_of, step_of, why_not_whole
from localeval.config import TaskConfig, load_config
from localeval.evaluation import Evaluation
from localeval.identity import digest_of
from localeval.offline import go_offline
from localeval.progress import say, warn
from localeval.run import Engines, Succession
from localeval.schema import LocalevalError
from localeval.scoring import RunResult
from localeval.series import Outcome, Series

_WRITTEN = "still being written"
_LONGEST = 10_000_000
"""Seconds; a system has its own bound of a pause."""


@dataclass(frozen=True, slots=True)
class Watching:
    """How it is waited.

    newest_first: of several that are whole, the last one goes first. until_step: ends when a checkpoint of that step or
    a later one, and all before it, are evaluated. idle_exit: ends when nothing has come for so many seconds. every:
    seconds between two looks.
    """

    newest_first: bool = False
    until_step: int | None = None
    idle_exit: float | None = None
    every: float = 10.0


def watch(
    config: TaskConfig | Mapping[str, Any] | str | Path, watching: Watching, sleep: Callable[[float], None] = time.sleep
) -> RunResult:
    """Evaluates every checkpoint that appears in the folder ``config.model``, until there is a reason to end.

    Raises LocalevalError for what is wrong with the command or its data. A checkpoint that fails is recorded, and not
    asked again until its files change.
    """
    go_offline()
    _check(watching)
    parsed = load_config(config).with_absolute_paths()
    if len(parsed.asked_models) != 1 or parsed.engine.startswith("replay:"):
        raise LocalevalError("watch takes one folder that checkpoints appear in, and an engine that loads them")
    place = Path(os.path.expanduser(parsed.asked_models[0]))
    if is_model(place):
        raise LocalevalError(f"{place} is a model itself; watch takes the folder that checkpoints appear in")
    if place.exists() and not place.is_dir():
        raise LocalevalError(f"{place} is no folder; watch takes the folder that checkpoints appear in")
    if not place.parent.is_dir():
        raise LocalevalError(f"{place}: neither it nor the folder above it is there")
    evaluation = Evaluation(parsed)
    series = Series(parsed, [str(place.resolve())], resume=True)
    if series.outcomes:
        say(f"{len(series.outcomes)} checkpoints are done already ({series.path})")
    with Engines(parsed, []) as engines:
        _follow(place, series, Succession(evaluation, series, engines), watching, sleep)
    return series.result()


def _check(watching: Watching) -> None:
    for option, value in (("--every", watching.every), ("--idle-exit", watching.idle_exit)):
        if value is not None and not 0 <= value <= _LONGEST:
            raise LocalevalError(f"{option} {value}: expected seconds, from 0 to {_LONGEST:,}")


def _follow(
    place: Path, series: Series, succession: Succession, watching: Watching, sleep: Callable[[float], None]
) -> None:
    looks = _Looks(place, series, watching.every)
    last = time.monotonic()
    say(f"watching {place}" + ("" if place.is_dir() else ", which is not there yet"))
    while True:
        ready = looks.ready()
        if ready:
            chosen = ready[-1 if watching.newest_first else 0]
            succession.evaluate(chosen)
            looks.check_unchanged(chosen)
            last = time.monotonic()
            continue
        if watching.until_step is not None and looks.has_come_to(watching.until_step):
            say(f"step {watching.until_step:,} is done" + looks.waiting_for())
            return
        if watching.idle_exit is not None and time.monotonic() - last >= watching.idle_exit:
            say(f"nothing new for {watching.idle_exit:.0f} s" + looks.waiting_for())
            return
        sleep(watching.every)


class _Looks:
    """One look after another at the folder: what is new, what is whole, what has not changed since the last look."""

    def __init__(self, place: Path, series: Series, every: float) -> None:
        self._place, self._series, self._every = place, series, every
        self._since: dict[Path, tuple[str, float]] = {}
        self._reasons: dict[Path, str] = {}

    def ready(self) -> list[Checkpoint]:
        """The checkpoints that can be evaluated, by step."""
        states = {path: digest_of(state_of(path)) for path in self._folders()}
        now = time.monotonic()
        old = {path: since for path, since in self._since.items() if since[0] == states.get(path)}
        self._since = {path: old.get(path, (state, now)) for path, state in states.items()}
        # Not at the first look, and not before it had the time between two looks to change.
        settled = [path for path in old if now - old[path][1] >= self._every]
        done = {Path(outcome.checkpoint.asked).resolve(): outcome for outcome in self._series.outcomes}
        found = []
        self._reasons = dict.fromkeys(states, _WRITTEN)
        for path in settled:
            known = done.get(path.resolve())
            if known is not None and (not known.failure or known.checkpoint.state == states[path]):
                self._reasons.pop(path)
            elif (reason := why_not_whole(path)) is not None:
                self._reasons[path] = reason
            else:
                found.append(Checkpoint(str(path), path.name, str(self._place), step_of(path), states[path]))
        return sorted(found, key=lambda each: (each.step is None, each.step or 0, each.label))

    def check_unchanged(self, checkpoint: Checkpoint) -> None:
        """Records a checkpoint as failed whose files changed while it was evaluated: its numbers are of no one state.

        One that has gone since is as it was.
        """
        (done,) = (each for each in self._series.outcomes if each.checkpoint.asked == checkpoint.asked)
        folder = checkpoint.folder
        if folder is not None and not done.failure and digest_of(state_of(folder)) != checkpoint.state:
            reason = "its files changed while it was evaluated"
            warn(f"{checkpoint.label}: {reason}")
            self._series.add(Outcome(checkpoint, failure=reason))

    def _folders(self) -> list[Path]:
        return checkpoints_in(self._place) if self._place.is_dir() else []

    def has_come_to(self, step: int) -> bool:
        """Whether a checkpoint of the step or a later one is done, and none up to it is being written.

        One that is not whole and does not change any more is not waited for: a training run that was killed left it.
        """
        steps = [outcome.checkpoint.step or 0 for outcome in self._series.outcomes]
        written = [path for path, reason in self._reasons.items() if reason == _WRITTEN]
        return max(steps, default=-1) >= step and all((step_of(path) or 0) > step for path in written)

    def waiting_for(self) -> str:
        """What is there and never became whole."""
        return "".join(f"; {path.name}: {reason}" for path, reason in self._reasons.items())

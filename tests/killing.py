"""Kills many runs, each at another moment, and has the same command go on.

``python -m tests.killing WHAT FOLDER TIMES SEED``; WHAT: ``drivers`` (the command itself) or ``engines`` (the process
that its engine is in). It is a program of its own, which has loaded everything and started no thread, so that a run is
a fork of it and many can be killed in a short time. Prints what came of it as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from localeval import record, run_task
from localeval.cli import main
from localeval.engines import child
from localeval.engines.base import EngineConfig
from localeval.engines.replay import ReplayEngine
from localeval.engines.restart import Restarted
from localeval.engines.successive import Successive
from localeval.model import Model, find_replay
from localeval.schema import Completion, RunFailed
from tests.conftest import MCQ_YAML, write_jsonl

ROWS = 60
DELAY = 0.0005
"""Seconds that each reply takes."""


def make(folder: Path) -> dict[str, Any]:
    """A dataset of questions and replies to all of them; the config of a run over it, but for its work dir."""
    rows = [
        {"question": f"{n}?", "options": ["one", "two", "six"], "answer": "ABC"[n % 3], "topic": f"t{n % 4}"}
        for n in range(ROWS)
    ]
    write_jsonl(folder / "rows" / "test.jsonl", rows)
    (folder / "quiz.yaml").write_text(MCQ_YAML)
    said = [{"sample_id": f"default:{n}", "text": f"ANSWER: {'ABCX'[n % 4]}" + " so" * n} for n in range(ROWS)]
    replies = write_jsonl(folder / "replies.jsonl", said)
    return {"engine": f"replay:{replies}", "engine_args": {"delay": DELAY}, "datasets": [str(folder / "quiz.yaml")]}


# --- what is left, and what has come of it ---


def stage_of(work_dir: Path) -> str:
    """How far a run had come when it was killed, by what it has left. Raises where a line is no prediction."""
    folder = next(work_dir.glob("*/quiz-*"), None)
    if folder is None or not (folder / "run.json").is_file():
        return "opening"
    assert json.loads((folder / "run.json").read_text())["settings"]
    lines = (folder / "predictions.jsonl").read_bytes().split(b"\n")
    rows = [json.loads(line) for line in lines[:-1]]  # what follows the last line break is torn, or nothing
    assert len({row["sample_id"] for row in rows}) == len(rows)
    if len(rows) < ROWS:
        return "replies" if rows else "starting"
    if not (folder / "report.json").is_file():
        return "scoring"
    whole = json.loads((folder / "run.json").read_text())["complete"]
    return "done" if whole else "reporting"


def result_of(work_dir: Path) -> dict[str, Any]:
    """The report without ``reused``, and the rows; of a run that has ended well."""
    (folder,) = work_dir.glob("*/quiz-*")
    assert json.loads((folder / "run.json").read_text())["complete"] is True
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    del report["counts"]["reused"]
    lines = (folder / "predictions.jsonl").read_text().splitlines(keepends=True)
    assert all(line.endswith("\n") for line in lines)
    rows = sorted((json.loads(line) for line in lines), key=lambda row: int(row["sample_id"].rpartition(":")[2]))
    left = [path.name for path in folder.iterdir() if path.name.startswith(".") and path.name != ".lock"]
    return {"report": report, "rows": rows, "scores": (folder / "scores.jsonl").read_text(), "parts": len(left)}


def _differences(found: dict[str, Any], whole: dict[str, Any]) -> list[str]:
    return [name for name in ("report", "rows", "scores") if found[name] != whole[name]]


def _seconds(run: Callable[[int], object]) -> list[float]:
    """Of some runs that nothing disturbs, but for what else the machine does."""
    found = []
    for n in range(3):
        begin = time.monotonic()
        run(n)
        found.append(time.monotonic() - begin)
    return found


# --- the command itself is killed ---


def _start(words: list[str]) -> int:
    pid = os.fork()
    if pid == 0:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os._exit(main(words))
    return pid


def _ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def drivers(folder: Path, times: int, chance: random.Random) -> dict[str, Any]:
    """Every fifth run is killed a second time, while it goes on."""
    config = make(folder)
    words = ["--engine", config["engine"], "--engine-args", json.dumps(config["engine_args"]), "--datasets"]
    words += [*config["datasets"], "--work-dir"]
    run_task({**config, "work_dir": str(folder / "whole")})  # what it imports, the forks have
    whole = result_of(folder / "whole")
    life = min(_seconds(lambda n: _ended(_start([*words, str(folder / f"undisturbed-{n}")]))))
    stages: Counter[str] = Counter()
    wrong: list[str] = []
    n = 0
    while stages.total() - stages["done"] < times:
        n += 1
        work_dir = folder / f"killed-{n}"
        for _ in range(2 if n % 5 == 0 else 1):
            pid = _start([*words, str(work_dir)])
            time.sleep(chance.uniform(0, life))
            os.kill(pid, signal.SIGKILL)
            _ended(pid)
            stages[stage_of(work_dir)] += 1
        status = _ended(_start([*words, str(work_dir)]))
        found = result_of(work_dir)
        wrong += [f"{n}: {what}" for what in (*_differences(found, whole), *(["status"] if status else []))]
    return {"stages": stages, "wrong": wrong, "life": life, "killed": stages.total() - stages["done"]}


# --- the engine's process is killed ---


class Forked:
    """What stands for ``subprocess.Popen`` of an engine's process: a fork, which has loaded what that would load."""

    last = 0
    """The process that was started last."""

    def __init__(self, command: list[str], *, pass_fds: list[int], **_: Any) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            for each in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
                if each > 2 and each not in pass_fds:
                    os.closerange(each, each + 1)
            sys.argv = command[2:]
            child.main()
            os._exit(0)
        Forked.last = self.pid

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            pid, status = os.waitpid(self.pid, 0 if deadline is None else os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
            elif deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("engine", timeout or 0)
            else:
                time.sleep(0.001)
        return self.returncode


class InAProcess:
    """A replay engine in a process of its own, which is started once more if it dies, as those of models are."""

    def __init__(self, replay: ReplayEngine) -> None:
        self.path, self.check, self._replay = replay.path, replay.check, replay
        self._successive = Successive()
        self._engine: Restarted | None = None

    def generate(self, requests: Any) -> Iterator[Completion]:
        config = EngineConfig(self.path, max_model_len=0, engine_args={"delay": DELAY})
        engine, _ = self._successive.serve("replay", config)
        self._engine = Restarted(self._successive, engine, "replay", config)
        yield from self._engine.generate(requests)

    def settings(self) -> dict[str, Any]:
        assert self._engine is not None
        return dict(self._engine.settings())

    def close(self) -> None:
        self._replay.close()
        self._successive.close()


def engines(folder: Path, times: int, chance: random.Random) -> dict[str, Any]:
    """Every third run's engine is killed again and again; a run then ends, and the same command goes on."""
    os.fsync = lambda fd: None  # nobody kills this process
    config = make(folder)
    run_task({**config, "work_dir": str(folder / "whole")})
    whole = result_of(folder / "whole")

    def found(*asked: Any) -> tuple[Model, Any]:
        model, replay = find_replay(*asked)
        return model, InAProcess(replay)

    sys.modules["localeval.run"].__dict__["find_replay"] = found
    stand_in = SimpleNamespace(Popen=Forked, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired)
    child.__dict__["subprocess"] = stand_in
    life = min(_seconds(lambda n: run_task({**config, "work_dir": str(folder / f"undisturbed-{n}")})))
    ends: Counter[str] = Counter()
    killed: set[int] = set()
    wrong = [f"undisturbed: {what}" for what in _differences(result_of(folder / "undisturbed-0"), whole)]
    signal.signal(signal.SIGALRM, lambda *_: _kill(Forked.last, killed))
    n = 0
    while len(killed) < times:
        n += 1
        asked = {**config, "work_dir": str(folder / f"killed-{n}")}
        Forked.last = 0
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.01, life), life / 4 if n % 3 == 0 else 0)
        try:
            run_task(asked)
            signal.setitimer(signal.ITIMER_REAL, 0)
            (facts,) = (folder / f"killed-{n}").glob("*/*/run.json")
            ends["started again" if "restarted" in json.loads(facts.read_text())["engine"] else "undisturbed"] += 1
        except RunFailed as failed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            ends["ended, " + ("died a second time" if "a second time" in str(failed) else "while it started")] += 1
            stage_of(folder / f"killed-{n}")  # what is there is whole
            run_task(asked)
        wrong += [f"{n}: {what}" for what in _differences(result_of(folder / f"killed-{n}"), whole)]
    return {"ends": ends, "wrong": wrong, "life": life, "killed": len(killed)}


def _kill(pid: int, killed: set[int]) -> None:
    with suppress(ProcessLookupError):  # it has ended by itself
        if pid:
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)


if __name__ == "__main__":
    _what, _folder, _times, _seed = sys.argv[1:]
    record.__dict__["git_commit"] = lambda: None  # three processes, longer than so short a run
    _done = {"drivers": drivers, "engines": engines}[_what](Path(_folder), int(_times), random.Random(int(_seed)))
    print(json.dumps(_done))

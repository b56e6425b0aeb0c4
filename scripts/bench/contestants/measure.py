"""Runs a contestant's program and watches it: seconds, and the memory of all its processes together."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

EVERY = 1.0
"""Seconds between two looks at memory: reading the map of a large process costs milliseconds that are the engine's."""


class Failed(Exception):
    """A contestant's program failed; the message is the end of what it said."""


class Meter:
    """The greatest memory of some processes and all their descendants at one time, in bytes.

    It is the proportional set size (PSS): a page that several processes share counts once.
    """

    def __init__(self) -> None:
        self.peak = 0
        self._roots: list[psutil.Process] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Meter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def add(self, pid: int) -> None:
        self._roots.append(psutil.Process(pid))

    def _run(self) -> None:
        while not self._stop.wait(EVERY):
            self.peak = max(self.peak, sum(map(_memory, list(self._roots))))


def _memory(root: psutil.Process) -> int:
    try:
        tree = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    return sum(map(_own_memory, tree))


def _own_memory(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (psutil.NoSuchProcess, psutil.AccessDenied):  # it has ended between two looks
        return 0


@contextmanager
def started(
    command: Sequence[str], meter: Meter, log: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A running program, in a process group of its own, which is ended at the end if it hasn't by itself."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**_inherited(), **environment},
            start_new_session=True,
        )
        meter.add(process.pid)
        try:
            yield process
        finally:
            _end(process)


def _inherited() -> dict[str, str]:
    """What go_offline() set, but not that bars of progress are off: EvalScope can't do without its own."""
    return {name: value for name, value in os.environ.items() if name != "TQDM_DISABLE"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Asks, waits, then kills the group that the program made."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run(command: Sequence[str], meter: Meter, log: Path, environment: Mapping[str, str], timeout: float) -> float:
    """Runs a program to its end; gives back the seconds that it took. Raises Failed."""
    start = time.perf_counter()
    with started(command, meter, log, environment) as process:
        try:
            code = process.wait(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"took longer than {timeout:.0f} s") from error
    if code:
        raise Failed(f"exit status {code}: {last_words(log)}")
    return time.perf_counter() - start


def last_words(log: Path) -> str:
    """The last line of a log that says something; of a traceback the error itself."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    said = [line for line in lines if any(map(str.isalnum, line))]
    errors = [line for line in said if "Error" in line.split(" ", 1)[0]]
    return ((errors or said)[-1] if said else "it said nothing")[:200]

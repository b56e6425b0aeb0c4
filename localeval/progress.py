"""What a run says while it works: to the standard error, so that the standard output holds the result alone.

A bar with rate and time left on a terminal; a plain line now and then elsewhere.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from localeval.visible import tell, visible

T = TypeVar("T")
EVERY = 10.0
"""Seconds between plain lines."""


def say(message: str) -> None:
    """One line."""
    tell(f"localeval: {message}", sys.stderr)


def warn(message: str) -> None:
    """One line that asks to be read."""
    say(f"warning: {message}")


def track(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """Hands the items on, and shows how many of ``total`` have passed."""
    return _bar(items, total, what) if sys.stderr.isatty() else _lines(items, total, what)


def _bar(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.1f}/s" if task.speed else "-/s")

    told = TextColumn("{task.description}", markup=False)
    columns = (told, BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(visible(what), total=total)
        for item in items:
            yield item
            progress.advance(task)


def _lines(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    start = last = time.monotonic()
    done = 0
    for item in items:
        yield item
        done += 1
        now = time.monotonic()
        if now - last >= EVERY and done < total:
            rate = done / (now - start)
            # The first replies come late and tell nothing of the rate.
            left = f", {_duration((total - done) / rate)} left" if done >= total / 20 else ""
            say(f"{what}: {done:,} of {total:,}, {rate:,.1f}/s{left}")
            last = now
    seconds = time.monotonic() - start
    if done:
        say(f"{what}: {done:,} of {total:,} in {_duration(seconds)} ({done / max(seconds, 1e-9):,.1f}/s)")


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def size(count: int) -> str:
    """Bytes for people: ``16.4 GB``."""
    from rich.filesize import decimal

    return decimal(count)


@contextmanager
def measure(total: int, what: str) -> Iterator[Callable[[int], None]]:
    """Gives a function that is told of bytes as they pass, by any thread, and shows how many of ``total`` have.

    It is told of fewer than none where some have to pass again.
    """
    with (_measure_bar if sys.stderr.isatty() else _measure_lines)(total, what) as passed:
        yield passed


@contextmanager
def _measure_bar(total: int, what: str) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(visible(what), total=total)
        yield lambda count: progress.advance(task, count)


@contextmanager
def _measure_lines(total: int, what: str) -> Iterator[Callable[[int], None]]:
    start = last = time.monotonic()
    done = 0
    alone = threading.Lock()

    def passed(count: int) -> None:
        nonlocal done, last
        with alone:
            done += count
            now = time.monotonic()
            if now - last < EVERY or not 0 < done < total:
                return
            rate = done / (now - start)
            last = now
        say(f"{what}: {size(done)} of {size(total)}, {size(int(rate))}/s, {_duration((total - done) / rate)} left")

    yield passed
    seconds = time.monotonic() - start
    if total:
        say(f"{what}: {size(done)} in {_duration(seconds)} ({size(int(done / max(seconds, 1e-9)))}/s)")

"""What a run says while it works: to the standard error, so that the standard output holds the result alone.

A bar with rate and time left on a terminal; a plain line now and then elsewhere.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from localeval.visible import tell, visible

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")
EVERY = 10.0
"""Seconds between plain lines."""
LATE = 2.0
"""Seconds after which work is shown that is over before, most often."""


def say(message: str) -> None:
    """One line."""
    tell(f"localeval: {message}", sys.stderr)


def warn(message: str) -> None:
    """One line that asks to be read."""
    say(f"warning: {message}")


def track(items: Iterable[T], total: int | None, what: str, after: float = 0.0) -> Iterator[T]:
    """Hands the items on, and shows how many of ``total`` have passed.

    total: None where it is not known beforehand. after: seconds in which nothing is shown; work that is over by then
    says nothing.
    """
    return _bar(items, total, what, after) if sys.stderr.isatty() else _lines(items, total, what, after)


def _bar(items: Iterable[T], total: int | None, what: str, after: float) -> Iterator[T]:
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
    progress = Progress(*columns, console=Console(stderr=True))
    task = progress.add_task(visible(what), total=total)
    with _shown(progress, after) as look:
        for item in items:
            yield item
            progress.advance(task)
            look()


@contextmanager
def _shown(progress: Progress, after: float) -> Iterator[Callable[[], None]]:
    """Shows the bar once so many seconds are over, at the next look."""
    began, shown = time.monotonic(), False

    def look() -> None:
        nonlocal shown
        if not shown and time.monotonic() - began >= after:
            shown = True
            progress.start()

    try:
        if not after:
            look()
        yield look
    finally:
        if shown:
            progress.stop()


def _lines(items: Iterable[T], total: int | None, what: str, after: float) -> Iterator[T]:
    start = last = time.monotonic()
    done, of = 0, "" if total is None else f" of {total:,}"
    for item in items:
        yield item
        done += 1
        now = time.monotonic()
        if now - last >= EVERY and (total is None or done < total):
            rate = done / (now - start)
            # The first replies come late and tell nothing of the rate.
            left = f", {_duration((total - done) / rate)} left" if total and done >= total / 20 else ""
            say(f"{what}: {done:,}{of}, {rate:,.1f}/s{left}")
            last = now
    seconds = time.monotonic() - start
    if done and seconds >= after:
        say(f"{what}: {done:,}{of} in {_duration(seconds)} ({done / max(seconds, 1e-9):,.1f}/s)")


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
def measure(total: int, what: str, after: float = 0.0) -> Iterator[Callable[[int], None]]:
    """Gives a function that is told of bytes as they pass, by any thread, and shows how many of ``total`` have.

    It is told of fewer than none where some have to pass again. after: as for ``track``.
    """
    with (_measure_bar if sys.stderr.isatty() else _measure_lines)(total, what, after) as passed:
        yield passed


@contextmanager
def _measure_bar(total: int, what: str, after: float) -> Iterator[Callable[[int], None]]:
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
    progress = Progress(*columns, console=Console(stderr=True))
    task = progress.add_task(visible(what), total=total)
    with _shown(progress, after) as look:

        def passed(count: int) -> None:
            progress.advance(task, count)
            look()

        yield passed


@contextmanager
def _measure_lines(total: int, what: str, after: float) -> Iterator[Callable[[int], None]]:
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
    if total and seconds >= after:
        say(f"{what}: {size(done)} in {_duration(seconds)} ({size(int(done / max(seconds, 1e-9)))}/s)")

"""How a command is told to stop: Ctrl-C, SIGTERM (schedulers, containers, systemd) and SIGHUP (a terminal that closes).

All three end it as Ctrl-C ends a program: KeyboardInterrupt in the main thread, so that whatever is held is let go in
order. For the command line alone: a program that calls localeval keeps its own handlers. Knows nothing about runs.
"""

from __future__ import annotations

import atexit
import os
import signal
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

STATUS = 130
"""The exit status of a command that was stopped, by whichever signal."""
AT_ONCE = 1.0
"""Seconds after which another signal does not wait for the clean stop. Schedulers send one to each process of a job,
and a shell may hand its own on: those that come together are one."""


@contextmanager
def stoppable() -> Iterator[None]:
    """While this lasts, the signals raise KeyboardInterrupt with their name; one that is ignored (nohup) stays so.

    Another one, later than ``AT_ONCE``, ends the process where it stands, as a kill would: nothing that is written is
    lost by that either. So it stays after a signal, until the process has ended.
    """
    if threading.current_thread() is not threading.main_thread():  # no other may set handlers
        yield
        return
    first: list[float] = []

    def stop(number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _forget_terminal()
        if not first:
            first.append(time.monotonic())
            raise KeyboardInterrupt(signal.Signals(number).name)
        if time.monotonic() - first[0] > AT_ONCE:
            os._exit(STATUS)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    ours = {number: handler for number, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        if first:  # the process is about to end: what comes until then is no news
            atexit.register(_ignore, list(ours))
        else:
            for number, handler in ours.items():
                signal.signal(number, handler)


def _ignore(signals: Iterable[int]) -> None:
    for number in signals:
        signal.signal(number, signal.SIG_IGN)


def _forget_terminal() -> None:
    """What is still said goes nowhere: a terminal that has gone answers each word with an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        if stat.S_ISCHR(os.fstat(stream).st_mode):
            os.dup2(nowhere, stream)
    os.close(nowhere)

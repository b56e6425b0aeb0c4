"""Requests that come while an engine works. Knows nothing about engines."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Iterator
from typing import Literal

from localeval.schema import Request


def at_hand(source: Iterator[Request | None], most: int) -> tuple[list[Request], bool]:
    """The next requests that are there, up to ``most``; and whether more may come."""
    found: list[Request] = []
    for request in source:
        if request is None:
            return found, True
        found.append(request)
        if len(found) == most:
            return found, True
    return found, False


class Feed:
    """Requests as another thread hands them over, for one engine.

    It waits for the next one; but after a pause, while the engine has others to go on with, it yields None instead.
    Without a pause an engine takes the same requests at the same steps, however fast they come. Forced answers go
    before what waits: the reply that they go on from is in the engine's cache, and later it may not be.
    """

    def __init__(self, room: int = 0) -> None:
        """room: how many may wait to be taken; 0 for any number."""
        self._waiting: queue.PriorityQueue[tuple[bool, int, Request | Literal["pause", "end"]]]
        self._waiting = queue.PriorityQueue(room)
        self._numbers = itertools.count()  # of equal ones the first goes first
        self._taken = 0  # and not answered yet; the engine's thread alone counts

    def put(self, request: Request) -> None:
        """Hands a request over; waits while there is no room."""
        self._waiting.put((not request.forced, next(self._numbers), request))

    def pause(self) -> None:
        """When the next one will come is not known."""
        self._waiting.put((True, next(self._numbers), "pause"))

    def end(self) -> None:
        """No more will come."""
        self._waiting.put((True, next(self._numbers), "end"))

    def answered(self) -> None:
        """One of those that were taken is answered; called in the thread that takes them."""
        self._taken -= 1

    def __iter__(self) -> Iterator[Request | None]:
        paused = False
        while True:
            try:
                _, _, item = self._waiting.get(block=not (paused and self._taken))
            except queue.Empty:
                yield None
                continue
            if item == "end":
                return
            paused = item == "pause"
            if not isinstance(item, str):
                self._taken += 1
                yield item

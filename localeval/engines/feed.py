"""Requests that come while an engine works. Knows nothing about engines."""

from __future__ import annotations

import queue
from collections.abc import Iterator

from localeval.schema import Request


class Feed:
    """Requests as other threads hand them over, for one engine.

    It yields None where none is there and the engine has others to go on with; it waits only where the engine has none.
    """

    def __init__(self, room: int = 0) -> None:
        """room: how many may wait to be taken; 0 for any number."""
        self._waiting: queue.Queue[Request | None] = queue.Queue(room)
        self._taken = 0  # and not answered yet; the engine's thread alone counts

    def put(self, request: Request) -> None:
        """Hands a request over; waits while there is no room."""
        self._waiting.put(request)

    def end(self) -> None:
        """No more will come."""
        self._waiting.put(None)

    def answered(self) -> None:
        """One of those that were taken is answered; called in the thread that takes them."""
        self._taken -= 1

    def __iter__(self) -> Iterator[Request | None]:
        while True:
            try:
                request = self._waiting.get(block=self._taken == 0)
            except queue.Empty:
                yield None
                continue
            if request is None:
                return
            self._taken += 1
            yield request

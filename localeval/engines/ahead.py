"""Requests made ready in threads, ahead of an engine's need. Knows nothing about engines."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from localeval.schema import Request

AHEAD = 128
"""Requests that are made ready before there is room for them."""

Ready = TypeVar("Ready")


class Ahead(Generic[Ready]):
    """Requests in their order, made ready by ``prepare``: constrained ones in threads, the others as they come.

    Forced answers go first, as in ``Feed``.
    """

    def __init__(
        self, requests: Iterable[Request | None], prepare: Callable[[Request], Ready], pool: ThreadPoolExecutor
    ) -> None:
        self._source, self._prepare, self._pool = iter(requests), prepare, pool
        self._ready: deque[Ready | Future[Ready]] = deque()

    def first(self, wait: bool) -> Ready | None:
        """The next request, which stays the next one; None where there is none, or it is not ready yet.

        wait: until it is ready.
        """
        while len(self._ready) < AHEAD and (request := next(self._source, None)) is not None:
            threaded = request.constraint is not None
            ready = self._pool.submit(self._prepare, request) if threaded else self._prepare(request)
            (self._ready.appendleft if request.forced else self._ready.append)(ready)
        if not self._ready:
            return None
        first = self._ready[0]
        if isinstance(first, Future):
            if not (wait or first.done()):
                return None
            first = self._ready[0] = first.result()
        return first

    def take(self) -> None:
        """The next request has been taken."""
        self._ready.popleft()

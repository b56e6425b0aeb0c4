"""A run's samples on their way into a database, in a thread of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from localeval.results import SampleResult
from localeval.schema import LocalevalError
from localeval.view.rows import Rows


class Reading:
    """Begins at once. state: what the run's files were. number: samples that are read."""

    def __init__(self, state: Any, results: Iterable[SampleResult]) -> None:
        self.state = state
        self.number = 0
        self._closed = False
        pool = ThreadPoolExecutor(1)
        self._rows = pool.submit(Rows, self._counted(results))
        pool.shutdown(wait=False)  # takes nothing more

    def _counted(self, results: Iterable[SampleResult]) -> Iterator[SampleResult]:
        for result in results:
            if self._closed:
                raise LocalevalError("this run's samples are not read any more; load the page again")
            self.number += 1
            yield result

    def wait(self, seconds: float) -> bool:
        """Whether all are read, or something went wrong, when so many seconds are over."""
        return not wait([self._rows], seconds).not_done

    @property
    def rows(self) -> Rows:
        """All of them, as soon as they are read. Raises what went wrong."""
        return self._rows.result()

    def close(self) -> None:
        """Ends it, and gives the temporary file back."""
        self._closed = True
        if self._rows.exception() is None:
            self._rows.result().close()

"""Patience with a network: what may pass is tried again, a few times in a row. Knows nothing about what is asked."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from localeval.progress import say
from localeval.schema import RunFailed

T = TypeVar("T")
TRIES = 6
"""Failures in a row that are one too many."""
PAUSE = 1.0
"""Seconds after the first failure; twice as long after each further one."""
LONGEST = 600.0
"""Seconds that a server may ask for."""
_LONG = 4.0
"""Seconds of a pause that is spoken of."""
_MAY_PASS = (408, 429, 500, 502, 503, 504)


class Passing(Exception):
    """A failure that may pass. wait: seconds that the server asks for, or None."""

    def __init__(self, why: str, wait: float | None = None) -> None:
        super().__init__(why)
        self.wait = wait


@dataclass(slots=True)
class Patience:
    """Counts failures in a row. what: that which is tried, for the message. sleep: pauses for so many seconds."""

    what: str
    failures: int = 0
    sleep: Callable[[float], object] = field(default=time.sleep)

    def after(self, failure: Passing) -> None:
        """Pauses. Raises RunFailed where there have been too many failures, or the server asks for too long a pause."""
        self.failures += 1
        wait = PAUSE * 2 ** (self.failures - 1) if failure.wait is None else failure.wait
        if self.failures >= TRIES or wait > LONGEST:
            tried = f"asks for a pause of {wait:.0f} s" if wait > LONGEST else f"{self.failures} times in a row"
            raise RunFailed(
                f"{self.what}: {failure} ({tried}). What was fetched is kept, and the same command goes on; behind a "
                "proxy, HTTPS_PROXY names it, and SSL_CERT_FILE its certificate"
            ) from failure
        if wait >= _LONG:
            say(f"{self.what}: {failure}; it is asked again in {wait:.0f} s")
        self.sleep(wait)


def patiently(what: str, ask: Callable[[], T]) -> T:
    """What ``ask`` returns. It is asked again where it raises Passing. Raises RunFailed as ``Patience.after``."""
    patience = Patience(what)
    while True:
        try:
            return ask()
        except Passing as failure:
            patience.after(failure)


def check_status(status: int, headers: Mapping[str, str]) -> None:
    """Raises Passing for an HTTP status that may pass, with what Retry-After says (seconds, or a date).

    Hugging Face says in RateLimit instead how many seconds it takes until it answers again: ``"api";r=0;t=55``.
    """
    if status not in _MAY_PASS:
        return
    asked = headers.get("Retry-After") or ""
    wait: float | None = None
    if asked.isdigit():
        wait = float(asked)
    elif asked:
        try:
            wait = max((parsedate_to_datetime(asked) - datetime.now(UTC)).total_seconds(), 0.0)
        except (ValueError, TypeError):  # neither; or a date without its zone
            wait = None
    elif status == 429 and (reset := re.search(r";\s*t=(\d+)", headers.get("RateLimit") or "")):
        wait = float(reset[1])
    raise Passing(f"the server answers with status {status}", wait)

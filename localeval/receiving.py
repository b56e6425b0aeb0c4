"""Replies as they come: written, read and scored in a thread beside generation. Scores and counts stay, no reply."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from localeval.plan import Plan
from localeval.schema import Completion, RunFailed, Sample, Score
from localeval.store import RunFolder

WAITING = 512
"""Replies that wait to be read at most; an engine that is faster waits."""

Judge = Callable[[Sample, Completion], Score]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Of all replies of a job. cached: those of the prompts' that were not computed."""

    prompt: int = 0
    cached: int = 0
    output: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(self.prompt + other.prompt, self.cached + other.cached, self.output + other.output)


@dataclass(slots=True)
class Received:
    """What is known of one job's replies. scores: one a sample and in its order; None where no reply has come."""

    plan: Plan
    folder: RunFolder
    judge: Judge
    scores: list[Score | None]
    tokens: Tokens = field(default_factory=Tokens)

    def whole(self) -> list[Score]:
        """All scores. Raises RunFailed where one is missing."""
        found = [score for score in self.scores if score is not None]
        missing = [r.sample_id for r, score in zip(self.plan.requests, self.scores, strict=True) if score is None]
        if missing:
            raise RunFailed(f"{self.plan.job.title}: {len(missing)} replies are missing, the first of {missing[0]}")
        return found


class Receiver:
    """Takes the replies of some jobs, in any order; as a context, all of them are dealt with when it is left."""

    def __init__(self, plans: Sequence[Plan], folders: Sequence[RunFolder], judges: Sequence[Judge]) -> None:
        """folders, judges: one a plan. The folders are open."""
        self.jobs = [
            Received(plan, folder, judge, [None] * len(plan.requests))
            for plan, folder, judge in zip(plans, folders, judges, strict=True)
        ]
        self._homes = {
            request.key: (job, index) for job in self.jobs for index, request in enumerate(job.plan.requests)
        }
        self._waiting: queue.Queue[tuple[Completion, bool] | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._work, name="receiver", daemon=True)
        self._error: BaseException | None = None
        self.written = 0
        """Replies that are in their folders because they were handed over."""
        self.seconds = 0.0
        """CPU seconds of reading, scoring and writing."""

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._waiting.put(None)
        self._thread.join()
        if error is None:
            self._raise()

    def put(self, reply: Completion, written: bool = False) -> None:
        """Hands a reply over; waits where too many are waiting. written: it is in its folder already.

        Raises what went wrong with a reply before.
        """
        self._raise()
        self._waiting.put((reply, written))

    def finish(self) -> None:
        """Waits until every reply that was handed over is dealt with. Raises what went wrong."""
        self._waiting.join()
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _work(self) -> None:
        failed = False
        while (item := self._waiting.get()) is not None:
            try:
                if not failed:  # after a failure the rest is taken and left, so that nobody waits for it
                    self._take(*item)
            except BaseException as error:  # noqa: BLE001  it is raised in the thread that hands over
                self._error, failed = error, True
            finally:
                self._waiting.task_done()
                self.seconds = time.thread_time()

    def _take(self, reply: Completion, written: bool) -> None:
        job, index = self._homes[reply.key]
        if not written:
            job.folder.append(reply)
            self.written += 1
        job.scores[index] = job.judge(job.plan.job.dataset.samples[index], reply)
        job.tokens += Tokens(reply.prompt_tokens, reply.cached_tokens, reply.output_tokens)

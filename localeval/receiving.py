"""Replies as they come: written, read and scored in a thread beside generation. Scores and counts stay, no reply.

A reply that can't be read may be asked once more (``forcing.py``); that request joins the stream as soon as it is
known.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from localeval.identity import forced_key
from localeval.plan import Plan
from localeval.schema import Completion, Request, RunFailed, Sample, Score
from localeval.store import RunFolder

WAITING = 512
"""Replies that wait to be read at most; an engine that is faster waits."""

Judge = Callable[[Sample, Completion], Score]
Force = Callable[[int, Completion], Request]
"""The index of a sample and its unread reply -> the request for its forced answer."""
Generate = Callable[[Iterable[Request | None]], Iterator[Completion]]


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
    """What is known of one job's replies. scores: one a sample and in its order; None where no reply has come.

    force: None where unread replies are left alone. answers: forced answers that are there already, by key, and whether
    they are in the folder. tokens, forced_tokens: of the replies, and of the forced answers.
    """

    plan: Plan
    folder: RunFolder
    judge: Judge
    scores: list[Score | None]
    force: Force | None = None
    answers: dict[str, tuple[Completion, bool]] = field(default_factory=dict)
    tokens: Tokens = field(default_factory=Tokens)
    forced_tokens: Tokens = field(default_factory=Tokens)

    def whole(self) -> list[Score]:
        """All scores. Raises RunFailed where one is missing."""
        found = [score for score in self.scores if score is not None]
        missing = [r.sample_id for r, score in zip(self.plan.requests, self.scores, strict=True) if score is None]
        if missing:
            raise RunFailed(f"{self.plan.job.title}: {len(missing)} replies are missing, the first of {missing[0]}")
        unread = [score.sample_id for score in found if score.parsed is None and score.forced is None]
        if self.force is not None and unread:
            raise RunFailed(
                f"{self.plan.job.title}: {len(unread)} forced answers are missing, the first of {unread[0]}"
            )
        return found


class Receiver:
    """Takes the replies of some jobs, in any order; as a context, all of them are dealt with when it is left."""

    def __init__(
        self,
        plans: Sequence[Plan],
        folders: Sequence[RunFolder],
        judges: Sequence[Judge],
        forces: Sequence[Force | None] | None = None,
    ) -> None:
        """folders, judges: one a plan. The folders are open. forces: one a plan too; None for no forced answers."""
        forces = forces or [None] * len(plans)
        self.jobs = [
            Received(plan, folder, judge, [None] * len(plan.requests), force)
            for plan, folder, judge, force in zip(plans, folders, judges, forces, strict=True)
        ]
        self._homes = {
            request.key: (job, index) for job in self.jobs for index, request in enumerate(job.plan.requests)
        }
        self._forced: dict[str, tuple[Received, int]] = {}
        self._ready: deque[Request] = deque()  # the thread adds to it, whoever asks takes
        self._out = 0  # requests that an engine has, and has not answered
        self._waiting: queue.Queue[tuple[Completion, bool] | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._work, name="receiver", daemon=True)
        self._error: BaseException | None = None
        self.written = 0
        """Replies that are in their folders because they were handed over; forced answers are not counted."""
        self.forced_written = 0
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

    @property
    def _forces(self) -> bool:
        return any(job.force is not None for job in self.jobs)

    def pending(self) -> list[Request]:
        """The requests for forced answers that are known; waits until all that was handed over is read."""
        if self._forces:
            self.finish()
        return list(iter(self._next, None))

    def ask(self, generate: Generate, requests: Sequence[Request]) -> Iterator[Completion]:
        """Has requests answered, takes the replies and hands them on. generate: an engine's.

        What an unread reply leads to is asked and taken too, and not handed on.
        """
        asked = {request.key for request in requests}
        for reply in generate(self._stream(requests) if self._forces else requests):
            self.put(reply)
            self._out -= 1
            if reply.key in asked:
                yield reply

    def _stream(self, requests: Sequence[Request]) -> Iterator[Request | None]:
        """The requests, and what unread replies lead to: before the next of them, while the engine's cache holds it.

        Where replies want the best tokens, it is asked when all of them are there: vLLM runs none of these beside a
        request that names its own. None says that nothing is there to ask now, and that more may come.
        """
        late = any(request.wanted_logprobs for request in requests)
        self._out = 0
        for request in requests:
            while not late and (more := self._next()) is not None:
                self._out += 1
                yield more
            self._out += 1
            yield request
        while True:
            if not self._out:
                self.finish()
                late = False
            more = None if late else self._next()
            if more is None and not self._out:
                return
            self._out += more is not None
            yield more

    def _next(self) -> Request | None:
        return self._ready.popleft() if self._ready else None

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
        if reply.key in self._forced:
            self._take_forced(*self._forced.pop(reply.key), reply, written)
            return
        job, index = self._homes[reply.key]
        if not written:
            job.folder.append(reply)
            self.written += 1
        score = job.judge(job.plan.job.dataset.samples[index], reply)
        job.scores[index] = score
        job.tokens += _tokens(reply)
        if score.parsed is None and job.force is not None:
            self._force(job, index, reply, job.force)

    def _force(self, job: Received, index: int, reply: Completion, force: Force) -> None:
        key = forced_key(reply)
        if key in job.answers:
            self._take_forced(job, index, *job.answers.pop(key))
        else:
            self._forced[key] = job, index
            self._ready.append(force(index, reply))

    def _take_forced(self, job: Received, index: int, answer: Completion, written: bool) -> None:
        if not written:
            job.folder.append_forced(answer)
            self.forced_written += 1
        score = job.scores[index]
        assert score is not None  # it is an answer to a reply that was read
        job.scores[index] = job.plan.job.with_forced(job.plan.job.dataset.samples[index], score, answer)
        job.forced_tokens += _tokens(answer)


def _tokens(reply: Completion) -> Tokens:
    return Tokens(reply.prompt_tokens, reply.cached_tokens, reply.output_tokens)

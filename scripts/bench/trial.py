"""The same requests in several ways that take turns: what the programs here share. No program itself."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from localeval.config import load_config
from localeval.engines.base import EngineConfig
from localeval.engines.child import ChildEngine
from localeval.engines.settings import environment, runs_on_cpu
from localeval.engines.sizing import Speculation, work_of
from localeval.jobs import Job, load_jobs
from localeval.model_names import load_models
from localeval.plan import Plan, keyed, plan_requests
from localeval.prompts import Prompter, context_length
from localeval.report.build import Asked, build_report
from localeval.report.text import table
from localeval.schema import Completion, Report, Request
from localeval.weights import Sources, find_weights


class Model:
    """A model, and rows of the datasets as requests to it."""

    def __init__(self, name: str, dataset_dir: str, max_tokens: int) -> None:
        """max_tokens: of a free reply to milu."""
        self.name, self.folder = name, find_weights(name, Sources(load_models()), print).folder
        self._dataset_dir, self._max_tokens = dataset_dir, max_tokens
        self._context = context_length(self.folder)
        self.prompter = Prompter(self.folder).without_thinking()

    def plan(self, dataset: str, mode: str, rows: int) -> Plan:
        """The first rows of a dataset (of milu: in English) in one mode."""
        short = (dataset, mode) == ("milu", "generate")
        config = load_config(
            {
                "model": self.name,
                "datasets": [dataset],
                "dataset_dir": self._dataset_dir,
                "dataset_args": {"milu": {"subset_list": ["English"]}} if dataset == "milu" else {},
                "limit": rows,
                "mcq": mode if mode in ("logprob", "cloze") else "generate",
                "constrain": mode == "constrained",
                "generation_config": {"max_tokens": self._max_tokens} if short else {},
            }
        )
        (job,) = load_jobs(config)
        return keyed(plan_requests(job, config, self.prompter, self._context), "", {})

    def config(self, requests: Sequence[Request], speculation: Speculation = "off", **engine_args: Any) -> EngineConfig:
        """Settings as a run of these requests would have them, but for what is said; several engines fit one GPU."""
        if not runs_on_cpu():
            engine_args = {"gpu_memory_utilization": 0.4, **engine_args}
        return EngineConfig(
            self.folder,
            max(request.length for request in requests),
            constrained=any(request.constraint is not None for request in requests),
            work=work_of(requests),
            speculation=speculation,
            engine_args=engine_args,
        )


def report_of(job: Job, prompter: Prompter, replies: Sequence[Completion]) -> Report:
    """What a run says of replies in the order of the job's samples."""
    samples = job.dataset.samples
    scores = [
        job.judge(sample, reply, prompter.thinking, prompter.reasoning_opened)
        for sample, reply in zip(samples, replies, strict=True)
    ]
    asked = Asked(job.name, "bench", job.task, job.mode, job.dataset.subsets, [], job.labels, True, True, 0)
    return build_report(asked, samples, scores)


class Child:
    """An engine in a process of its own, as a run has it. start: seconds until it was ready."""

    def __init__(self, config: EngineConfig) -> None:
        self.engine = ChildEngine("vllm", environment(runs_on_cpu()))
        self.start = self.engine.start(config)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()


@dataclass
class Way:
    """One way of doing the same work. run: gives back the replies. forget: empties the cache of prompts.

    start: seconds until its engine was ready, where it has one of its own. seconds: of each round.
    """

    name: str
    run: Callable[[], Iterable[Completion]]
    forget: Callable[[], None]
    start: float | None = None
    seconds: list[float] = field(default_factory=list)
    replies: dict[str, Completion] = field(default_factory=dict)

    def tokens(self, side: str) -> int:
        """``prompt``, ``cached`` or ``output``."""
        return sum(getattr(reply, f"{side}_tokens") for reply in self.replies.values())


def asking(name: str, child: Child, requests: Sequence[Request]) -> Way:
    """The requests, as they are, to an engine of its own."""
    return Way(name, lambda: child.engine.generate(requests), child.engine.forget_prompts, child.start)


def take_turns(title: str, ways: Sequence[Way], rounds: int) -> list[Row]:
    """Each way once a round, after one that does not count. Gives back rows that compare with the first way."""
    for number in range(rounds + 1):
        for way in ways:
            way.forget()
            begin = time.perf_counter()
            way.replies = {reply.key: reply for reply in way.run()}
            seconds = time.perf_counter() - begin
            counts = "" if number else " (does not count)"
            print(f"{title}, {way.name}: {seconds:.2f} s{counts}", file=sys.stderr, flush=True)
            if number:
                way.seconds.append(seconds)
    own = ways[0]
    return [
        Row(
            title,
            way.name,
            len(way.replies),
            way.tokens("prompt"),
            way.tokens("cached"),
            way.tokens("output"),
            way.start,
            statistics.median(way.seconds),
            min(way.seconds),
            max(way.seconds),
            statistics.median(way.seconds) / statistics.median(own.seconds),
            sum(way.replies[key].text != own.replies[key].text for key in own.replies),
        )
        for way in ways
    ]


@dataclass(frozen=True)
class Row:
    """What one way took. other_texts: replies that are not those of the way it is compared with."""

    what: str
    way: str
    rows: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    start: float | None
    seconds: float
    least: float
    most: float
    ratio: float
    other_texts: int


def as_table(rows: Sequence[Row]) -> str:
    """For people."""
    header = ["", "rows", "prompt", "cached", "output", "start s", "work s", "least", "most", "ratio", "other texts"]
    return table(header, [_cells(row) for row in rows])


def _cells(row: Row) -> list[str]:
    counts = (row.rows, row.prompt_tokens, row.cached_tokens, row.output_tokens)
    start = "" if row.start is None else f"{row.start:.1f}"
    seconds = (row.seconds, row.least, row.most, row.ratio)
    name = f"{row.what}: {row.way}"
    return [name, *(f"{n:,}" for n in counts), start, *(f"{s:.2f}" for s in seconds), f"{row.other_texts:,}"]

"""One model over all datasets of a config: prompts -> an engine -> run folders -> scores and reports.

Everything that can be refused is refused before an engine is asked for. Knows nothing about other models.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from localeval import identity, record
from localeval.config import TaskConfig
from localeval.datasets.rows import odd_rows
from localeval.engines.base import Engine
from localeval.engines.successive import Serving
from localeval.jobs import load_jobs, settings_digest
from localeval.model import Model, context_of, for_mode
from localeval.noise import measure, pieces_of
from localeval.plan import Plan, keyed, plan_replay, plan_requests
from localeval.progress import say, track, warn
from localeval.schema import Completion, LocalevalError, Request, RunFailed
from localeval.scoring import Run, finish
from localeval.store import RunFolder, find_predictions, read_predictions

Start = Callable[[Model, Sequence[Plan], Sequence[Request]], tuple[Engine, Serving | None]]
"""Makes an engine ready for a model: all that the model is asked, and what of it is left to ask."""


@dataclass(slots=True)
class _Clock:
    """Seconds of each phase."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.monotonic() - start, 3)


class Evaluation:
    """The datasets of a config, read once, to be asked of one model after another."""

    def __init__(self, config: TaskConfig) -> None:
        """Reads and checks the datasets. Raises LocalevalError."""
        self.config = config
        self._clock = _Clock()
        with self._clock.phase("prepare"):
            self.jobs = load_jobs(config)
        for line in dict.fromkeys(line for job in self.jobs for line in odd_rows(job.dataset)):
            warn(line)
        self._prompts: tuple[str, list[Plan]] = ("", [])

    def of(self, model: Model, config: TaskConfig, start: Start) -> tuple[tuple[Run, ...], Serving | None]:
        """Asks a model what earlier runs have left open, and scores. config: that of this model alone.

        Gives back one run a dataset and mode, and how the engine came to serve the model; None where nothing was left.
        Raises LocalevalError for what is wrong, RunFailed for work that could not be finished.
        """
        clock = _Clock(dict(self._clock.seconds))
        with clock.phase("prepare"):
            models = [for_mode(model, job, config) for job in self.jobs]
            plans = self._plans(models, config)
        with ExitStack() as stack:
            folders = [_folder(plan, config, asked) for plan, asked in zip(plans, models, strict=True)]
            for folder in folders:
                stack.callback(folder.close)
            replies, reused = _take_over(plans, folders, config)
            software = record.software()
            records = [
                {**_made_before(folder), **record.run_record(config, plan, asked, count), **software}
                for plan, folder, asked, count in zip(plans, folders, models, reused, strict=True)
            ]
            for folder, facts in zip(folders, records, strict=True):
                folder.write_json("run.json", {**facts, "complete": False})
            asking = _Asking(plans, folders, replies, clock)
            made, serving = asking.answer(model, start, config.noise or 1)
            runs = []
            for index, (plan, folder) in enumerate(zip(plans, folders, strict=True)):
                facts = {**records[index], **made, **record.token_counts(replies_of(plan, replies))}
                with clock.phase("score"):
                    run = finish(plan.job, folder, replies_of(plan, replies), facts)
                    if asking.again:
                        again = [replies_of(plan, replies), *(replies_of(plan, each) for each in asking.again)]
                        run = replace(run, noise=measure(plan.job, folder, again, facts))
                runs.append(run)
                folder.write_json("run.json", {**facts, "seconds": clock.seconds, "complete": True})
                say(f"{plan.job.title}: written to {folder.path}")
        return tuple(runs), serving

    def _plans(self, models: Sequence[Model], config: TaskConfig) -> list[Plan]:
        """Checkpoints with one tokenizer are asked the same: their prompts are built once."""
        weights = models[0].weights
        if weights is None:
            return [plan_replay(job, models[0].fingerprint) for job in self.jobs]
        context = context_of(config, weights)
        tokenizer = {name: value for name, value in models[0].frame.items() if not name.startswith("config.json ")}
        same = identity.digest_of([context, tokenizer, [dict(model.identity) for model in models]])
        if self._prompts[0] != same:
            plans = []
            for job, model in zip(self.jobs, models, strict=True):
                assert model.prompter is not None  # whoever has weights has a tokenizer
                plans.append(plan_requests(job, config, model.prompter, context))
            self._prompts = (same, plans)
            for plan in plans:
                if plan.dropped_shots:
                    warn(
                        f"{plan.job.title}: {plan.dropped_shots} prompts lost shots to fit the model's {context} tokens"
                    )
                for warning in plan.warnings:
                    warn(f"{plan.job.title}: {warning}")
        return [
            keyed(plan, model.fingerprint, model.identity) for plan, model in zip(self._prompts[1], models, strict=True)
        ]


def _made_before(folder: RunFolder) -> dict[str, Any]:
    """What an earlier run of the folder said of where its replies were made."""
    try:
        facts = folder.read_json("run.json")
    except LocalevalError:  # there was none, or it was cut: it is written anew
        return {}
    return {name: facts[name] for name in ("engine", "hardware", "served") if name in facts}


def replies_of(plan: Plan, replies: Mapping[str, Completion]) -> list[Completion]:
    """A plan's replies in the order of its samples. Raises RunFailed where one is missing."""
    missing = [request.sample_id for request in plan.requests if request.key not in replies]
    if missing:
        raise RunFailed(f"{plan.job.title}: {len(missing)} replies are missing, the first of {missing[0]}")
    return [replies[request.key] for request in plan.requests]


# --- folders and replies ---


def _folder(plan: Plan, config: TaskConfig, model: Model) -> RunFolder:
    digest = settings_digest(plan.job, config, model.identity)
    name = f"{model.name}-{identity.short(model.fingerprint)}"
    return RunFolder(Path(config.work_dir) / name / f"{plan.job.name}-{identity.short(digest)}")


def _take_over(
    plans: list[Plan], folders: list[RunFolder], config: TaskConfig
) -> tuple[dict[str, Completion], list[int]]:
    """The replies that earlier runs have left, by key, and how many each plan has of them."""
    replies: dict[str, Completion] = {}
    cached: dict[str, Completion] = {}
    if config.use_cache is not None:
        cached = {row.key: row for path in find_predictions(Path(config.use_cache)) for row in read_predictions(path)}
    reused = []
    for plan, folder in zip(plans, folders, strict=True):
        wanted = {request.key for request in plan.requests}
        found = {row.key: row for row in folder.open(wanted)}
        for key in wanted - set(found):
            if key in cached:
                folder.append(cached[key])
                found[key] = cached[key]
        replies |= found
        reused.append(len(found))
        if found:
            say(f"{plan.job.title}: {len(found):,} of {len(plan.requests):,} replies reused from an earlier run")
    return replies, reused


class _Asking:
    """What is left to ask of one model, and where each reply goes."""

    def __init__(
        self, plans: Sequence[Plan], folders: Sequence[RunFolder], replies: dict[str, Completion], clock: _Clock
    ) -> None:
        self._plans, self._folders, self._replies, self._clock = plans, folders, replies, clock
        self._requests = [request for plan in plans for request in plan.requests]
        self.again: list[dict[str, Completion]] = []
        """The replies of each further time, by key."""

    def answer(self, model: Model, start: Start, times: int) -> tuple[dict[str, Any], Serving | None]:
        """Asks what is not answered yet, and all of it again where it is asked several times.

        Each reply is in its folder before the next is waited for. Gives back what run.json says of the engine; nothing
        where none was needed.
        """
        with ExitStack() as stack:
            rounds = [(self._folders, self._replies), *(self._round(number, stack) for number in range(2, times + 1))]
            left = [[r for r in self._requests if r.key not in replies] for _, replies in rounds]
            self.again = [replies for _, replies in rounds[1:]]
            if not any(left):
                return {}, None
            with self._clock.phase("start"):
                engine, serving = start(model, self._plans, [request for each in left for request in each])
            for number, ((folders, replies), requests) in enumerate(zip(rounds, left, strict=True), 1):
                if requests:
                    if number > 1:
                        engine.forget_prompts()
                    what = "replies" if times == 1 else f"replies, time {number} of {times}"
                    self._ask(engine, pieces_of(requests, number), folders, replies, what)
            served = {"served": asdict(serving)} if serving else {}
            return {"engine": dict(engine.settings()), "hardware": record.hardware(), **served}, serving

    def _round(self, number: int, stack: ExitStack) -> tuple[list[RunFolder], dict[str, Completion]]:
        """The folders of a further time, and what is in them already."""
        folders: list[RunFolder] = []
        replies: dict[str, Completion] = {}
        for plan, folder in zip(self._plans, self._folders, strict=True):
            inside = RunFolder(folder.path / "noise" / str(number))
            stack.callback(inside.close)
            replies |= {row.key: row for row in inside.open({request.key for request in plan.requests})}
            folders.append(inside)
        return folders, replies

    def _ask(
        self,
        engine: Engine,
        pieces: Sequence[Sequence[Request]],
        folders: Sequence[RunFolder],
        replies: dict[str, Completion],
        what: str,
    ) -> None:
        home = {r.key: folder for plan, folder in zip(self._plans, folders, strict=True) for r in plan.requests}
        count, done = sum(map(len, pieces)), 0
        answers = itertools.chain.from_iterable(map(engine.generate, pieces))
        try:
            with self._clock.phase("generate"):
                for completion in track(answers, count, what):
                    home[completion.key].append(completion)
                    replies[completion.key] = completion
                    done += 1
        except KeyboardInterrupt:
            say(f"interrupted: {done:,} of {count:,} replies are kept; the same command goes on from there")
            raise

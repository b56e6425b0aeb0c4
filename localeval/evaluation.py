"""One model over all datasets of a config: prompts -> one stream through an engine -> run folders, scores, reports.

Everything that can be refused is refused before an engine is asked for. Knows nothing about other models.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from localeval import identity, record
from localeval.config import TaskConfig
from localeval.datasets.rows import doubts, odd_rows
from localeval.engines.base import Engine
from localeval.engines.successive import Serving
from localeval.forcing import second_request, with_answers
from localeval.jobs import load_jobs, settings_digest
from localeval.model import Model, context_of, for_mode
from localeval.noise import measure, pieces_of
from localeval.order import arranged
from localeval.plan import Plan, keyed, plan_replay, plan_requests, prompt_texts
from localeval.progress import LATE, say, track, warn
from localeval.prompts import vocabulary_of
from localeval.receiving import Force, Received, Receiver, Tokens
from localeval.samples import AskedSample, written_beside
from localeval.schema import Completion, LocalevalError, Request
from localeval.scoring import Run, finish, judge_of, write_report
from localeval.store import FORCED, RunFolder, find_predictions, read_predictions

Start = Callable[[Model, Sequence[Request], Sequence[Request]], tuple[Engine, Serving | None]]
"""Makes an engine ready for a model: all that the model is asked, and what of it is left to ask, both in its order."""


@dataclass(slots=True)
class _Clock:
    """Seconds of each phase, one after another: what the phases before have not waited for."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.monotonic() - start, 3)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a job will ask of a model, prompted as its mode needs it, and the run folder, which is not touched yet."""

    plan: Plan
    model: Model
    folder: RunFolder


class Evaluation:
    """The datasets of a config, read once, to be asked of one model after another."""

    def __init__(self, config: TaskConfig) -> None:
        """Reads and checks the datasets. Raises LocalevalError."""
        self.config = config
        self._clock = _Clock()
        with self._clock.phase("prepare"):
            self.jobs = load_jobs(config)
        for line in dict.fromkeys(line for job in self.jobs for line in [*doubts(job.dataset), *odd_rows(job.dataset)]):
            warn(line)
        self._prompts: tuple[str, list[Plan]] = ("", [])

    def of(self, find: Callable[[], Model], config: TaskConfig, start: Start) -> tuple[tuple[Run, ...], Serving | None]:
        """Asks a model what earlier runs have left open, and scores. config: that of this model alone.

        Gives back one run a dataset and mode, and how the engine came to serve the model; None where nothing was left.
        Raises LocalevalError for what is wrong, RunFailed for work that could not be finished.
        """
        clock = _Clock(dict(self._clock.seconds))
        with ExitStack() as stack:
            with clock.phase("prepare"):
                model = find()
                prepared = self.prepare(model, config)
                plans, models = [each.plan for each in prepared], [each.model for each in prepared]
                folders = [each.folder for each in prepared]
                for folder in folders:
                    stack.callback(folder.close)
                judges = [
                    judge_of(job, record.read_as(asked, config)) for job, asked in zip(self.jobs, models, strict=True)
                ]
                forces = [_force(*each) for each in zip(plans, models, strict=True)]
                receiver = stack.enter_context(Receiver(plans, folders, judges, forces))
                found = _take_over(receiver, config)
                software = record.software()
                records = [
                    {**_made_before(folder), **record.run_record(config, plan, asked, len(keys)), **software}
                    for plan, folder, asked, keys in zip(plans, folders, models, found, strict=True)
                ]
                for folder, facts in zip(folders, records, strict=True):
                    folder.write_json("run.json", {**facts, "complete": False})
            asking = _Asking(receiver, found, clock)
            samples = [_asked(*each) for each in zip(plans, models, strict=True)]
            with written_beside(list(zip(folders, samples, strict=True))):
                made, serving = asking.answer(model, start, config.noise or 1)
            return _results(receiver, asking.again, [facts | made for facts in records], clock), serving

    def prepare(self, model: Model, config: TaskConfig) -> list[Prepared]:
        """All that is known before an engine is needed, one a job. Raises LocalevalError; writes nothing."""
        models = [for_mode(model, job, config) for job in self.jobs]
        plans = self._plans(models, config)
        return [Prepared(plan, asked, _folder(plan, config, asked)) for plan, asked in zip(plans, models, strict=True)]

    def _plans(self, models: Sequence[Model], config: TaskConfig) -> list[Plan]:
        """Checkpoints with one tokenizer are asked the same: their prompts are built once."""
        weights = models[0].weights
        if weights is None:
            replayed = [plan_replay(job, models[0].fingerprint) for job in self.jobs]
            return [with_answers(plan, None, None) if config.force_answer else plan for plan in replayed]
        context = context_of(config, weights)
        vocabulary = vocabulary_of(weights.folder, config.model_args.trust_remote_code)
        tokenizer = {name: value for name, value in models[0].frame.items() if not name.startswith("config.json ")}
        same = identity.digest_of([context, vocabulary, tokenizer, [dict(model.identity) for model in models]])
        if self._prompts[0] != same:
            plans = []
            for job, model in zip(self.jobs, models, strict=True):
                assert model.prompter is not None  # whoever has weights has a tokenizer
                plan = plan_requests(job, config, model.prompter, context, vocabulary)
                plans.append(with_answers(plan, model.prompter, context) if config.force_answer else plan)
            self._prompts = (same, plans)
            for plan in plans:
                if lost := len(plan.fewer_shots):
                    warn(f"{plan.job.title}: {lost} prompts lost shots to fit the model's {context} tokens")
                for warning in plan.warnings:
                    warn(f"{plan.job.title}: {warning}")
        return [
            keyed(plan, model.fingerprint, model.identity) for plan, model in zip(self._prompts[1], models, strict=True)
        ]


def _asked(plan: Plan, model: Model) -> Iterator[AskedSample]:
    texts = prompt_texts(plan, model.prompter)
    for sample, text in zip(plan.job.dataset.samples, texts, strict=True):
        yield AskedSample(sample, text, rendered=model.prompter is not None)


def _force(plan: Plan, model: Model) -> Force | None:
    """How an unread reply is asked once more; None where it is not."""
    return None if plan.answers is None else functools.partial(second_request, plan, model.prompter)


def _made_before(folder: RunFolder) -> dict[str, Any]:
    """What an earlier run of the folder said of where its replies were made."""
    try:
        facts = folder.read_json("run.json")
    except LocalevalError:  # there was none, or it was cut: it is written anew
        return {}
    return {name: facts[name] for name in ("engine", "hardware", "served") if name in facts}


def _results(
    receiver: Receiver, again: Sequence[Receiver], records: Sequence[dict[str, Any]], clock: _Clock
) -> tuple[Run, ...]:
    """Scores and reports of what was received. again: the further times. records: run.json of each job as it is."""
    runs = []
    with clock.phase("score"):
        receiver.finish()
        for each in receiver.jobs:
            each.folder.sync()
        for index, (job, facts) in enumerate(zip(receiver.jobs, records, strict=True)):
            times = [job, *(each.jobs[index] for each in again)]
            facts["tokens"] = asdict(sum((each.tokens for each in times), Tokens()))
            if job.force is not None:
                facts["forced_tokens"] = asdict(job.forced_tokens)
            run = finish(job.plan.job, job.folder, job.whole(), facts)
            if again:
                run = replace(run, noise=measure(job.plan.job, job.folder, times))
            runs.append(run)
    seconds = {**clock.seconds, "beside": round(sum(each.seconds for each in (receiver, *again)), 3)}
    for run, job, facts in zip(runs, receiver.jobs, records, strict=True):
        facts |= {"seconds": seconds, "complete": True}
        write_report(job.folder, run.report, facts)
        job.folder.write_json("run.json", facts)
        say(f"{job.plan.job.title}: written to {job.folder.path}; report.html is its page")
    if "generate" in seconds:
        say(record.effort_line(records))
    return tuple(runs)


# --- folders and replies ---


def _folder(plan: Plan, config: TaskConfig, model: Model) -> RunFolder:
    digest = settings_digest(plan.job, config, model.identity)
    name = f"{model.name}-{identity.short(model.fingerprint)}"
    return RunFolder(Path(config.work_dir) / name / f"{plan.job.name}-{identity.short(digest)}")


def _take_over(receiver: Receiver, config: TaskConfig) -> list[set[str]]:
    """Hands over the replies that earlier runs have left; gives back their keys, one set a job."""
    if config.use_cache is not None and any(job.force is not None for job in receiver.jobs):
        forced = [file.with_name(FORCED) for file in find_predictions(Path(config.use_cache))]
        offered = {row.key: (row, False) for file in forced if file.is_file() for row in read_predictions(file)}
        for job in receiver.jobs:
            job.answers |= offered
    found = [_open(receiver, job) for job in receiver.jobs]
    if config.use_cache is not None:
        homes = {
            request.key: keys for job, keys in zip(receiver.jobs, found, strict=True) for request in job.plan.requests
        }
        for row in _offered(config.use_cache):
            keys = homes.get(row.key)
            if keys is not None and row.key not in keys:
                keys.add(row.key)
                receiver.put(row)
    for job, keys in zip(receiver.jobs, found, strict=True):
        if keys:
            count = len(job.plan.requests)
            say(f"{job.plan.job.title}: {len(keys):,} of {count:,} replies reused from an earlier run")
    return found


def _offered(use_cache: str) -> Iterator[Completion]:
    for path in find_predictions(Path(use_cache)):
        yield from read_predictions(path)


def answered(prepared: Sequence[Prepared], config: TaskConfig) -> list[set[str]]:
    """The keys that need not be asked, one set a job, as a run would find them; nothing is locked or written."""
    wanted = [{request.key for request in each.plan.requests} for each in prepared]
    found = [{row.key for row in each.folder.rows()} & keys for each, keys in zip(prepared, wanted, strict=True)]
    if config.use_cache is not None:
        offered = {row.key for row in _offered(config.use_cache)}
        found = [keys | (offered & all_of_it) for keys, all_of_it in zip(found, wanted, strict=True)]
    return found


def _open(receiver: Receiver, job: Received) -> set[str]:
    keys = job.folder.open({request.key for request in job.plan.requests}, forced=job.force is not None)
    if job.force is not None:
        job.answers |= {row.key: (row, True) for row in job.folder.forced_rows()}
    rows = track(job.folder.rows(), len(keys), f"{job.plan.job.title}: reading earlier replies", LATE)
    for row in rows if keys else ():
        receiver.put(row, written=True)
    return keys


class _Asking:
    """What is left to ask of one model, as one stream."""

    def __init__(self, receiver: Receiver, found: Sequence[set[str]], clock: _Clock) -> None:
        """found: the keys that are answered, one set a job."""
        self._receiver, self._clock = receiver, clock
        self._requests = arranged([request for job in receiver.jobs for request in job.plan.requests])
        self._found = set().union(*found)
        self.again: list[Receiver] = []
        """The replies of each further time."""

    def answer(self, model: Model, start: Start, times: int) -> tuple[dict[str, Any], Serving | None]:
        """Asks what is not answered yet, and all of it again where it is asked several times.

        Gives back what run.json says of the engine; nothing where none was needed.
        """
        with ExitStack() as stack:
            rounds = [(self._receiver, self._found)]
            rounds += [self._round(number, stack) for number in range(2, times + 1)]
            self.again = [receiver for receiver, _ in rounds[1:]]
            left = [[r for r in self._requests if r.key not in found] for _, found in rounds]
            left[0] = [*self._receiver.pending(), *left[0]]
            if not any(left):
                return {}, None
            with self._clock.phase("start"):
                engine, serving = start(model, self._requests, [request for each in left for request in each])
            for number, ((receiver, _), requests) in enumerate(zip(rounds, left, strict=True), 1):
                if requests:
                    if number > 1:
                        engine.forget_prompts()
                    what = "replies" if times == 1 else f"replies, time {number} of {times}"
                    self._ask(engine, pieces_of(requests, number), receiver, what)
            settings = dict(engine.settings())
            hardware = record.hardware(settings.pop("gpus", ()))
            served = {"served": asdict(serving)} if serving else {}
            return {"engine": settings, "hardware": hardware, **served}, serving

    def _round(self, number: int, stack: ExitStack) -> tuple[Receiver, set[str]]:
        """A further time: its folders, and what is in them already."""
        jobs = self._receiver.jobs
        folders = [RunFolder(job.folder.path / "noise" / str(number)) for job in jobs]
        for folder in folders:
            stack.callback(folder.close)
        receiver = stack.enter_context(Receiver([job.plan for job in jobs], folders, [job.judge for job in jobs]))
        return receiver, set().union(*(_open(receiver, job) for job in receiver.jobs))

    def _ask(self, engine: Engine, pieces: Sequence[Sequence[Request]], receiver: Receiver, what: str) -> None:
        count = sum(map(len, pieces))
        answers = itertools.chain.from_iterable(receiver.ask(engine.generate, piece) for piece in pieces)
        try:
            with self._clock.phase("generate"):
                for _ in track(answers, count, what):
                    pass  # the receiver has it
        except KeyboardInterrupt:
            receiver.finish()
            forced = f", and {receiver.forced_written:,} forced answers" if receiver.forced_written else ""
            say(f"{receiver.written:,} of {count:,} replies are kept{forced}")
            raise

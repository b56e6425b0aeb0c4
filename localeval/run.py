"""The only conductor: config -> datasets, weights, prompts -> engine -> run folders -> scores and reports.

Everything that can be refused is refused before an engine starts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from localeval import identity, record
from localeval.config import TaskConfig, load_config, load_models
from localeval.datasets.rows import odd_rows
from localeval.engines.base import Engine, EngineConfig, choose_engine, start_engine
from localeval.engines.replay import ReplayEngine
from localeval.jobs import Job, load_jobs, settings_digest
from localeval.offline import go_offline
from localeval.plan import Plan, plan_replay, plan_requests
from localeval.progress import say, track, warn
from localeval.prompts import Prompter, context_length
from localeval.record import Model
from localeval.report.text import console_text
from localeval.schema import Completion, LocalevalError, Request, RunFailed
from localeval.scoring import RunResult, finish
from localeval.store import RunFolder, find_predictions, read_predictions
from localeval.weights import Weights, find_weights, safe_name


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


def run_task(config: TaskConfig | Mapping[str, Any] | str | Path) -> RunResult:
    """Runs a config (a TaskConfig, a mapping, or the path of a YAML file) and returns its scores and run folders.

    What an earlier run of the same command has left is taken over, row by row. Raises LocalevalError for what is wrong
    with the command, its data or its model, RunFailed for work that could not be finished.
    """
    go_offline()
    parsed = load_config(config).with_absolute_paths()
    clock = _Clock()
    with clock.phase("prepare"):
        jobs = load_jobs(parsed)
        for line in dict.fromkeys(line for job in jobs for line in odd_rows(job.dataset)):
            warn(line)
        model, replay = _find_model(parsed, jobs)
        models = [_for_mode(model, job, parsed) for job in jobs]
        plans = [_plan(job, parsed, asked) for job, asked in zip(jobs, models, strict=True)]
    with ExitStack() as stack:
        folders = [_folder(plan, parsed, asked) for plan, asked in zip(plans, models, strict=True)]
        for folder in folders:
            stack.callback(folder.close)
        replies, reused = _take_over(plans, folders, parsed)
        software = record.software()
        records = [
            {**_made_before(folder), **record.run_record(parsed, plan, asked, count), **software}
            for plan, folder, asked, count in zip(plans, folders, models, reused, strict=True)
        ]
        for folder, facts in zip(folders, records, strict=True):
            folder.write_json("run.json", {**facts, "complete": False})
        settings = _answer(plans, folders, replies, parsed, model, replay, clock)
        made = {"engine": settings, "hardware": record.hardware()} if settings else {}
        runs = []
        for plan, folder, facts in zip(plans, folders, records, strict=True):
            answered = replies_of(plan, replies)
            with clock.phase("score"):
                runs.append(finish(plan.job, folder, answered, facts))
            tokens = record.token_counts(answered)
            folder.write_json("run.json", {**facts, **made, **tokens, "seconds": clock.seconds, "complete": True})
            say(f"{plan.job.title}: written to {folder.path}")
    return RunResult(tuple(runs), console_text([run.report for run in runs]))


def _made_before(folder: RunFolder) -> dict[str, Any]:
    """What an earlier run of the folder said of where its replies were made."""
    try:
        facts = folder.read_json("run.json")
    except LocalevalError:  # there was none, or it was cut: it is written anew
        return {}
    return {name: facts[name] for name in ("engine", "hardware") if name in facts}


def replies_of(plan: Plan, replies: Mapping[str, Completion]) -> list[Completion]:
    """A plan's replies in the order of its samples. Raises RunFailed where one is missing."""
    missing = [request.sample_id for request in plan.requests if request.key not in replies]
    if missing:
        raise RunFailed(f"{plan.job.title}: {len(missing)} replies are missing, the first of {missing[0]}")
    return [replies[request.key] for request in plan.requests]


# --- who answers ---

# Engine arguments that change how fast replies come, and nothing else.
_SPEED_ONLY = {
    "gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "enforce_eager", "swap_space",
    "enable_prefix_caching", "disable_log_stats", "block_size", "batch_size", "device", "tensor_parallel_size",
    "pipeline_parallel_size", "use_tqdm_on_load", "kv_cache_memory_bytes",
}  # fmt: skip


def _find_model(config: TaskConfig, jobs: Sequence[Job]) -> tuple[Model, ReplayEngine | None]:
    if config.engine.startswith("replay:"):
        path = Path(config.engine.removeprefix("replay:"))
        names = {job.name for job in jobs}
        if len(names) < len(jobs):
            raise LocalevalError(f"--engine replay:{path} holds one reply to a sample: name one way with --mcq")
        engine = ReplayEngine(path, len(names))
        name = safe_name(config.model or path.stem)
        return Model(name, identity.file_digest(path), {"engine": "replay"}), engine
    kind = choose_engine(config.engine)
    if kind == "transformers" and config.engine == "auto":
        warn("vLLM is not installed: replies come from transformers, which is much slower")
    pickles = config.engine_args.get("load_format") == "pt"
    weights = find_weights(config.model, load_models(config.models), config.model_args.revision, say, pickles=pickles)
    engine_args = {**weights.engine_args, **config.engine_args}
    numerics = {name: value for name, value in engine_args.items() if name not in _SPEED_ONLY}
    prompter = Prompter(
        weights.folder,
        thinking=config.thinking,
        template_args={**weights.chat_template_args, **config.chat_template_args},
        trust_remote_code=config.model_args.trust_remote_code,
    )
    for warning in prompter.warnings:
        warn(warning)
    seen_as = {
        "engine": kind,
        "dtype": config.model_args.dtype,
        "engine_args": numerics,
        "template_args": prompter.template_args,
    }
    return Model(weights.name, weights.fingerprint, seen_as, weights, prompter), None


def _for_mode(model: Model, job: Job, config: TaskConfig) -> Model:
    """The same weights, prompted as the mode needs it. Raises LocalevalError where the chat template is in its way.

    Reasoning is off by default where an answer has one form; asked for, it is left free before a constrained reply.
    """
    prompter = model.prompter
    if prompter is None or job.mode == "generate":
        return model
    if job.mode == "cloze":
        prompter = prompter.without_template()
    elif config.thinking is None:
        prompter = prompter.without_thinking()
    if prompter.thinking == "on" and job.mode == "logprob":
        raise LocalevalError(
            f"{job.title}: --mcq logprob looks at the first token of the answer, and the chat template of {model.name} "
            "begins with reasoning; "
            + (
                "leave out --thinking on"
                if config.thinking == "on"
                else "it can't be switched off: ask with --mcq generate"
            )
        )
    if prompter.thinking == "on" and job.mode == "constrained" and config.thinking != "on":
        raise LocalevalError(
            f"{job.title}: --constrain, and the chat template of {model.name} begins with reasoning that can't be "
            "switched off; leave the reasoning free with --thinking on, or take --constrain away"
        )
    return replace(model, prompter=prompter, identity={**model.identity, "template_args": prompter.template_args})


def _plan(job: Job, config: TaskConfig, model: Model) -> Plan:
    if model.weights is None or model.prompter is None:
        return plan_replay(job, model.fingerprint)
    context = _context(config, model.weights)
    plan = plan_requests(job, config, model.prompter, context, model.fingerprint, model.identity)
    if plan.dropped_shots:
        warn(f"{job.title}: {plan.dropped_shots} prompts lost shots to fit the model's {context} tokens")
    for warning in plan.warnings:
        warn(f"{job.title}: {warning}")
    return plan


def _context(config: TaskConfig, weights: Weights) -> int | None:
    """The most tokens a prompt and its reply can have: the user's word, else the model's."""
    said = {**weights.engine_args, **config.engine_args}.get("max_model_len")
    if said is not None and not isinstance(said, int):
        raise LocalevalError(f"engine_args max_model_len is {said!r}; expected a whole number")
    return said if said is not None else context_length(weights.folder, config.model_args.trust_remote_code)


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


def _answer(
    plans: list[Plan],
    folders: list[RunFolder],
    replies: dict[str, Completion],
    config: TaskConfig,
    model: Model,
    replay: ReplayEngine | None,
    clock: _Clock,
) -> Mapping[str, Any]:
    """Asks what is not answered yet; each reply is in its folder before the next is waited for.

    Gives back the engine's settings, empty where no engine was needed.
    """
    pending = [request for plan in plans for request in plan.requests if request.key not in replies]
    if not pending:
        return {}
    home = {request.key: folder for plan, folder in zip(plans, folders, strict=True) for request in plan.requests}
    with clock.phase("start"):
        engine = _start(config, model, replay, pending)
    try:
        with clock.phase("generate"):
            for completion in track(engine.generate(pending), len(pending), "replies"):
                home[completion.key].append(completion)
                replies[completion.key] = completion
        return engine.settings()
    except KeyboardInterrupt:
        done = sum(request.key in replies for request in pending)
        say(f"interrupted: {done:,} of {len(pending):,} replies are kept; the same command goes on from there")
        raise
    finally:
        engine.close()


def _start(config: TaskConfig, model: Model, replay: ReplayEngine | None, pending: list[Request]) -> Engine:
    if replay is not None:
        replay.check(pending)
        return replay
    assert model.weights is not None  # a model that is not replayed has weights
    kind = model.identity["engine"]
    say(f"{kind}: loading {model.name} for {len(pending):,} requests")
    return start_engine(
        kind,
        EngineConfig(
            folder=model.weights.folder,
            max_model_len=max(request.length for request in pending),
            dtype=config.model_args.dtype,
            seed=config.seed,
            logprobs=config.logprobs,
            constrained=any(request.constraint is not None for request in pending),
            trust_remote_code=config.model_args.trust_remote_code,
            engine_args={**model.weights.engine_args, **config.engine_args},
        ),
    )

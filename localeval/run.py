"""The only conductor: config -> models, one after another -> an engine for each -> runs, and what they are together."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from localeval.checkpoints import ADAPTER_CONFIG, Checkpoint, checkpoints_in, find_checkpoints
from localeval.config import TaskConfig, load_config
from localeval.engines.base import Cluster, Engine, EngineConfig, choose_engine, many
from localeval.engines.restart import Restarted
from localeval.engines.sizing import work_of
from localeval.engines.successive import Serving, Successive
from localeval.evaluation import Evaluation
from localeval.identity import refuse_changed
from localeval.model import Model, find_model, find_replay, sources_of
from localeval.model_names import load_models
from localeval.offline import go_offline
from localeval.progress import say, warn
from localeval.schema import LocalevalError, Request, RunFailed
from localeval.scoring import RunResult, find_baseline, runs_text
from localeval.series import Outcome, Series
from localeval.weights import Adapter, Weights, read_adapter, refuse_unknown


def run_task(config: TaskConfig | Mapping[str, Any] | str | Path) -> RunResult:
    """Runs a config (a TaskConfig, a mapping, or the path of a YAML file) and returns its scores and run folders.

    What an earlier run of the same command has left is taken over, row by row. Raises LocalevalError for what is wrong
    with the command, its data or its model, RunFailed for work that could not be finished. Of several models, one that
    fails is among the result's ``failed`` with its reason, and the others run.
    """
    go_offline()
    parsed = load_config(config).with_absolute_paths()
    if parsed.engine.startswith("replay:"):
        refuse_alone(parsed)
        return _replayed(Evaluation(parsed))
    checkpoints = find_checkpoints(parsed.asked_models, load_models(parsed.models))
    if len(checkpoints) == 1:
        refuse_alone(parsed)
    with Engines(parsed, checkpoints) as engines:
        engines.expect()  # it loads its libraries while data is read and prompts are made
        return _run(Evaluation(parsed), checkpoints, engines)


def _run(evaluation: Evaluation, checkpoints: Sequence[Checkpoint], engines: Engines) -> RunResult:
    parsed = evaluation.config
    if len(checkpoints) > 1:
        refuse_together(parsed, checkpoints)
        series = Series(parsed, [each.series or each.asked for each in checkpoints])
        succession = Succession(evaluation, series, engines, len(checkpoints))
        for checkpoint in checkpoints:
            succession.evaluate(checkpoint)
        return series.result()
    (only,) = checkpoints
    if only.folder is not None and (inside := checkpoints_in(only.folder)):
        say(f"{only.asked} is a model itself; for what is in it ({inside[0].name} ...), give '{only.asked}/*'")
    find = functools.partial(find_model, parsed, only.asked)
    runs, _ = evaluation.of(find, parsed.of_model(only.asked), engines.start)
    return RunResult(runs, runs_text(runs))


def refuse_alone(config: TaskConfig) -> None:
    """Raises LocalevalError for what compares models where there is one: a gate that lets everything pass is none."""
    asked = [] if config.fail_below_baseline is None else ["--fail-below-baseline"]
    asked += [] if config.baseline in ("first", "best") else [f"--baseline {config.baseline}"]
    if asked:
        raise LocalevalError(
            f"{' and '.join(asked)}: there is one model, and nothing to compare it with; name several, or hold its run "
            "folder against another one afterwards: localeval compare BASELINE_DIR RUN_DIR, with the same options"
        )


def refuse_together(config: TaskConfig, checkpoints: Sequence[Checkpoint]) -> None:
    """Raises LocalevalError for what is wrong with several models, now and not when the others are done."""
    for checkpoint in checkpoints:
        refuse_unknown(checkpoint.asked, sources_of(config))
    if config.baseline not in ("first", "best"):
        find_baseline(config.baseline)


def _replayed(evaluation: Evaluation) -> RunResult:
    config = evaluation.config
    model, replay = find_replay(config, evaluation.jobs)
    successive = Successive()

    def start(_model: Model, asked: Sequence[Request], left: Sequence[Request]) -> tuple[Engine, Serving | None]:
        replay.check(left)
        cluster = _cluster(config)
        if cluster is None:
            return replay, None
        path, args = replay.path.absolute(), config.engine_args
        each = EngineConfig(path, max_model_len=0, work=work_of(asked), cluster=cluster, engine_args=args)
        return successive.serve(many("replay"), each)[0], None

    try:
        runs, _ = evaluation.of(lambda: model, config.of_model("".join(config.asked_models)), start)
    finally:
        replay.close()
        successive.close()
    return RunResult(runs, runs_text(runs))


def _cluster(config: TaskConfig, fewer: bool = False) -> Cluster | None:
    return Cluster(config.cluster, config.replicas, fewer) if config.cluster else None


class Engines:
    """Makes the one engine ready for whatever model comes next; as a context, it is ended when that is left."""

    def __init__(self, config: TaskConfig, checkpoints: Sequence[Checkpoint]) -> None:
        """checkpoints: those that are known beforehand; an engine is started with room for all their adapters."""
        self._config, self._successive = config, Successive()
        self._served = False
        self.asked = False  # whether the engine was asked for the checkpoint that is being evaluated
        self._adapters = list(_adapters(checkpoints, config.base))

    def __enter__(self) -> Engines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def expect(self) -> None:
        """Lets an engine's process begin to load its libraries, unless there is one."""
        self._successive.expect(self._kind(choose_engine(self._config.engine)), self._config.batch_invariant)

    def _kind(self, engine: str) -> str:
        return many(engine) if self._config.cluster else engine

    def start(self, model: Model, asked: Sequence[Request], left: Sequence[Request]) -> tuple[Engine, Serving | None]:
        """An engine with the model's weights, made for all that the model is asked."""
        self.asked = True
        weights = model.weights
        assert weights is not None  # a model that is not replayed has weights
        kind, config = str(model.identity["engine"]), self._config
        say(f"{kind}: loading {model.name} for {len(left):,} requests")
        adapters = self._over(weights)
        engine_config = EngineConfig(
            folder=weights.folder,
            fingerprint=weights.folder_fingerprint,
            max_model_len=max(request.length for request in asked),
            tokenizer=weights.tokenizer,
            adapter=weights.adapter.folder if weights.adapter else None,
            adapter_fingerprint=weights.fingerprint if weights.adapter else "",
            frame=model.frame,
            dtype=config.model_args.dtype,
            seed=config.seed,
            logprobs=config.logprobs,
            constrained=any(request.constraint is not None for request in asked),
            lora_rank=max((adapter.rank for adapter in adapters), default=0),
            lora_modules=tuple(sorted({module for adapter in adapters for module in adapter.modules})),
            batch_invariant=config.batch_invariant,
            trust_remote_code=config.model_args.trust_remote_code,
            pickled=weights.pickled,
            # All of it, also where some is answered: the engine that goes on is the engine that began.
            work=work_of(asked),
            # A draft's check is a batch of another shape, whose rounding differs.
            speculation="off" if config.batch_invariant else config.speculation,
            # One that was there and has gone must not keep the other checkpoints from the rest.
            cluster=_cluster(config, fewer=self._served),
            engine_args={**weights.engine_args, **config.engine_args},
        )
        engine, serving = self._successive.serve(self._kind(kind), engine_config)
        refuse_changed(weights.state, "the engine loaded it")
        self._served = True
        if serving.because:
            say(f"{model.name}: a new engine, for the weights can't go into the one before: {serving.because}")
        return Restarted(self._successive, engine, self._kind(kind), engine_config, weights.state), serving

    def _over(self, weights: Weights) -> list[Adapter]:
        """The adapters that are known to come over the same base model, this one included."""
        if weights.adapter is not None:
            return [weights.adapter, *(each for each in self._adapters if each.base == weights.adapter.base)]
        names = (weights.asked, str(weights.folder))
        return [each for each in self._adapters if each.base in names or str(Path(each.base).resolve()) in names]

    def close(self) -> None:
        """Ends the engine, if there is one."""
        self._successive.close()


def _adapters(checkpoints: Sequence[Checkpoint], base: str | None) -> Iterator[Adapter]:
    for checkpoint in checkpoints:
        if checkpoint.folder is not None and (checkpoint.folder / ADAPTER_CONFIG).is_file():
            with suppress(LocalevalError):  # is said when its turn comes
                yield read_adapter(checkpoint.folder, base)


class Succession:
    """Several checkpoints, one after another: each is evaluated, or recorded with the reason why not."""

    def __init__(self, evaluation: Evaluation, series: Series, engines: Engines, known: int = 0) -> None:
        """known: how many there will be; 0 where that is not known."""
        self.series = series
        self._evaluation, self._engines, self._known = evaluation, engines, known

    def evaluate(self, checkpoint: Checkpoint) -> None:
        """Evaluates one, and writes what is known of all until then."""
        config = self._evaluation.config
        number = len(self.series.outcomes) + 1
        say(f"{checkpoint.label} ({number}{f' of {self._known}' if self._known >= number else ''})")
        self._engines.asked = False
        try:
            self._engines.expect()
            one = config.of_model(checkpoint.asked)
            find = functools.partial(find_model, config, checkpoint.asked)
            runs, serving = self._evaluation.of(find, one, self._engines.start)
            outcome = Outcome(checkpoint, tuple(run.folder for run in runs), serving, runs=runs)
        except (LocalevalError, RunFailed, OSError) as error:  # files go away under a training run's hands
            warn(f"{checkpoint.label} failed: {error}")
            outcome = Outcome(checkpoint, failure=str(error))
            if self._engines.asked:
                self._engines.close()  # in what state it is left is not known
        self.series.add(outcome)

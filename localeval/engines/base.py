"""What an engine is, and how one is chosen and started. Knows nothing about tasks or datasets."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from localeval.engines.sizing import Speculation, Work
from localeval.schema import Completion, LocalevalError, Request, RunFailed, log_probabilities


class Engine(Protocol):
    """Answers requests. Replies come as they finish, in any order, one a request, with the request's key."""

    def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        """Requests are taken as the engine has room for them; a reply is handed on as soon as it is whole.

        None among them says that none is there now, and more may come (``feed.Feed``).
        """
        ...

    def forget_prompts(self) -> None:
        """Empties what is kept of prompts between requests."""
        ...

    def settings(self) -> Mapping[str, Any]:
        """What the engine was started with, for the record."""
        ...

    def close(self) -> None:
        """Frees what the engine holds."""
        ...


RAY = "ray:"
"""What the kind of an engine begins with where there are many of it."""


class EngineDied(RunFailed):
    """An engine's process ended by itself, or was killed; what it was asked can be asked of another."""


class CantSwap(Exception):
    """An engine can't take other weights in place, or can't prove that it has; it must not be used any more."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where many engines are.

    address: of a Ray cluster's head, or ``auto``. number: of engines; None for as many as fit. fewer: whether so many
    as there is room for will do.
    """

    address: str
    number: int | None = None
    fewer: bool = False


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What a local engine is started with.

    folder: the model's. tokenizer: the folder of its tokenizer. adapter: the folder of a LoRA adapter over it, if any.
    fingerprint, adapter_fingerprint: of what is in the folder, which a training run may write anew, and the adapter's.
    frame: what makes two checkpoints differ in more than their numbers (``identity.frame_of``).
    max_model_len: the longest prompt and its reply, in tokens. constrained: whether any request has a constraint.
    lora_rank: the greatest rank of all adapters that the engine will be given; 0 for none. lora_modules: the modules
    that these change.
    trust_remote_code: whether code that comes with the model is run. pickled: the weights are pickles, and may be.
    work: what the engine will be asked, and is set up for. beside: engines that share the machine's memory, this one
    counted. cluster: None for one engine. speculation: whether tokens are drafted from the prompt. cautious: whether an
    engine has died of this work before: half as many sequences at once.
    engine_args: the user's own, which go before anything that is chosen here.
    """

    folder: Path
    max_model_len: int
    fingerprint: str = ""
    tokenizer: Path | None = None
    adapter: Path | None = None
    adapter_fingerprint: str = ""
    frame: Mapping[str, str] = field(default_factory=dict)
    dtype: str | None = None
    seed: int = 0
    logprobs: int = 0
    constrained: bool = False
    lora_rank: int = 0
    lora_modules: tuple[str, ...] = ()
    batch_invariant: bool = False
    trust_remote_code: bool = False
    pickled: bool = False
    work: Work | None = None
    beside: int = 1
    cluster: Cluster | None = None
    speculation: Speculation = "auto"
    cautious: bool = False
    engine_args: Mapping[str, Any] = field(default_factory=dict)


def checked(request: Request, found: Mapping[str, float]) -> dict[str, float]:
    """The log probabilities of a request's continuations. Raises RunFailed for what is none, as NaN weights give."""
    try:
        return log_probabilities(found)
    except ValueError as error:
        raise RunFailed(f"{request.dataset} {request.sample_id}: {error}") from error


def choose_engine(name: str) -> str:
    """``auto`` is vLLM where it is installed, else transformers. Raises LocalevalError where neither is."""
    if name != "auto":
        if importlib.util.find_spec(name) is None:
            raise LocalevalError(f"--engine {name}: the package {name} is not installed here (scripts/setup brings it)")
        return name
    for known in ("vllm", "transformers"):
        if importlib.util.find_spec(known) is not None:
            return known
    raise LocalevalError("neither vllm nor transformers is installed: run scripts/setup, or use --engine replay:FILE")


def many(name: str) -> str:
    """The engine that is many of the engine ``name``. Raises LocalevalError where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise LocalevalError("--ray: the package ray is not installed: pip install 'localeval[ray]', on every node")
    return RAY + name


def load_libraries(name: str) -> None:
    """Imports what the engine ``name`` is made of, which takes longer than most runs' data takes to be read."""
    if name == "vllm":
        from localeval.engines.vllm import load_vllm

        load_vllm()
    elif name.startswith(RAY):
        from localeval.engines.cluster import load_ray

        load_ray()
    elif name == "transformers":
        from localeval.engines.transformers import load_transformers

        load_transformers()


def start_engine(name: str, config: EngineConfig) -> Engine:
    """Loads the model.

    name: ``vllm``, ``transformers``, or ``replay``, of which the folder is the file of replies; after ``ray:`` many.
    """
    if name.startswith(RAY):
        from localeval.engines.ray import RayEngine

        return RayEngine(name.removeprefix(RAY), config)
    if name == "vllm":
        from localeval.engines.vllm import VllmEngine

        return VllmEngine(config)
    if name == "replay":
        from localeval.engines.replay import ReplayEngine

        return ReplayEngine(config.folder, delay=config.engine_args.get("delay", 0.0))
    from localeval.engines.transformers import TransformersEngine

    return TransformersEngine(config)

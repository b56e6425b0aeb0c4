"""One engine at a time for one checkpoint after another: in place where that can be proven, else a new process."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import IO, Literal

from localeval.engines.base import CantSwap, Engine, EngineConfig, EngineDied
from localeval.engines.child import ChildEngine
from localeval.engines.settings import environment, runs_on_cpu


@dataclass(frozen=True, slots=True)
class Serving:
    """How an engine came to serve a checkpoint.

    how: ``started`` (an engine was loaded for it), ``swapped`` (its weights went into the running engine, proven),
    ``adapter`` (another adapter over the weights that are there), ``same`` (it was there). because: why an engine had
    to be started where one was running. seconds: until it was ready, what passed beside other work included.
    """

    how: Literal["started", "swapped", "adapter", "same"]
    seconds: float
    because: str = ""


class Successive:
    """Holds at most one engine; the one before has ended, and freed what it held, before another starts."""

    def __init__(self, said: IO[bytes] | None = None) -> None:
        """said: a file for what engines print, instead of this process's standard error."""
        self._said = said
        self._kind = ""
        self._config: EngineConfig | None = None  # of the engine that runs; None until it has a model
        self._engine: ChildEngine | None = None

    def expect(self, kind: str, batch_invariant: bool) -> None:
        """An engine of this kind will be wanted: its process begins to load its libraries, unless one is there."""
        if self._engine is None:
            variables = environment(runs_on_cpu(), batch_invariant) if kind == "vllm" else {}
            self._kind, self._engine = kind, ChildEngine(kind, variables, self._said)

    def serve(self, kind: str, config: EngineConfig) -> tuple[Engine, Serving]:
        """An engine with the checkpoint that ``config`` names. Raises RunFailed where none can be had."""
        start = time.monotonic()
        because = ""
        if self._engine is not None and self._config is not None:
            try:
                how = self._in_place(kind, config)
                return self._engine, Serving(how, round(time.monotonic() - start, 3))
            except (CantSwap, EngineDied) as error:  # an idle one may have been killed since
                because = str(error)
                self.close()
            except BaseException:  # in what state it is left is not known
                self.close()
                raise
        if kind != self._kind:
            self.close()
        self.expect(kind, config.batch_invariant)
        assert self._engine is not None
        try:
            seconds = self._engine.start(config)
        except BaseException:
            self.close()
            raise
        self._config = config
        return self._engine, Serving("started", round(seconds, 3), because)

    def _in_place(self, kind: str, config: EngineConfig) -> Literal["swapped", "adapter", "same"]:
        """Makes the running engine serve another checkpoint. Raises CantSwap where it can't."""
        assert self._config is not None
        if kind != self._kind:
            raise CantSwap(f"engine {kind}, not {self._kind}")
        difference = difference_of(self._config, config)
        if difference:
            raise CantSwap(difference)
        same_weights = (self._config.folder, self._config.fingerprint) == (config.folder, config.fingerprint)
        same_adapter = self._config.adapter == config.adapter and (
            self._config.adapter_fingerprint == config.adapter_fingerprint
        )
        if same_weights and same_adapter:
            return "same"
        if not same_weights and self._config.lora_rank:
            raise CantSwap("an engine with adapters keeps its base model")
        assert self._engine is not None
        self._engine.swap(config)
        now = ("folder", "fingerprint", "adapter", "adapter_fingerprint", "tokenizer")
        self._config = replace(self._config, **{name: getattr(config, name) for name in now})
        return "adapter" if same_weights else "swapped"

    def close(self) -> None:
        """Ends the engine, if there is one."""
        if self._engine is not None:
            engine, self._engine, self._config = self._engine, None, None
            engine.close()


def difference_of(running: EngineConfig, wanted: EngineConfig) -> str:
    """What of a running engine does not fit a checkpoint, beside its weights; empty where all fits. Pure."""
    differing = _differing(running.frame, wanted.frame)
    if differing:
        return differing
    for name, least in (("max_model_len", "longer"), ("logprobs", "more"), ("lora_rank", "greater")):
        if getattr(wanted, name) > getattr(running, name):
            return f"{name} {getattr(wanted, name)} is {least} than the engine's {getattr(running, name)}"
    if wanted.constrained and not running.constrained:
        return "replies are now constrained"
    if not set(wanted.lora_modules) <= set(running.lora_modules):
        return f"the adapter changes {', '.join(sorted(set(wanted.lora_modules) - set(running.lora_modules)))} too"
    free = {
        "lora_modules",
        "folder",
        "fingerprint",
        "adapter",
        "adapter_fingerprint",
        "tokenizer",
        "frame",
        "max_model_len",
        "logprobs",
        "lora_rank",
        "constrained",
        "work",
        "beside",
        "cluster",
        "cautious",
    }
    for each in fields(EngineConfig):
        old, new = getattr(running, each.name), getattr(wanted, each.name)
        if each.name not in free and old != new:
            return f"{each.name} {old} -> {new}"
    return ""


def _differing(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    if not names:
        return ""
    shown = ", ".join(_change(name, old.get(name), new.get(name)) for name in names[:3])
    return shown + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _change(name: str, old: str | None, new: str | None) -> str:
    if not name.startswith("config.json "):
        return f"{name} differs"
    return f"{name} {old or 'missing'} -> {new or 'missing'}"

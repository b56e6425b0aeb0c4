"""vLLM, in process: the only file that imports it. Works with vLLM 0.24 to 0.33.

Requests are added ahead of the engine's need and their replies handed on as each finishes; there is no batch that waits
for its slowest reply. Constrained requests are made ready in threads beside generation: vLLM checks each grammar, which
costs what compiling it costs, before it takes a request.
"""

from __future__ import annotations

import copy
import itertools
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from localeval.engines.ahead import Ahead
from localeval.engines.base import CantSwap, EngineConfig, EngineDied
from localeval.engines.nan import numberless, overflown
from localeval.engines.settings import arguments, environment, machine_of, runs_on_cpu
from localeval.engines.sizing import ANY, size
from localeval.engines.vllm_asked import Asked, Sequence, completion, one_token_each
from localeval.remote_code import why_not_run
from localeval.schema import Completion, Request, RunFailed

# vLLM 0.24 to 0.33 give no best tokens to a request that runs beside one that names its own.
_NOT_BESIDE = {"best": "named", "named": "best"}
WAITING = 1024
"""Sequences in the engine beside those that run at once: it never runs dry, and memory stays flat whatever comes."""
FEW_WAITING = 64
"""The same where unread replies are asked once more: what follows a reply comes while its tokens are in the cache."""


def load_vllm() -> Any:
    """The package; several seconds."""
    with _without_its_warnings():
        import vllm
    return vllm


@contextmanager
def _without_its_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        for kind in (FutureWarning, PendingDeprecationWarning):
            warnings.simplefilter("ignore", kind)
        yield


class VllmEngine:
    """One ``vllm.LLM``, driven by its engine's own steps."""

    def __init__(self, config: EngineConfig) -> None:
        """Loads the model. Raises RunFailed with vLLM's reason where it can't."""
        on_cpu = runs_on_cpu()
        machine = machine_of(config, on_cpu)
        sizing = size(config.work or ANY, machine, config.speculation, config.engine_args, config.cautious)
        variables = environment(on_cpu, config.batch_invariant)
        if sizing.cache_gib:
            variables["VLLM_CPU_KVCACHE_SPACE"] = str(sizing.cache_gib)
        for name, value in variables.items():
            os.environ.setdefault(name, value)
        self._arguments = arguments(config, on_cpu, sizing)
        self._reasons = {name: why for name, why in sizing.reasons.items() if name not in config.engine_args}
        if config.cautious:
            self._reasons["max_num_seqs"] = "at most half as many as there were when an engine died"
        vllm = load_vllm()
        from vllm.exceptions import VLLMValidationError  # a ValueError only in older versions

        try:
            with _without_its_warnings():
                self._llm = vllm.LLM(**copy.deepcopy(self._arguments))  # some versions write into what they are given
        except (ValueError, RuntimeError, OSError, TypeError, VLLMValidationError) as error:
            code = "" if config.trust_remote_code else why_not_run(config.folder)
            raise RunFailed(f"vLLM can't load {config.folder}: {error}{code}") from error
        self._fingerprint = config.fingerprint
        self._version = vllm.__version__
        self._proven = False
        self._refusal = VLLMValidationError
        self._tasks = self._llm.llm_engine.get_supported_tasks()
        self._without_number = numberless(self._llm.llm_engine)
        self._llm.collective_rpc("localeval_watch_numbers", args=("speculative_config" in self._arguments,))
        used = self._llm.llm_engine.vllm_config
        self._at_once = int(used.scheduler_config.max_num_seqs)
        if self._arguments.get("block_size", used.cache_config.block_size) != used.cache_config.block_size:
            self._arguments["block_size"] = used.cache_config.block_size
            self._reasons["block_size"] = "the only one that vLLM has for this model's attention"
        self._names = itertools.count()
        self._adapters = itertools.count(1)
        self._adapter: Any = None
        self._take_adapter(config.adapter)

    def swap(self, config: EngineConfig) -> None:
        """Takes another checkpoint's weights in place, or another adapter over the same ones. Raises CantSwap."""
        if (str(config.folder), config.fingerprint) != (self._arguments["model"], self._fingerprint):
            self._swap_weights(str(config.folder))
            self._fingerprint = config.fingerprint
        self._take_adapter(config.adapter)

    def _swap_weights(self, folder: str) -> None:
        try:
            if not self._proven:
                # What the layers computed before is what shows that none of them goes on with it.
                self._prove("localeval_prove", str(self._arguments["model"]))
                self._proven = True
            self._prove("localeval_swap", folder)
        except CantSwap:
            raise
        except Exception as error:  # what the engine's own process raised arrives as a bare Exception
            raise CantSwap(f"vLLM can't reload the weights: {error}") from error
        self._arguments["model"] = folder
        if not self._llm.reset_prefix_cache():
            raise CantSwap("vLLM keeps prompts that the weights before have read")

    def _prove(self, method: str, folder: str) -> None:
        problems = [problem for worker in self._llm.collective_rpc(method, args=(folder,)) for problem in worker]
        if problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise CantSwap(problems[0] + more)

    def _take_adapter(self, folder: Path | None) -> None:
        """Loads an adapter; its requests share no cached prefix with those of another. Raises RunFailed."""
        if folder is None:
            self._adapter = None
            return
        from vllm.lora.request import LoRARequest

        number = next(self._adapters)
        adapter = LoRARequest(f"{number}-{folder.name}", number, str(folder))
        try:
            self._llm.llm_engine.add_lora(adapter)
        except Exception as error:  # as above
            raise RunFailed(f"vLLM can't apply the adapter {folder}: {error}") from error
        self._adapter = adapter

    def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        engine = self._llm.llm_engine
        running: dict[str, Asked] = {}
        room = self._at_once + WAITING
        kinds: Counter[str] = Counter()
        with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)) // 2)) as pool:
            ahead = Ahead(requests, self._prepare, pool)
            try:
                while True:
                    while len(running) < room and (asked := ahead.first(wait=not running)) is not None:
                        if kinds[_NOT_BESIDE.get(asked.kind, "")]:
                            break
                        ahead.take()
                        kinds[asked.kind] += 1
                        if asked.request.then:
                            room = self._at_once + FEW_WAITING
                        for sequence in asked.sequences:
                            engine.add_request(
                                sequence.name, sequence.prompt, sequence.params, lora_request=self._adapter
                            )
                            running[sequence.name] = asked
                    if not running:
                        return
                    outputs = self._step()
                    # One that a stop string has ended may be among them: the engine was a step further.
                    if wrong := self._without_number & running.keys():
                        raise overflown([asked.request for name, asked in running.items() if name in wrong])
                    for output in outputs:
                        if output.finished:
                            asked = running.pop(output.request_id)
                            asked.outputs.append(output)
                            if len(asked.outputs) == len(asked.sequences):
                                kinds[asked.kind] -= 1
                                yield completion(asked)
            finally:
                if running:  # the caller stopped listening
                    engine.abort_request(list(running))

    def _step(self) -> list[Any]:
        """One step of the model. Raises EngineDied where it can't be made."""
        try:
            return list(self._llm.llm_engine.step())
        except Exception as error:  # whatever it is, in what state the engine is left is not known
            raise EngineDied(
                f"the engine failed: {type(error).__name__}: {error}. What was finished is kept"
            ) from error

    def _prepare(self, request: Request) -> Asked:
        prompt = request.prompt_token_ids
        if request.constraint is not None:
            return self._taken_in(request)
        if not request.continuations:
            return Asked(request, (self._sequence(prompt, _sampling_params(request)),))
        if one_token_each(request):
            wanted = sorted({token for (token,) in request.continuations.values()})
            return Asked(request, (self._sequence(prompt, _sampling_params(request, logprob_token_ids=wanted)),))
        if "lm_head" in self._arguments.get("lora_target_modules", ()):
            raise RunFailed(
                f"{request.dataset} {request.sample_id}: vLLM gives no log probabilities of a prompt under an adapter "
                "that changes lm_head; merge it into its base model"
            )
        # Two options with one text are one sequence. For the prompt's own logprobs vLLM reads no cached prefix.
        params = _sampling_params(request, prompt_logprobs=0)
        ends = dict.fromkeys(request.continuations.values())
        return Asked(request, tuple(self._sequence([*prompt, *ids], params) for ids in ends))

    def _sequence(self, ids: Iterable[int], params: Any) -> Sequence:
        return Sequence(str(next(self._names)), {"prompt_token_ids": list(ids)}, params)

    def _taken_in(self, request: Request) -> Asked:
        """A constrained request, checked by vLLM, so that adding it costs no more than adding any other.

        Runs in a thread: checking a grammar releases Python's lock.
        """
        sequence = self._sequence(
            request.prompt_token_ids, _sampling_params(request, structured_outputs=_structured(request))
        )
        try:
            taken = self._llm.llm_engine.input_processor.process_inputs(
                sequence.name,
                sequence.prompt,
                sequence.params,
                lora_request=self._adapter,
                supported_tasks=self._tasks,
            )
        except (ValueError, self._refusal) as error:
            raise RunFailed(f"{request.dataset} {request.sample_id}: vLLM refuses the grammar: {error}") from error
        return Asked(request, (replace(sequence, prompt=taken),))

    def forget_prompts(self) -> None:
        """Empties the cache of prompts' prefixes."""
        self._llm.reset_prefix_cache()

    def settings(self) -> Mapping[str, Any]:
        from vllm.platforms import current_platform

        gpus = [] if current_platform.is_cpu() else [current_platform.get_device_name(n) for n in range(_gpus())]
        return {"vllm": self._version, **self._arguments, "reasons": self._reasons, "gpus": gpus}

    def close(self) -> None:
        del self._llm


def _gpus() -> int:
    import torch

    return int(torch.cuda.device_count())


def _sampling_params(request: Request, **further: Any) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

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
        # What ends a reply is no part of it; among special tokens that are kept, vLLM leaves it out only by this word.
        include_stop_str_in_output=bool(request.stop) or not request.keeps_special,
        skip_special_tokens=not request.keeps_special,
        logprobs=request.wanted_logprobs or None,
        allowed_token_ids=list(request.allowed_token_ids) or None,
        skip_clone=True,  # nothing else uses them
        output_kind=RequestOutputKind.FINAL_ONLY,  # else vLLM puts the text together anew at each token
        **further,
    )


def _structured(request: Request) -> Any:
    """The request's grammar, as outlines' own adapter tells it to vLLM."""
    from outlines.models.vllm_offline import VLLMOfflineTypeAdapter
    from vllm.sampling_params import StructuredOutputsParams

    assert request.constraint is not None
    return StructuredOutputsParams(**VLLMOfflineTypeAdapter().format_output_type(request.constraint.term()))

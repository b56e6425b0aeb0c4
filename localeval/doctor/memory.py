"""Whether a model fits: weights, cache and reserve against what is free. Pure functions of numbers; reads nothing.

- Weights: over all tensors, elements x bytes of the type in which they are loaded (the headers of safetensors:
  https://huggingface.co/docs/safetensors); quantised ones as they lie there. Parallelism of both kinds splits them.
- Cache of one token: 2 (keys, values) x layers x key heads x width of a head x bytes of a number; with MLA instead
  layers x (kv_lora_rank + qk_rope_head_dim) x bytes, on each GPU whole (vLLM, v1/kv_cache_interface.py). Layers of a
  sliding window are counted as if they saw everything, so the figure is an upper bound; layers of linear attention
  have no such cache, and their state is not counted.
- vLLM takes gpu_memory_utilization of a GPU's total memory, refuses to start where less is free, and refuses a length
  whose cache does not fit into what is left of it.
- Reserve: what the libraries, activations and CUDA graphs take, as a round figure that is stated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from localeval.doctor.check import Check
from localeval.doctor.gpus import Gpu
from localeval.doctor.place import Machine, gib
from localeval.engines.sizing import GIB, GPU_SHARE

GROUP = "Memory"
RESERVE = 2 * GIB
"""Bytes for the libraries, activations and CUDA graphs, on each GPU, or in a CPU's memory."""
USEFUL = 512
"""Tokens of a prompt and its reply below which a limit is no way out."""

BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32,
    "U16": 16, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4, "C64": 64,
}  # fmt: skip
"""Of a number of each type that safetensors has."""
_LOADED_AS = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2}
_FLOATS = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a model's config the cache depends on. latent: numbers of one token in one layer, with MLA; else None.

    layers: those that keep keys and values. heads: of queries. context: tokens; None where the config does not say.
    """

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    latent: int | None = None
    context: int | None = None
    quantised: str = ""
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """What one engine holds. weights: bytes. number: bytes of a number of the cache. longest: tokens.

    exact: whether longest is that of the prompts which will be asked, or else all that the model can take. limited: the
    user's own max_model_len. cache: bytes of a CPU's cache, as the engine is set up.
    """

    weights: int
    shape: Shape
    number: int
    longest: int
    exact: bool = False
    limited: bool = False
    cache: int = 0


@dataclass(frozen=True, slots=True)
class Split:
    """Over how many GPUs an engine goes, and what share of each it takes."""

    tensor: int = 1
    pipeline: int = 1
    utilization: float = GPU_SHARE
    replicas: int = 1

    @property
    def gpus(self) -> int:
        """Of one engine."""
        return self.tensor * self.pipeline


# --- sizes ---


def weight_bytes(tensors: Iterable[tuple[str, int]], dtype: str, quantised: str = "") -> int:
    """Bytes of weights that are loaded. tensors: type and number of elements of each. dtype: as vLLM names it.

    ``auto`` makes 16 bits of every number that is not quantised, as vLLM does on a GPU.
    """
    wide = _LOADED_AS.get(dtype, 2) * 8
    total = 0
    for kind, elements in tensors:
        bits = wide if kind in _FLOATS and not quantised else BITS.get(kind, 16)
        total += math.ceil(elements * bits / 8)
    return total


def cache_number_bytes(dtype: str, cache_dtype: str) -> int:
    """Bytes of one number in the cache: the weights' type, unless the cache is told another (fp8, ...)."""
    if cache_dtype.startswith(("fp8", "int8")):
        return 1
    return _LOADED_AS.get(dtype if cache_dtype == "auto" else cache_dtype, 2)


def shape_of(config: Mapping[str, Any]) -> Shape:
    """The shape that a model's (text) config speaks of. Raises KeyError, TypeError or ValueError where it does not."""
    assumed = []
    layers, kinds = int(config["num_hidden_layers"]), config.get("layer_types") or []
    linear = sum("linear" in kind or "mamba" in kind or "conv" in kind for kind in kinds)
    if linear:
        layers -= linear
        assumed.append(f"{linear} layers of linear attention or the like are not counted")
    if any("sliding" in kind or "chunked" in kind for kind in kinds) or (not kinds and _slides(config)):
        assumed.append("layers of a sliding window are counted as if they saw everything")
    latent = None
    if config.get("kv_lora_rank"):
        latent = int(config["kv_lora_rank"]) + int(config.get("qk_rope_head_dim") or 0)
        assumed.append("latent attention (MLA) keeps one compressed vector a token")
    heads = int(config["num_attention_heads"])
    quantisation = config.get("quantization_config") or {}
    return Shape(
        layers=layers,
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or int(config["hidden_size"]) // heads),
        latent=latent,
        context=int(config["max_position_embeddings"]) if config.get("max_position_embeddings") else None,
        quantised=str(quantisation.get("quant_method") or ""),
        assumed=tuple(assumed),
    )


def _slides(config: Mapping[str, Any]) -> bool:
    return bool(config.get("sliding_window")) and config.get("use_sliding_window", True) is True


def token_bytes(shape: Shape, number: int, split: Split = Split()) -> int:
    """Bytes of the cache for one token on one GPU. A head of keys is on several GPUs where these are more."""
    layers = -(-shape.layers // split.pipeline)
    if shape.latent is not None:
        return layers * shape.latent * number
    return 2 * layers * -(-shape.kv_heads // split.tensor) * shape.head_dim * number


def room(load: Load, split: Split, total: int) -> int:
    """Bytes that are left for the cache on one GPU of ``total`` bytes; less than 0 where the weights do not fit."""
    return int(total * split.utilization) - load.weights // split.gpus - RESERVE


def fits(load: Load, split: Split, total: int) -> bool:
    """Whether the longest sequence goes into one GPU of ``total`` bytes beside its share of the weights."""
    return load.longest * token_bytes(load.shape, load.number, split) <= room(load, split, total)


# --- what they mean ---


def judge_gpus(name: str, load: Load, split: Split, gpus: Sequence[Gpu]) -> list[Check]:
    """A model on those GPUs that a program can see. name: the model's."""
    checks = [Check(GROUP, name, "ok", _needs(load, split)), *_heads(load, split)]
    if not gpus:
        return [*checks, Check(GROUP, "fits", "note", "no GPU is seen: not compared")]
    if split.gpus * split.replicas > len(gpus):
        return [*checks, _too_few(load, split, len(gpus))]
    used = [gpu for gpu in gpus[: split.gpus * split.replicas] if gpu.total is not None and gpu.free is not None]
    if not used:
        return [*checks, Check(GROUP, "fits", "note", "how much memory the GPU has is not told: not compared")]
    least = min(used, key=lambda gpu: gpu.free or 0)
    total, free = least.total or 0, least.free or 0
    if free < int(total * split.utilization):
        usable = replace(split, utilization=max(0.01, math.floor(free / total * 100 - 1) / 100))
        checks.append(_in_use(load, split, usable, least))
        split = usable
    return [*checks, _fit(load, split, len(gpus), total)]


def _heads(load: Load, split: Split) -> list[Check]:
    if load.shape.heads % split.tensor == 0:
        return []
    found = f"{load.shape.heads} heads of attention can't be split over {split.tensor} GPUs"
    mend = _args(tensor_parallel_size=_divisor(load, split.tensor))
    return [Check(GROUP, "tensor_parallel_size", "problem", found, mend)]


def _too_few(load: Load, split: Split, gpus: int) -> Check:
    found = (
        f"{split.replicas} engines, each over {split.gpus} GPUs (tensor_parallel_size {split.tensor} x "
        f"pipeline_parallel_size {split.pipeline}), and a program sees {gpus}"
    )
    mend = "--replicas 1" if split.replicas > 1 else _args(tensor_parallel_size=_divisor(load, gpus))
    return Check(GROUP, "GPUs wanted", "problem", found, mend)


def _in_use(load: Load, split: Split, usable: Split, gpu: Gpu) -> Check:
    """A GPU that others use. usable: the same split, with what they leave."""
    total, free = gpu.total or 0, gpu.free or 0
    found = (
        f"vLLM takes {split.utilization:g} of each GPU, {gib(int(total * split.utilization))}, or does not start; "
        f"GPU {gpu.index} has {gib(free)} free"
    )
    mend = "end what else runs there (nvidia-smi names it)"
    if fits(load, usable, total):
        mend += f"; or {_args(gpu_memory_utilization=usable.utilization)}, with which it fits"
    return Check(GROUP, f"GPU {gpu.index}", "problem", found, mend)


def _fit(load: Load, split: Split, gpus: int, total: int) -> Check:
    left, each = room(load, split, total), token_bytes(load.shape, load.number, split)
    budget = f"{gib(int(total * split.utilization))} ({split.utilization:g} of {gib(total)})"
    if fits(load, split, total):
        tokens = f", {left // each:,} tokens" if each else ""
        return Check(GROUP, "fits", "ok", f"in {budget}; {gib(left)} are left for the cache{tokens}")
    most = max(left, 0) // each if each else 0
    if left <= 0:
        found = f"not in {budget}: weights and reserve take {gib(load.weights // split.gpus + RESERVE)}"
        return Check(GROUP, "fits", "problem", found, _ways(load, split, gpus, total))
    found = f"in {budget} there is room for sequences of {most:,} tokens, not {load.longest:,}"
    limit = _args(max_model_len=most)
    if load.exact or load.limited or most < USEFUL:
        ways = [_ways(load, split, gpus, total)]
        if most >= USEFUL:
            cut = " --on-overflow drop-shots (replies end there, prompts lose shots)" if load.exact else ""
            ways.append(limit + cut)
        return Check(GROUP, "fits", "problem", found, "; or ".join(ways))
    found += "; a run needs only its longest prompt and reply: --datasets tells them"
    return Check(GROUP, "fits", "note", found, limit)


def _ways(load: Load, split: Split, gpus: int, total: int) -> str:
    """More GPUs for one engine, where so many are there; else smaller weights."""
    for tensor in range(split.tensor + 1, gpus // (split.pipeline * split.replicas) + 1):
        wider = replace(split, tensor=tensor)
        if load.shape.heads % tensor == 0 and fits(load, wider, total):
            return _args(tensor_parallel_size=tensor)
    least = 2
    while least <= 64 and not (load.shape.heads % least == 0 and fits(load, replace(split, tensor=least), total)):
        least += 1
    more = f" (or {least} such GPUs and {_args(tensor_parallel_size=least)})" if least <= 64 else ""
    return f"take a quantised copy of the weights (4 or 8 bits a number){more}"


def judge_cpu(name: str, load: Load, machine: Machine, engines: int = 1) -> list[Check]:
    """A model in this machine's memory. engines: how many of it go there side by side."""
    first = Check(GROUP, name, "ok", _needs(load, Split()))
    needed = engines * (load.weights + load.cache + RESERVE)
    several = f" by {engines} engines" if engines > 1 else ""
    if needed > machine.free:
        found = f"{gib(needed)} are needed{several} ({gib(load.cache)} for the cache), {gib(machine.free)} are free"
        smaller = engines * (load.weights // 2 + load.cache + RESERVE) <= machine.free
        mend = (
            '--model-args \'{"dtype": "bfloat16"}\', which halves the weights and is slow on most CPUs'
            if smaller and load.number == 4
            else "take a smaller model, or a machine with more memory"
        )
        return [first, Check(GROUP, "fits", "problem", found, mend)]
    return [
        first,
        Check(
            GROUP,
            "fits",
            "ok",
            f"{gib(needed)} are needed{several} ({gib(load.cache)} for the cache), {gib(machine.free)} are free",
        ),
    ]


def _needs(load: Load, split: Split) -> str:
    each = token_bytes(load.shape, load.number, split)
    of = "the longest prompt and reply" if load.exact else "max_model_len" if load.limited else "the model's context"
    over = f" over {split.gpus} GPUs" if split.gpus > 1 else ""
    a_gpu = " on each" if split.gpus > 1 else ""
    lines = [
        f"weights {gib(load.weights)}{over}{f' ({load.shape.quantised})' if load.shape.quantised else ''}; "
        f"cache {each:,} bytes a token{a_gpu}, {gib(each * load.longest)} for {load.longest:,} tokens ({of}); "
        f"reserve {gib(RESERVE)}",
        *load.shape.assumed,
    ]
    return "\n".join(lines)


def _divisor(load: Load, gpus: int) -> int:
    return max((n for n in range(1, gpus + 1) if load.shape.heads % n == 0), default=1)


def _args(**arguments: float) -> str:
    return f"--engine-args '{json.dumps(arguments)}'"

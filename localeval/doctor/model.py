"""What an engine would hold of one model: its weights' sizes, its shape, the longest that it will be asked.

Reads headers, configs and, where datasets are asked, builds every prompt as a run does. Hashes no weights, unpacks
nothing, loads none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from localeval.checkpoints import ADAPTER, ADAPTER_CONFIG
from localeval.config import TaskConfig
from localeval.doctor import memory
from localeval.doctor.memory import Load, Shape, Split
from localeval.doctor.place import Machine as Memory
from localeval.engines.sizing import ANY, GPU_SHARE, Machine, size, work_of
from localeval.jobs import Job
from localeval.model import Model, context_of, for_mode, given_tags, sources_of
from localeval.plan import plan_requests
from localeval.prompts import Prompter
from localeval.schema import LocalevalError, Request
from localeval.tensors import sizes_in
from localeval.unpacking import unpacked_folder
from localeval.weights import Adapter, Weights, check_folder, place_of, read_adapter, safe_name


@dataclass(frozen=True, slots=True)
class Packed:
    """A .gguf file that no run has unpacked yet. size: bytes that unpacking takes of the cache folder's disk."""

    file: Path
    folder: Path
    size: int


class UnknownShape(Exception):
    """A model whose cache is of another kind, such as one of state spaces; that says nothing against it."""


def locate(config: TaskConfig, asked: str) -> Weights | Packed:
    """Where the model is, without its fingerprint. Raises LocalevalError for what can't be found or is not whole."""
    sources = sources_of(config)
    spec = sources.models.get(asked)
    place = place_of(asked, sources)
    adapter: Adapter | None = None
    if (place / ADAPTER_CONFIG).is_file():
        adapter = read_adapter(place, config.base)
        spec, place = sources.models.get(adapter.base), place_of(adapter.base, replace(sources, base=None))
    if place.is_file():
        folder = unpacked_folder(place)
        if not (folder / "config.json").is_file():
            return Packed(place, folder, 4 * sum(elements for _, elements in _gguf_sizes(place)))
        place = folder
    check_folder(place, sources.pickles)
    args = (spec.engine_args, spec.chat_template_args) if spec else ({}, {})
    return Weights(asked, safe_name(asked), place, "", "", *args, adapter=adapter)


def _gguf_sizes(file: Path) -> list[tuple[str, int]]:
    from gguf import GGUFReader

    try:
        return [(tensor.name, int(tensor.n_elements)) for tensor in GGUFReader(file).tensors]
    except (ValueError, KeyError, IndexError, OSError) as error:
        raise LocalevalError(f"{file}: no GGUF file that can be read: {error}") from error


def load_of(config: TaskConfig, weights: Weights, requests: Sequence[Request], machine: Memory | None) -> Load:
    """What one engine holds. requests: what will be asked, if that is known. machine: of a CPU, None for GPUs.

    Raises LocalevalError for what would end a run before it begins, such as prompts that are too long.
    """
    engine_args = {**weights.engine_args, **config.engine_args}
    dtype = str(engine_args.get("dtype") or config.model_args.dtype or ("float32" if machine else "auto"))
    shape = _shape(weights.folder, config.model_args.trust_remote_code)
    sizes = sizes_in(file for file in weights.files if file.name != ADAPTER)
    held = memory.weight_bytes(sizes, dtype, shape.quantised)
    if weights.adapter is not None:
        held += memory.weight_bytes(sizes_in([weights.adapter.folder / ADAPTER]), dtype)
    limit = engine_args.get("max_model_len")
    context = context_of(config, weights) or shape.context
    if context is None and not requests:
        raise LocalevalError(f"{weights.folder}: its config names no longest sequence: name --datasets")
    longest = limit or max((request.length for request in requests), default=0) or context or 0
    number = memory.cache_number_bytes(dtype, str(engine_args.get("kv_cache_dtype", "auto")))
    load = Load(held, shape, number, longest, exact=bool(requests) and not limit, limited=bool(limit))
    return replace(load, cache=_cpu_cache(load, requests, machine)) if machine else load


def _shape(folder: Path, trust_remote_code: bool) -> Shape:
    """By transformers, which knows what a config leaves out."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trust_remote_code)
        text = config.get_text_config()
        told: dict[str, Any] = {name: getattr(text, name, None) for name in _FIELDS}
        told["quantization_config"] = _quantisation(config)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LocalevalError(f"{folder}: config.json can't be read: {error}") from error
    try:
        return memory.shape_of(told)
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise UnknownShape(f"{folder}: config.json tells of no layers and heads as attention has them") from error


_FIELDS = (
    "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size", "kv_lora_rank",
    "qk_rope_head_dim", "max_position_embeddings", "layer_types", "sliding_window", "use_sliding_window",
)  # fmt: skip


def _quantisation(config: Any) -> Mapping[str, Any]:
    found = getattr(config, "quantization_config", None) or {}
    return found if isinstance(found, Mapping) else dict(found.to_dict())


def unhashed(config: TaskConfig, weights: Weights) -> Model:
    """A model that can make prompts, without its fingerprint."""
    template = {**weights.chat_template_args, **config.chat_template_args}
    trusted = config.model_args.trust_remote_code
    prompter = Prompter(
        weights.tokenizer,
        thinking=config.thinking,
        template_args=template,
        trust_remote_code=trusted,
        reasoning_tags=given_tags(config),
    )
    return Model(weights.name, "", {}, weights, prompter)


def requests_of(config: TaskConfig, weights: Weights, jobs: Sequence[Job]) -> list[Request]:
    """What the jobs ask of a model. Raises LocalevalError, as for prompts that are too long."""
    if not jobs:
        return []
    model = unhashed(config, weights)
    context = context_of(config, weights)
    found: list[Request] = []
    for job in jobs:
        asked = for_mode(model, job, config).prompter
        assert asked is not None  # the model above has one
        found += plan_requests(job, config, asked, context).requests
    return found


def _cpu_cache(load: Load, requests: Sequence[Request], machine: Memory) -> int:
    """Bytes of the cache that an engine on a CPU is given, as ``engines.sizing`` has it."""
    each = memory.token_bytes(load.shape, load.number)
    facts = Machine(True, max(machine.free - load.weights, 0), each, load.longest)
    cache = size(work_of(requests) if requests else ANY, facts).cache_gib
    return (cache or 0) * 2**30


def split_of(config: TaskConfig, weights: Weights) -> Split:
    """Over how many GPUs an engine goes, by engine_args. Raises LocalevalError for values that are none."""
    given = {**weights.engine_args, **config.engine_args}
    counts = {name: given.get(name, 1) for name in ("tensor_parallel_size", "pipeline_parallel_size")}
    share = given.get("gpu_memory_utilization", GPU_SHARE)
    for name, value in counts.items():
        if type(value) is not int or value < 1:
            raise LocalevalError(f"engine_args {name} is {value!r}; expected a whole number from 1 on")
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
        raise LocalevalError(f"engine_args gpu_memory_utilization is {share!r}; expected a number above 0, at most 1")
    return Split(counts["tensor_parallel_size"], counts["pipeline_parallel_size"], share, engines_here(config))


def engines_here(config: TaskConfig) -> int:
    """How many engines are on this machine for certain: those of a cluster may be on others."""
    return 1 if config.ray else config.replicas or 1

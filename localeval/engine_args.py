"""Engine arguments that would run code, open a pickle or leave the machine: which of them are refused, and where.

Pure. The names are those of vLLM's EngineArgs, 0.24 to 0.33. What a user types on the command line may name code of
installed packages; what stands in a models.yaml may not, for one in the current folder is read unasked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# Argument -> what to do instead.
_NEVER = {
    "trust_remote_code": "code that comes with a model is run with --trust-remote-code (model_args) alone",
    "allow_pickle": "pickled weights are loaded with --allow-pickle alone",
    "model": "name the model with --model",
    "model_weights": "name the model with --model",
    "tokenizer": "the tokenizer is the model's own",
    "hf_config_path": "the configuration is the model's own",
    "revision": 'say it with --model-args \'{"revision": "..."}\'',
    "tokenizer_revision": 'say it with --model-args \'{"revision": "..."}\'',
    "code_revision": "code that comes with a model is what lies in its folder",
    "hf_token": "nothing is downloaded",
    "download_dir": "nothing is downloaded",
    "worker_extension_cls": "localeval swaps weights with its own",
    "allowed_local_media_path": "no media are read",
    "allowed_media_domains": "no media are read",
    "otlp_traces_endpoint": "nothing is sent anywhere",
}
_SAFE_FORMATS = ("safetensors", "fastsafetensors", "instanttensor", "dummy")
_UNPICKLING = ("auto", "hf", "pt", "npcache")
# Each names a class, a function or a file of Python, or connects to other processes.
_CODE = {
    "worker_cls", "scheduler_cls", "logits_processors", "model_class_overrides", "distributed_executor_backend",
    "reasoning_parser_plugin", "tool_parser_plugin", "io_processor_plugin", "log_config_file", "additional_config",
    "compilation_config", "profiler_config", "kv_transfer_config", "kv_events_config", "ec_transfer_config",
    "weight_transfer_config", "speculative_config", "spec_model", "default_mm_loras", "model_loader_extra_config",
}  # fmt: skip


def refuse_unsafe(args: Mapping[str, Any], of_a_file: bool) -> None:
    """Raises ValueError that names the argument, and the option to use instead.

    of_a_file: the arguments stand in a models.yaml, and not on the command line or in a config.
    """
    for name in args:
        if of_a_file and name in _CODE:
            raise ValueError(f"engine_args {name}: it can name code to run; give it on the command line: --engine-args")
    for name, value in _everywhere(args):
        if name in ("trust_remote_code", "allow_pickle") or (name in args and name in _NEVER):
            raise ValueError(f"engine_args {name} is refused: {_NEVER[name]}")
        if name == "load_format" and value in _UNPICKLING:
            raise ValueError(f"engine_args load_format {value!r} is refused: {_NEVER['allow_pickle']}")
        if name == "load_format" and value not in _SAFE_FORMATS:
            known = ", ".join(_SAFE_FORMATS)
            raise ValueError(f"engine_args load_format {value!r} is refused: weights are read from {known} alone")


def refuse_in_template_args(args: Mapping[str, Any]) -> None:
    """Raises ValueError for what a chat template is not to be told."""
    for name, _ in _everywhere(args):
        if name in ("trust_remote_code", "allow_pickle"):
            raise ValueError(f"chat_template_args {name} is refused: {_NEVER[name]}")


def _everywhere(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key with its value, at whatever depth; hyphens as underscores, as vLLM reads them."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            for key, inner in one.items():
                yield str(key).replace("-", "_"), inner
                waiting.append(inner)
        elif isinstance(one, list):
            waiting.extend(one)

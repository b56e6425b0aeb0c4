"""What engines are started with: pure functions, no model."""

from __future__ import annotations

from pathlib import Path

import pytest

from localeval.engines.base import EngineConfig, choose_engine
from localeval.engines.vllm import arguments, environment
from localeval.schema import LocalevalError

CONFIG = EngineConfig(Path("/models/m"), max_model_len=1000)


def test_settings_of_a_machine_without_gpu() -> None:
    chosen = arguments(CONFIG, on_cpu=True)
    assert chosen["model"] == "/models/m"
    assert chosen["max_model_len"] == 1000
    assert (chosen["dtype"], chosen["enforce_eager"], chosen["gpu_memory_utilization"]) == ("float32", True, 0.4)
    assert environment(on_cpu=True)["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"


def test_settings_of_a_gpu() -> None:
    chosen = arguments(CONFIG, on_cpu=False)
    assert "dtype" not in chosen
    assert "enforce_eager" not in chosen
    assert chosen["load_format"] == "safetensors"
    assert environment(on_cpu=False) == {"VLLM_HOST_IP": "127.0.0.1"}


def test_the_users_word_goes_before() -> None:
    config = EngineConfig(Path("m"), 1000, dtype="bfloat16", engine_args={"max_num_seqs": 4, "load_format": "pt"})
    chosen = arguments(config, on_cpu=True)
    assert (chosen["dtype"], chosen["max_num_seqs"], chosen["load_format"]) == ("bfloat16", 4, "pt")


def test_an_engine_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if name == "transformers" else None)
    assert choose_engine("auto") == "transformers"
    with pytest.raises(LocalevalError, match="the package vllm is not installed here"):
        choose_engine("vllm")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LocalevalError, match="neither vllm nor transformers"):
        choose_engine("auto")

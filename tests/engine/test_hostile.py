"""Code and pickles that come with a model, with real engines: nothing of them runs."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from localeval.engines.base import EngineConfig, start_engine
from localeval.schema import LocalevalError, Request, RunFailed
from tests.fakes import make_model

pytestmark = pytest.mark.engine


class _Mark:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.mark, "w")


@pytest.mark.parametrize("kind", ["vllm", "transformers"])
def test_a_model_of_unknown_code_is_not_run(kind: str, tmp_path: Path) -> None:
    """vLLM would take transformers' way with a class that it doesn't know."""
    folder, mark = make_model(tmp_path / "m"), tmp_path / "was-run"
    (folder / "own.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    told = json.loads((folder / "config.json").read_text())
    names = {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own", "AutoModel": "own.Own"}
    told |= {"architectures": ["Own"], "model_type": "own", "auto_map": names}
    (folder / "config.json").write_text(json.dumps(told))
    with pytest.raises((RunFailed, LocalevalError), match=r"config\.json names code .*own\.py.*--trust-remote-code"):
        start_engine(kind, EngineConfig(folder, 256))
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["vllm", "transformers"])
def test_a_pickle_beside_safetensors_is_not_opened(kind: str, tmp_path: Path) -> None:
    folder, mark = make_model(tmp_path / "m"), tmp_path / "was-run"
    for name in ("pytorch_model.bin", "a.pt", "training_args.bin", "consolidated.00.pth"):
        (folder / name).write_bytes(pickle.dumps(_Mark(mark)))
    engine = start_engine(kind, EngineConfig(folder, 256))
    (reply,) = engine.generate([Request("d", "x", [40, 50], 3, key="x")])
    engine.close()
    assert reply.output_tokens == 3
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["vllm", "transformers"])
def test_pickled_weights_that_are_allowed(kind: str, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    folder = make_model(tmp_path / "m")
    safe = start_engine(kind, EngineConfig(folder, 256))
    (first,) = safe.generate([Request("d", "x", [40, 50], 5, key="x")])
    safe.close()
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    engine = start_engine(kind, EngineConfig(folder, 256, pickled=True))
    (again,) = engine.generate([Request("d", "x", [40, 50], 5, key="x")])
    engine.close()
    assert again.token_ids == first.token_ids

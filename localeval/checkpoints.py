"""Checkpoints: what ``--model`` names, one by one and in order; how far training had come; whether one is whole.

Looks at names and files alone; knows nothing about what is done with a checkpoint.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from localeval.schema import LocalevalError
from localeval.tensors import why_broken

_STEP = re.compile(
    r"(?<![a-z])(?:checkpoint|ckpt|global_?step|step|iter|iteration|epoch)s?[-_=.]?0*(\d+)(?!.*\d)", re.IGNORECASE
)
_MOST_STEPS = 2**63
_GLOB = re.compile(r"[*?\[]")
INDEX = "model.safetensors.index.json"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER = "adapter_model.safetensors"
TRAINER_STATE = "trainer_state.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One model of a run over several.

    asked: what ``--model`` takes for it alone. label: as tables call it. series: the folder that it lies in with others
    of its training run, else empty. step: optimiser steps, by the trainer's state or the folder's name. state: what its
    files were when it was looked at, where that is of interest.
    """

    asked: str
    label: str
    series: str = ""
    step: int | None = None
    state: str = ""

    @property
    def folder(self) -> Path | None:
        """Where it lies; None for a model that is known by a name."""
        path = Path(os.path.expanduser(self.asked))
        return path if path.is_dir() else None


def find_checkpoints(asked: Sequence[str], names: Collection[str]) -> list[Checkpoint]:
    """What is named by models, patterns and folders of checkpoints: each once, those of one folder ordered by step.

    names: those of models.yaml. Raises LocalevalError for a pattern or a folder in which there is none.
    """
    found: dict[str, Checkpoint] = {}
    spelled: dict[str, str] = {}
    for one in asked:
        for path, series in _named_by(one, names):
            there = Path(os.path.expanduser(path))
            key = str(there.resolve()) if there.exists() and path not in names else path
            # One folder is one training run, however it is spelled.
            series = series and spelled.setdefault(str(Path(series).resolve()), series)
            found.setdefault(key, Checkpoint(path, there.name, series, step_of(there) if series else None))
    first = {each.series or each.asked: place for place, each in reversed(list(enumerate(found.values())))}
    ordered = sorted(found.values(), key=lambda each: (first[each.series or each.asked], *_by_step(each)))
    return _with_labels(ordered)


def _by_step(checkpoint: Checkpoint) -> tuple[int, int, str]:
    # One that has no step (the folder of the finished model) comes last.
    step = checkpoint.step
    return (0, step, checkpoint.label) if step is not None else (1, 0, checkpoint.label)


def _named_by(asked: str, names: Collection[str]) -> list[tuple[str, str]]:
    """(what --model takes, the series' folder or nothing) of each model that one word of the user's names."""
    path = Path(os.path.expanduser(asked))
    if asked in names:
        return [(asked, "")]
    if path.exists():
        if path.is_dir() and not is_model(path) and (inside := checkpoints_in(path)):
            return [(str(each), _series(each)) for each in inside]
        return [(asked, _series(path) if path.is_dir() and step_of(path) is not None else "")]
    if not _GLOB.search(asked):
        return [(asked, "")]
    root = Path(path.anchor) if path.is_absolute() else Path()
    matches = sorted(root.glob(str(path.relative_to(root))))
    models = [each for each in matches if each.suffix == ".gguf" or (each.is_dir() and _may_be_one(each))]
    if not models:
        raise LocalevalError(
            f"--model {asked}: no checkpoint matches; {len(matches)} files and folders do"
            if matches
            else f"--model {asked}: nothing matches (looked in {root.absolute()}; a bracket in a name is written [[])"
        )
    return [(str(each), _series(each) if each.is_dir() else "") for each in models]


def checkpoints_in(folder: Path) -> list[Path]:
    """The folders in a folder that are checkpoints, or look like one that is still being written; unordered."""
    try:
        return [each for each in sorted(folder.iterdir()) if each.is_dir() and _may_be_one(each)]
    except OSError as error:
        raise LocalevalError(f"{folder}: {error}") from error


def is_model(folder: Path) -> bool:
    """Whether a folder holds a model, or an adapter of one."""
    return any((folder / name).is_file() for name in ("config.json", ADAPTER_CONFIG))


def _may_be_one(folder: Path) -> bool:
    # Trainers write into tmp-checkpoint-500 first, and rename it.
    if folder.name.startswith((".", "tmp")):
        return False
    return is_model(folder) or _STEP.search(folder.name) is not None


def _series(folder: Path) -> str:
    return str(folder.parent)


def step_of(folder: Path) -> int | None:
    """``global_step`` of the trainer's state, else the number that the folder's name ends in (``checkpoint-500``)."""
    try:
        state = json.loads((folder / TRAINER_STATE).read_text(encoding="utf-8"))
        step = state["global_step"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # there is none, or it is not written yet
        step = None
    if type(step) is int and 0 <= step < _MOST_STEPS:
        return step
    match = _STEP.search(folder.name)
    return int(match[1]) if match and int(match[1]) < _MOST_STEPS else None


def _with_labels(checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    """The last part of each path, with as much before it as tells them apart."""
    parts = [Path(each.asked).parts or (each.asked,) for each in checkpoints]
    labels = ["/".join(part[-1:]) for part in parts]
    for length in range(2, max(map(len, parts), default=1) + 1):
        twice = {label for label, count in Counter(labels).items() if count > 1}
        labels = ["/".join(p[-length:]) if label in twice else label for p, label in zip(parts, labels, strict=True)]
    return [replace(each, label=label) for each, label in zip(checkpoints, labels, strict=True)]


# --- whole or not ---


def why_not_whole(folder: Path) -> str | None:
    """Why a checkpoint can't be loaded as it lies there; None where config, index and all weights are there, whole.

    That no file is cut is seen from the length in its header.
    """
    if (folder / ADAPTER_CONFIG).is_file():
        files = [folder / ADAPTER]
    elif not (folder / "config.json").is_file():
        return "no config.json"
    else:
        try:
            files = weight_files(folder)
        except LocalevalError as error:
            return str(error)
    missing = [file.name for file in files if not file.is_file()]
    if missing or not files:
        return f"{len(missing)} of {len(files)} weight files are missing: {missing[0]}" if files else "no *.safetensors"
    return next((reason for file in files if (reason := why_broken(file)) is not None), None)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that a model folder's index names, else those that lie there. Raises LocalevalError."""
    index = folder / INDEX
    if not index.is_file():
        return sorted(folder.glob("*.safetensors"))
    return named_in(index)


def named_in(index: Path) -> list[Path]:
    """The files of weights that an index names, beside it. Raises LocalevalError for one that names any other."""
    try:
        names = {str(name) for name in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LocalevalError(f"{index}: can't be read ({error!r}); bring the model's files again") from error
    outside = sorted(name for name in names if Path(name).name != name)
    if outside:  # it would be no part of the checkpoint's fingerprint
        raise LocalevalError(f"{index} names a file outside its folder: {outside[0]}; put the weights beside it")
    return sorted(index.parent / name for name in names)


def state_of(folder: Path) -> tuple[tuple[str, int, int, int], ...]:
    """Name, size and times of each file: equal where nothing has been written in between.

    Both times: the last writing's can be set, as tools that copy do, the last change's can't.
    """
    found = []
    for place, _, names in os.walk(folder):  # passes over a folder that is removed meanwhile
        for name in names:
            file = Path(place) / name
            with suppress(OSError):  # renamed or removed meanwhile
                stat = file.stat()
                found.append((str(file.relative_to(folder)), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
    return tuple(sorted(found))

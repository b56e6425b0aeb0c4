"""Which files of a repository are needed, by their names alone. Reads no contents, and asks no hub."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from localeval.datasets.source import find_split
from localeval.datasets.spec import DatasetSpec
from localeval.schema import LocalevalError

_PAPERS = re.compile(r"(?i)(readme|licen[cs]e|notice|use_policy)([-_.].*)?")
_OF_MODELS = re.compile(r".+\.(safetensors|json|jinja|model|tiktoken|txt)")
_TEMPLATES = "additional_chat_templates/"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def dataset_files(names: Collection[str], spec: DatasetSpec, subsets: Sequence[str], shots: int, what: str) -> set[str]:
    """The files of the rows that are asked and shown, and what they may be used for.

    Decided by ``find_split``, as for a folder: over empty files of these names. names: relative, and checked. shots:
    how many are shown; with none, their split may be missing. what: the repository, for messages. Raises
    LocalevalError where rows are missing, and for those that only a script could make.
    """
    needed = {name for name in names if _PAPERS.fullmatch(name)}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in names:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).touch()
        for subset in subsets:
            for split in dict.fromkeys([spec.split, spec.shots_split]):
                try:
                    found = find_split(root, spec, subset, split)
                except LocalevalError as error:
                    if split != spec.split and not shots:
                        continue
                    raise LocalevalError(_explained(str(error).replace(folder, what), names, spec)) from error
                paths = list(found.paths[0].rglob("*")) if found.saved_to_disk else found.paths
                needed |= {path.relative_to(root).as_posix() for path in paths if path.is_file()}
    return needed


def _explained(message: str, names: Collection[str], spec: DatasetSpec) -> str:
    scripts = sorted(name for name in names if name.endswith(".py") and "/" not in name)
    if not scripts:
        return message
    return (
        f"dataset {spec.name}: its rows are made by a script, {scripts[0]}, and localeval runs none. Hugging Face has "
        f"such rows as Parquet, on a branch whose folders are the subsets: --dataset-hub huggingface --revision "
        f"{spec.name}=refs/convert/parquet. {message}"
    )


def model_files(names: Collection[str], with_code: bool, what: str) -> set[str]:
    """Weights as safetensors, and what is read beside them; no pickles. with_code: Python files too.

    Only of the top: folders below hold the same weights in other forms. Raises LocalevalError where there are none.
    """
    top = {name for name in names if "/" not in name}
    weights = {name for name in top if name.endswith(".safetensors")}
    if not weights:
        pickles = sorted(name for name in top if name.endswith(_PICKLES))
        others = f"; {pickles[0]} is a pickle, and none is fetched" if pickles else ""
        raise LocalevalError(f"{what}: no weights as .safetensors{others}. It holds: {', '.join(sorted(top)[:20])}")
    # Mistral's own form of the same weights.
    doubled = {name for name in weights if name.startswith("consolidated")}
    needed = {name for name in top if _OF_MODELS.fullmatch(name) or _PAPERS.fullmatch(name)}
    needed |= {name for name in names if name.startswith(_TEMPLATES) and name.endswith(".jinja")}
    needed -= doubled if doubled < weights else set()
    return needed | ({name for name in names if name.endswith(".py")} if with_code else set())

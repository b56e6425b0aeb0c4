"""Finds a dataset's files: in a folder, or in the local caches. Reads no row; downloads nothing."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localeval.bundle import find_item, folder_of, how_to_fetch
from localeval.datasets.spec import DatasetSpec, sampled_names
from localeval.schema import LocalevalError

TABLES = (".parquet", ".jsonl", ".json", ".csv", ".tsv")
TEXTS = (".txt", ".conll", ".bio", ".iob2")
"""Endings of the files of rows; a text has a token a line."""
_SAME_SPLIT = {"validation": ("validation", "valid", "val", "dev")}
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})(?:-[0-9a-f]+)?$")


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """The files of one subset's split: tables or CoNLL texts, or one folder written by ``save_to_disk``."""

    paths: tuple[Path, ...]
    saved_to_disk: bool = False

    def files(self) -> Sequence[Path]:
        """Every file that is read."""
        return sorted(p for p in self.paths[0].iterdir() if p.is_file()) if self.saved_to_disk else self.paths

    def fingerprint(self) -> str:
        """SHA-256 over names and bytes: an edited file is another dataset."""
        digest = hashlib.sha256()
        for path in self.files():
            digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
        return digest.hexdigest()


def find_root(spec: DatasetSpec, dataset_dir: str | None, local_path: str | None, bundle: Path | None = None) -> Path:
    """The folder that holds a dataset.

    local_path (of ``--dataset-args``) names it; else ``dataset_dir`` holds it or is it; else the bundle holds it by its
    name; else the YAML file names it; else it is in the local cache of Hugging Face or ModelScope. Raises
    LocalevalError that lists every place.
    """
    looked: list[Path] = []
    if local_path is not None:
        found = _first_folder([Path(os.path.expanduser(local_path))], looked)
        if found:
            return found
    elif dataset_dir is not None:
        base = Path(os.path.expanduser(dataset_dir))
        owner, _, short = spec.hub_id.rpartition("/")
        names = [spec.name, *([spec.hub_id, short, f"datasets--{owner}--{short}"] if short else [])]
        found = _first_folder([*(base / name for name in names), base], looked)
        if found:
            return _snapshot(found)
    else:
        if bundle is not None:
            item = find_item(bundle, "dataset", spec.name)
            if item is not None:
                return folder_of(bundle, item)
            looked.append(bundle / "datasets" / spec.name)
        if spec.path:
            found = _first_folder([spec.source.parent / spec.path], looked)
            if found:
                return found
        if spec.hub_id:
            found = _first_folder(_cache_folders(spec.hub_id), looked)
            if found:
                return _snapshot(found)
    raise _not_found(spec, looked)


def _first_folder(folders: Sequence[Path], looked: list[Path]) -> Path | None:
    for folder in folders:
        looked.append(folder)
        if folder.is_dir():
            return folder
    return None


def modelscope_cache() -> Path:
    """The folder below which ModelScope's own tools keep what they have fetched."""
    return Path(os.path.expanduser(os.environ.get("MODELSCOPE_CACHE", "~/.cache/modelscope")))


def _cache_folders(hub_id: str) -> list[Path]:
    """Where Hugging Face's and ModelScope's own tools keep a dataset's files."""
    owner, name = hub_id.split("/", 1)
    huggingface = Path(os.path.expanduser(os.environ.get("HF_HOME", "~/.cache/huggingface")))
    hub = Path(os.path.expanduser(os.environ.get("HF_HUB_CACHE", str(huggingface / "hub"))))
    modelscope = modelscope_cache()
    return [
        hub / f"datasets--{owner}--{name}",
        modelscope / "datasets" / owner / name,
        modelscope / "hub" / "datasets" / owner / name,
        modelscope / "hub" / "datasets" / f"{owner}___{name}",
    ]


def _snapshot(folder: Path) -> Path:
    """The revision inside a Hugging Face cache folder (``refs/main``, or the only one); another folder is itself."""
    snapshots = folder / "snapshots"
    if not snapshots.is_dir():
        return folder
    main = folder / "refs" / "main"
    named = main.read_text(encoding="utf-8", errors="replace").strip() if main.is_file() else ""
    if re.fullmatch(r"[\w-][\w.-]{0,254}", named) and (snapshots / named).is_dir():
        return snapshots / named
    revisions = sorted(path for path in snapshots.iterdir() if path.is_dir())
    if len(revisions) == 1:
        return revisions[0]
    raise LocalevalError(
        f"{folder}: {len(revisions)} revisions and none is named by refs/main; "
        'name the folder of one: --dataset-args \'{"<dataset>": {"local_path": "..."}}\''
    )


def _not_found(spec: DatasetSpec, looked: list[Path]) -> LocalevalError:
    places = "".join(f"\n  {path}" for path in looked) or "\n  (nowhere: the YAML file names neither path nor hub_id)"
    usual = ("" if spec.subsets == ["default"] else f"{spec.subsets[0]}/") + f"{spec.split}.jsonl"
    layout = f"DIR/{spec.name}/{spec.files_of(spec.subsets[0], spec.split) or usual}"
    return LocalevalError(
        f"dataset {spec.name} was not found. Looked in:{places}\n"
        f"Put its files into a folder and name it with --dataset-dir DIR, as {layout} (or .parquet, .csv, .txt ...)"
        + (f"; the published dataset is {spec.hub_id}" if spec.hub_id else "")
        + f".\nOr on a connected machine: {how_to_fetch('dataset', spec.asked_as)}; then here: --bundle DIR"
        + (".\nTo try it out on a few rows that ship here: --samples" if spec.name in sampled_names() else "")
    )


def find_split(root: Path, spec: DatasetSpec, subset: str, split: str) -> SplitFiles:
    """The files of one split of one subset below a dataset's folder.

    The file that the YAML file names (``files``), if it is there. Else taken from the first of these folders that has
    any: ``<subset>/``, ``data/<subset>/``, ``<subset>/data/``, and for the subset ``default`` also ``.`` and ``data/``.
    In it: ``<split>.<ext>``, ``<split>-00000-of-00003.<ext>``,
    ``<split>/*.<ext>``, or a folder of ``save_to_disk``; or ``<subset>-<split>.<ext>`` at the top.
    Raises LocalevalError where there are none, where parts are missing, or where two formats stand side by side.
    """
    folders = [root / subset, root / "data" / subset, root / subset / "data"]
    if subset == "default":
        folders += [root, root / "data"]
    names = _SAME_SPLIT.get(split, (split,))
    named = [root / file for name in names if (file := spec.files_of(subset, name))]
    if there := [SplitFiles((path,)) for path in dict.fromkeys(named) if path.is_file()]:
        return _inside(root, _only([there]))
    for folder in folders:
        found = [files for name in names if (files := _files_in(folder, name))]
        if found:
            return _inside(root, _only(found))
    found = [files for name in names if (files := _files_named(root, f"{re.escape(subset)}[-_]{re.escape(name)}"))]
    if found:
        return _inside(root, _only(found))
    here = sorted(path.name + ("/" if path.is_dir() else "") for path in root.iterdir())
    shown = ", ".join(here[:20]) + (f" and {len(here) - 20} more" if len(here) > 20 else "") or "nothing"
    raise LocalevalError(
        f"no {split} rows of subset {subset!r}. Looked for "
        + "".join(f"{path}, else for " for path in named[:1])
        + f"{names[0]}.parquet, .jsonl, .json, .csv, .txt, .bio, or a save_to_disk folder in:"
        + "".join(f"\n  {folder}" for folder in folders)
        + f"\n{root} holds: {shown}"
    )


def _files_in(folder: Path, split: str) -> list[SplitFiles]:
    if not folder.is_dir():
        return []
    found = _files_named(folder, re.escape(split))
    inner = folder / split
    if (inner / "state.json").is_file():
        found.append(SplitFiles((inner,), saved_to_disk=True))
    elif inner.is_dir():
        found += _files_named(inner, ".*")
    return found


def _files_named(folder: Path, stem: str) -> list[SplitFiles]:
    """Files called ``stem``, each format apart; shards of one format belong together."""
    pattern = re.compile(rf"(?:{stem})(?:-\d{{5}}-of-\d{{5}}(?:-[0-9a-f]+)?)?")
    by_format: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        is_data = path.suffix in (*TABLES, *TEXTS) and path.stem.lower() not in ("readme", "license")
        if is_data and path.is_file() and pattern.fullmatch(path.stem):
            by_format.setdefault(path.suffix, []).append(path)
    return [SplitFiles(tuple(paths)) for paths in by_format.values()]


def _inside(root: Path, files: SplitFiles) -> SplitFiles:
    """The same files. Raises LocalevalError for a link that leads out of the dataset's folder.

    The folder itself may be a link; and a revision in a Hugging Face cache is links into the ``blobs`` beside it.
    """
    home = root.resolve()
    homes = [home, *([home.parents[1] / "blobs"] if home.parent.name == "snapshots" else [])]
    paths = [path for one in files.paths for path in ([one, *one.rglob("*")] if files.saved_to_disk else [one])]
    for path in paths:
        target = path.resolve()
        if not any(target.is_relative_to(each) for each in homes):
            raise LocalevalError(f"{path} is a link out of its dataset's folder, to {target}; put the file there")
    return files


def _only(found: list[list[SplitFiles]]) -> SplitFiles:
    files = [one for group in found for one in group]
    if len(files) > 1:
        both = ", ".join(str(one.paths[0]) for one in files)
        raise LocalevalError(f"which of these are the rows? {both}; keep one of them in the folder")
    shards = [match for path in files[0].paths if (match := _SHARD.search(path.stem))]
    if shards:
        total = int(shards[0][2])
        parts = sorted(int(match[1]) for match in shards)
        if parts != list(range(total)) or len(shards) != len(files[0].paths):
            names = ", ".join(path.name for path in files[0].paths)
            raise LocalevalError(f"{files[0].paths[0].parent}: expected {total} parts, each once; here are: {names}")
    return files[0]

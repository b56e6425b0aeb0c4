"""Finds a dataset's files and reads their rows. Knows nothing about questions, sentences or prompts.

A row is a mapping from column to value, with the place it came from for error messages.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localeval.datasets.conll import read_sentences
from localeval.datasets.spec import DatasetSpec
from localeval.schema import LocalevalError

if TYPE_CHECKING:
    import pyarrow

_TABLES = (".parquet", ".jsonl", ".json", ".csv")
_CONLL = (".txt", ".conll", ".bio", ".iob2")
_SAME_SPLIT = {"validation": ("validation", "valid", "val", "dev")}
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})(?:-[0-9a-f]+)?$")


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """The files of one subset's split: tables or CoNLL texts, or one folder written by ``save_to_disk``."""

    paths: tuple[Path, ...]
    saved_to_disk: bool = False

    def fingerprint(self) -> str:
        """SHA-256 over names and bytes: an edited file is another dataset."""
        paths = sorted(p for p in self.paths[0].iterdir() if p.is_file()) if self.saved_to_disk else self.paths
        digest = hashlib.sha256()
        for path in paths:
            digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Row:
    """values: column -> value. place: ``<file>, row 12`` (from 0) or ``<file>, line 13`` (from 1)."""

    values: Mapping[str, Any]
    place: str


@dataclass(frozen=True, slots=True)
class Rows:
    """A split's rows, read as they are taken. tag_names: column -> class names that the files themselves declare."""

    rows: Iterator[Row]
    tag_names: Mapping[str, Sequence[str]]


# --- finding ---


def find_root(spec: DatasetSpec, dataset_dir: str | None, local_path: str | None) -> tuple[Path, str]:
    """The folder that holds a dataset, and how it was found.

    local_path (of ``--dataset-args``) names it; else ``dataset_dir`` holds it or is it; else the YAML file names it;
    else it is in the local cache of Hugging Face or ModelScope. Raises LocalevalError that lists every place.
    """
    looked: list[Path] = []
    if local_path is not None:
        found = _first_folder([Path(local_path).expanduser()], looked)
        if found:
            return found, "local_path"
    elif dataset_dir is not None:
        base = Path(dataset_dir).expanduser()
        owner, _, short = spec.hub_id.rpartition("/")
        names = [spec.name, *([spec.hub_id, short, f"datasets--{owner}--{short}"] if short else [])]
        found = _first_folder([*(base / name for name in names), base], looked)
        if found:
            return _snapshot(found), "--dataset-dir"
    else:
        if spec.path:
            found = _first_folder([spec.source.parent / spec.path], looked)
            if found:
                return found, f"path in {spec.source.name}"
        if spec.hub_id:
            found = _first_folder(_cache_folders(spec.hub_id), looked)
            if found:
                return _snapshot(found), "cache"
    raise _not_found(spec, looked)


def _first_folder(folders: Sequence[Path], looked: list[Path]) -> Path | None:
    for folder in folders:
        looked.append(folder)
        if folder.is_dir():
            return folder
    return None


def _cache_folders(hub_id: str) -> list[Path]:
    """Where Hugging Face's and ModelScope's own tools keep a dataset's files."""
    owner, name = hub_id.split("/", 1)
    huggingface = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE", huggingface / "hub")).expanduser()
    modelscope = Path(os.environ.get("MODELSCOPE_CACHE", "~/.cache/modelscope")).expanduser()
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
    if main.is_file() and (snapshots / main.read_text().strip()).is_dir():
        return snapshots / main.read_text().strip()
    revisions = sorted(path for path in snapshots.iterdir() if path.is_dir())
    if len(revisions) == 1:
        return revisions[0]
    raise LocalevalError(
        f"{folder}: {len(revisions)} revisions and none is named by refs/main; "
        'name the folder of one: --dataset-args \'{"<dataset>": {"local_path": "..."}}\''
    )


def _not_found(spec: DatasetSpec, looked: list[Path]) -> LocalevalError:
    places = "".join(f"\n  {path}" for path in looked) or "\n  (nowhere: the YAML file names neither path nor hub_id)"
    layout = (
        f"DIR/{spec.name}/" + ("" if spec.subsets == ["default"] else f"{spec.subsets[0]}/") + f"{spec.split}.jsonl"
    )
    return LocalevalError(
        f"dataset {spec.name} was not found. Looked in:{places}\n"
        f"Put its files into a folder and name it with --dataset-dir DIR, as {layout} (or .parquet, .csv, .txt ...)"
        + (f"; the published dataset is {spec.hub_id}" if spec.hub_id else "")
    )


def find_split(root: Path, subset: str, split: str) -> SplitFiles:
    """The files of one split of one subset below a dataset's folder.

    Taken from the first of these folders that has any: ``<subset>/``, ``data/<subset>/``, ``<subset>/data/``, and for
    the subset ``default`` also ``.`` and ``data/``. In it: ``<split>.<ext>``, ``<split>-00000-of-00003.<ext>``,
    ``<split>/*.<ext>``, or a folder of ``save_to_disk``; or ``<subset>-<split>.<ext>`` at the top.
    Raises LocalevalError where there are none, where parts are missing, or where two formats stand side by side.
    """
    folders = [root / subset, root / "data" / subset, root / subset / "data"]
    if subset == "default":
        folders += [root, root / "data"]
    names = _SAME_SPLIT.get(split, (split,))
    for folder in folders:
        found = [files for name in names if (files := _files_in(folder, name))]
        if found:
            return _only(found)
    found = [files for name in names if (files := _files_named(root, f"{re.escape(subset)}[-_]{name}"))]
    if found:
        return _only(found)
    here = sorted(path.name + ("/" if path.is_dir() else "") for path in root.iterdir())
    shown = ", ".join(here[:20]) + (f" and {len(here) - 20} more" if len(here) > 20 else "") or "nothing"
    raise LocalevalError(
        f"no {split} rows of subset {subset!r}. Looked for {names[0]}.parquet, .jsonl, .json, .csv, .txt, .bio, or a "
        f"save_to_disk folder in:" + "".join(f"\n  {folder}" for folder in folders) + f"\n{root} holds: {shown}"
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
        if path.is_file() and path.suffix in (*_TABLES, *_CONLL) and pattern.fullmatch(path.stem):
            by_format.setdefault(path.suffix, []).append(path)
    return [SplitFiles(tuple(paths)) for paths in by_format.values()]


def _only(found: list[list[SplitFiles]]) -> SplitFiles:
    files = [one for group in found for one in group]
    if len(files) > 1:
        both = ", ".join(str(one.paths[0]) for one in files)
        raise LocalevalError(f"which of these are the rows? {both}; keep one of them in the folder")
    shards = [match for path in files[0].paths if (match := _SHARD.search(path.stem))]
    if shards and len(files[0].paths) != int(shards[0][2]):
        raise LocalevalError(
            f"{files[0].paths[0].parent}: {len(files[0].paths)} of the {int(shards[0][2])} parts of "
            f"{files[0].paths[0].name} are here; bring the others"
        )
    return files[0]


# --- reading ---


def read_rows(files: SplitFiles, columns: Sequence[str], spec: DatasetSpec, limit: int | None) -> Rows:
    """The first ``limit`` rows. columns: those that are needed; a file that lacks one is refused, its own listed."""
    if files.saved_to_disk:
        table, names = _saved_table(files.paths[0], columns)
        return Rows(islice(_table_rows(table, columns, files.paths[0]), limit), names)
    if files.paths[0].suffix == ".parquet":
        return _parquet_rows(files.paths, columns, limit)
    readers = {".jsonl": _jsonl_rows, ".json": _json_rows, ".csv": _csv_rows}
    suffix = files.paths[0].suffix
    if suffix in readers:
        rows = (row for path in files.paths for row in readers[suffix](path, columns))
    elif spec.task == "ner":
        rows = (row for path in files.paths for row in _conll_rows(path, columns, spec))
    else:
        raise LocalevalError(f"{files.paths[0]}: multiple-choice rows can't be read from {suffix} files")
    return Rows(islice(rows, limit), {})


def _check_columns(have: Sequence[str], need: Sequence[str], place: str) -> None:
    for name in need:
        if name not in have:
            raise LocalevalError(f"{place}: no column {name!r}; it has: {', '.join(map(str, have))}")


def _parquet_rows(paths: Sequence[Path], columns: Sequence[str], limit: int | None) -> Rows:
    import pyarrow
    import pyarrow.parquet

    names: dict[str, Sequence[str]] = {}
    files = []
    for path in paths:
        try:
            file = pyarrow.parquet.ParquetFile(path)
        except (pyarrow.ArrowInvalid, OSError) as error:
            raise LocalevalError(f"{path}: can't be read as parquet (is it whole?): {error}") from error
        _check_columns(file.schema_arrow.names, columns, str(path))
        names |= _class_names(file.schema_arrow.metadata)
        files.append((path, file))

    def rows() -> Iterator[Row]:
        for path, file in files:
            start = 0
            for batch in file.iter_batches(batch_size=8192, columns=list(columns)):
                yield from _table_rows(batch, columns, path, start)
                start += batch.num_rows

    return Rows(islice(rows(), limit), names)


def _table_rows(
    table: pyarrow.Table | pyarrow.RecordBatch, columns: Sequence[str], path: Path, start: int = 0
) -> Iterator[Row]:
    values = [table.column(name).to_pylist() for name in columns]
    for index, row in enumerate(zip(*values, strict=True), start):
        yield Row(dict(zip(columns, row, strict=True)), f"{path}, row {index}")


def _class_names(metadata: Mapping[bytes, bytes] | None) -> dict[str, Sequence[str]]:
    """The class names that the ``datasets`` library stores beside a table: column -> names."""
    if not metadata or b"huggingface" not in metadata:
        return {}
    features = json.loads(metadata[b"huggingface"]).get("info", {}).get("features", {})
    names = {}
    for column, feature in features.items():
        inner = feature.get("feature", feature) if isinstance(feature, dict) else {}
        if isinstance(inner, dict) and inner.get("_type") == "ClassLabel":
            names[column] = inner["names"]
    return names


def _saved_table(path: Path, columns: Sequence[str]) -> tuple[pyarrow.Table, dict[str, Sequence[str]]]:
    from datasets import load_from_disk

    try:
        table = load_from_disk(str(path)).with_format("arrow")[:]
    except (OSError, ValueError, KeyError) as error:
        raise LocalevalError(f"{path}: can't be read as a save_to_disk folder: {error}") from error
    _check_columns(table.column_names, columns, str(path))
    return table, _class_names(table.schema.metadata)


def _open_text(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            yield from file
    except UnicodeDecodeError as error:
        raise LocalevalError(f"{path} is not UTF-8: {error}") from error


def _jsonl_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    for number, line in enumerate(_open_text(path), 1):
        if line.strip():
            place = f"{path}, line {number}"
            yield _object(_loads(line, place), columns, place)


def _json_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    data = _loads("".join(_open_text(path)), str(path))
    if isinstance(data, dict) and isinstance(data.get("data"), list):
        data = data["data"]
    if not isinstance(data, list):
        raise LocalevalError(f"{path}: expected a list of rows, or {{'data': [...]}}, not {type(data).__name__}")
    for index, row in enumerate(data):
        yield _object(row, columns, f"{path}, row {index}")


def _loads(text: str, place: str) -> Any:
    try:
        # A number with a fraction stays as it is written: 2.50 as an option is not 2.5.
        return json.loads(text, parse_float=str)
    except ValueError as error:
        raise LocalevalError(f"{place}: not JSON: {error}") from error


def _object(row: Any, columns: Sequence[str], place: str) -> Row:
    if not isinstance(row, dict):
        raise LocalevalError(f"{place}: expected an object, not {type(row).__name__}")
    _check_columns(list(row), columns, place)
    return Row(row, place)


def _csv_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    import pandas

    try:  # everything is text: "None" and "NA" are answers, 007 keeps its zeros
        table = pandas.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except (ValueError, OSError) as error:
        raise LocalevalError(f"{path}: can't be read as CSV: {error}") from error
    _check_columns([str(name) for name in table.columns], columns, str(path))
    for index, row in enumerate(table[list(columns)].itertuples(index=False, name=None)):
        yield Row(dict(zip(columns, row, strict=True)), f"{path}, row {index}")


def _conll_rows(path: Path, columns: Sequence[str], spec: DatasetSpec) -> Iterator[Row]:
    for sentence in read_sentences(path, spec.conll):
        yield Row(dict(zip(columns, (sentence.tokens, sentence.tags), strict=False)), f"{path}, line {sentence.line}")

"""Reads the rows of a dataset's files. Knows nothing about questions, sentences or prompts.

A row is a mapping from column to value, with the place it came from for error messages.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localeval.datasets.conll import read_sentences
from localeval.datasets.source import SplitFiles
from localeval.datasets.spec import DatasetSpec
from localeval.nearest import nearest
from localeval.schema import LocalevalError

if TYPE_CHECKING:
    import pyarrow


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


def read_rows(files: SplitFiles, columns: Sequence[str], spec: DatasetSpec, limit: int | None) -> Rows:
    """The first ``limit`` rows. columns: those that are needed; a file that lacks one is refused, its own listed."""
    if files.saved_to_disk:
        table, names = _saved_table(files.paths[0], columns)
        return Rows(islice(_table_rows(table, columns, files.paths[0]), limit), names)
    suffix = files.paths[0].suffix
    if suffix == ".parquet":
        return _parquet_rows(files.paths, columns, limit)
    if suffix == ".csv" and spec.task == "ner":
        raise LocalevalError(f"{files.paths[0]}: a CSV cell holds no list of tokens; use .jsonl, .parquet or .txt")
    if suffix in _READERS and not (suffix == ".tsv" and spec.task == "ner"):  # of sentences it has a token a line
        rows = (row for path in files.paths for row in _READERS[suffix](path, columns))
    elif spec.task == "ner":
        rows = (row for path in files.paths for row in _conll_rows(path, columns, spec))
    else:
        raise LocalevalError(f"{files.paths[0]}: multiple-choice rows can't be read from {suffix} files")
    return Rows(islice(rows, limit), {})


def read_table(path: Path) -> Rows:
    """All rows of one file, with all of its columns. Raises LocalevalError for a file that is no table."""
    if path.suffix == ".parquet":
        return _parquet_rows([path], None, None)
    if path.suffix not in _READERS:
        known = ", ".join([".parquet", *_READERS])
        raise LocalevalError(f"{path}: no table that can be read; tables are {known} files")
    return Rows(_READERS[path.suffix](path, ()), {})


def _check_columns(have: Sequence[str], need: Sequence[str], place: str) -> None:
    for name in need:
        if list(have).count(name) > 1:
            raise LocalevalError(f"{place}: two columns are called {name!r}")
        if name not in have:
            names = [str(each) for each in have]
            raise LocalevalError(f"{place}: no column {name!r}{nearest(name, names)}; it has: {', '.join(names)}")


def _parquet_rows(paths: Sequence[Path], wanted: Sequence[str] | None, limit: int | None) -> Rows:
    """wanted: None for all columns of the first file."""
    import pyarrow
    import pyarrow.parquet

    names: dict[str, Sequence[str]] = {}
    files = []
    columns: Sequence[str] = wanted or ()
    for path in paths:
        try:
            file = pyarrow.parquet.ParquetFile(path)
        except (pyarrow.ArrowException, OSError) as error:
            raise LocalevalError(f"{path}: can't be read as parquet (is it whole?): {error}") from error
        columns = columns if wanted is not None else file.schema_arrow.names
        _check_columns(file.schema_arrow.names, columns, str(path))
        names |= _class_names(file.schema_arrow.metadata)
        files.append((path, file))

    def rows() -> Iterator[Row]:
        for path, file in files:
            start = 0
            try:
                for batch in file.iter_batches(batch_size=8192, columns=list(columns)):
                    yield from _table_rows(batch, columns, path, start)
                    start += batch.num_rows
            except (pyarrow.ArrowException, OSError) as error:
                raise LocalevalError(f"{path}, after row {start}: can't be read as parquet: {error}") from error

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
    names = {}
    try:
        for column, feature in json.loads(metadata[b"huggingface"])["info"]["features"].items():
            inner = feature.get("feature", feature)
            if isinstance(inner, dict) and inner.get("_type") == "ClassLabel":
                names[column] = inner["names"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}  # another writer's notes: the YAML's tag_names are asked instead
    return names


def _saved_table(path: Path, columns: Sequence[str]) -> tuple[pyarrow.Table, dict[str, Sequence[str]]]:
    import pyarrow
    from datasets import load_from_disk

    _check_state(path / "state.json")
    try:
        table = load_from_disk(str(path)).with_format("arrow")[:]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ImportError, pyarrow.ArrowException) as error:
        raise LocalevalError(f"{path}: can't be read as a save_to_disk folder: {error}") from error
    _check_columns(table.column_names, columns, str(path))
    return table, _class_names(table.schema.metadata)


def _check_state(state: Path) -> None:
    """Raises LocalevalError where the state of a save_to_disk folder can't be read, or names what lies elsewhere."""
    try:
        files = json.loads(state.read_text(encoding="utf-8"))["_data_files"]
        names = [file["filename"] for file in files]
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise LocalevalError(f"{state}: can't be read: {error!r}") from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or not (state.parent / name).is_file():
            raise LocalevalError(f"{state} names {name!r}, which is no file beside it")


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
    except (ValueError, RecursionError) as error:
        raise LocalevalError(f"{place}: not JSON: {error}") from error


def _object(row: Any, columns: Sequence[str], place: str) -> Row:
    if not isinstance(row, dict):
        raise LocalevalError(f"{place}: expected an object, not {type(row).__name__}")
    _check_columns(list(row), columns, place)
    return Row(row, place)


def _csv_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Everything is text: "None" and "NA" are answers, 007 keeps its zeros."""
    csv.field_size_limit(1 << 30)
    lines = csv.reader(_open_text(path), strict=True, delimiter="\t" if path.suffix == ".tsv" else ",")
    try:
        header = next(lines, [])
        _check_columns(header, columns, str(path))
        for cells in lines:
            if cells:
                place = f"{path}, line {lines.line_num}"
                if len(cells) != len(header):
                    raise LocalevalError(f"{place}: {len(cells)} cells under a header of {len(header)}: {cells}")
                yield Row(dict(zip(header, cells, strict=True)), place)
    except csv.Error as error:
        raise LocalevalError(f"{path}, line {lines.line_num}: not CSV: {error}") from error


_READERS = {".jsonl": _jsonl_rows, ".json": _json_rows, ".csv": _csv_rows, ".tsv": _csv_rows}


def _conll_rows(path: Path, columns: Sequence[str], spec: DatasetSpec) -> Iterator[Row]:
    for sentence in read_sentences(path, spec.conll):
        yield Row(dict(zip(columns, (sentence.tokens, sentence.tags), strict=False)), f"{path}, line {sentence.line}")

"""A bundle: a plain folder of datasets, models and wheels that is carried to a machine without a network.

``bundle.json`` names every file with its size and SHA-256. Nothing in a bundle leads out of it: no links, no ``..``, no
absolute paths, no special files, whatever its manifest says. Knows nothing about hubs, nor about what the files mean.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, astuple, dataclass
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeAlias

from localeval.schema import LocalevalError, RunFailed

MANIFEST = "bundle.json"
FORMAT = 1
Kind: TypeAlias = Literal["dataset", "model", "wheels"]
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BLOCK = 1 << 22
_LONGEST = 1024
"""Characters of a path, of which Linux takes four times as many bytes."""


@dataclass(frozen=True, slots=True)
class BundledFile:
    """path: POSIX, relative to the item's folder. size: bytes. sha256: 64 hex digits, small."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Item:
    """What is brought as one.

    name: as ``--datasets`` and ``--model`` call it. folder: POSIX, relative to the bundle: ``datasets/<name>``,
    ``models/<owner>/<name>``, ``wheels``. hub: huggingface, modelscope, or empty; id, revision: there. source: an
    address for people.
    """

    kind: Kind
    name: str
    folder: str
    hub: str
    id: str
    revision: str
    licence: str
    source: str
    files: tuple[BundledFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files)

    @property
    def origin(self) -> dict[str, str]:
        """Where it is from, as run.json says it."""
        return {"hub": self.hub, "id": self.id, "revision": self.revision}


@dataclass(frozen=True, slots=True)
class _Manifest:
    format: Literal[1]
    items: tuple[Item, ...]


def folder_named(kind: Kind, name: str) -> str:
    """The folder of an item, relative to the bundle; wheels of all kinds lie in one."""
    return "wheels" if kind == "wheels" else f"{kind}s/{name}"


def safe_path(path: str) -> str:
    """The path itself. Raises LocalevalError for one that could leave its folder, or that is no plain POSIX path."""
    parts = path.split("/")
    shown = path.replace("\u200c", "").replace("\u200d", "")  # names in Indic scripts hold these two joiners
    unlike = any(part in ("", ".", "..") for part in parts) or "\\" in path or not shown.isprintable()
    if unlike or len(path) > _LONGEST:
        raise LocalevalError(
            f"{path[:200]!r} is no path inside a folder: no '..', '.', '\\', nothing absolute, no controls"
        )
    return path


def read_manifest(bundle: Path) -> tuple[Item, ...]:
    """All that a bundle holds, by its manifest.

    Raises LocalevalError for a manifest that is missing, broken or of another format, for paths that leave their
    folder, and for two items of one kind and name.
    """
    file = bundle / MANIFEST
    try:
        if not stat.S_ISREG(file.lstat().st_mode):
            raise LocalevalError(f"{file} is no plain file; bring the bundle again")
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise LocalevalError(
            f"{bundle} is no bundle: it holds no {MANIFEST} (localeval fetch ... --to DIR fills one; --bundle or "
            "LOCALEVAL_HOME names it)"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise LocalevalError(f"{file}: can't be read: {error}") from error
    items = _parsed(file, text)
    try:
        _check(items)
    except LocalevalError as error:
        raise LocalevalError(f"{file}: {error}; bring the bundle again") from error
    return items


def _parsed(file: Path, text: str) -> tuple[Item, ...]:
    from pydantic import TypeAdapter, ValidationError

    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LocalevalError(f"{file}: not JSON ({error}); bring the bundle again") from error
    if isinstance(data, dict) and type(data.get("format")) is int and data["format"] != FORMAT:
        raise LocalevalError(
            f"{file}: format {data['format']}, and this localeval reads {FORMAT}; bring one with the other's version"
        )
    try:
        return TypeAdapter(_Manifest).validate_json(text, strict=True).items
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise LocalevalError(f"{file}, {place}: {first['msg']}; bring the bundle again") from error


def _check(items: Sequence[Item]) -> None:
    names: set[tuple[str, str]] = set()
    for item in items:
        where = f"{item.kind} {item.name!r}"
        for word in (item.name, item.hub, item.id, item.revision, item.licence, item.source):
            if not word.isprintable():
                raise LocalevalError(f"{where}: {word!r} holds what can't be printed")
        if not item.name or (item.kind, item.name) in names:
            raise LocalevalError(f"{where}: it is there twice, or has no name")
        names.add((item.kind, item.name))
        if safe_path(item.folder) != folder_named(item.kind, item.name):
            raise LocalevalError(f"{where}: its folder is {item.folder!r}, not {folder_named(item.kind, item.name)!r}")
        paths = {safe_path(file.path) for file in item.files}
        above = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
        if len(paths) < len(item.files) or paths & above or not item.files:
            raise LocalevalError(f"{where}: it names no file, one twice, or one inside another")
        for file in item.files:
            if file.size < 0 or not _SHA256.fullmatch(file.sha256):
                raise LocalevalError(f"{where}, {file.path}: size {file.size}, sha256 {file.sha256!r}")


def write_manifest(bundle: Path, items: Iterable[Item]) -> None:
    """Writes ``bundle.json`` in one step. Raises LocalevalError for what ``read_manifest`` would refuse."""
    ordered = sorted(items, key=lambda item: (item.kind, item.name))
    _check(ordered)
    rows: list[dict[str, Any]] = [
        {**asdict(item), "files": [asdict(file) for file in sorted(item.files, key=astuple)]} for item in ordered
    ]
    text = json.dumps({"format": FORMAT, "items": rows}, indent=1, ensure_ascii=False, allow_nan=False)
    partial = bundle / f".{MANIFEST}.{os.getpid()}"
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(bundle / MANIFEST)
    finally:
        partial.unlink(missing_ok=True)


def with_item(items: Iterable[Item], item: Item) -> tuple[Item, ...]:
    """The items with this one, in place of one of its kind and name."""
    return (*(each for each in items if (each.kind, each.name) != (item.kind, item.name)), item)


def find_item(bundle: Path, kind: Kind, name: str) -> Item | None:
    """The item of that kind and name, or None. Raises LocalevalError as ``read_manifest``."""
    return next((item for item in read_manifest(bundle) if (item.kind, item.name) == (kind, name)), None)


def how_to_fetch(kind: Kind, name: str) -> str:
    """The command that brings an item into a bundle, on a machine with a network."""
    option = {"dataset": "--datasets", "model": "--models", "wheels": "--wheels"}[kind]
    return f"localeval fetch {option} {shlex.quote(name)} --to DIR"


def how_to_fetch_again(bundle: Path, item: Item) -> str:
    """The command that brings what is wrong of an item, from the hub it is of: another may have other bytes."""
    hub = f" --{item.kind}-hub {item.hub}" if item.hub else ""
    return f"{how_to_fetch(item.kind, item.name).removesuffix(' DIR')} {shlex.quote(str(bundle))}{hub}"


def origin_of(bundle: Path | None, folder: Path) -> dict[str, str] | None:
    """Where what lies in a folder is from, for an item of the bundle that is as its manifest says; else None.

    Raises LocalevalError as ``folder_of``.
    """
    if bundle is None or not folder.resolve().is_relative_to(bundle.resolve()):
        return None
    for item in read_manifest(bundle):
        if (bundle / item.folder).resolve() == folder.resolve():
            folder_of(bundle, item)
            return item.origin
    return None


def folder_of(bundle: Path, item: Item) -> Path:
    """Where an item lies. Each file must be there with its size, and there must be nothing else, no link above all.

    Raises LocalevalError that names what is wrong. Bytes are not read: ``problems`` does that.
    """
    folder = bundle / item.folder
    found = {file.path: _wrong(bundle, item, file) for file in item.files}
    wrong = [f"{path}: {reason}" for path, reason in found.items() if reason]
    if not wrong:
        named = {folder / file.path for file in item.files}
        # Wheels of several kinds lie in one folder.
        there = (path for path in _all_in(folder) if item.kind != "wheels" or not _is_plain(path))
        wrong = [f"{_shown(path, folder)}: {_UNNAMED}" for path in there if path not in named]
    if wrong:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise LocalevalError(
            f"{folder}: {wrong[0]}{more}. `localeval bundle verify {shlex.quote(str(bundle))}` reads every byte; to "
            f"bring it again, on a connected machine: {how_to_fetch_again(bundle, item)}"
        )
    return folder


_UNNAMED = f"{MANIFEST} names no such file; take it away"


def _shown(path: Path, folder: Path) -> str:
    """What lies there may have any name, also one that would speak to the terminal."""
    name = path.relative_to(folder).as_posix()
    return name if name.isprintable() else repr(name)


def refuse_links(bundle: Path, folder: str) -> None:
    """Before something in an item's folder is written or taken away: through a link that would be elsewhere.

    Raises LocalevalError for a link on the way there, or in it.
    """
    parts = folder.split("/")
    ways = [bundle.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
    for path in chain(ways, _all_in(ways[-1])):
        if path.is_symlink():
            raise LocalevalError(
                f"{_shown(path, bundle)} in {bundle} is a link, and nothing in a bundle may be one; take it away"
            )


def _is_plain(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _all_in(folder: Path) -> Iterator[Path]:
    """Every file, link and special file below a folder; links are not followed."""
    for place, folders, files in os.walk(folder):
        yield from (Path(place) / name for name in sorted(files))
        yield from (Path(place) / name for name in sorted(folders) if (Path(place) / name).is_symlink())


def _wrong(bundle: Path, item: Item, file: BundledFile) -> str | None:
    """What is wrong with a file, as far as it is seen without reading it."""
    place = bundle
    for part in (*item.folder.split("/"), *file.path.split("/")):
        place = place / part
        try:
            state = place.lstat()
        except OSError as error:
            return "missing" if isinstance(error, (FileNotFoundError, NotADirectoryError)) else str(error)
        if stat.S_ISLNK(state.st_mode):
            return f"{place.relative_to(bundle)} is a link, and nothing in a bundle may be one"
    if not stat.S_ISREG(state.st_mode):
        return "no plain file"
    return None if state.st_size == file.size else f"{state.st_size:,} bytes instead of {file.size:,}"


def problems(bundle: Path, progress: Callable[[int], None]) -> list[str]:
    """What is wrong with a bundle, a line each; empty for a whole one. Reads every byte, several files at a time.

    Missing files, other sizes, other bytes, links, files that no item names. progress: is told of the bytes that were
    passed since it was told last, by one thread at a time.
    """
    items = read_manifest(bundle)
    pairs = [(item, file) for item in items for file in item.files]
    alone, stop = threading.Lock(), threading.Event()

    def passed(count: int) -> None:
        if stop.is_set():  # nobody waits for the rest of a file of gigabytes
            raise RunFailed("the reading was stopped")
        with alone:
            progress(count)

    def read(pair: tuple[Item, BundledFile]) -> str | None:
        return _read(bundle, pair[0], pair[1], passed)

    found = []
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        try:
            for (item, file), wrong in zip(pairs, pool.map(read, pairs), strict=True):
                if wrong:
                    again = how_to_fetch_again(bundle, item)
                    found.append(f"{item.folder}/{file.path}: {wrong}; bring it again: {again}")
        finally:
            stop.set()
    named = {bundle / item.folder / file.path for item in items for file in item.files} | {bundle / MANIFEST}
    strays = [path for path in _all_in(bundle) if path not in named]
    return found + [f"{_shown(path, bundle)}: {_UNNAMED}" for path in strays]


def _read(bundle: Path, item: Item, file: BundledFile, progress: Callable[[int], None]) -> str | None:
    wrong = _wrong(bundle, item, file)
    if wrong:
        progress(file.size)
        return wrong
    digest = hashlib.sha256()
    try:
        with (bundle / item.folder / file.path).open("rb") as opened:
            while block := opened.read(_BLOCK):
                digest.update(block)
                progress(len(block))
    except OSError as error:
        return f"can't be read: {error}"
    return None if digest.hexdigest() == file.sha256 else "other bytes than the manifest's SHA-256 says"

"""``localeval fetch``: datasets and models from the hubs into a bundle. The conductor of ``hubs`` and ``transfer``.

Everything is resolved first (listed, its commit pinned, access tried, space counted); only then a file is transferred.
An item is written into the manifest when all its files are there.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from localeval.bundle import (
    MANIFEST,
    BundledFile,
    Item,
    read_manifest,
    refuse_links,
    safe_path,
    with_item,
    write_manifest,
)
from localeval.checkpoints import ADAPTER_CONFIG
from localeval.hubs import COMMIT, Listing, RemoteFile, hub_named
from localeval.offline import send_no_telemetry
from localeval.progress import measure, say, size
from localeval.requested import Fetching, Requested, base_of, requests_of
from localeval.schema import LocalevalError
from localeval.transfer import Origin, Wanted, read_small, transfer, whole


@dataclass(frozen=True, slots=True)
class _Planned:
    """An item that is to be brought. here: files that are there already, whole. missing: the others."""

    asked: Requested
    listing: Listing
    files: tuple[RemoteFile, ...]
    here: Mapping[str, BundledFile]
    missing: Mapping[str, Wanted]

    @property
    def left(self) -> int:
        """Bytes that are still to come, as far as the hub says how many there are."""
        return sum(max((wanted.size or 0) - wanted.received, 0) for wanted in self.missing.values())


def fetch(asked: Fetching) -> str:
    """Brings what is asked for into the bundle; returns what is there now, in words.

    Raises LocalevalError for what isn't there, isn't open to this user, or has no room; RunFailed where the transfer
    breaks off. What was received stays, and the same command goes on.
    """
    send_no_telemetry()
    items = _items(asked.to)
    wanted = requests_of(asked)
    lines, plans = [], []
    for one in wanted:  # an adapter adds its base model while this goes on
        before = _before(items, one)
        if before is not None and _is_there(asked, one, before):
            lines.append(_line(before, "is there"))
            base = _base_in(asked.to / before.folder / ADAPTER_CONFIG)
        else:
            plan = _resolve(asked, one, before)
            plans.append(plan)
            base = _base_on(plan)
        if base is not None and all((one.kind, one.id) != ("model", base) for one in wanted):
            wanted += [added] if (added := base_of(one, base, asked)) is not None else []
    _check_space(asked.to, plans)
    asked.to.mkdir(parents=True, exist_ok=True)
    with measure(sum(plan.left for plan in plans), "fetching") as progress:
        for plan in plans:
            item = _bring(asked.to, plan, progress)
            _add(asked.to, item)
            lines.append(_line(item, "fetched" if plan.missing else "is there"))
    if asked.wheels is not None:
        lines.append(_line(_wheels(asked), "fetched"))
    return "\n".join(lines)


def _items(bundle: Path) -> tuple[Item, ...]:
    return read_manifest(bundle) if (bundle / MANIFEST).exists() else ()


def _add(bundle: Path, item: Item) -> None:
    """Into the manifest as it is by now: another command may have brought something meanwhile."""
    write_manifest(bundle, with_item(_items(bundle), item))


def _wheels(asked: Fetching) -> Item:
    from localeval.wheels import fetch_wheels

    assert asked.wheels is not None
    item = fetch_wheels(asked.wheels, asked.python, asked.to, say)
    _add(asked.to, item)
    return item


def _line(item: Item, what: str) -> str:
    origin = f"{item.hub} {item.id}, revision {item.revision}" if item.hub else item.revision
    licence = f", {item.licence}" if item.licence else ""
    return f"{item.folder}: {what}, {len(item.files)} files, {size(item.size)}; {origin}{licence}"


# --- what an adapter says of its base ---


def _base_in(file: Path) -> str | None:
    return _base_of(file.read_bytes()) if file.is_file() else None


def _base_on(plan: _Planned) -> str | None:
    """What an adapter says of its base: a few bytes that are read before anything is transferred."""
    for file in plan.files:
        if file.path == ADAPTER_CONFIG and plan.asked.kind == "model":
            return _base_of(read_small(file.url, Origin(plan.listing.headers, plan.listing.denied)))
    return None


def _base_of(config: bytes) -> str | None:
    try:
        told = json.loads(config)
    except ValueError as error:
        raise LocalevalError(f"{ADAPTER_CONFIG} is no JSON: {error}") from error
    base = told.get("base_model_name_or_path") if isinstance(told, dict) else None
    return base if isinstance(base, str) and base else None


# --- what is there, and what is missing ---


def _before(items: Sequence[Item], one: Requested) -> Item | None:
    """The same item of an earlier command, if it was taken from the same place."""
    for item in items:
        if (item.kind, item.name, item.hub, item.id) == (one.kind, one.name, one.hub, one.id):
            return item
    return None


def _is_there(asked: Fetching, one: Requested, before: Item) -> bool:
    """Whether nothing has to be asked of the hub: every file is there, byte for byte, and they are enough."""
    if asked.update or one.revision not in (None, before.revision):
        return False
    names = [file.path for file in before.files]
    if asked.with_code and one.kind == "model" and not any(name.endswith(".py") for name in names):
        return False
    try:
        one.needed(names, asked.with_code)
    except LocalevalError:  # fewer subsets were fetched
        return False
    with measure(before.size, f"checking {one.name}") as progress:
        return all(
            whole(Wanted("", asked.to / before.folder / file.path, file.size, file.sha256), progress)
            for file in before.files
        )


def _resolve(asked: Fetching, one: Requested, before: Item | None) -> _Planned:
    """Lists a repository, and holds the files that are there against it."""
    refuse_links(asked.to, one.folder)
    pinned = before.revision if before is not None and not asked.update else None
    listing = _listing(one, one.revision or pinned)
    by_path = {safe_path(file.path): file for file in listing.files}
    needed = one.needed(list(by_path), asked.with_code)
    needed |= {file.path for file in before.files if file.path in by_path} if before is not None else set()
    _say_of(one, listing, needed, asked.with_code)
    files = tuple(by_path[path] for path in sorted(needed))
    here: dict[str, BundledFile] = {}
    missing: dict[str, Wanted] = {}
    for file in files:
        target = asked.to / one.folder / file.path
        wanted = Wanted(file.url, target, file.size, file.sha256, file.git_sha1 if file.size is not None else None)
        digest = whole(wanted, lambda _: None)
        if digest is None:
            missing[file.path] = wanted
        else:
            here[file.path] = BundledFile(file.path, target.stat().st_size, digest)
    return _Planned(one, listing, files, here, missing)


def _listing(one: Requested, revision: str | None) -> Listing:
    try:
        return hub_named(one.hub).listing(one.kind, one.id, revision)
    except LocalevalError as error:
        if one.spec is None or one.spec.hub == one.hub:
            raise
        raise LocalevalError(f"{error}. Without --dataset-hub, {one.name} comes from {one.spec.hub}") from error


def _say_of(one: Requested, listing: Listing, needed: set[str], with_code: bool) -> None:
    if not COMMIT.fullmatch(listing.revision):
        say(f"{one.id}: {listing.hub} names no commit for {listing.revision!r}: its files are pinned by their SHA-256")
    bare = [file.path for file in listing.files if file.path in needed and not (file.sha256 or file.git_sha1)]
    if bare:
        say(f"{one.id}: {listing.hub} lists no hash of {bare[0]}" + (f" and {len(bare) - 1} more" if bare[1:] else ""))
    code = [file.path for file in listing.files if file.path.endswith(".py")]
    if one.kind == "model" and code and not with_code:
        say(f"{one.id}: code of its own is left out ({code[0]}); --trust-remote-code brings it too")


def _check_space(to: Path, plans: Sequence[_Planned]) -> None:
    place = to.absolute()
    while not place.exists():
        place = place.parent
    left, free = sum(plan.left for plan in plans), shutil.disk_usage(place).free
    if left > free:
        raise LocalevalError(
            f"{to}: {size(left)} are to be fetched, and {size(free)} are free there; nothing was fetched"
        )


# --- the transfer ---


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One command at a time brings an item, for two would write into one file. Not seen on NFS, which locks no folders.

    Raises LocalevalError where another does. The lock is the folder itself: a bundle has no files that none names.
    """
    folder.mkdir(parents=True, exist_ok=True)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            os.close(opened)
            raise LocalevalError(f"{folder}: another localeval is fetching it; wait for it or stop it") from error
    try:
        yield
    finally:
        os.close(opened)


def _bring(to: Path, plan: _Planned, progress: Callable[[int], None]) -> Item:
    """Transfers what is missing of an item. What an earlier revision, or another hub, has left goes."""
    asked, listing = plan.asked, plan.listing
    origin = Origin(listing.headers, listing.denied)
    with _alone(to / asked.folder):
        digests = transfer(list(plan.missing.values()), origin, progress)
    brought = {
        path: BundledFile(path, wanted.target.stat().st_size, digest)
        for (path, wanted), digest in zip(plan.missing.items(), digests, strict=True)
    }
    files = tuple({**plan.here, **brought}[file.path] for file in plan.files)
    folder = to / asked.folder
    named = {folder / file.path for file in files}
    before = (item for item in _items(to) if item.folder == asked.folder)
    left = {folder / file.path for item in before for file in item.files}
    for path in (left | set(folder.rglob("*.part"))) - named:
        path.unlink(missing_ok=True)
    return Item(
        kind=asked.kind,
        name=asked.name,
        folder=asked.folder,
        hub=listing.hub,
        id=listing.id,
        revision=listing.revision,
        licence=listing.licence,
        source=listing.page,
        files=files,
    )

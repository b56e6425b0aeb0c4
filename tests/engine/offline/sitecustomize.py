"""Makes every way to another machine raise, and writes down what was tried. Loopback stays: it is this machine.

Python imports a module of this name before all else, in each process that has this folder on its path; the file that
LOCALEVAL_TEST_TRIED names takes one line a try.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any

HERE = ("127.0.0.1", "::1", "localhost")
ORIGINALS = {name: getattr(socket.socket, name) for name in ("connect", "connect_ex", "sendto")}
LOOKUP = socket.getaddrinfo


def block(tried: Path) -> None:
    """Replaces what connects, sends and looks names up."""

    def refuse(what: str) -> None:
        with tried.open("a", encoding="utf-8") as file:
            file.write(f"{what}\n")
        raise OSError(f"the network is blocked: {what}")

    def guard(name: str) -> Any:
        def call(self: socket.socket, *arguments: Any) -> Any:
            address = arguments[-1]
            if isinstance(address, tuple) and address[0] not in HERE:
                refuse(f"{name} {address}")
            return ORIGINALS[name](self, *arguments)

        return call

    def lookup(host: Any, *arguments: Any, **options: Any) -> Any:
        if host not in (None, "", "0.0.0.0", "::", *HERE):
            refuse(f"getaddrinfo {host}")
        return LOOKUP(host, *arguments, **options)

    for name in ORIGINALS:
        setattr(socket.socket, name, guard(name))
    socket.getaddrinfo = lookup


def unblock() -> None:
    """As it was."""
    for name, original in ORIGINALS.items():
        setattr(socket.socket, name, original)
    socket.getaddrinfo = LOOKUP


if "LOCALEVAL_TEST_TRIED" in os.environ:
    block(Path(os.environ["LOCALEVAL_TEST_TRIED"]))
    if "LOCALEVAL_TEST_LOOKUP" in os.environ:  # a try that must be seen
        with contextlib.suppress(OSError):
            socket.getaddrinfo(os.environ["LOCALEVAL_TEST_LOOKUP"], 1)

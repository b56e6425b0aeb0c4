"""One process at a time in a folder, across hosts too; who has it is written into the lock. Knows nothing of the rest.

The lock is the system's (flock), on ``.lock``: it goes with the process that holds it, however that ends, so that a
file that is left there locks nothing.
"""

from __future__ import annotations

import errno
import fcntl
import getpass
import json
import os
import shlex
import socket
import sys
import time
from pathlib import Path
from typing import IO

from localeval.schema import LocalevalError, RunFailed

LOCK = ".lock"
_HELD = (errno.EAGAIN, errno.EACCES)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_LONGEST = 200
"""Characters of a command that are kept."""


def take(folder: Path) -> IO[bytes]:
    """Makes a folder, and takes it for this process until what is given back is closed.

    Raises LocalevalError where it can't be written or locked, and where another process has it, which is named;
    RunFailed where there is no room.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a+b", buffering=0)
    except OSError as error:
        if error.errno in _FULL:
            raise _no_room(folder, error) from error
        raise LocalevalError(f"{folder}: can't be written ({error}); name another folder with --work-dir") from error
    try:
        _lock(file, folder)
        _sign(file, folder)
    except BaseException:
        file.close()
        raise
    return file


def _lock(file: IO[bytes], folder: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            raise LocalevalError(
                f"{folder}: another localeval is writing here{_who(file)}; wait for it or stop it"
            ) from error
        raise LocalevalError(
            f"{folder / LOCK}: can't be locked ({error}); name a folder on another file system with --work-dir"
        ) from error


def _sign(file: IO[bytes], folder: Path) -> None:
    try:
        file.truncate(0)
        file.write(json.dumps(_this_process()).encode() + b"\n")
        os.fsync(file.fileno())  # or another host would not see it
    except OSError as error:
        raise _no_room(folder, error) from error


def _no_room(folder: Path, error: OSError) -> RunFailed:
    return RunFailed(f"{folder / LOCK}: {error}; make room there, and the same command goes on")


def _this_process() -> dict[str, str | int]:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user that has no name, as in some containers
        user = str(os.getuid())
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "user": user,
        "since": time.strftime("%Y-%m-%d %H:%M:%S%z"),
        "command": shlex.join(sys.argv)[:_LONGEST],
    }


def _who(file: IO[bytes]) -> str:
    """Who has the lock, by its own words; empty where it has not written them yet, or is of an earlier version."""
    try:
        file.seek(0)
        owner = json.loads(file.read())
        return (
            f": process {owner['pid']} on {owner['host']}, of {owner['user']}, since {owner['since']} "
            f"({owner['command']})"
        )
    except (OSError, ValueError, KeyError, TypeError):
        return ""

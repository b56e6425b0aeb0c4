"""One process at a time, by name; a lock whose process is gone is none."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from localeval.locks import take
from localeval.schema import LocalevalError, RunFailed

HOLDER = "import sys; from pathlib import Path; from localeval.locks import take; held = take(Path(sys.argv[1])); "
HOLDER += "print(1, flush=True); input()"


def test_the_holder_is_named_until_it_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "1\n"
        with pytest.raises(LocalevalError) as refused:
            take(tmp_path / "run")
        assert f"{tmp_path / 'run'}: another localeval is writing here: process {holder.pid} on " in str(refused.value)
        owner = json.loads((tmp_path / "run" / ".lock").read_text())
        assert (owner["pid"], owner["host"], owner["command"]) == (holder.pid, os.uname().nodename, f"-c {command[-1]}")
        assert f"of {owner['user']}, since {owner['since']} (-c " in str(refused.value)
        assert str(refused.value).endswith("; wait for it or stop it")
        holder.kill()
        holder.wait()
    assert (tmp_path / "run" / ".lock").read_text() != ""
    with take(tmp_path / "run"):
        assert json.loads((tmp_path / "run" / ".lock").read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("written", ["", "of an earlier version", '{"pid": 3}', "[]", "\0\0\0"])
def test_a_holder_that_has_not_said_who_it_is(tmp_path: Path, written: str) -> None:
    with take(tmp_path):
        (tmp_path / ".lock").write_text(written)
        with pytest.raises(LocalevalError, match="another localeval is writing here; wait for it or stop it"):
            take(tmp_path)


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(LocalevalError, match=r"\.lock: can't be locked .*on another file system with --work-dir"):
        take(tmp_path)


def test_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems tell only then that there was none. Real ones without room: tests/test_faults.py."""

    def no_room(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", no_room)
        with pytest.raises(
            RunFailed, match=r"\.lock: .*No space left on device; make room there, and the same command"
        ):
            take(tmp_path)
    take(tmp_path).close()  # it was let go


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_no_room_for_so_much_as_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Where names take room of their own, or a user's share is spent, the folder can't be made."""

    def no_room(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "mkdir", no_room)
    with pytest.raises(RunFailed, match=r"run/\.lock: .*make room there, and the same command goes on"):
        take(tmp_path / "run")


def test_a_user_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr("getpass.getuser", nobody)
    with take(tmp_path):
        assert json.loads((tmp_path / ".lock").read_text())["user"] == str(os.getuid())

"""File systems that are full, or that take no writing: ``unshare -m python -m tests.mounts WHAT FOLDER``, as root.

The file systems are real, and no other process sees them. WHAT: ``full`` or ``readonly``. Prints what came of it as
JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localeval import cli, identity, record, store
from localeval.engines.replay import ReplayEngine
from tests.killing import make, result_of

SIZE = 4 << 20
"""Bytes of a file system that is to be full."""


def localeval(*words: str) -> tuple[int, str]:
    """A command's exit status, and what it says to the standard error."""
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        status = cli.main(words)
    return status, said.getvalue()


def mounted(folder: Path) -> Path:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)], check=True)
    return folder


def fill(folder: Path) -> None:
    """Until there is no room for another page."""
    with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def _errors(said: str) -> str:
    return "".join(line for line in said.splitlines(keepends=True) if "error:" in line or "failed:" in line)


# --- full ---


def when_written(name: str, nth: int, disk: Path) -> Callable[[], None]:
    """Fills the disk when a file of this name is about to be written for the nth time; gives back what undoes that."""
    write, left = store.write_atomically, nth

    def full(path: Path, lines: Any) -> None:
        nonlocal left
        left -= path.name == name
        if left == 0 and path.name == name:
            fill(disk)
        write(path, lines)

    store.__dict__["write_atomically"] = full
    return lambda: store.__dict__.update(write_atomically=write)


def when_appended(nth: int, disk: Path) -> Callable[[], None]:
    append, left = store.RunFolder.append, nth

    def full(self: store.RunFolder, completion: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            fill(disk)
        append(self, completion)

    store.RunFolder.append = full  # type: ignore[method-assign]
    return lambda: setattr(store.RunFolder, "append", append)


def when_set_aside(disk: Path) -> Callable[[], None]:
    append = store._append_whole

    def full(path: Path, lines: Any) -> None:
        fill(disk)
        append(path, lines)

    store.__dict__["_append_whole"] = full
    return lambda: store.__dict__.update(_append_whole=append)


def at_once(disk: Path) -> Callable[[], None]:
    fill(disk)
    return lambda: None


def full(folder: Path) -> dict[str, Any]:
    """By the file that finds no room: what the command says and leaves, and what comes of it when there is room."""
    config = make(folder)
    words = ["--engine", config["engine"], "--datasets", *config["datasets"], "--work-dir"]
    localeval(*words, str(folder / "whole"))
    whole = result_of(folder / "whole")
    cases: dict[str, Callable[[Path], Callable[[], None]]] = {
        ".lock": at_once,
        "predictions.jsonl": lambda disk: when_appended(10, disk),
        "scores.jsonl": lambda disk: when_written("scores.jsonl", 1, disk),
        "report.json": lambda disk: when_written("report.json", 1, disk),
        "report.md": lambda disk: when_written("report.md", 1, disk),
        "run.json": lambda disk: when_written("run.json", 1, disk),
        "run.json, at the end": lambda disk: when_written("run.json", 2, disk),
    }
    found = {}
    for number, (name, case) in enumerate(cases.items()):
        disk = mounted(folder / f"disk-{number}")
        found[name] = _full_case([*words, str(disk / "runs")], disk, case, whole)
    return {
        **found,
        "score": _score(words, mounted(folder / "disk-score"), whole),
        "predictions.stale.jsonl": _stale(words, folder, mounted(folder / "disk-stale")),
        "digests": _digests(folder, words),
    }


def _full_case(words: list[str], disk: Path, case: Callable[[Path], Callable[[], None]], whole: Any) -> dict[str, Any]:
    undo = case(disk)
    status, said = localeval(*words)
    undo()
    kept = [path.read_bytes().split(b"\n")[:-1] for path in (disk / "runs").glob("*/*/predictions.jsonl")]
    rows = [json.loads(line) for lines in kept for line in lines]
    (disk / "filler").unlink()
    again, more = localeval(*words)
    return {
        "status": status, "said": _errors(said), "kept": len(rows), "again": again, "more": _errors(more),
        "same": result_of(disk / "runs") == whole,
    }  # fmt: skip


def _score(words: list[str], disk: Path, whole: Any) -> dict[str, Any]:
    localeval(*words, str(disk / "runs"))
    undo = when_written("report.json", 1, disk)
    status, said = localeval("score", str(disk / "runs"))
    undo()
    kept = result_of(disk / "runs") == whole
    (disk / "filler").unlink()
    again, _ = localeval("score", str(disk / "runs"))
    return {"status": status, "said": _errors(said), "kept": kept, "again": again}


def _stale(words: list[str], folder: Path, disk: Path) -> dict[str, Any]:
    """The data is edited, so that what was said of it is set aside."""
    localeval(*words, str(disk / "runs"))
    rows = folder / "rows" / "test.jsonl"
    rows.write_text(rows.read_text().replace("0?", "nought?"))
    undo = when_set_aside(disk)
    status, said = localeval(*words, str(disk / "runs"))
    undo()
    (disk / "filler").unlink()
    again, _ = localeval(*words, str(disk / "runs"))
    (stale,) = (disk / "runs").glob("*/*/predictions.stale.jsonl")
    ids = [json.loads(line)["sample_id"] for line in stale.read_text().splitlines()]
    return {"status": status, "said": _errors(said), "again": again, "set aside": len(ids), "once": len(set(ids))}


def _digests(folder: Path, words: list[str]) -> dict[str, Any]:
    """A cache of digests without room: the file is read each time, and the run does not mind."""
    disk = mounted(folder / "disk-cache")
    os.environ["LOCALEVAL_CACHE"] = str(disk / "cache")
    identity.__dict__["_SETTLED"] = 0
    (disk / "cache" / "digests").mkdir(parents=True)
    fill(disk)
    replies = folder / "replies.jsonl"
    replies.write_text(
        replies.read_text().replace('"text": "', '"text": "' + "<think>" + " " * 30_000 + "</think>", 60)
    )
    status, said = localeval(*words, str(folder / "runs-cache"))
    left = len(list((disk / "cache" / "digests").iterdir()))
    (disk / "filler").unlink()
    again, _ = localeval(*words, str(folder / "runs-cache"))
    kept = [path.stat().st_size for path in (disk / "cache" / "digests").iterdir()]
    return {"status": status, "said": _errors(said), "left": left, "again": again, "kept": kept}


# --- read-only ---


def readonly(folder: Path) -> dict[str, Any]:
    """A work dir that can be read alone: what runs say, and what can be done with it all the same."""
    config = make(folder)
    disk = mounted(folder / "disk")
    words = ["--engine", config["engine"], "--datasets", *config["datasets"], "--work-dir"]
    runs = disk / "runs"
    localeval(*words, str(runs), "--model", "one")
    localeval(*words, str(runs), "--model", "two")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    asked = []
    generate = ReplayEngine.generate
    ReplayEngine.generate = lambda self, requests: asked.append(1) or generate(self, requests)  # type: ignore
    commands = {
        "a new run": [*words, str(runs), "--model", "three"],
        "a run that goes on": [*words, str(runs), "--model", "one"],
        "a work dir to be made": [*words, str(disk / "others")],
        "score": ["score", str(next(runs.glob("one-*/*")))],
        "report": ["report", str(runs)],
        "compare": ["compare", *map(str, sorted(runs.glob("*/*")))],
        "list": ["list", str(folder / "quiz.yaml")],
    }
    found = {name: localeval(*command) for name, command in commands.items()}
    return {**found, "asked": asked}


if __name__ == "__main__":
    record.__dict__["git_commit"] = lambda: None
    print(json.dumps({"full": full, "readonly": readonly}[sys.argv[1]](Path(sys.argv[2]))))

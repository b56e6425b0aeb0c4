"""A kill at any moment loses nothing: the command again makes only what is missing, and gives the same report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

WORDS = ["--model", "smollm2-135m", "--datasets", "conllpp", "--samples", "--limit", "12", "--engine", "vllm"]
# One reply at a time, so that there is a middle to be killed in, and so that no batch differs between the runs.
WORDS += [
    "--engine-args",
    '{"max_num_seqs": 1, "enable_prefix_caching": false}',
    "--generation-config",
    '{"max_tokens": 30}',
]


def start(work_dir: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "localeval", *WORDS, "--work-dir", str(work_dir)]
    # What a shell runs in its background ignores interrupts, and its children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def predictions_of(work_dir: Path) -> Path | None:
    return next(work_dir.glob("*/*/predictions.jsonl"), None)


def wait_for_rows(process: subprocess.Popen[str], work_dir: Path, count: int) -> None:
    deadline = time.monotonic() + 500
    while time.monotonic() < deadline and process.poll() is None:
        file = predictions_of(work_dir)
        if file is not None and file.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.02)
    raise AssertionError(f"no {count} rows came: {process.communicate()[1]}")


def report_without_reuse(work_dir: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(next(work_dir.glob("*/*/report.json")).read_text())
    del report["counts"]["reused"]
    return report


def test_kill_then_resume(smollm2: Path, tmp_path: Path) -> None:
    whole = start(tmp_path / "whole")
    output, errors = whole.communicate(timeout=580)
    assert whole.returncode == 0, errors

    killed = start(tmp_path / "killed")
    wait_for_rows(killed, tmp_path / "killed", 3)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    file = predictions_of(tmp_path / "killed")
    assert file is not None
    kept = [line for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    assert 3 <= len(kept) < 12
    assert json.loads((file.parent / "run.json").read_text())["complete"] is False

    resumed = start(tmp_path / "killed")
    resumed_output, errors = resumed.communicate(timeout=580)
    assert resumed.returncode == 0, errors
    assert f"{len(kept)} of 12 replies reused" in errors
    assert f"for {12 - len(kept)} requests" in errors
    lines = file.read_bytes().splitlines(keepends=True)
    assert lines[: len(kept)] == kept
    assert sorted(json.loads(line)["sample_id"] for line in lines) == sorted(f"default:{n}" for n in range(12))
    assert report_without_reuse(tmp_path / "killed") == report_without_reuse(tmp_path / "whole")
    assert resumed_output == output


def test_ctrl_c_says_how_to_go_on(smollm2: Path, tmp_path: Path) -> None:
    process = start(tmp_path)
    wait_for_rows(process, tmp_path, 1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=400)
    assert process.returncode == 130, errors
    assert "replies are kept; the same command goes on from there" in errors
    assert "Traceback" not in errors

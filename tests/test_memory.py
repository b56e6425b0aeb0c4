"""Many rows, few bytes: a run holds what it counts, and none of what is said."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.conftest import MCQ_YAML

ROWS = 200_000
THOUGHT = "x" * 2_000
"""What each reply holds beside its answer: 0.4 GB in all."""

MEASURED = """
import atexit, pathlib, re, sys

def peak():  # of this program: what getrusage says is also of the one that started it
    pathlib.Path(sys.argv[1]).write_text(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])

atexit.register(peak)
from localeval.cli import main
sys.exit(main(sys.argv[2:]))
"""


def test_memory_stays_flat_over_many_replayed_rows(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "quiz.yaml").write_text(MCQ_YAML)
    with (tmp_path / "rows" / "test.jsonl").open("w") as file:
        for n in range(ROWS):
            row = {"question": f"Q {n}?", "options": ["one", "two", "three"], "answer": "ABC"[n % 3], "topic": "t"}
            file.write(json.dumps(row) + "\n")
    with (tmp_path / "replies.jsonl").open("w") as file:
        for n in range(ROWS):
            text = f"<think>{THOUGHT}</think>ANSWER: {'AB'[n % 2]}"
            file.write(json.dumps({"sample_id": f"default:{n}", "text": text}) + "\n")
    words = ["--engine", f"replay:{tmp_path / 'replies.jsonl'}", "--datasets", str(tmp_path / "quiz.yaml")]
    program = [sys.executable, "-c", MEASURED, str(tmp_path / "peak"), *words, "--work-dir", str(tmp_path / "runs")]
    subprocess.run(program, check=True, stdout=subprocess.DEVNULL)
    # A, B, A, B, ... against A, B, C, A, ...: of each six rows the first two are right.
    (report,) = (tmp_path / "runs").glob("*/*/report.json")
    assert json.loads(report.read_text())["metrics"]["accuracy"]["value"] == (33_333 * 2 + 2) / ROWS
    # With what was said it would be half a gigabyte more.
    assert 50e6 < float((tmp_path / "peak").read_text()) * 1024 < 0.7e9

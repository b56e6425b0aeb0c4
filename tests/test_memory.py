"""Many rows, few bytes: a run holds what it counts, and none of what is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import MCQ_YAML

ROWS = 200_000
THOUGHT = "x" * 2_000
"""What each reply holds beside its answer: 0.4 GB in all."""


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
    command = [sys.executable, "-m", "localeval", *words, "--work-dir", str(tmp_path / "runs")]
    with (tmp_path / "said").open("wb") as said:
        child = subprocess.Popen(command, stdout=said, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
    assert status == 0, (tmp_path / "said").read_text()
    # A, B, A, B, ... against A, B, C, A, ...: of each six rows the first two are right.
    (report,) = (tmp_path / "runs").glob("*/*/report.json")
    assert json.loads(report.read_text())["metrics"]["accuracy"]["value"] == (33_333 * 2 + 2) / ROWS
    # With what was said it would be a gigabyte more, for Python holds a reply twice while it is read.
    assert usage.ru_maxrss * 1024 < 0.75e9

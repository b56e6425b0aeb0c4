"""``--dry-run``: what would be asked, without an engine and without a run folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from localeval.cli import main
from tests.conftest import FakeEngine, Replies
from tests.fakes import make_model
from tests.test_run import FIVE


def _row(shown: str, title: str) -> list[str]:
    (line,) = [line for line in shown.splitlines() if line.startswith(f"{title}  ")]
    return line.removeprefix(title).split()


def test_what_a_model_would_be_asked(
    mcq_dataset: Path, tmp_path: Path, fake_engine: type[FakeEngine], capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (2, 3):
        make_model(tmp_path / "x" / f"checkpoint-{step}", seed=step)
    words = ["--datasets", str(mcq_dataset), "--work-dir", str(tmp_path / "runs")]
    one = ["--model", str(tmp_path / "x" / "checkpoint-3"), *words]
    assert main([*one, "--mcq", "generate,logprob", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    # A token a byte: 57 of the message, and 19 of the template; 9 and an end of `ANSWER: A`; 512 at most.
    assert _row(shown, "quiz") == ["5", "0", "5", "380", "76", "(default:0)", "50", "2,560"]
    # `ANSWER:` begins the reply: 83 tokens. ` A` is two of this tokenizer, so that each letter is a sequence of 85.
    assert _row(shown, "quiz, logprob") == ["5", "0", "5", "1,275", "83", "(default:0)", "5", "5"]
    assert f"quiz: {tmp_path}/runs/checkpoint-3-" in shown
    assert "weights" in shown
    assert not (tmp_path / "runs").exists()
    assert fake_engine.started == []
    # What a run has answered is not asked again, but for the rows that it lacks.
    assert main([*one, "--limit", "3"]) == 0
    assert main([*one, "--use-cache", str(tmp_path / "runs"), "--dry-run"]) == 0
    assert _row(capsys.readouterr().out, "quiz")[:4] == ["5", "3", "2", "152"]
    before = sorted((tmp_path / "runs").rglob("*"))
    assert main([*one, "--limit", "3", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert _row(shown, "quiz")[:3] == ["3", "3", "0"]
    assert "no engine would be started" in shown
    assert sorted((tmp_path / "runs").rglob("*")) == before
    # Several models: each is prepared, and one that can't be is named.
    (tmp_path / "x" / "checkpoint-2" / "tokenizer.json").write_text("{")
    assert main(["--model", str(tmp_path / "x"), *words, "--dry-run"]) == 2
    shown = capsys.readouterr().out
    assert "checkpoint-2 would fail: " in shown
    assert _row(shown, "quiz")[:3] == ["5", "0", "5"]


def test_what_would_be_replayed(
    mcq_dataset: Path, replies: Replies, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--datasets", str(mcq_dataset), "--work-dir", str(tmp_path / "runs"), "--dry-run"]
    assert main(["--engine", f"replay:{replies(FIVE)}", *words]) == 0
    assert _row(capsys.readouterr().out, "quiz") == ["5", "0", "5", "–", "–", "–", "–"]
    four = {name: text for name, text in FIVE.items() if name != "default:2"}
    assert main(["--engine", f"replay:{replies(four, 'four.jsonl')}", *words]) == 2
    assert "has no reply to quiz default:2" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_what_would_end_a_run_ends_it(mcq_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = make_model(tmp_path / "model", context=64)
    words = ["--model", str(model), "--datasets", str(mcq_dataset), "--dry-run"]
    assert main(words) == 2
    assert "5 prompts leave no room for a reply in 64 tokens: default:0 (76)" in capsys.readouterr().err

"""localeval score: how many readings another version of the rules has changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localeval import score_run
from localeval.cli import main
from localeval.report.build import READING
from localeval.rereading import Earlier, read_again
from localeval.schema import Score
from tests.conftest import Replies
from tests.test_run import FIVE, run

# FIVE is read as A, C, nothing, A, B
LAST = f"READ AGAIN by the rules of version {READING}"


def with_earlier(folder: Path, parsed: dict[str, str | None], version: Any) -> None:
    """As if the replies had been read in another way, by rules of another version."""
    report, scores = folder / "report.json", folder / "scores.jsonl"
    report.write_text(json.dumps({**json.loads(report.read_text()), "reading": version}))
    rows = [json.loads(line) for line in scores.read_text().splitlines()]
    rows = [{**row, "parsed": parsed.get(row["sample_id"], row["parsed"])} for row in rows]
    scores.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("earlier", "version", "said"),
    [
        ({}, READING, f"{LAST} (was {READING}): 0 of 5 readings changed"),
        ({}, 1, f"{LAST} (was 1): 0 of 5 readings changed"),
        (
            {"default:0": None, "default:1": None, "default:2": "B", "default:3": "C"},
            1,
            f"{LAST} (was 1): 4 of 5 readings changed (2 read that were not, 1 no longer read, 1 another answer)",
        ),
        (
            {"default:4": "A"},
            "one",
            f"{LAST} (was not stated): 1 of 5 readings changed "
            "(0 read that were not, 0 no longer read, 1 another answer)",
        ),
    ],
)
def test_what_has_changed(
    mcq_dataset: Path,
    replies: Replies,
    capsys: pytest.CaptureFixture[str],
    earlier: dict[str, str | None],
    version: Any,
    said: str,
) -> None:
    folder = run(mcq_dataset, replies(FIVE)).runs[0].folder
    with_earlier(folder, earlier, version)
    capsys.readouterr()
    assert main(["score", str(folder)]) == 0
    assert capsys.readouterr().err.splitlines() == [f"localeval: {folder}: {said}"]
    assert json.loads((folder / "report.json").read_text())["reading"] == READING
    again = score_run(folder).runs[0].read_again  # a second time nothing is new
    assert again is not None
    assert (again.n, again.changed, again.was) == (5, 0, READING)


def test_each_run_of_several_says_it(mcq_dataset: Path, replies: Replies, capsys: pytest.CaptureFixture[str]) -> None:
    file = replies(FIVE)
    folders = [run(mcq_dataset, file, model=name).runs[0].folder for name in ("one", "two")]
    with_earlier(folders[1], {"default:0": "B"}, 1)
    result = score_run(mcq_dataset.parent / "runs")
    assert [run.read_again.changed for run in result.runs if run.read_again] == [0, 1]
    err = capsys.readouterr().err
    assert all(f"localeval: {folder}: {LAST}" in err for folder in folders)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "scores.jsonl: there is no such file"),
        ("{}\n", "scores.jsonl, line 1: not a score of this version (KeyError('sample_id'))"),
        ("\0\0", "scores.jsonl, line 1: not a score of this version"),
    ],
)
def test_scores_that_can_not_be_read_are_said_to_be_none(
    mcq_dataset: Path, replies: Replies, content: str | None, why: str
) -> None:
    folder = run(mcq_dataset, replies(FIVE)).runs[0].folder
    (folder / "scores.jsonl").unlink()
    (folder / "report.json").unlink()
    if content is not None:
        (folder / "scores.jsonl").write_text(content)
    again = score_run(folder).runs[0].read_again
    assert again is not None
    assert (again.n, again.changed, again.was) == (0, 0, None)
    assert f"{LAST} (was not stated); how many readings changed is not known: {folder}/{why}" in str(again)
    assert "localeval score" not in str(again)


def test_counts_are_of_the_samples_that_both_know() -> None:
    before = Earlier({"a": "A", "b": None, "gone": "C"}, 1)
    scores = [Score("a", "A", {}), Score("b", "B", {}), Score("new", "C", {})]
    again = read_again(before, scores, ("", ""))
    assert (again.n, again.newly_read, again.unread, again.another, again.patterns) == (2, 1, 0, 0, None)

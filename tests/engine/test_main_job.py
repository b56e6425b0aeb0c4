"""The main job on a real model and real data, offline; and transformers as the reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from localeval import run_task, score_run
from localeval.schema import Completion
from localeval.store import read_predictions
from tests.engine.conftest import MainJob

pytestmark = pytest.mark.engine

NEAR_TIE = 1e-3


def predictions(folder: Path) -> dict[str, Completion]:
    return {row.sample_id: row for row in read_predictions(folder / "predictions.jsonl")}


def test_every_row_is_answered_offline(main_job: MainJob) -> None:
    assert main_job.tried == []
    milu, conllpp, movies = main_job.result.runs
    assert [run.report.n for run in main_job.result.runs] == [88, 8, 8]
    assert len(milu.report.subsets) == 11
    assert {group.n for group in milu.report.subsets.values()} == {8}
    for run in main_job.result.runs:
        rows = predictions(run.folder)
        assert len(rows) == run.report.n
        assert all(row.output_tokens == len(row.token_ids) > 0 for row in rows.values())
        assert run.report.limited
        assert {file.name for file in run.folder.iterdir()} >= {
            "run.json", "predictions.jsonl", "scores.jsonl", "report.json", "report.md",
        }  # fmt: skip
    # A 4-bit model of 135M is poor at this, but some of its replies are readings, and some of its letters are.
    assert milu.report.counts["unparsed"] < 88
    assert conllpp.report.counts["unparsed"] < 8
    assert movies.report.counts["unparsed"] <= 8


def test_replies_end_where_they_should(main_job: MainJob) -> None:
    for run in main_job.result.runs:
        for row in predictions(run.folder).values():
            assert row.finish_reason in ("stop", "length")
            if "</response>" in row.text:
                assert row.text.endswith("</response>")
                assert row.finish_reason == "stop"
            if run.report.dataset == "milu" and row.finish_reason == "length":
                assert row.output_tokens == 128


def test_scoring_again_changes_nothing(main_job: MainJob) -> None:
    folder = main_job.result.runs[0].folder
    before = (folder / "report.json").read_text()
    assert score_run(folder.parent).report_text.count("macro over") == 3
    assert (folder / "report.json").read_text() == before


def test_transformers_gives_the_same_greedy_tokens(main_job: MainJob) -> None:
    """Token by token; the first difference may only stand where the two best tokens are a near tie."""
    config = {**main_job.config, "engine": "transformers", "limit": 2, "generation_config": {"max_tokens": 32}}
    reference = run_task(config)
    compared = same_throughout = 0
    for ours, theirs in zip(main_job.result.runs, reference.runs, strict=True):
        vllm_rows = predictions(ours.folder)
        for sample_id, expected in predictions(theirs.folder).items():
            check_same_tokens(vllm_rows[sample_id], expected)
            count = min(len(vllm_rows[sample_id].token_ids), len(expected.token_ids))
            same_throughout += vllm_rows[sample_id].token_ids[:count] == expected.token_ids[:count]
            compared += 1
    assert compared == 26
    assert same_throughout >= 24


def check_same_tokens(ours: Completion, theirs: Completion) -> None:
    assert ours.prompt_tokens == theirs.prompt_tokens
    for position, (a, b) in enumerate(zip(ours.token_ids, theirs.token_ids, strict=False)):
        assert theirs.logprobs is not None
        best, second = sorted(theirs.logprobs[position].values(), reverse=True)
        if a != b:
            assert best - second < NEAR_TIE, (
                f"{ours.sample_id}, token {position}: {a} and {b} are {best - second} apart"
            )
            return
        assert ours.logprobs is not None
        assert ours.logprobs[position][a] == pytest.approx(theirs.logprobs[position][a], abs=NEAR_TIE)

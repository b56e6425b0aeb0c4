"""Constrained replies and options by likelihood on a real model and real data; transformers as the reference."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from localeval import run_task, score_run
from localeval.config import load_config
from localeval.jobs import load_jobs
from localeval.scoring import Run
from tests.conftest import write_jsonl
from tests.engine.conftest import MainJob
from tests.engine.test_main_job import predictions

pytestmark = pytest.mark.engine


def by_title(job: MainJob) -> dict[str, Run]:
    return {f"{run.report.dataset} {run.report.mode}": run for run in job.result.runs}


def test_one_engine_and_a_folder_for_each_way(modes_job: MainJob) -> None:
    assert modes_job.tried == []
    runs = by_title(modes_job)
    assert {title: run.report.n for title, run in runs.items()} == {
        "milu constrained": 16,
        "milu logprob": 16,
        "milu cloze": 16,
        "conllpp constrained": 4,
        "mit_movie_trivia constrained": 4,
    }
    assert len({run.folder for run in runs.values()}) == 5
    for run in runs.values():
        facts = json.loads((run.folder / "run.json").read_text())
        assert facts["mode"] == run.report.mode
        assert facts["complete"] is True
        assert facts["engine"]["structured_outputs_config"] == {"backend": "guidance"}


def test_every_reply_is_in_its_own_grammar_and_none_is_cut(modes_job: MainJob) -> None:
    jobs = {f"{job.name} {job.mode}": job for job in load_jobs(load_config(modes_job.config))}
    checked = 0
    for title, run in by_title(modes_job).items():
        if run.report.mode != "constrained":
            continue
        assert {name: run.report.counts[name] for name in ("unparsed", "truncated", "constraint_violations")} == {
            "unparsed": 0, "truncated": 0, "constraint_violations": 0,
        }  # fmt: skip
        rows = predictions(run.folder)
        for sample in jobs[title].dataset.samples:
            row = rows[sample.id]
            assert row.finish_reason == "stop"
            assert row.logprobs is not None
            if sample.tokens:
                copied = re.sub(r"</?(?:response|[a-z_]+)>", "", row.text)
                assert copied == " ".join(sample.tokens)
                assert run.report.counts["text_changed"] == run.report.counts["malformed"] == 0
            else:
                assert re.fullmatch(r"ANSWER: [ABCD]", row.text)
            checked += 1
    assert checked == 24


def test_one_token_is_asked_for_a_question(modes_job: MainJob) -> None:
    runs = by_title(modes_job)
    generated, scored = (predictions(runs[f"milu {mode}"].folder) for mode in ("constrained", "logprob"))
    for sample_id, row in scored.items():
        assert row.output_tokens == 1
        assert row.prompt_tokens > generated[sample_id].prompt_tokens
        assert row.continuations is not None
        assert set(row.continuations) == {" A", "A", " B", "B", " C", "C", " D", "D"}
    report = json.loads((runs["milu logprob"].folder / "report.json").read_text())
    assert 0 < report["metrics"]["outside"]["value"] < 1
    assert sum(row["n"] for row in report["reliability"]) == 16
    assert sum(letter["gold"] for letter in report["letters"].values()) == 16


def test_the_constrained_answer_is_the_most_probable_letter(modes_job: MainJob) -> None:
    """Two ways to the same thing: a letter generated in its usual token, and the letters' tokens compared."""
    runs = by_title(modes_job)
    scored = predictions(runs["milu logprob"].folder)
    for sample_id, row in predictions(runs["milu constrained"].folder).items():
        found = scored[sample_id].continuations
        assert found is not None
        written = {letter: found[f" {letter}"] for letter in "ABCD"}
        assert written[row.text[-1]] >= max(written.values()) - 1e-3


def test_scoring_again_changes_nothing(modes_job: MainJob) -> None:
    before = {run.folder: (run.folder / "report.json").read_text() for run in modes_job.result.runs}
    score_run(modes_job.result.runs[0].folder.parent)
    assert {folder: (folder / "report.json").read_text() for folder in before} == before


def test_transformers_agrees(modes_job: MainJob) -> None:
    """Probabilities to 1e-3; constrained replies token by token, but for a near tie."""
    reference = run_task({**modes_job.config, "engine": "transformers", "limit": 2})
    same = compared = 0
    for run in reference.runs:
        ours = predictions(by_title(modes_job)[f"{run.report.dataset} {run.report.mode}"].folder)
        for sample_id, row in predictions(run.folder).items():
            if row.continuations is None:
                same += row.token_ids == ours[sample_id].token_ids
                compared += 1
            else:
                assert ours[sample_id].continuations == pytest.approx(row.continuations, abs=1e-3)
    assert compared == 12
    assert same >= 11


@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_published_log_probabilities(smollm2: Path, tmp_path: Path, engine: str) -> None:
    """MILU's own example: what ``ANSWER:`` goes on with, in float32 over the weights as published, in bfloat16."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.bfloat16)
    model.save_pretrained(tmp_path / "bfloat16")
    AutoTokenizer.from_pretrained(smollm2).save_pretrained(tmp_path / "bfloat16")
    options = ["Thermosetting polymer", "Thermoplastic polymer", "Fibre", "Elastomer"]
    row = {f"option{n}": text for n, text in enumerate(options, 1)}
    row |= {"question": "Bakelite is what type of polymer?", "target": "option1", "domain": "d", "subject": "s"}
    write_jsonl(tmp_path / "data" / "milu" / "English" / "test.jsonl", [row])
    result = run_task(
        {
            "model": str(tmp_path / "bfloat16"),
            "engine": engine,
            "datasets": ["milu"],
            "dataset_dir": str(tmp_path / "data"),
            "dataset_args": {"milu": {"subset_list": ["English"]}},
            "mcq": "logprob",
            "model_args": {"dtype": "float32"},
            "work_dir": str(tmp_path / "runs"),
        }
    )
    found = predictions(result.runs[0].folder)["English:0"].continuations
    assert found is not None
    written = [found[f" {letter}"] for letter in "ABCD"]
    assert written == pytest.approx([-4.1452, -3.2617, -5.7958, -5.9075], abs=1e-3)

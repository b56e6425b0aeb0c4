"""Runs as tables: figures by hand, types, what is left out, and the same as Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from localeval import LocalevalError, RunFailed, load_runs, run_task, score_run
from localeval.cli import main
from localeval.tables import group_name
from tests.conftest import NER_YAML, Replies, write_jsonl


@pytest.fixture
def quiz(tmp_path: Path, mcq_dataset: Path, replies: Replies) -> Any:
    """Runs a model that gives these letters ("." for what can't be read) to QUESTIONS, whose answers are ABCAB."""

    def run(model: str, letters: str, **config: Any) -> Any:
        said = {f"default:{n}": f"ANSWER: {letter}" if letter != "." else "?" for n, letter in enumerate(letters)}
        asked = {"model": model, "engine": f"replay:{replies(said, f'{model}.jsonl')}", "datasets": [str(mcq_dataset)]}
        return run_task({**asked, "work_dir": str(tmp_path / "runs"), **config})

    return run


@pytest.fixture
def names(tmp_path: Path, replies: Replies) -> Any:
    """Of two entities one is found; one more is predicted, and one is invented; a third sentence is unread."""
    said = {
        "default:0": "<response><person>Ann Lee</person> left</response>",
        "default:1": "<response><person>Paris</person> slept <location>Rome</location></response>",
        "default:2": "no",
    }
    (tmp_path / "ner" / "rows").mkdir(parents=True)
    (tmp_path / "ner" / "names.yaml").write_text(NER_YAML)
    rows = "Ann B-PER\nLee I-PER\nleft O\n\nParis B-LOC\nslept O\n\nNobody O\ncame O\n"
    (tmp_path / "ner" / "rows" / "test.txt").write_text(rows)
    datasets = [str(tmp_path / "ner" / "names.yaml")]
    asked = {"model": "m", "engine": f"replay:{replies(said, 'names.jsonl')}", "datasets": datasets}
    return run_task({**asked, "work_dir": str(tmp_path / "names")})


def value(scores: pd.DataFrame, kind: str, part: str, metric: str) -> Any:
    (row,) = scores[(scores.kind == kind) & (scores.part == part) & (scores.metric == metric)].itertuples()
    return row


def test_scores_of_a_quiz(quiz: Any, tmp_path: Path) -> None:
    """Right: 0, 1 and 3 of old, 0 to 3 of new; sums are rows 0 and 1, birds 2 to 4."""
    quiz("old", "ABAA.")
    quiz("new", "ABCA.")
    scores = load_runs(tmp_path / "runs").scores
    wide = scores[scores.metric == "accuracy"].pivot(index=["kind", "part"], columns="model", values="value")
    assert wide.to_dict("index") == {
        ("all", "all"): {"old": 0.6, "new": 0.8},
        ("macro", "subsets"): {"old": 0.6, "new": 0.8},
        ("subset", "default"): {"old": 0.6, "new": 0.8},
        ("topic", "sums"): {"old": 1.0, "new": 1.0},
        ("topic", "birds"): {"old": pytest.approx(1 / 3), "new": pytest.approx(2 / 3)},
    }
    old = scores[scores.model == "old"]
    assert value(old, "all", "all", "unparsed").value == 1
    assert value(old, "topic", "birds", "accuracy").n == 3
    assert value(old, "letter", "A", "predicted").value == 3
    assert value(old, "letter", "C", "gold").value == 1
    low, high = value(old, "all", "all", "accuracy")[-3:-1]
    assert (low, high) == pytest.approx((0.2307, 0.8824), abs=1e-4)  # Wilson of 3 of 5
    assert set(old.shots) == {0}
    assert not old.limited.any()
    assert old.comparable.all()


def test_types_are_those_of_analysis(quiz: Any) -> None:
    result = quiz("m", "ABCAB")
    kinds = {name: str(kind) for name, kind in result.to_pandas().dtypes.items()}
    words = ("model", "fingerprint", "dataset", "mode", "task", "kind", "part", "metric", "folder")
    assert {name for name, kind in kinds.items() if kind == "category"} == set(words)
    assert [kinds[name] for name in ("step", "shots", "n", "limited", "value", "low")] == [
        "Int64", "Int64", "Int64", "bool", "float64", "float64",
    ]  # fmt: skip
    samples = result.to_pandas("samples")
    assert not [name for name, kind in samples.dtypes.items() if str(kind) == "object"]
    assert list(samples.columns) == [
        "model", "fingerprint", "step", "dataset", "mode", "sample_id", "subset", "topic", "text", "choices", "gold",
        "parsed", "correct", "reply", "finish_reason", "prompt_tokens", "cached_tokens", "output_tokens",
        "unparsed_reason", "unparsed", "truncated", "label_mismatch", "folder",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="table is 'rows'; expected 'scores' or 'samples'"):
        result.to_pandas("rows")


def test_samples_of_a_quiz(quiz: Any, tmp_path: Path) -> None:
    quiz("m", "AC.AB")
    samples = load_runs(tmp_path / "runs", prompts=True).samples.set_index("sample_id")
    assert samples.correct.to_dict() == {f"default:{n}": ok for n, ok in enumerate([True, False, False, True, True])}
    assert samples.parsed.isna().sum() == 1
    row = samples.loc["default:2"]
    assert (row.text, row.gold, row.topic, row.reply, row.unparsed) == ("Question 2?", "C", "birds", "?", 1)
    assert list(row.choices) == ["one 2", "two 2", "three 2"]
    assert row.prompt == "Q: Question 2?\nA) one 2\nB) two 2\nC) three 2\nOne of A,B,C."
    assert "prompt" not in load_runs(tmp_path / "runs").samples.columns


def test_names(names: Any) -> None:
    scores, samples = names.to_pandas(), names.to_pandas("samples")
    assert value(scores, "all", "all", "precision").value == pytest.approx(1 / 3)
    assert value(scores, "all", "all", "recall").value == 0.5
    assert value(scores, "all", "all", "invented").value == 1
    assert value(scores, "type", "PER", "recall").value == 1.0
    assert value(scores, "type", "PER", "recall").n == 1
    counts = samples[["entities_correct", "entities_predicted", "entities_gold"]]
    assert counts.to_numpy().tolist() == [[1, 1, 1], [0, 2, 1], [0, 0, 0]]
    assert samples.correct.tolist() == [True, False, False]
    assert samples.parsed[0] == "B-PER I-PER O"
    assert samples.parsed.isna().tolist() == [False, False, True]
    assert list(samples.tokens[0]) == ["Ann", "Lee", "left"]


def test_probabilities_are_columns(mcq_dataset: Path, tmp_path: Path) -> None:
    logprobs = {" A": -0.5, " B": -1.5, " C": -2.5}
    rows = [{"sample_id": f"default:{n}", "text": "", "continuations": logprobs} for n in range(5)]
    engine = f"replay:{write_jsonl(tmp_path / 'logprobs.jsonl', rows)}"
    asked = {"engine": engine, "datasets": [str(mcq_dataset)], "mcq": "logprob", "work_dir": str(tmp_path / "runs")}
    samples = run_task(asked).to_pandas("samples")
    letters = samples[["probability_A", "probability_B", "probability_C"]]
    assert letters.iloc[0].tolist() == pytest.approx([0.6065, 0.2231, 0.0821], abs=1e-4)


def test_runs_of_both_tasks_share_a_table(quiz: Any, names: Any, tmp_path: Path) -> None:
    """What one of them does not have is missing there; the step is what a checkpoint's name says."""
    quiz("checkpoint-500", "ABCAB")
    samples = load_runs([tmp_path / "runs", tmp_path / "names"]).samples
    assert samples.groupby("dataset").size().to_dict() == {"quiz": 5, "names": 3}
    of_names = samples[samples.dataset == "names"]
    assert of_names.choices.isna().all()
    assert of_names.topic.isna().all()
    assert samples[samples.dataset == "quiz"].entities_gold.isna().all()
    assert set(samples[samples.dataset == "quiz"].step) == {500}
    assert of_names.step.isna().all()
    assert samples.unparsed.sum() == 1


def test_what_is_not_finished_or_not_whole(quiz: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = quiz("m", "ABCAB").runs[0].folder
    other = quiz("other", "ABCAB").runs[0].folder
    facts = json.loads((other / "run.json").read_text())
    (other / "run.json").write_text(json.dumps({**facts, "complete": False}))
    tables = load_runs(tmp_path / "runs")
    assert set(tables.scores.model) == {"m"}
    assert f"{other} is not finished" in capsys.readouterr().err
    with pytest.raises(RunFailed, match="nothing to load"):
        load_runs(other)
    (folder / "scores.jsonl").unlink()
    with pytest.raises(LocalevalError, match=f"{folder}/scores.jsonl: there is no such file"):
        _ = tables.samples
    report = json.loads((folder / "report.json").read_text())
    (folder / "report.json").write_text(json.dumps({**report, "n": "five"}))
    with pytest.raises(LocalevalError, match=f"{folder}: a value in its files is not of .*'five'"):
        _ = load_runs(folder).scores
    (folder / "report.json").write_text(json.dumps({**report, "letters": {"A": 3}}))
    with pytest.raises(LocalevalError, match=f"{folder}: run.json or report.json is not one of this version"):
        _ = load_runs(folder).scores
    with pytest.raises(LocalevalError, match=r"no run\.json there or below"):
        load_runs(tmp_path / "nowhere")


def test_parquet_says_the_same(quiz: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where samples come in several batches; what is not defined is null and not NaN."""
    monkeypatch.setattr("localeval.tables._ROWS", 2)
    monkeypatch.chdir(tmp_path)
    folder = quiz("m", "AC.AB", parquet=True, work_dir="runs").runs[0].folder
    tables = load_runs(folder, prompts=True)
    scores, samples = (pq.read_table(folder / f"{name}.parquet") for name in ("scores", "samples"))
    assert scores.column_names == list(tables.scores.columns)
    assert samples.column_names == list(tables.samples.columns)
    assert set(scores.column("folder").to_pylist()) == set(tables.scores.folder) == {str(folder.resolve())}
    assert set(samples.column("folder").to_pylist()) == {str(folder.resolve())}
    assert samples.column("correct").to_pylist() == [True, False, False, True, True]
    assert samples.column("parsed").to_pylist() == ["A", "C", None, "A", "B"]
    assert samples.schema.field("choices").type == pa.list_(pa.field("element", pa.string()))
    assert scores.column("low").null_count == int(tables.scores.low.isna().sum()) > 0
    assert sorted(file.name for file in folder.glob("*.parquet*")) == ["samples.parquet", "scores.parquet"]
    assert quiz("m", "AC.AB").runs[0].folder == folder.resolve()  # the same settings without it


def test_score_writes_parquet_and_keeps_it_true(quiz: Any, mcq_dataset: Path) -> None:
    folder = quiz("m", "AC.AB").runs[0].folder
    assert not (folder / "scores.parquet").exists()
    assert main(["score", str(folder), "--parquet"]) == 0
    scores = pq.read_table(folder / "scores.parquet").to_pandas()
    assert value(scores, "all", "all", "accuracy").value == 0.6
    lines = (folder / "predictions.jsonl").read_text().replace("ANSWER: C", "ANSWER: B")
    (folder / "predictions.jsonl").write_text(lines)
    score_run(folder)
    scores = pq.read_table(folder / "scores.parquet").to_pandas()
    assert value(scores, "all", "all", "accuracy").value == 0.8


@pytest.mark.parametrize(
    ("group", "column"),
    [("domain", "domain"), ("subset", "group_subset"), ("type", "group_type"), ("reply", "group_reply"),
     ("probability_A", "group_probability_A"), ("group_x", "group_group_x"),
     ("unparsed_reason", "group_unparsed_reason")],
)  # fmt: skip
def test_a_group_hides_no_column(group: str, column: str) -> None:
    assert group_name(group) == column

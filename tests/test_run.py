"""Whole runs without a model: replies from a file, through scores and reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localeval import run_task, score_run
from localeval.cli import main
from localeval.schema import LocalevalError, RunFailed
from localeval.scoring import RunResult
from localeval.store import read_predictions
from tests.conftest import Replies, write_jsonl

# quiz.yaml: five questions of three options; the right letters are A B C A B; topics sums sums birds birds birds
FIVE = {
    "default:0": "ANSWER: A",
    "default:1": "ANSWER: C",
    "default:2": ("I think that", "length"),
    "default:3": "The answer is (A).",
    "default:4": "ANSWER: B",
}


def run(dataset: Path, replies: Path, **fields: Any) -> RunResult:
    work_dir = str(dataset.parent / "runs")
    return run_task({"engine": f"replay:{replies}", "datasets": [str(dataset)], "work_dir": work_dir, **fields})


def report_of(result: RunResult) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((result.runs[0].folder / "report.json").read_text())
    return loaded


def test_mcq_report(mcq_dataset: Path, replies: Replies) -> None:
    result = run(mcq_dataset, replies(FIVE), model="some/model")
    report = report_of(result)
    # 3 of 5; Wilson's interval from its published formula, worked out apart: (0.2307, 0.8824)
    assert report["metrics"]["accuracy"]["value"] == 0.6
    assert report["metrics"]["accuracy"]["low"] == pytest.approx(0.23072, abs=1e-5)
    assert report["metrics"]["accuracy"]["high"] == pytest.approx(0.88238, abs=1e-5)
    nothing = dict.fromkeys(["malformed", "text_changed", "invented", "constraint_violations"])
    assert report["counts"] == {"unparsed": 1, "truncated": 1, "label_mismatch": 0, "reused": 0, **nothing}
    assert {name: group["metrics"]["accuracy"]["value"] for name, group in report["groups"]["topic"].items()} == {
        "birds": 2 / 3,
        "sums": 0.5,
    }
    assert (report["dataset"], report["model"], report["n"], report["limited"]) == ("quiz", "model", 5, False)
    assert report["macro"] == {"over": "subsets", "accuracy": 0.6}
    assert result.runs[0].metrics == {"accuracy": 0.6}
    assert "micro accuracy 0.6000 [0.2307, 0.8824]" in result.report_text
    assert "n 5 · unparsed 1 · truncated 1" in result.report_text
    scores = [json.loads(line) for line in (result.runs[0].folder / "scores.jsonl").read_text().splitlines()]
    assert [score["parsed"] for score in scores] == ["A", "C", None, "A", "B"]
    assert scores[2]["tallies"] == {"answer": [0, 0, 1], "letter:C": [0, 0, 1]}
    markdown = (result.runs[0].folder / "report.md").read_text()
    assert "| accuracy | 0.6000 | [0.2307, 0.8824] |" in markdown
    assert "| birds | 3 | 0.6667 |" in markdown


def test_ner_report(ner_dataset: Path, replies: Replies) -> None:
    # names.yaml: "Ann Lee left" (PER PER O), "Paris slept" (LOC O), "Nobody came" (O O)
    said = {
        "default:0": "<response><person>Ann Lee</person> left</response>",
        "default:1": "<response><person>Paris</person> slept</response>",
        "default:2": "I refuse.",
    }
    report = report_of(run(ner_dataset, replies(said)))
    # 1 right of 2 predicted and 2 gold; tokens: 3 + 1 + 0 of 7
    values = {name: metric["value"] for name, metric in report["metrics"].items()}
    assert values == {"precision": 0.5, "recall": 0.5, "f1": 0.5, "accuracy": 4 / 7}
    assert report["types"]["PER"]["metrics"]["precision"]["value"] == 0.5
    assert report["types"]["LOC"]["metrics"]["precision"]["value"] is None
    assert report["types"]["LOC"]["metrics"]["f1"]["value"] == 0.0
    assert report["macro"]["over"] == "types"
    assert report["macro"]["f1"] == pytest.approx((2 / 3 + 0) / 2)
    assert report["macro"]["precision"] == 0.5
    assert report["counts"] == {
        "unparsed": 1,
        "truncated": 0,
        "label_mismatch": None,
        "malformed": 0,
        "text_changed": 0,
        "invented": 0,
        "constraint_violations": None,
        "reused": 0,
    }


def test_a_subset_without_samples_is_null_and_in_no_mean(tmp_path: Path, mcq_dataset: Path, replies: Replies) -> None:
    for subset, rows in {"full": [0, 1], "empty": []}.items():
        questions = [{"question": f"{i}?", "options": ["x", "y"], "answer": "A", "topic": "t"} for i in rows]
        write_jsonl(tmp_path / "rows" / subset / "test.jsonl", questions)
    mcq_dataset.write_text(mcq_dataset.read_text() + "subsets: [full, empty]\n")
    result = run(mcq_dataset, replies({"full:0": "ANSWER: A", "full:1": "ANSWER: B"}))
    report = report_of(result)
    assert report["subsets"]["empty"] == {"n": 0, "metrics": {"accuracy": {"value": None, "low": None, "high": None}}}
    assert report["macro"]["accuracy"] == 0.5
    assert [line.split() for line in result.report_text.splitlines() if line.startswith("empty")] == [
        ["empty", "0", "–", "–"]
    ]


def test_the_same_command_again_asks_nothing(
    mcq_dataset: Path, replies: Replies, capsys: pytest.CaptureFixture[str]
) -> None:
    file = replies(FIVE)
    first, again = run(mcq_dataset, file), run(mcq_dataset, file)
    assert first.runs[0].folder == again.runs[0].folder
    assert again.runs[0].report.counts["reused"] == 5
    assert "5 of 5 replies reused" in capsys.readouterr().err
    assert len(list(read_predictions(again.runs[0].folder / "predictions.jsonl"))) == 5


def test_resuming_gives_the_same_report(mcq_dataset: Path, replies: Replies) -> None:
    file = replies(FIVE)
    whole = run(mcq_dataset, file)
    folder = whole.runs[0].folder
    names = ("report.json", "report.md", "scores.jsonl")
    before = {name: _timeless(folder / name) for name in names}
    predictions = (folder / "predictions.jsonl").read_bytes().splitlines(keepends=True)
    # as a kill leaves it: two rows, a torn third, no report
    (folder / "predictions.jsonl").write_bytes(b"".join(predictions[:2]) + predictions[2][:25])
    for name in names:
        (folder / name).unlink()
    resumed = run(mcq_dataset, file)
    assert resumed.runs[0].report.counts["reused"] == 2
    after = {name: _timeless(folder / name) for name in names}
    after["report.json"] = after["report.json"].replace('"reused": 2', '"reused": 0')
    assert after == before


def _timeless(path: Path) -> str:
    """The text without report.md's row of seconds."""
    return "".join(line for line in path.read_text().splitlines(keepends=True) if not line.startswith("| time |"))


def test_folders_of_different_settings_never_mix(mcq_dataset: Path, replies: Replies) -> None:
    file = replies(FIVE)
    args = {"quiz": {"few_shot_num": 1}}
    variants: list[dict[str, Any]] = [
        {},
        {"limit": 2},
        {"dataset_args": args},
        {"dataset_args": {"quiz": {"prompt_template": "{question}{choices}"}}},
        {"generation_config": {"temperature": 0.5}},
        {"generation_config": {"max_tokens": 5}},
        {"thinking": "off"},
        {"logprobs": 2},
    ]
    folders = [run(mcq_dataset, file, **fields).runs[0].folder for fields in variants]
    other = replies({**FIVE, "default:0": "ANSWER: B"}, "other.jsonl")
    folders.append(run(mcq_dataset, other, model="replies").runs[0].folder)
    assert len(set(folders)) == len(folders)
    assert len({folder.parent for folder in folders}) == 2


def test_edited_data_is_asked_again(mcq_dataset: Path, replies: Replies) -> None:
    file = replies(FIVE)
    run(mcq_dataset, file)
    rows = mcq_dataset.parent / "rows" / "test.jsonl"
    rows.write_text(rows.read_text().replace("Question 4?", "Question four?"))
    again = run(mcq_dataset, file)
    assert again.runs[0].report.counts["reused"] == 0
    assert len(list(read_predictions(again.runs[0].folder / "predictions.stale.jsonl"))) == 5


def test_use_cache_takes_over_what_was_made_alike(mcq_dataset: Path, replies: Replies) -> None:
    file = replies(FIVE)
    limited = run(mcq_dataset, file, limit=2)
    full = run(mcq_dataset, file, use_cache=str(limited.runs[0].folder))
    assert full.runs[0].report.counts["reused"] == 2
    assert full.runs[0].report.n == 5


def test_score_again_needs_no_replies(mcq_dataset: Path, replies: Replies) -> None:
    file = replies(FIVE)
    result = run(mcq_dataset, file)
    folder = result.runs[0].folder
    before = (folder / "report.json").read_text()
    (folder / "report.json").unlink()
    (folder / "scores.jsonl").unlink()
    file.unlink()
    again = score_run(folder.parent)
    assert again.report_text == result.report_text
    assert (folder / "report.json").read_text() == before


def test_score_refuses_what_is_not_what_was_asked(mcq_dataset: Path, replies: Replies) -> None:
    folder = run(mcq_dataset, replies(FIVE)).runs[0].folder
    text = mcq_dataset.read_text()
    mcq_dataset.write_text(text.replace("One of", "Any of"))
    with pytest.raises(LocalevalError, match="the definition of dataset quiz is not what it was"):
        score_run(folder)
    mcq_dataset.write_text(text)
    rows = mcq_dataset.parent / "rows" / "test.jsonl"
    rows.write_text(rows.read_text().replace('"answer": "A"', '"answer": "B"'))
    with pytest.raises(LocalevalError, match="its bytes have changed"):
        score_run(folder)
    with pytest.raises(LocalevalError, match=r"no run\.json there or below"):
        score_run(mcq_dataset.parent / "rows")


def test_a_run_is_scored_again_from_any_folder(
    mcq_dataset: Path, replies: Replies, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(mcq_dataset.parent)
    fields = {"engine": f"replay:{replies(FIVE)}", "datasets": ["./quiz.yaml"], "work_dir": "runs"}
    result = run_task({**fields, "dataset_args": {"quiz": {"local_path": "rows"}}})
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert score_run(str(mcq_dataset.parent / "runs")).report_text == result.report_text
    (mcq_dataset.parent / "rows").rename(mcq_dataset.parent / "moved")
    with pytest.raises(LocalevalError, match="dataset quiz was not found"):
        score_run(mcq_dataset.parent / "runs")
    moved = score_run(mcq_dataset.parent / "runs", str(mcq_dataset.parent / "moved"))
    assert moved.report_text == result.report_text


@pytest.mark.parametrize(
    ("old", "new"),
    [("question: question,", "question: topic,"), ("{topic: topic}", "{t: topic}"), ("One of", "Any of")],
)
def test_an_edited_definition_is_another_dataset(mcq_dataset: Path, replies: Replies, old: str, new: str) -> None:
    file = replies(FIVE)
    folder = run(mcq_dataset, file).runs[0].folder
    text = mcq_dataset.read_text()
    assert old in text
    mcq_dataset.write_text(text.replace(old, new))
    with pytest.raises(LocalevalError, match="the definition of dataset quiz is not what it was"):
        score_run(folder)
    assert run(mcq_dataset, file).runs[0].folder != folder


def test_names_of_datasets_are_unique_and_arguments_have_one(mcq_dataset: Path, replies: Replies) -> None:
    other = mcq_dataset.parent / "other.yaml"
    other.write_text(mcq_dataset.read_text() + "name: quiz\n")
    with pytest.raises(LocalevalError, match="two datasets have one name: quiz, quiz"):
        run_task({"engine": f"replay:{replies(FIVE)}", "datasets": [str(mcq_dataset), str(other)]})
    other.write_text(mcq_dataset.read_text() + "name: named\n")
    with pytest.raises(LocalevalError, match="speaks of 'other', which is not among the datasets: named"):
        run(other, replies(FIVE), dataset_args={"other": {"few_shot_num": 1}})
    assert run(other, replies(FIVE), dataset_args={"named": {"few_shot_num": 1}}).runs[0].report.dataset == "named"


@pytest.mark.parametrize("broken", ["{}", '{"config": null}', '{"config": {"datasets": ["x"]}, "dataset": {}}'])
def test_a_broken_record(mcq_dataset: Path, replies: Replies, broken: str) -> None:
    file = replies(FIVE)
    folder = run(mcq_dataset, file).runs[0].folder
    (folder / "run.json").write_text(broken)
    with pytest.raises(LocalevalError, match=r"run\.json is no record of a run"):
        score_run(folder)
    assert run(mcq_dataset, file).runs[0].report.counts["reused"] == 5
    (folder / "predictions.jsonl").unlink()
    with pytest.raises(RunFailed, match="5 samples have no reply, the first default:0; run the command again"):
        score_run(folder)


def test_half_a_character_is_written_as_an_escape(mcq_dataset: Path, replies: Replies) -> None:
    rows = mcq_dataset.parent / "rows" / "test.jsonl"
    rows.write_text(rows.read_text().replace("Question 0?", "\\ud800?").replace('"sums"', '"\\udfff"'))
    result = run(mcq_dataset, replies(FIVE))
    assert result.runs[0].metrics == {"accuracy": 0.6}
    assert report_of(result)["n"] == 5


def test_run_json_holds_what_repeats_the_run(mcq_dataset: Path, replies: Replies) -> None:
    folder = run(mcq_dataset, replies(FIVE), seed=3).runs[0].folder
    facts = json.loads((folder / "run.json").read_text())
    assert facts["complete"] is True
    assert facts["config"]["seed"] == 3
    assert facts["first_prompt"]["text"] == "Q: Question 0?\nA) one 0\nB) two 0\nC) three 0\nOne of A,B,C."
    assert set(facts["dataset"]["fingerprints"]) == {"default/test"}
    assert {"python", "localeval", "transformers"} <= set(facts["versions"])
    assert set(facts["seconds"]) == {"prepare", "start", "generate", "score", "beside"}
    assert run_task({**facts["config"]}).runs[0].folder == folder


def test_scoring_what_a_killed_run_has_left(mcq_dataset: Path, replies: Replies) -> None:
    """It knows neither its seconds nor its tokens yet; nor does a run of an earlier version know the cached ones."""
    folder = run(mcq_dataset, replies(FIVE)).runs[0].folder
    facts = json.loads((folder / "run.json").read_text())
    assert "| time | prepare" in (folder / "report.md").read_text()
    for left in ({}, {"tokens": {"prompt": 7, "output": 2}}):
        kept = {name: value for name, value in facts.items() if name not in ("seconds", "tokens")}
        (folder / "run.json").write_text(json.dumps({**kept, **left, "complete": False}))
        assert score_run(folder).runs[0].metrics == {"accuracy": 0.6}
        report = (folder / "report.md").read_text()
        assert "| time |" not in report
        assert ("prompts 7 tokens, 0 of them from the cache; replies 2 tokens" in report) is bool(left)


# --- shots ---


def test_shots_are_the_first_that_are_not_the_sample_itself(mcq_dataset: Path, replies: Replies) -> None:
    from localeval.config import load_config
    from localeval.jobs import load_jobs

    rows = mcq_dataset.parent / "rows"
    test = [json.loads(line) for line in (rows / "test.jsonl").read_text().splitlines()]
    write_jsonl(rows / "train.jsonl", [test[1], {**test[2], "question": "Other?"}, {**test[3], "question": "Third?"}])
    config = load_config(
        {"engine": "replay:x", "datasets": [str(mcq_dataset)], "dataset_args": {"quiz": {"few_shot_num": 2}}}
    )
    job = load_jobs(config)[0]
    shown = [[shot.text for shot in job.shots_of(sample)] for sample in job.dataset.samples]
    assert shown[0] == ["Question 1?", "Other?"]
    assert shown[1] == ["Other?", "Third?"]
    mcq_dataset.write_text(mcq_dataset.read_text().replace("shots_split: train", "shots_split: test"))
    job = load_jobs(config)[0]
    assert [shot.text for shot in job.shots_of(job.dataset.samples[0])] == ["Question 1?", "Question 2?"]
    assert [shot.text for shot in job.shots_of(job.dataset.samples[4])] == ["Question 0?", "Question 1?"]


def test_a_dataset_without_shots_needs_no_word_on_them(mcq_dataset: Path, replies: Replies) -> None:
    kept = [line for line in mcq_dataset.read_text().splitlines() if not line.startswith(("shot:", "shots_prompt:"))]
    mcq_dataset.write_text("\n".join(kept) + "\n")
    assert run(mcq_dataset, replies(FIVE)).runs[0].metrics == {"accuracy": 0.6}
    with pytest.raises(
        LocalevalError, match=r"quiz: 1 shots are asked for, but .*quiz.yaml has no shot and shots_prompt"
    ):
        run(mcq_dataset, replies(FIVE), dataset_args={"quiz": {"few_shot_num": 1}})
    mcq_dataset.write_text("\n".join([*kept, "shots: 2"]) + "\n")
    with pytest.raises(LocalevalError, match="shot is missing: it says how the 2 shots are shown"):
        run(mcq_dataset, replies(FIVE))


def test_too_few_shots(mcq_dataset: Path, replies: Replies) -> None:
    args: dict[str, Any] = {"few_shot_num": 4}
    with pytest.raises(LocalevalError, match="4 shots are asked for, but its train split has only 3"):
        run(mcq_dataset, replies(FIVE), dataset_args={"quiz": args})
    allowed = run(mcq_dataset, replies(FIVE), dataset_args={"quiz": {**args, "allow_fewer_shots": True}})
    prompt = json.loads((allowed.runs[0].folder / "run.json").read_text())["first_prompt"]["text"]
    assert prompt.count("Shown: ") == 3


# --- replay ---


def test_replay_refuses_what_it_cant_match(mcq_dataset: Path, replies: Replies) -> None:
    four = {name: text for name, text in FIVE.items() if name != "default:3"}
    with pytest.raises(LocalevalError, match="has no reply to quiz default:3"):
        run(mcq_dataset, replies(four))
    file = replies(FIVE)
    file.write_text(file.read_text() + '{"sample_id": "default:0", "text": "again"}\n')
    with pytest.raises(LocalevalError, match="line 6: a second reply to default:0"):
        run(mcq_dataset, file)
    file.write_text('{"sample_id": "default:0"}\n')
    with pytest.raises(LocalevalError, match="line 1: expected"):
        run(mcq_dataset, file)
    with pytest.raises(LocalevalError, match="there is no such file"):
        run(mcq_dataset, Path("none.jsonl"))


def test_replay_over_several_datasets_needs_their_names(tmp_path: Path, replies: Replies) -> None:
    from tests.conftest import MCQ_YAML

    paths = []
    for name in ("one", "two"):
        question = {"question": "?", "options": ["x", "y"], "answer": "A", "topic": "t"}
        write_jsonl(tmp_path / name / "test.jsonl", [question])
        paths.append(tmp_path / f"{name}.yaml")
        paths[-1].write_text(MCQ_YAML.replace("path: rows", f"path: {name}"))
    file = replies({"default:0": "ANSWER: A"})
    fields = {"engine": f"replay:{file}", "datasets": [str(path) for path in paths], "work_dir": str(tmp_path / "runs")}
    with pytest.raises(LocalevalError, match="no dataset is named, and 2 are asked"):
        run_task(fields)
    write_jsonl(
        file,
        [
            {"sample_id": "default:0", "text": "ANSWER: A", "dataset": "one"},
            {"sample_id": "default:0", "text": "ANSWER: B", "dataset": "two"},
        ],
    )
    result = run_task(fields)
    assert [one.metrics["accuracy"] for one in result.runs] == [1.0, 0.0]
    assert result.report_text.splitlines()[-2].split()[:4] == ["one", "1", "accuracy", "1.0000"]


def test_a_predictions_file_can_be_replayed(mcq_dataset: Path, replies: Replies) -> None:
    first = run(mcq_dataset, replies(FIVE))
    again = run(mcq_dataset, first.runs[0].folder / "predictions.jsonl", model="copy")
    assert again.runs[0].metrics == first.runs[0].metrics


@pytest.mark.parametrize("options", [["--fail-below-baseline", "1"], ["--baseline", "runs/old"]])
@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_one_model_passes_no_gate_of_several(
    options: list[str], more: list[str], mcq_dataset: Path, replies: Replies, capsys: pytest.CaptureFixture[str]
) -> None:
    file = replies({f"default:{n}": "ANSWER: A" for n in range(5)})
    words = [
        "--engine",
        f"replay:{file}",
        "--datasets",
        str(mcq_dataset),
        "--work-dir",
        str(mcq_dataset.parent / "runs"),
    ]
    assert main([*words, *options, *more]) == 2
    assert f"{options[0]}" in (said := capsys.readouterr().err)
    assert "there is one model, and nothing to compare it with" in said

"""Whole runs in every mode without a model: constrained replies, options by likelihood, several ways at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localeval import run_task, score_run
from localeval.cli import main
from localeval.config import load_config
from localeval.jobs import load_jobs
from localeval.model import Model, for_mode
from localeval.prompts import Prompter
from localeval.schema import LocalevalError
from localeval.scoring import RunResult, report_runs
from tests.conftest import Replies, write_jsonl
from tests.fakes import ALWAYS_THINKING, CHATML, THINKING, make_tokenizer

# quiz.yaml: five questions of three options; the right letters are A B C A B


def run(dataset: Path, replies: Path, **fields: Any) -> RunResult:
    work_dir = str(dataset.parent / "runs")
    return run_task({"engine": f"replay:{replies}", "datasets": [str(dataset)], "work_dir": work_dir, **fields})


def json_of(result: RunResult, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((result.runs[0].folder / name).read_text())
    return loaded


# --- constrained ---

HELD = {f"default:{n}": f"ANSWER: {letter}" for n, letter in enumerate("ACCBB")}


def test_replies_in_their_grammar(mcq_dataset: Path, replies: Replies) -> None:
    result = run(mcq_dataset, replies(HELD), constrain=True)
    report = json_of(result, "report.json")
    assert report["mode"] == "constrained"
    assert report["counts"]["constraint_violations"] == 0
    assert report["metrics"]["accuracy"]["value"] == 0.6
    assert "quiz, constrained: " in result.report_text
    assert "n 5 · unparsed 0 · truncated 0 · constraint_violations 0" in result.report_text
    assert "NOT CONSTRAINED" not in result.report_text


def test_an_engine_that_did_not_hold_them_is_told_loudly(
    mcq_dataset: Path, replies: Replies, capsys: pytest.CaptureFixture[str]
) -> None:
    free = {**HELD, "default:1": "The answer is C.", "default:2": "ANSWER: D", "default:3": ("ANSW", "length")}
    result = run(mcq_dataset, replies(free), constrain=True)
    report = json_of(result, "report.json")
    assert report["counts"]["constraint_violations"] == 3
    stamp = "NOT CONSTRAINED: 2 replies break their grammar although they were not cut"
    assert stamp in report["notes"][0]
    assert f"! {stamp}" in result.report_text
    assert f"warning: quiz, constrained: {stamp}" in capsys.readouterr().err
    assert stamp in (result.runs[0].folder / "report.md").read_text()
    again = score_run(result.runs[0].folder)
    assert json_of(again, "report.json") == report


def test_a_cut_reply_is_counted_and_is_no_broken_promise(ner_dataset: Path, replies: Replies) -> None:
    said: dict[str, str | tuple[str, str]] = {
        "default:0": "<response><person>Ann Lee</person> left</response>",
        "default:1": ("<response><location>Par", "length"),
        "default:2": "<response>Nobody came</response>",
    }
    report = json_of(run(ner_dataset, replies(said), constrain=True), "report.json")
    assert (report["counts"]["constraint_violations"], report["counts"]["truncated"]) == (1, 1)
    assert report["notes"] == []
    free = json_of(run(ner_dataset, replies(said)), "report.json")
    assert free["counts"]["constraint_violations"] is None
    assert free["metrics"] == report["metrics"]


def test_reasoning_may_go_before_where_it_was_asked_for(mcq_dataset: Path, replies: Replies) -> None:
    said = {name: f"<think>\nso\n</think>\n\n{text}" for name, text in HELD.items()}
    assert json_of(run(mcq_dataset, replies(said), constrain=True, thinking="on"), "report.json")["notes"] == []
    report = json_of(run(mcq_dataset, replies(said), constrain=True), "report.json")
    assert report["counts"]["constraint_violations"] == 5


def test_a_free_and_a_constrained_run_have_folders_of_their_own(mcq_dataset: Path, replies: Replies) -> None:
    free, held = run(mcq_dataset, replies(HELD)), run(mcq_dataset, replies(HELD), constrain=True)
    assert free.runs[0].folder != held.runs[0].folder
    assert free.runs[0].folder.parent == held.runs[0].folder.parent


# --- thinking ---


def model_for(dataset: Path, template: str, **fields: Any) -> Model:
    """The model as the first job of a config prompts it."""
    config = load_config({"model": "m", "datasets": [str(dataset)], **fields})
    prompter = Prompter(make_tokenizer(dataset.parent / "m", template), thinking=config.thinking)
    return for_mode(Model("m", "0", {"engine": "vllm"}, None, prompter), load_jobs(config)[0], config)


@pytest.mark.parametrize(
    ("template", "fields", "thinking"),
    [
        (THINKING, {}, "on"),
        (THINKING, {"constrain": True}, "off"),
        (THINKING, {"constrain": True, "thinking": "on"}, "on"),
        (THINKING, {"mcq": "logprob"}, "off"),
        (THINKING, {"mcq": "cloze"}, "none"),
        (CHATML, {"constrain": True}, "none"),
        (ALWAYS_THINKING, {"constrain": True, "thinking": "on"}, "on"),
        (ALWAYS_THINKING, {"mcq": "cloze"}, "none"),
    ],
)
def test_thinking_is_off_where_the_answer_has_one_form(
    mcq_dataset: Path, template: str, fields: dict[str, Any], thinking: str
) -> None:
    model = model_for(mcq_dataset, template, **fields)
    assert model.prompter is not None
    assert model.prompter.thinking == thinking
    switched = {"enable_thinking": False} if thinking == "off" else {}
    if "thinking" not in fields:
        assert model.identity.get("template_args", {}) == switched


@pytest.mark.parametrize(
    ("template", "fields", "message"),
    [
        (ALWAYS_THINKING, {"constrain": True}, "leave the reasoning free with --thinking on"),
        (ALWAYS_THINKING, {"constrain": True, "thinking": "off"}, "leave the reasoning free with --thinking on"),
        (ALWAYS_THINKING, {"mcq": "logprob"}, "it can't be switched off: ask with --mcq generate"),
        (THINKING, {"mcq": "logprob", "thinking": "on"}, "leave out --thinking on"),
    ],
)
def test_thinking_that_is_in_the_way_is_refused(
    mcq_dataset: Path, template: str, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(LocalevalError, match=message):
        model_for(mcq_dataset, template, **fields)


# --- options by their likelihood ---


def scored(path: Path, rows: list[dict[str, float]]) -> Path:
    return write_jsonl(
        path, [{"sample_id": f"default:{n}", "text": " A", "continuations": row} for n, row in enumerate(rows)]
    )


LOGPROBS = [
    {" A": -1.0, "A": -9.0, " B": -2.0, " C": -3.0},
    {" A": -3.0, " B": -1.0, " C": -2.0},
    {" A": -1.0, " B": -2.0, " C": -3.0},
    {" A": -1.5, " B": -1.0, "B": -1.0, " C": -3.0},
    {" A": -1.0, " B": -0.5, " C": -3.0},
]


def test_letters_by_their_probabilities(mcq_dataset: Path, tmp_path: Path) -> None:
    result = run(mcq_dataset, scored(tmp_path / "p.jsonl", LOGPROBS), mcq="logprob")
    report = json_of(result, "report.json")
    assert report["mode"] == "logprob"
    assert report["metrics"]["accuracy"]["value"] == 0.6  # A B A B B against A B C A B
    assert set(report["metrics"]) == {"accuracy", "nll", "probability", "brier", "ece", "outside"}
    assert report["counts"] == {**dict.fromkeys(report["counts"]), "reused": 0}
    assert report["letters"]["A"] == {"correct": 1, "predicted": 2, "gold": 2}
    assert len(report["reliability"]) == 10
    assert sum(row["n"] for row in report["reliability"]) == 5
    assert "answers (gold) A 40.0% (40.0%) · B 60.0% (40.0%) · C 0.0% (20.0%)" in result.report_text
    rows = [json.loads(line) for line in (result.runs[0].folder / "scores.jsonl").read_text().splitlines()]
    assert rows[1]["probabilities"] == pytest.approx({"A": 0.0497871, "B": 0.3678794, "C": 0.1353353}, abs=1e-7)
    assert rows[0]["probabilities"]["A"] == pytest.approx(0.3678794 + 0.0001234, abs=1e-7)
    markdown = (result.runs[0].folder / "report.md").read_text()
    assert "## Reliability" in markdown
    assert "| A | 2 | 40.0% | 2 | 40.0% | 0.5000 | 0.5000 |" in markdown
    again = score_run(result.runs[0].folder)
    assert json_of(again, "report.json") == report
    replayed = run(mcq_dataset, result.runs[0].folder / "predictions.jsonl", mcq="logprob", model="copy")
    assert replayed.runs[0].metrics == result.runs[0].metrics


def test_texts_by_their_likelihood(mcq_dataset: Path, tmp_path: Path) -> None:
    # "one 0" and "two 0" have 5 characters, "three 0" has 7
    rows = [{"text A": -10.0, "text B": -10.5, "text C": -11.0}] * 5
    result = run(mcq_dataset, scored(tmp_path / "p.jsonl", rows), mcq="cloze")
    report = json_of(result, "report.json")
    assert report["metrics"]["accuracy"]["value"] == 0.2  # always C
    assert report["metrics"]["nll_per_character"]["value"] == pytest.approx((2 * 10 / 5 + 2 * 10.5 / 5 + 11 / 7) / 5)
    assert report["reliability"] is None
    row = json.loads((result.runs[0].folder / "scores.jsonl").read_text().splitlines()[0])
    assert row["logprobs"] == pytest.approx({"A": -2.0, "B": -2.1, "C": -11 / 7})
    assert "probabilities" not in row


@pytest.mark.parametrize(("mode", "name"), [("logprob", "A"), ("cloze", "text A")])
def test_a_row_without_probabilities_is_named(mcq_dataset: Path, replies: Replies, mode: str, name: str) -> None:
    with pytest.raises(LocalevalError, match=rf"quiz, {mode}, default:0: there is no log probability of {name}"):
        run(mcq_dataset, replies(HELD), mcq=mode)


def test_one_modes_rows_are_not_taken_for_the_others(mcq_dataset: Path, tmp_path: Path) -> None:
    letters = scored(tmp_path / "letters.jsonl", LOGPROBS)
    texts = scored(tmp_path / "texts.jsonl", [{"text A": -1.0, "text B": -2.0, "text C": -3.0}] * 5)
    for file, mode in ((letters, "cloze"), (texts, "logprob")):
        with pytest.raises(LocalevalError, match="there is no log probability of"):
            run(mcq_dataset, file, mcq=mode)


def test_replay_holds_one_answer_to_a_sample(mcq_dataset: Path, replies: Replies) -> None:
    with pytest.raises(LocalevalError, match="holds one reply to a sample: name one way with --mcq"):
        run(mcq_dataset, replies(HELD), mcq="generate,logprob")


@pytest.mark.parametrize(
    "written",
    [
        '{" A": "high"}',
        '{" A": 0.5}',
        '{" A": true}',
        '{" A": NaN}',
        '{" A": -Infinity}',
        "[1]",
        f'{{" A": 1{"0" * 400}}}',
    ],
)
def test_what_is_no_log_probability_is_named(mcq_dataset: Path, tmp_path: Path, written: str) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(f'{{"sample_id": "default:0", "text": "", "continuations": {written}}}\n')
    with pytest.raises(LocalevalError, match=r"p\.jsonl, line 1: continuations"):
        run(mcq_dataset, file, mcq="logprob")
    good = run(mcq_dataset, scored(tmp_path / "good.jsonl", LOGPROBS), mcq="logprob").runs[0].folder
    rows = (good / "predictions.jsonl").read_text().splitlines(keepends=True)
    broken = json.dumps({**json.loads(rows[1]), "continuations": 0}).replace(
        '"continuations": 0', f'"continuations": {written}'
    )
    (good / "predictions.jsonl").write_text("".join([rows[0], broken + "\n", *rows[2:]]))
    with pytest.raises(LocalevalError, match=r"predictions\.jsonl, line 2: not a prediction \(.*continuations"):
        score_run(good)


def test_a_share_is_of_the_answers_that_were_read(mcq_dataset: Path, replies: Replies) -> None:
    said = {f"default:{n}": "ANSWER: A" if n < 2 else "no idea" for n in range(5)}
    result = run(mcq_dataset, replies(said))
    assert "answers (gold) A 100.0% (40.0%) · B 0.0% (40.0%) · C 0.0% (20.0%)" in result.report_text
    assert "| A | 2 | 100.0% | 2 | 40.0% | 0.5000 | 0.5000 |" in (result.runs[0].folder / "report.md").read_text()


def test_constrain_alone_changes_nothing_that_is_not_generated(
    mcq_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = scored(tmp_path / "p.jsonl", LOGPROBS)
    free, held = (run(mcq_dataset, file, mcq="logprob", constrain=constrain) for constrain in (False, True))
    assert free.runs[0].folder == held.runs[0].folder
    assert "--constrain has no effect with --mcq logprob: nothing is generated" in capsys.readouterr().err


def test_ways_of_asking_are_checked(mcq_dataset: Path) -> None:
    base = {"engine": "replay:x", "datasets": [str(mcq_dataset)]}
    assert load_config({**base, "mcq": "generate, logprob"}).mcq == ["generate", "logprob"]
    assert [job.mode for job in load_jobs(load_config({**base, "mcq": ["cloze", "generate"], "constrain": True}))] == [
        "cloze",
        "constrained",
    ]
    with pytest.raises(LocalevalError, match=r"mcq\.0 is 'logits'.*'generate', 'logprob' or 'cloze'"):
        load_config({**base, "mcq": "logits"})
    with pytest.raises(LocalevalError, match="names one way twice"):
        load_config({**base, "mcq": "cloze,cloze"})


def test_ways_of_asking_are_for_multiple_choice(ner_dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job,) = load_jobs(load_config({"engine": "replay:x", "datasets": [str(ner_dataset)], "mcq": "logprob"}))
    assert job.mode == "generate"
    assert "--mcq logprob has no effect: none of the datasets is multiple choice" in capsys.readouterr().err


# --- side by side ---


def test_free_and_constrained_stand_side_by_side(mcq_dataset: Path, replies: Replies, tmp_path: Path) -> None:
    said = {**HELD, "default:0": "I think it is the first", "default:4": ("and so", "length")}
    model = {"model": "m"}
    same = replies({**said}, "replies.jsonl")
    free = run(mcq_dataset, same, **model)
    held = run(mcq_dataset, same, **model, constrain=True)
    text = report_runs([free.runs[0].folder, held.runs[0].folder.parent])
    lines = text.splitlines()
    assert lines[0].startswith("quiz: m (")
    assert lines[0].endswith("n 5, 0 shots")
    assert "! constrained: NOT CONSTRAINED: 1 replies break their grammar" in text
    rows = {line.split("  ")[0]: line.split() for line in lines}
    assert rows["accuracy"][1:] == ["0.2000", "0.2000", "+0.0000"]
    assert rows["unparsed"][1:] == ["2", "2"]
    assert rows["constraint_violations"][1:] == ["–", "2"]
    assert text.count("quiz: m (") == 1


def test_what_was_not_asked_alike_does_not_share_a_table(mcq_dataset: Path, replies: Replies) -> None:
    file = replies(HELD)
    run(mcq_dataset, file, model="m")
    run(mcq_dataset, file, model="m", constrain=True, limit=2)
    run(mcq_dataset, file, model="m", dataset_args={"quiz": {"few_shot_num": 1}})
    text = report_runs([mcq_dataset.parent / "runs"])
    assert sorted(line.split(", ", 1)[1] for line in text.splitlines() if line.startswith("quiz: ")) == [
        "n 2, 0 shots, LIMITED",
        "n 5, 0 shots",
        "n 5, 1 shots",
    ]
    assert "constrained - generate" not in text


def test_other_prompts_and_other_draws_are_not_subtracted(mcq_dataset: Path, replies: Replies) -> None:
    file = replies(HELD)
    run(mcq_dataset, file, model="m")
    run(mcq_dataset, file, model="m", constrain=True, generation_config={"temperature": 0.7})
    prompt = {"quiz": {"prompt_template": "{question} {choices}"}}
    run(mcq_dataset, file, model="m", constrain=True, dataset_args=prompt, thinking="on")
    other, both = report_runs([mcq_dataset.parent / "runs"]).split("\n\nquiz: m")
    if "generate" in other:
        other, both = both, other
    assert "generate" not in other
    assert other.count("thinking") == 1
    assert {"generate", "constrained"} <= set(both.split())
    assert "constrained - generate" not in both


def test_an_edited_definition_is_another_dataset(mcq_dataset: Path, replies: Replies) -> None:
    file = replies(HELD)
    run(mcq_dataset, file, model="m")
    mcq_dataset.write_text(mcq_dataset.read_text().replace('prompt: "Q:', 'prompt: "Ask:'))
    run(mcq_dataset, file, model="m", constrain=True)
    text = report_runs([mcq_dataset.parent / "runs"])
    titles = [line for line in text.splitlines() if line.startswith("quiz: m")]
    assert len(titles) == len(set(titles)) == 2
    assert all(", asked as " in title for title in titles)
    assert "constrained - generate" not in text


def test_one_run_in_two_places_has_two_labels(mcq_dataset: Path, replies: Replies, tmp_path: Path) -> None:
    import shutil

    folder = run(mcq_dataset, replies(HELD), model="m").runs[0].folder
    shutil.copytree(folder.parent, tmp_path / "copy" / folder.parent.name)
    text = report_runs([folder, tmp_path / "copy"])
    assert f"generate (replay, {folder})" in text
    assert f"generate (replay, {tmp_path / 'copy' / folder.parent.name / folder.name})" in text


def test_accuracy_of_entities_is_said_to_be_of_tokens(ner_dataset: Path, replies: Replies) -> None:
    said = {"default:0": "<response>Ann Lee left</response>", "default:1": "?", "default:2": "?"}
    lines = report_runs([run(ner_dataset, replies(said), model="m").runs[0].folder]).splitlines()
    assert any(line.startswith("accuracy (tokens) ") for line in lines)


def test_the_report_command(
    mcq_dataset: Path, replies: Replies, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(mcq_dataset, replies(HELD), model="m").runs[0].folder
    assert main(["report", str(folder.parent.parent)]) == 0
    assert "quiz: m (" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "none")]) == 2
    assert "no run.json there or below" in capsys.readouterr().err
    facts = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**facts, "complete": False}))
    assert main(["report", str(folder)]) == 1
    error = capsys.readouterr().err
    assert "is not finished: the same command again goes on with it" in error
    assert "nothing to report" in error
    (folder / "run.json").write_text(json.dumps(facts))
    (folder / "report.json").write_text('{"dataset": "quiz"}')
    assert main(["report", str(folder)]) == 2
    assert "or, for a report.json, localeval score RUN_DIR" in capsys.readouterr().err

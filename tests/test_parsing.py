"""What is wrong with a command: one message that names the field, the value and the nearest right name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localeval.cli import main
from localeval.nearest import nearest

RUN = ["--model", "m", "--datasets", "milu", "--samples"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dataset", "milu", "--model", "m"], "there is no option --dataset (did you mean '--datasets'?)"),
        (["--dataset=milu"], "there is no option --dataset (did you mean '--datasets'?)"),
        (["-model", "m"], "there is no option -model (did you mean '--model'?) (localeval --help)"),
        (["watch", "x", "--untilstep", "5"], "--untilstep (did you mean '--until-step'?) (localeval watch --help)"),
        (["init", "x", "--form", "rows.jsonl"], "there is no option --form (did you mean '--from'?)"),
        (["init", "x"], "the following arguments are required: --from (localeval init --help)"),
        (["compare"], "the following arguments are required: run_dir"),
        (["lst"], "there is no command 'lst' (did you mean 'list'?)"),
        (["bundle", "verfy", "x"], "invalid choice: 'verfy' (did you mean 'verify'?); choose from verify, list"),
        (["completion", "bsh"], "argument shell: invalid choice: 'bsh' (did you mean 'bash'?)"),
        ([*RUN, "--thinking", "of"], "argument --thinking: invalid choice: 'of' (did you mean 'off'?)"),
        ([*RUN, "--limit", "ten"], "argument --limit: invalid int value: 'ten'"),
        ([*RUN, "more", "--limit"], "argument --limit: expected one argument"),
        (["score", "a", "b"], "unrecognized arguments: b (localeval score --help)"),
        (["--engine", "vlm", *RUN], "engine: 'vlm' is not one of auto, vllm, transformers, replay:FILE (did you mean"),
        ([*RUN, "--mcq", "logprb"], "mcq.0 is 'logprb' (did you mean 'logprob'?)"),
        ([*RUN, "--generation-config", '{"max_token": 1}'], "'generation_config.max_token' (did you mean 'max_tokens'"),
        ([*RUN, "--model-args", '{"dtyp": "x"}'], "unknown key 'model_args.dtyp' (did you mean 'dtype'?)"),
        ([*RUN, "--dataset-args", '{"mliu": {}}'], "dataset_args speaks of 'mliu', which is not among the datasets"),
        ([*RUN, "--dataset-args", '{"mliu": {}}'], "(did you mean 'milu'?)"),
        ([*RUN, "--dataset-args", '{"milu": {"few_shots": 1}}'], "'dataset_args.milu.few_shots' (did you mean 'few_sh"),
        ([*RUN, "--dataset-args", '{"milu": {"subset_list": ["HINDI"]}}'], "no subset 'HINDI' (did you mean 'Hindi'?)"),
        (["--model", "smollm2-13m", *RUN[2:]], "--model smollm2-13m: not found (did you mean 'smollm2-135m'?)"),
        (["--model", "a", "b", *RUN[2:], "--baseline", "frist"], "--model a: not found"),
        (["--config", "none.yaml"], "config none.yaml: there is no such file (looked for /"),
        (["list", "milu", "--dataset-args", "[1]", "--show", "1"], "--dataset-args takes a JSON object, not list: [1]"),
    ],
)
def test_the_nearest_right_name_is_named(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.startswith("localeval: error: ")
    assert "usage:" not in said


def test_what_is_no_option_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    """A number, and what follows two dashes, may begin with a dash."""
    assert main([*RUN, "--seed", "-1", "--limit", "-2"]) == 2
    assert "limit is -2" in capsys.readouterr().err
    assert main(["score", "--", "--nowhere"]) == 2
    assert "--nowhere: no run.json there or below" in capsys.readouterr().err


def test_a_wrong_word_in_a_file(mcq_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = mcq_dataset.read_text()
    for old, new, message in [
        ("answer: answer,", "answer: anwser,", "no column 'anwser' (did you mean 'answer'?); it has: question"),
        ("answer_is: letter", "answer_is: leter", "answer_is is 'leter' (did you mean 'letter'?)"),
        ("task: mcq", "task: mqc", "task is 'mqc' (did you mean 'mcq'?)"),
        ("shots_split:", "shot_split:", "unknown key 'shot_split' (did you mean 'shots_split'?)"),
        ("{letters}", "{leters}", "nothing fills {leters} (did you mean 'letters'?)"),
    ]:
        mcq_dataset.write_text(text.replace(old, new))
        assert main(["list", str(mcq_dataset), "--show", "1"]) == 2
        assert message in capsys.readouterr().err
    assert main(["list", str(tmp_path / "quz.yaml")]) == 2
    assert f"there is no such file (did you mean '{mcq_dataset}'?)" in capsys.readouterr().err


def test_a_pipe_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "run.json")
    for command in ("score", "report"):
        assert main([command, str(tmp_path)]) == 2
        assert f"{tmp_path}/run.json: is no plain file" in capsys.readouterr().err


def test_nearest() -> None:
    assert nearest("HINDI", ["Hindi", "Tamil"]) == " (did you mean 'Hindi'?)"
    assert nearest("xyz", ["Hindi", "Tamil"]) == ""

"""``localeval list DATASET --show N``: the prompts that a dataset makes, with what would be right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localeval.cli import main
from tests.conftest import QUESTIONS, write_jsonl
from tests.fakes import make_tokenizer

# By hand, out of MCQ_YAML and QUESTIONS of conftest.py.
FIRST = """\
== default:0 · topic sums ==========================================================================
Q: Question 0?
A) one 0
B) two 0
C) three 0
One of A,B,C.
-- gold --------------------------------------------------------------------------------------------
A) one 0
(a reply that says so: ANSWER: A)
"""
NAMES = """\
== default:0 =======================================================================================
Mark <person>, <location> (person (people), location (places)):
Ann Lee left

-- gold --------------------------------------------------------------------------------------------
<response><person>Ann Lee</person> left</response>
"""


def test_prompts_are_shown_whole_with_their_gold(mcq_dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", str(mcq_dataset), "--show", "2"]) == 0
    shown = capsys.readouterr().out
    assert FIRST in shown
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("==")] == ["default:0", "default:1"]


def test_sentences_are_shown_with_the_reply_that_is_right(
    ner_dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", str(ner_dataset), "--show", "9"]) == 0
    shown = capsys.readouterr().out
    assert NAMES in shown
    assert shown.count("-- gold") == 3


def test_the_first_of_each_subset_comes_first(mcq_dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for subset in ("one", "two"):
        write_jsonl(mcq_dataset.parent / "rows" / subset / "test.jsonl", QUESTIONS[:2])
    mcq_dataset.write_text(mcq_dataset.read_text() + "subsets: [one, two]\n")
    assert main(["list", str(mcq_dataset), "--show", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("==")] == ["one:0", "two:0", "one:1"]


def test_as_a_model_is_given_them(mcq_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = make_tokenizer(tmp_path / "model")
    (model / "config.json").write_text('{"model_type": "llama"}')
    (model / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    args = json.dumps({"quiz": {"system_prompt": "Be \x1b[31mbrief."}})
    words = ["list", str(mcq_dataset), "--show", "1", "--dataset-args", args]
    assert main([*words, "--model", str(model)]) == 0
    # A stranger's control characters are shown, not obeyed.
    assert (
        "<|im_start|>system\nBe \\x1b[31mbrief.<|im_end|>\n<|im_start|>user\nQ: Question 0?\n"
        in capsys.readouterr().out
    )
    assert main(words) == 0
    assert "== system prompt =" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--show", "2"], "--show needs a DATASET"),
        (["--stats"], "--stats needs a DATASET"),
        (["milu", "--stats", "--show", "2"], "--show: not allowed with argument --stats"),
        (["milu", "--show", "0"], "--show 0: expected how many prompts"),
        (["milu", "--samples", "--show", "1", "--model", "/no/such"], "Give the model's folder as --model"),
    ],
)
def test_what_cant_be_shown(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", *words]) == 2
    assert message in capsys.readouterr().err

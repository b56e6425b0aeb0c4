"""Comparisons of finished runs: values by hand, what is refused, what is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localeval import LocalevalError, run_task
from localeval.cli import main
from localeval.compare import compare_paths
from localeval.report.comparison import Comparison, Contrast
from tests.conftest import Replies, write_jsonl

GOLD = "ABCAB"  # of tests.conftest.QUESTIONS


@pytest.fixture
def ask(tmp_path: Path, mcq_dataset: Path, replies: Replies) -> Any:
    """Runs a model that gives these letters ("." for a reply that can't be read), and gives back its run folder."""

    def run(model: str, letters: str, **config: Any) -> Path:
        said = {f"default:{n}": f"ANSWER: {letter}" if letter != "." else "?" for n, letter in enumerate(letters)}
        file = replies(said, f"{model}.jsonl")
        result = run_task(
            {
                "model": model,
                "engine": f"replay:{file}",
                "datasets": [str(mcq_dataset)],
                "work_dir": str(tmp_path / "runs"),
                **config,
            }
        )
        return result.runs[0].folder

    return run


def only(comparison: Comparison, kind: str = "") -> list[Contrast]:
    (block,) = comparison.blocks
    return [test for test in block.tests if test.kind == kind]


def test_a_difference_by_hand(ask: Any) -> None:
    old, new = ask("old", "ABAAC"), ask("new", ".BCAB")  # right: 0 1 3, and 1 2 3 4
    comparison = compare_paths([old, new])
    (test,) = only(comparison)
    assert (test.candidate, test.metric, test.result.n) == ("new", "accuracy", 5)
    assert (test.result.first, test.result.second) == (0.6, 0.8)
    assert test.result.difference == pytest.approx(0.2)
    assert (test.result.gained, test.result.lost) == (2, 1)
    assert test.result.p == test.p_holm == 1.0  # 2 against 1
    assert test.verdict == "not shown"
    assert [(flip.sample_id, flip.change, flip.parsed, flip.replies) for flip in comparison.flips] == [
        ("default:0", "lost", ("A", None), ("ANSWER: A", "?")),
        ("default:2", "gained", ("A", "C"), ("ANSWER: A", "ANSWER: C")),
        ("default:4", "gained", ("C", "B"), ("ANSWER: C", "ANSWER: B")),
    ]


def test_parts_are_a_family_of_their_own(ask: Any) -> None:
    """Topic sums has rows 0 and 1, birds 2 to 4."""
    comparison = compare_paths([ask("old", "ABBBA"), ask("new", "BACAB")])
    sums, birds = only(comparison, "topic")
    assert (sums.part, sums.result.n, sums.result.gained, sums.result.lost) == ("sums", 2, 0, 2)
    assert (birds.part, birds.result.n, birds.result.gained, birds.result.lost) == ("birds", 3, 3, 0)
    assert (sums.result.p, birds.result.p) == (0.5, 0.25)
    assert (sums.p_holm, birds.p_holm) == (0.5, 0.5)  # 2 x 0.25, and no less than that for the next
    (overall,) = only(comparison)
    assert overall.result.p == overall.p_holm == 1.0  # 3 against 2
    assert overall.result.detectable is None  # five samples show nothing


def test_first_best_and_a_folder_as_baseline(ask: Any, tmp_path: Path) -> None:
    runs = [ask("a", "ABAAC"), ask("b", "ABCAB"), ask("c", "CCCCC")]
    assert [test.candidate for test in only(compare_paths(runs))] == ["b", "c"]
    assert [test.candidate for test in only(compare_paths(runs, "best"))] == ["a", "c"]
    assert [test.candidate for test in only(compare_paths(runs[:2], str(runs[2])))] == ["a", "b"]
    assert [test.candidate for test in only(compare_paths([tmp_path / "runs"], str(runs[2].parent)))] == ["a", "b"]
    with pytest.raises(LocalevalError, match=r"there is no such folder .did you mean .first.*or say first, or best"):
        compare_paths(runs, "frist")
    with pytest.raises(LocalevalError, match="1 finished run"):
        compare_paths(runs[:1])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"limit": 3}, r"limit: None / 3"),
        ({"dataset_args": {"quiz": {"few_shot_num": 1}}}, r"shots: 0 / 1"),
        ({"dataset_args": {"quiz": {"prompt_template": "{question} {choices} {letters}"}}}, r"prompts: \w+ / \w+"),
        ({"constrain": True}, r"mode: generate / constrained"),
        ({"generation_config": {"max_tokens": 7}}, r"generation_config max_tokens: None / 7"),
        ({"thinking": "on"}, r"thinking: off / on"),
    ],
)
def test_what_was_not_asked_alike_is_refused(ask: Any, changes: dict[str, Any], named: str) -> None:
    old, new = ask("old", "ABAAC"), ask("new", "ABCAB", **changes)
    with pytest.raises(LocalevalError, match=named) as refused:
        compare_paths([old, new])
    assert "--force" in str(refused.value)
    (block,) = compare_paths([old, new], force=True).blocks
    assert block.stamps[0].startswith("new did not ask the same:")
    shared = 3 if "limit" in changes else 5
    assert block.stamps[0].endswith(f"({shared} shared samples)")
    assert block.tests[0].result.n == shared


def test_data_that_changed_and_other_reading_rules_are_refused(ask: Any, tmp_path: Path) -> None:
    old = ask("old", "ABAAC")
    with (tmp_path / "rows" / "test.jsonl").open("a") as file:
        file.write("\n")
    new = ask("new", "ABCAB")
    with pytest.raises(LocalevalError, match=r"data: \{'test.jsonl|data: \{"):
        compare_paths([old, new])
    report = json.loads((old / "report.json").read_text())
    (old / "report.json").write_text(json.dumps({**report, "reading": 0}))
    with pytest.raises(LocalevalError, match="reading rules: 0 / 2"):
        compare_paths([old, new])


def test_scores_that_are_not_whole_are_refused(ask: Any) -> None:
    old, new = ask("old", "ABAAC"), ask("new", "ABCAB")
    lines = (new / "scores.jsonl").read_text().splitlines(keepends=True)
    (new / "scores.jsonl").write_text("".join(lines[:3]))
    with pytest.raises(LocalevalError, match=r"share 3 samples of 3 and 5.*localeval score"):
        compare_paths([old, new])
    (new / "scores.jsonl").write_text('{"sample_id": "default:0"}\n')
    with pytest.raises(LocalevalError, match=r"scores.jsonl, line 1: not a score of this version"):
        compare_paths([old, new])
    (new / "scores.jsonl").unlink()
    with pytest.raises(LocalevalError, match="localeval score RUN_DIR writes it"):
        compare_paths([old, new])


def test_models_of_one_name_are_told_apart(ask: Any, tmp_path: Path) -> None:
    first = ask("same", "ABAAC")
    second = ask("same", "CCCCC")
    (test,) = only(compare_paths([first, second]))
    assert test.candidate.startswith("same (")
    assert test.candidate[6:14] == json.loads((second / "run.json").read_text())["model"]["fingerprint"][:8]


def test_entities(ner_dataset: Path, tmp_path: Path, replies: Replies) -> None:
    """3 sentences: Ann Lee left (PER), Paris slept (LOC), Nobody came; 2 gold entities."""
    nobody = "<response>Nobody came</response>"
    said = {
        "old": ["<response><person>Ann Lee</person> left</response>", "<response>Paris slept</response>", nobody],
        "new": [
            "<response><person>Ann Lee</person> left</response>",
            "<response><location>Paris</location> slept</response>",
            "<response><person>Nobody</person> came</response>",
        ],
    }
    folders = []
    for model, texts in said.items():
        file = replies({f"default:{n}": text for n, text in enumerate(texts)}, f"{model}.jsonl")
        config = {"model": model, "engine": f"replay:{file}", "datasets": [str(ner_dataset)]}
        folders.append(run_task({**config, "work_dir": str(tmp_path / "runs")}).runs[0].folder)
    comparison = compare_paths(folders)
    (overall,) = only(comparison)
    assert overall.metric == "f1"
    assert overall.result.first == pytest.approx(2 / 3)  # 1 right of 1 predicted, 2 gold
    assert overall.result.second == pytest.approx(4 / 5)  # 2 right of 3 predicted, 2 gold
    assert overall.result.p == 1.0  # of the 4 ways to exchange two sentences all differ by as much or more, or none
    by_type = {test.part: test.result for test in only(comparison, "type")}
    assert (by_type["LOC"].first, by_type["LOC"].second) == (0.0, 1.0)
    assert by_type["PER"].second == pytest.approx(2 / 3)
    assert [(flip.sample_id, flip.change) for flip in comparison.flips] == [
        ("default:1", "gained"),
        ("default:2", "lost"),
    ]


def test_the_command_line(ask: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = ask("old", "ABCAB"), ask("new", "ABCAC")  # 1.0, and 0.8
    command = ["compare", str(old), str(new), "--output", str(tmp_path / "out" / "deep")]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert "quiz against old, n 5" in text
    assert "new    1.0000  0.8000     -0.2000" in text
    assert "Flipped samples: new +0 -1" in text
    assert main([*command, "--fail-below-baseline", "20.5"]) == 0
    capsys.readouterr()
    assert main([*command, "--fail-below-baseline", "19.5"]) == 1
    assert "not passed: quiz: new has accuracy 0.8000, 20.00 points below old (1.0000)" in capsys.readouterr().out
    written = json.loads((tmp_path / "out" / "deep" / "comparison.json").read_text())
    (test,) = [test for test in written["blocks"][0]["tests"] if test["kind"] == "all"]
    assert (test["n"], test["gained"], test["lost"], test["p"]) == (5, 0, 1, 1.0)
    rows = [json.loads(line) for line in (tmp_path / "out" / "deep" / "flips.jsonl").read_text().splitlines()]
    assert [(row["sample_id"], row["baseline_reply"], row["candidate_reply"]) for row in rows] == [
        ("default:4", "ANSWER: B", "ANSWER: C")
    ]
    assert (
        "| quiz default:4 | new | lost | ANSWER: B | ANSWER: C |"
        in (tmp_path / "out" / "deep" / "comparison.md").read_text()
    )
    assert main(["compare", str(tmp_path / "nowhere")]) == 2
    assert "no run.json there or below" in capsys.readouterr().err


def test_a_gate_passes_nothing_that_was_not_compared(
    ask: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    thousand = [{"question": f"q{n}", "options": ["a", "b"], "answer": "A"} for n in range(1000)]
    write_jsonl(tmp_path / "rows" / "test.jsonl", thousand)
    text = (tmp_path / "quiz.yaml").read_text().replace("groups: {topic: topic}\n", "")
    (tmp_path / "quiz.yaml").write_text(text)
    old, new = ask("old", "A" * 1000), ask("new", "A" * 993 + "B" * 7)
    command = ["compare", str(old), str(new), "--fail-below-baseline"]
    assert main([*command, "0.7"]) == 0  # 0.7 points are not more than 0.7
    assert main([*command, "0.69"]) == 1
    for points in ("nan", "-1", "inf"):
        assert main([*command, points]) == 2
    other = ask("other", "A" * 1000, limit=10)
    assert main(["compare", str(old), str(new), "--baseline", str(other), "--fail-below-baseline", "5"]) == 2
    capsys.readouterr()


def test_a_report_of_another_program_is_no_traceback(ask: Any, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = ask("old", "ABAAC"), ask("new", "ABCAB")
    facts = json.loads((new / "run.json").read_text())
    del facts["config"]
    (new / "run.json").write_text(json.dumps(facts))
    assert main(["compare", str(old), str(new)]) == 2
    assert "not one of this version (KeyError('config'))" in capsys.readouterr().err
    rows = (old / "scores.jsonl").read_text()
    (old / "scores.jsonl").write_text(rows + rows)
    assert main(["compare", str(old), str(ask("third", "ABCAB"))]) == 2
    assert "a sample stands there twice" in capsys.readouterr().err

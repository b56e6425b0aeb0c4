"""Why replies were not read, wherever it is said. Readings are made up here, so that each reason is known by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pyarrow.parquet as pq
import pytest

from localeval import load_runs, run_task, score_run
from localeval.compare import compare_paths
from localeval.export.exporting import export_runs
from localeval.report.build import Asked, build_report, report_of
from localeval.report.comparison import flip_rows
from localeval.report.reasons import REASONS, reasons_of, why_text
from localeval.results import read_results
from localeval.schema import Sample, Score, Tally
from localeval.scoring import find_finished, report_runs
from localeval.store import read_scores
from localeval.tasks.mcq import parse
from localeval.tasks.ner import parse as ner
from localeval.together import entries_of, page_of, several_of
from localeval.view.catalogue import Catalogue
from localeval.view.pages import home_page
from localeval.view.rows import Rows
from tests.conftest import MCQ_YAML, NER_YAML, Replies, write_jsonl
from tests.pages import REPOSITORY, sections
from tests.pages import rows as tables_of
from tests.test_page import Page
from tests.test_several import cells

SAID = ["A", "B", "cut", "cut", "cut", "several", "several", "refused", "no_claim", "reasoning", "A!", "B!"]
"""Replies to twelve questions whose answers are A: a letter, one that its option's text contradicts, or why not."""
WHY = {"reasoning": 1, "cut": 3, "several": 2, "refused": 1, "no_claim": 1}
LINE = "8 not read: 3 cut, 2 several answers, 1 still reasoning, 1 refused, 1 no answer"


def read_choice(reply: str, *_: Any, **__: Any) -> parse.Reading:
    if reply[0] in "AB":
        return parse.Reading(reply[0], label_mismatch=reply.endswith("!"))
    return parse.Reading(None, reply)  # type: ignore[arg-type]


def read_entities(reply: str, *_: Any, **__: Any) -> ner.Reading:
    return ner.Reading(None, reason=reply)  # type: ignore[arg-type]


Ask = Callable[..., Path]


@pytest.fixture
def ask(tmp_path: Path, replies: Replies, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Runs a model that gives such replies; gives the run folder back."""
    monkeypatch.setattr(parse, "read", read_choice)
    questions = [{"question": f"{n}?", "options": ["x", "y"], "answer": "A", "topic": "t"} for n in range(12)]
    write_jsonl(tmp_path / "rows" / "test.jsonl", questions)
    (tmp_path / "quiz.yaml").write_text(MCQ_YAML)

    def run(said: list[str] = SAID, model: str = "m", **config: Any) -> Path:
        file = replies({f"default:{n}": reply for n, reply in enumerate(said)}, f"{model}.jsonl")
        fields = {"model": model, "engine": f"replay:{file}", "datasets": [str(tmp_path / "quiz.yaml")], **config}
        return run_task({**fields, "work_dir": str(tmp_path / "runs")}).runs[0].folder

    return run


def json_of(folder: Path, name: str = "report.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / name).read_text())
    return found


# --- what is counted ---


def test_each_reason_is_counted_and_kept_with_its_sample(ask: Ask) -> None:
    folder = ask()
    report = json_of(folder)
    assert report["unparsed"] == WHY
    assert sum(report["unparsed"].values()) == report["counts"]["unparsed"] == 8
    assert report["counts"]["label_mismatch"] == 2
    assert report["metrics"]["accuracy"]["value"] == 2 / 12  # the letter counts, whatever its text
    reasons = [None, None, *SAID[2:10], None, None]
    rows = [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]
    assert [row.get("unparsed_reason") for row in rows] == reasons
    assert [row.score.unparsed_reason for row in read_scores(folder / "scores.jsonl")] == reasons
    assert [each.score.unparsed_reason for each in read_results(folder)] == reasons
    assert report_of(report).unparsed == WHY
    assert score_run(folder).runs[0].report.unparsed == WHY


def test_reasons_of_sentences(tmp_path: Path, ner_dataset: Path, replies: Replies, monkeypatch: Any) -> None:
    monkeypatch.setattr(ner, "read", read_entities)
    file = replies({"default:0": "other_format", "default:1": "other_text", "default:2": "other_format"})
    config = {"engine": f"replay:{file}", "datasets": [str(ner_dataset)], "work_dir": str(tmp_path / "runs")}
    result = run_task({**config, "dataset_args": {"names": {"few_shot_num": 0}}})
    known = {"reasoning": 0, "cut": 0, "other_format": 2, "other_text": 1, "empty": 0}
    assert json_of(result.runs[0].folder)["unparsed"] == known
    assert "3 not read: 2 other format, 1 other text" in result.report_text
    assert json_of(result.runs[0].folder)["counts"]["label_mismatch"] is None
    text = (result.runs[0].folder / "report.html").read_text()
    assert '<a href="#outcome=other_format">unparsed: other format</a>' in text


def test_a_reading_without_a_letter_and_without_a_known_reason_is_no_report() -> None:
    asked = Asked("quiz", "m", "mcq", "generate", ["s"], [], [], False, True, 0)
    sample = Sample("s:0", "s", "?", ("A",), choices=("x", "y"))
    tallies = {"answer": Tally(0, 0, 1), "letter:A": Tally(0, 0, 1)}
    for reason in (None, "bored", "other_format"):  # the last one is of sentences
        score = Score("s:0", None, tallies, {"unparsed": 1}, unparsed_reason=reason)
        with pytest.raises(ValueError, match=f"mcq: replies are unread without a known reason: .*{reason}"):
            build_report(asked, [sample], [score])


def test_nothing_is_read_of_probabilities(ask: Ask, tmp_path: Path) -> None:
    rows = [{"sample_id": f"default:{n}", "text": "", "continuations": {" A": -1, " B": -2}} for n in range(12)]
    engine = f"replay:{write_jsonl(tmp_path / 'letters.jsonl', rows)}"
    assert json_of(ask(engine=engine, mcq=["logprob"]))["unparsed"] == {}


def test_the_table_has_every_reason_that_a_reader_gives() -> None:
    assert {reason.name for reason in reasons_of("mcq")} == set(get_args(parse.Reason))
    assert {reason.name for reason in reasons_of("ner")} == {"reasoning", "other_format", "other_text", "cut", "empty"}
    assert all(name == reason.name for name, reason in REASONS.items())


# --- where it is said ---


@pytest.mark.parametrize(
    ("unparsed", "expected"),
    [
        ({}, ""),
        ({"cut": 0, "several": 0}, ""),
        ({"cut": 6, "several": 15, "refused": 0, "no_claim": 1200}, "1,200 no answer, 15 several answers, 6 cut"),
        ({"reasoning": 2, "cut": 2}, "2 still reasoning, 2 cut"),
    ],
)
def test_in_one_line(unparsed: dict[str, int], expected: str) -> None:
    assert why_text(unparsed) == expected


def test_on_the_console_and_in_markdown(ask: Ask, tmp_path: Path) -> None:
    folder = ask()
    text = score_run(folder).report_text
    assert f"n 12 · unparsed 8 · truncated 0 · label_mismatch 2\n{LINE}" in text
    ask([*"AAAAAAAAAAA", "cut"], "other")
    both = score_run(tmp_path / "runs").report_text.splitlines()
    assert both[-3:] == ["", f"quiz: {LINE}", "quiz: 1 not read: 1 cut"]
    assert LINE not in score_run(ask(["A"] * 12, "read")).report_text
    markdown = (folder / "report.md").read_text()
    assert "| unparsed | 8 | replies that could not be read, counted as wrong |" in markdown
    assert "| label_mismatch | 2 | replies whose letter and option text disagree; the letter counts |" in markdown
    assert "| several answers | 2 | the reply gives two or more answers at once |" in markdown
    assert [line.split(" | ")[1] for line in markdown.partition("| not read |")[2].splitlines()[2:7]] == list("32111")


def test_in_tables(ask: Ask) -> None:
    folder = ask(parquet=True)
    tables = load_runs(folder)
    samples = tables.samples.set_index("sample_id")
    assert samples.unparsed_reason.dropna().to_dict() == {f"default:{n}": SAID[n] for n in range(2, 10)}
    assert str(samples.unparsed_reason.dtype) == "category"
    assert samples.label_mismatch.tolist() == [0] * 10 + [1, 1]
    reasons = tables.scores[tables.scores.kind == "unparsed_reason"].set_index("part")
    assert reasons.value.to_dict() == WHY
    assert (set(reasons.n), set(reasons.metric)) == ({12}, {"replies"})
    columns = pq.read_table(folder / "samples.parquet")
    assert columns.column("unparsed_reason").to_pylist() == [None, None, *SAID[2:10], None, None]


def test_on_the_page_and_what_its_filters_find(ask: Ask) -> None:
    folder = ask()
    text = (folder / "report.html").read_text()
    page = Page(text)
    found = cells(text)
    for reason in reasons_of("mcq"):
        at = found.index(f"unparsed: {reason.short}")
        told = [cell for cell in found[at + 1 : at + 6] if cell]
        assert told[:2] == [str(WHY[reason.name]), reason.words]
        assert {"href": f"#outcome={reason.name}"} in [tag for name, tag in page.tags if name == "a"]
        assert f"unparsed: {reason.short} ({WHY[reason.name]})" in found  # an option of the filter
        wanted = [f"default:{n}" for n, said in enumerate(SAID) if said == reason.name]
        assert [row["id"] for row in page.data["rows"] if reason.name in row["outcomes"]] == wanted
        served = Rows(read_results(folder)).find({"outcome": reason.name}, 0, 50)
        assert [row["id"] for row in served.rows] == wanted
    assert "label_mismatch (2)" in found
    assert page.data["about"]["reasons"]["cut"] == ["cut", "the reply was cut before it answered"]


def test_beside_each_other(ask: Ask, tmp_path: Path) -> None:
    """What none of the runs has is left out; samples that flipped say why they were not read."""
    folders = [ask(), ask(["A"] * 11 + ["several"], "n")]
    lines = [line.rsplit(None, 1) for line in report_runs(folders).splitlines()]
    at = lines.index(["unparsed", "8"])
    assert lines[at + 1 : at + 7] == [
        ["  still reasoning", "1"], ["  cut", "3"], ["  several answers", "2"], ["  refused", "1"],
        ["  no answer", "1"], ["truncated", "0"],
    ]  # fmt: skip
    at = lines.index(["unparsed", "1"])
    assert lines[at + 1 : at + 3] == [["  several answers", "1"], ["truncated", "0"]]
    compared = compare_paths(folders)
    rows = {row["sample_id"]: row for row in flip_rows(compared)}
    reasons = [(rows[f"default:{n}"]["baseline_unparsed_reason"]) for n in range(1, 10)]
    assert reasons == [None, *SAID[2:10]]
    assert {row["candidate_unparsed_reason"] for row in rows.values()} == {None}
    entries = entries_of(find_finished(folders), lambda folder: f"{folder.name}.html")
    text = page_of(several_of(entries, compared))
    found = cells(text)
    at = found.index("Why replies were not read")
    table = [cell for cell in found[at + 1 :] if cell][1:23]
    assert table == [
        "model", "unparsed", "still reasoning", "cut", "several answers", "refused", "no answer",
        "n", "1", "0", "0", "1", "0", "0", "m", "8", "1", "3", "2", "1", "1", "All tests against m over all samples",
    ]  # fmt: skip
    assert "not read: several answers" in found
    assert f'href="{folders[0].name}.html#outcome=unparsed"' in text
    read = entries_of(find_finished([ask(["A"] * 12, "o")]), str)
    assert "Why replies were not read" not in page_of(several_of(read, None))


def test_in_the_list_of_all_runs(ask: Ask, tmp_path: Path) -> None:
    ask()
    runs = Catalogue([tmp_path / "runs"]).runs()
    (key,) = runs
    text = home_page(["runs"], runs.values(), [])
    found = cells(text)
    at = found.index("why not read")
    assert f"run/{key}/#outcome=unparsed" in [tag.get("href") for _, tag in Page(text).tags]
    assert LINE.partition(": ")[2] in found[at:]


def test_in_an_export(ask: Ask, tmp_path: Path) -> None:
    export_runs("evalscope", [ask()], tmp_path / "es")
    (file,) = (tmp_path / "es").rglob("reports/*/quiz.json")
    scores = {metric["identity"]["name"]: metric["score"] for metric in json.loads(file.read_text())["metrics"]}
    assert {name: scores[name] for name in scores if name.startswith("unparsed_")} == {
        f"unparsed_{name}": n for name, n in WHY.items()
    }
    assert (scores["unparsed"], scores["label_mismatch"]) == (8, 2)
    (file,) = (tmp_path / "es").rglob("reviews/*/quiz_default.jsonl")
    rows = [json.loads(line)["sample_score"]["score"] for line in file.read_text().splitlines()]
    assert [row["metadata"]["unparsed_reason"] for row in rows] == [None, None, *SAID[2:10], None, None]


def test_a_run_from_before_there_were_reasons(ask: Ask, tmp_path: Path) -> None:
    """Is shown, tabled, compared and listed without them; what is not known is no 0."""
    folder, other = ask(), ask(["A"] * 11 + ["cut"], "n")
    report = {name: value for name, value in json_of(folder).items() if name != "unparsed"}
    del report["counts"]["label_mismatch"]
    (folder / "report.json").write_text(json.dumps(report))
    rows = [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]
    for row in rows:
        row.pop("unparsed_reason", None)
    write_jsonl(folder / "scores.jsonl", rows)
    assert report_of(json_of(folder)).unparsed == {}
    assert [row.score.unparsed_reason for row in read_scores(folder / "scores.jsonl")] == [None] * 12
    tables = load_runs(folder)
    assert not (tables.scores.kind == "unparsed_reason").any()
    assert tables.samples.unparsed_reason.isna().all()
    assert tables.samples.unparsed.sum() == 8
    entries = entries_of(find_finished([folder, other]), lambda folder: "")
    found = cells(page_of(several_of(entries, compare_paths([folder, other]))))
    at = found.index("Why replies were not read")
    table = [cell for cell in found[at + 1 :] if cell][1:10]
    assert table == ["model", "unparsed", "cut", "n", "1", "1", "m", "8", "–"]
    assert "not read" in found
    assert "  cut" in report_runs([folder, other])
    runs = Catalogue([tmp_path / "runs"]).runs()
    assert "1 cut" in home_page(["runs"], runs.values(), [])
    assert score_run(folder).runs[0].report.unparsed == WHY  # read again, it has them


def test_both_tasks_in_one_command(ask: Ask, tmp_path: Path, replies: Replies, monkeypatch: Any) -> None:
    """Below the table of all datasets stands why, for each that has unread replies."""
    monkeypatch.setattr(ner, "read", read_entities)
    (tmp_path / "names").mkdir()
    (tmp_path / "names" / "test.txt").write_text("Ann B-PER\nleft O\n")
    (tmp_path / "names.yaml").write_text(NER_YAML.replace("path: rows", "path: names"))
    said = [{"dataset": "quiz", "sample_id": f"default:{n}", "text": reply} for n, reply in enumerate(SAID)]
    file = write_jsonl(
        tmp_path / "both.jsonl", [*said, {"dataset": "names", "sample_id": "default:0", "text": "empty"}]
    )
    ask()  # writes the quiz
    datasets = [str(tmp_path / "quiz.yaml"), str(tmp_path / "names.yaml")]
    config = {"model": "m", "datasets": datasets, "engine": f"replay:{file}", "work_dir": str(tmp_path / "both")}
    text = run_task({**config, "dataset_args": {"names": {"few_shot_num": 0}}}).report_text
    assert text.endswith(f"\n\nquiz: {LINE}\nnames: 1 not read: 1 empty")


def test_the_documentation_has_the_words_of_each() -> None:
    told = tables_of(sections(REPOSITORY / "docs" / "reading-replies.md")["Why a reply is not read"])
    of = {("mcq", "ner"): "both", ("mcq",): "choices", ("ner",): "entities"}
    assert told == [[f"`{each.name}`", each.short, of[each.tasks], each.words] for each in REASONS.values()]

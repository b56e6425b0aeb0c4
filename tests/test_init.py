"""A file of rows -> the YAML file of a dataset, and what can't be told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import yaml

from localeval import run_task
from localeval.cli import main
from localeval.datasets.rows import load_dataset
from localeval.datasets.spec import load_spec
from tests.conftest import Replies, write_jsonl

ODD = "frage: “was”? #1"
LISTED = [{"question": f"Q{i}", "options": [f"a{i}", "b: 1", 'c "x"'], "answer": "ABC"[i % 3]} for i in range(6)]
INDEXED = [{ODD: f"{{x}} {i}: 'ä'", "choices": ["1", "2", "3", "4"], "gold": i % 4} for i in range(8)]
COLUMNS = [
    {"stem": f"S{i}", "opa": "a", "opb": "b", "opc": "c", "opd": "d", "cop": i % 4 + 1, "topic": "xy"[i % 2]}
    for i in range(8)
]
NAMED = [{"question": f"Q{i}", "option1": "a", "option2": "b", "target": f"option{i % 2 + 1}"} for i in range(4)]
STRUCT = [
    {
        "id": f"r{i}",
        "question": f"Q{i}",
        "choices": {"text": ["a", "b", "c"], "label": list("123" if i % 2 else "ABC")},
        "answerKey": "2" if i % 2 else "B",
    }
    for i in range(4)
]
OBJECTS = [
    {"question": f"Q{i}", "options": [{"key": "x", "text": "one"}, {"key": "y", "text": "two"}], "answer": "xy"[i % 2]}
    for i in range(4)
]
TEXTS = [{"question": f"Q{i}", "A": "yes", "B": "no", "answer": ["yes", "no"][i % 2], "id": i} for i in range(4)]
TAGGED = [
    {"tokens": ["Ann", "saw", "Rome"], "ner_tags": ["B-PER", "O", "B-Flu:id"], "lang": "en"},
    {"tokens": ["Bo", "Li"], "ner_tags": ["B-PER", "I-PER"], "lang": "de"},
    {"tokens": ["so"], "ner_tags": ["O"], "lang": "en"},
    {"tokens": ["<b>", "é"], "ner_tags": ["O", "O"], "lang": "de"},
]
NUMBERED = [{"words": ["Ann", "left"], "tags": [1, 0]}, {"words": ["Bo", "Li"], "tags": [1, 2]}]
CONLL = "-DOCSTART- -X- -X- O\n\nAnn NNP B-NP B-PER\nLee NNP I-NP I-PER\nleft VB B-VP O\n\nParis NNP B-NP B-GPE\n"


def _csv(rows: list[dict[str, Any]], gap: str) -> str:
    lines = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)]
    return "".join(gap.join(cells) + "\n" for cells in lines)


def _jsonl(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


# File of rows, its text, further options, the keys that the YAML file is to have, and the gold of the first rows.
FOUND: list[tuple[str, str, list[str], dict[str, Any], list[Any]]] = [
    ("rows.jsonl", _jsonl(LISTED), [],
     {"columns": {"question": "question", "choices": "options", "answer": "answer", "answer_is": "letter"}},
     ["A", "B"]),
    ("rows.v2.json", json.dumps(INDEXED), [],
     {"split": "rows.v2", "columns": {"question": ODD, "choices": "choices", "answer": "gold", "answer_is": "index"}},
     ["A", "B", "C", "D"]),
    ("rows.csv", _csv(COLUMNS, ","), [],
     {"columns": {"question": "stem", "choices": ["opa", "opb", "opc", "opd"], "answer": "cop", "answer_is": "number"},
      "groups": {"topic": "topic"}}, ["A", "B"]),
    ("rows.tsv", _csv(NAMED, "\t"), [],
     {"columns": {"question": "question", "choices": ["option1", "option2"], "answer": "target",
                  "answer_is": "column"}}, ["A", "B"]),
    ("rows.jsonl", _jsonl(STRUCT), [],
     {"columns": {"question": "question", "choices": {"column": "choices", "text": "text", "label": "label"},
                  "answer": "answerKey", "answer_is": "label"}}, ["B", "B"]),
    ("rows.jsonl", _jsonl(OBJECTS), [],
     {"columns": {"question": "question", "choices": {"column": "options", "text": "text", "label": "key"},
                  "answer": "answer", "answer_is": "label"}}, ["A", "B"]),
    ("deep/er/rows.jsonl", _jsonl(TEXTS), [],
     {"path": "deep/er",
      "columns": {"question": "question", "choices": ["A", "B"], "answer": "answer", "answer_is": "text"}}, ["A", "B"]),
    ("rows.jsonl", _jsonl(TEXTS), ["--question", "question", "--choices", "B", "A", "--answer", "answer"],
     {"columns": {"question": "question", "choices": ["B", "A"], "answer": "answer", "answer_is": "text"}}, ["B", "A"]),
    ("rows.jsonl", _jsonl(TAGGED), [],
     {"columns": {"tokens": "tokens", "tags": "ner_tags"}, "groups": {"lang": "lang"},
      "entities": [{"label": "PER", "tag": "person", "description": "Names of people, including first and last names"},
                   {"label": "Flu:id", "tag": "flu:id", "description": "Flu:id"}]},
     ["B-PER O B-Flu:id", "B-PER I-PER"]),
    ("rows.jsonl", _jsonl(NUMBERED), ["--tag-names", "O", "B-ACTOR_NAME", "I-ACTOR_NAME"],
     {"columns": {"tokens": "words", "tags": "tags", "tag_names": ["O", "B-ACTOR_NAME", "I-ACTOR_NAME"]},
      "entities": [{"label": "ACTOR_NAME", "tag": "actor_name", "description": "Actor name"}]},
     ["B-ACTOR_NAME O", "B-ACTOR_NAME I-ACTOR_NAME"]),
    # Labels of one letter are no tags of entities, and a passage is a part of the question.
    ("rows.jsonl", _jsonl([{**row, "choices": {"text": ["a", "b", "c"], "label": list("ABC")}, "answerKey": "B"}
                           for row in STRUCT]), [],
     {"columns": {"question": "question", "choices": {"column": "choices", "text": "text", "label": "label"},
                  "answer": "answerKey", "answer_is": "letter"}}, ["B", "B"]),
    ("rows.jsonl", _jsonl([{"context": f"C{i}", **row} for i, row in enumerate(LISTED)]), [],
     {"columns": {"question": "{context}\n\n{question}", "choices": "options", "answer": "answer",
                  "answer_is": "letter"}}, ["A", "B"]),
    ("rows.jsonl", _jsonl([{"passage": None if i else "P", "context": "", **row} for i, row in enumerate(LISTED)]), [],
     {"columns": {"question": "{passage}\n\n{question}", "choices": "options", "answer": "answer",
                  "answer_is": "letter"}}, ["A", "B"]),
    ("rows.jsonl", _jsonl([{"context": f"C{i}", **row} for i, row in enumerate(LISTED)]), ["--question", "question"],
     {"columns": {"question": "question", "choices": "options", "answer": "answer", "answer_is": "letter"}}, ["A"]),
    # The same answer as a number tells nothing as a group.
    ("rows.jsonl", _jsonl([{**row, "answer_index": i % 3} for i, row in enumerate(LISTED)]), [],
     {"columns": {"question": "question", "choices": "options", "answer": "answer", "answer_is": "letter"}}, ["A"]),
    ("rows.txt", "1 Ann B-PER\n2 left O\n\n1 Rome B-LOC\n", [], {"conll": {"token": 1, "tag": -1}}, ["B-PER O"]),
    ("rows.txt", CONLL, [], {"conll": {"token": 0, "tag": -1}}, ["B-PER I-PER O", "B-GPE"]),
    ("rows.bio", "B-PER\tAnn\nO\tleft\n", [], {"conll": {"token": -1, "tag": 0}}, ["B-PER O"]),
    ("rows.tsv", "Ann\tB-PER\nleft\tO\n\nBo\tB-PER\n", [], {"conll": {"token": 0, "tag": -1}}, ["B-PER O", "B-PER"]),
]  # fmt: skip


@pytest.mark.parametrize(("file", "text", "options", "keys", "gold"), FOUND)
def test_what_is_found_is_a_dataset_whose_gold_is_right(
    file: str, text: str, options: list[str], keys: dict[str, Any], gold: list[Any], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, replies: Replies, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(text, encoding="utf-8")
    assert main(["init", "quiz", "--from", file, *options]) == 0
    told = capsys.readouterr()
    assert "localeval list ./quiz.yaml --show 3" in told.out
    written = yaml.safe_load(Path("quiz.yaml").read_text(encoding="utf-8"))
    assert {name: written[name] for name in keys} == keys
    assert ("groups" in written) == ("groups" in keys)
    samples = load_dataset(load_spec(Path("quiz.yaml"))).samples
    assert [" ".join(sample.gold) for sample in samples[: len(gold)]] == gold
    # Replies that are exactly right, built here and not by the code: letters, or the words in their tags.
    tags = {entity["label"]: entity["tag"] for entity in written.get("entities", ())}
    right = {
        s.id: f"ANSWER: {s.gold[0]}" if s.choices else f"<response>{_tagged(s.tokens, s.gold, tags)}</response>"
        for s in samples
    }
    result = run_task({"engine": f"replay:{replies(right)}", "datasets": ["./quiz.yaml"], "work_dir": "runs"})
    metric = "f1" if tags else "accuracy"
    assert result.runs[0].metrics[metric] == 1.0


def _tagged(tokens: tuple[str, ...], gold: tuple[str, ...], tags: dict[str, str]) -> str:
    words = []
    for i, (token, tag) in enumerate(zip(tokens, gold, strict=True)):
        ends = tag != "O" and (i + 1 == len(gold) or gold[i + 1] != f"I-{tag[2:]}")
        words.append((f"<{tags[tag[2:]]}>" if tag[0] == "B" else "") + token + (f"</{tags[tag[2:]]}>" if ends else ""))
    return " ".join(words)


def test_parquet_that_names_its_own_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    label = {"names": ["O", "B-PER", "I-PER"], "_type": "ClassLabel"}
    told = {"info": {"features": {"tags": {"feature": label, "_type": "Sequence"}}}}
    table = pyarrow.Table.from_pylist(NUMBERED).replace_schema_metadata({"huggingface": json.dumps(told)})
    pyarrow.parquet.write_table(table, "rows.parquet")
    assert main(["init", "names", "--from", "rows.parquet"]) == 0
    written = yaml.safe_load(Path("names.yaml").read_text())
    assert written["columns"] == {"tokens": "words", "tags": "tags"}
    assert [entity["label"] for entity in written["entities"]] == ["PER"]
    assert load_dataset(load_spec(Path("names.yaml"))).samples[1].gold == ("B-PER", "I-PER")
    # Options and answers in columns of their own, with their types.
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(COLUMNS), "asked.parquet")
    assert main(["init", "asked", "--from", "asked.parquet"]) == 0
    assert [sample.gold for sample in load_dataset(load_spec(Path("asked.yaml"))).samples[2:4]] == [("C",), ("D",)]


def test_an_answer_that_fits_in_two_ways_is_refused_until_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    # Four options, and only 1, 2 and 3 occur: from 0, or from 1?
    rows = [{"question": f"Q{i}", "choices": list("wxyz"), "answer": i % 3 + 1} for i in range(6)]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    assert main(["init", "a", "--from", "rows.jsonl"]) == 2
    assert (
        "every answer in answer fits in several ways; row 0, 1, is as index 'x', as number 'w': say which with "
        "--answer-is index or --answer-is number"
    ) in capsys.readouterr().err
    assert not Path("a.yaml").exists()
    assert main(["init", "b", "--from", "rows.jsonl", "--answer-is", "number"]) == 0
    assert load_dataset(load_spec(Path("b.yaml"))).samples[0].gold == ("A",)
    # Letters that are the columns' names too say the same in both ways.
    write_jsonl(tmp_path / "named.jsonl", [{"q": f"Q{i}", "A": "x", "B": "y", "key": "AB"[i % 2]} for i in range(4)])
    assert main(["init", "c", "--from", "named.jsonl"]) == 0


BARE = {"question": "Q?", "choices": ["a", "b"], "answer": "A"}


@pytest.mark.parametrize(
    ("text", "options", "messages"),
    [
        (_jsonl([{**BARE, "answer": "Z"}]), [],
         ["the answer was not found", "answer names no option in row 0 ('Z'", "--answer COL",
          "the columns are: question (text), choices (lists of text), answer (text)"]),
        (_jsonl([{"question": "Q", "answer": "A"}]), [], ["no options were found", "--choices COL", "--task ner"]),
        (_jsonl([{"x": "Q", "y": "R", "choices": ["a", "b"], "answer": "A"}]), [],
         ["it may be 'x' or 'y'", "--question COL"]),
        (_jsonl([{**BARE, "label": 2}]), [], ["the answer may stand in 'answer' or 'label'", "--answer COL"]),
        (_jsonl([{"question": "Q", "u": ["p", "q"], "v": ["r", "s"], "answer": "A"}]), [],
         ["the options may stand in 'u' or 'v'", "--choices"]),
        (_jsonl([BARE]), ["--answer", "anwser"], ["there is no column 'anwser' (did you mean 'answer'?)"]),
        (_jsonl([BARE, {"question": "Q", "choices": ["a", "b"]}]), [], ["not in every row: answer"]),
        (_jsonl(NUMBERED), [], ["column tags holds tags as numbers up to 2", "--tag-names O B-PER I-PER"]),
        (_jsonl(NUMBERED), ["--tag-names", "O", "B-X"], ["holds the tag 2, and there are 2 names"]),
        (_jsonl([{"question": "Q", "option1": "a", "option2": "b", "answer": "A"},
                 {"question": "Q", "option1": "a", "option2": "b", "option3": "c", "answer": "A"}]), [],
         ["the options option1 option2 go on in option3, which not every row has"]),
        (_jsonl([{"id": "x", "choices": ["a", "b"], "answer": "A"}, {**BARE, "id": "y"}]), [],
         ["the question may stand in 'question', which not every row has"]),
        (_jsonl([{"id": "x", "choices": ["a", "b"], "answer": "A"}]), [], ["the question was not found"]),
        (_jsonl([{"question": "Q", "choices": ["a", "b"], "level": 0}]), [], ["the answer was not found"]),
        (_jsonl([{**BARE, "answer": "B) b", "label": 0}]), [],
         ["answer names no option in row 0 ('B) b'", "label holds numbers that may be meant", "--answer COL"]),
        (_jsonl([{"id": "Q", "sentence1": "a b", "sentence2": "c d", "label": 0}]), [], ["no options were found"]),
        (_jsonl([{"tokens": ["a"], "chunks": ["B-NP"], "names": ["B-PER"]}]), [],
         ["the tags may stand in 'chunks' or 'names'"]),
        (_jsonl([{"tokens": ["a"], "tags": ["b-PER"]}]), [], ["no tagged sentences were found"]),
        (_jsonl([{"tokens": ["a"], "tags": ["S-PER"]}]), [], ["column tags: 'S-PER' is no IOB2 tag"]),
        (_jsonl([{"tokens": ["a"], "tags": ["O"]}]), [], ["column tags: every tag is O"]),
        (_jsonl([{"tokens": ["a", "b"], "tags": ["O", "I-PER"]}]), [],
         ["line 1, column tags: 'I-PER'", "did not begin"]),
        (_jsonl([BARE]), ["--task", "ner"], ["no tagged sentences were found"]),
        ("", [], ["has no rows"]),
        ("{broken", [], ["not JSON"]),
    ],
)  # fmt: skip
def test_what_cant_be_told_is_an_error(
    text: str, options: list[str], messages: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text(text)
    assert main(["init", "quiz", "--from", "rows.jsonl", *options]) == 2
    said = capsys.readouterr().err
    for message in messages:
        assert message in said
    assert not Path("quiz.yaml").exists()


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("rows.csv", "question;A;B;answer\nQ;a;b;A\n", "the header is one cell, 'question;A;B;answer'; commas"),
        # Chunks in IOB2 beside entities in BIOES are not the entities.
        ("rows.txt", "Ann NNP B-NP S-PER\nleft VBD B-VP O\n", "'S-PER' is no IOB2 tag"),
    ],
)
def test_texts_that_are_read_in_one_way_alone(
    file: str, text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path(file).write_text(text)
    assert main(["init", "quiz", "--from", file]) == 2
    assert message in capsys.readouterr().err
    assert not Path("quiz.yaml").exists()


def test_what_makes_scores_that_say_little_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"question": f"Q{i % 9}", "choices": ["A) x", "B) y"], "answer": "A"} for i in range(10)]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    assert main(["init", "quiz", "--from", "rows.jsonl"]) == 0
    said = capsys.readouterr().err
    assert "quiz: 1 rows ask what another row asks" in said
    assert "quiz: the right option is always A" in said
    assert "quiz: the options begin with their letters" in said


def test_the_file_that_was_named_is_read_whatever_stands_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "rows.jsonl", LISTED)
    assert main(["init", "milu", "--from", "rows.jsonl"]) == 2
    assert "milu is a built-in dataset" in capsys.readouterr().err
    write_jsonl(tmp_path / "default" / "rows.jsonl", LISTED[:1])
    (tmp_path / "rows.csv").write_text("question,A,B,answer\nWhich?,x,y,B\n")
    assert main(["init", "quiz", "--from", "rows.jsonl"]) == 0
    assert main(["init", "other", "--from", "rows.csv"]) == 0
    assert len(load_dataset(load_spec(Path("quiz.yaml"))).samples) == len(LISTED)
    assert [sample.text for sample in load_dataset(load_spec(Path("other.yaml"))).samples] == ["Which?"]


def test_what_is_there_is_not_overwritten_and_rows_lie_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(tmp_path / "data" / "rows.jsonl", LISTED)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    Path("quiz.yaml").write_text("mine")
    for words, message in [
        (["quiz", "--from", "../data/rows.jsonl"], "quiz.yaml is there already"),
        (["two", "--from", "../data/rows.jsonl"], f"localeval init {tmp_path}/data/two --from ../data/rows.jsonl"),
        (["two", "--from", "none.jsonl"], "there is no such file"),
        (["two", "--from", "../home"], "there is no such file"),
        (["no/two", "--from", "../data/rows.jsonl"], "there is no folder"),
        (["a b", "--from", "quiz.yaml"], "rows are read from .parquet, .jsonl"),
    ]:
        assert main(["init", *words]) == 2
        assert message in capsys.readouterr().err
    assert Path("quiz.yaml").read_text() == "mine"
    assert main(["init", f"{tmp_path}/data/two", "--from", "../data/rows.jsonl"]) == 0
    assert load_dataset(load_spec(tmp_path / "data" / "two.yaml")).samples[2].gold == ("C",)

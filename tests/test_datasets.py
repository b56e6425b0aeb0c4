"""Finding, reading and checking rows; the shipped definitions; the published figures."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from localeval.datasets.rows import Dataset, load_dataset, odd_rows
from localeval.datasets.spec import SAMPLES, builtin_names, find_spec, load_spec
from localeval.listing import statistics
from localeval.schema import LocalevalError
from tests.conftest import MCQ_YAML, QUESTIONS, write_jsonl


def load(path: Path, **options: object) -> Dataset:
    return load_dataset(load_spec(path), **options)  # type: ignore[arg-type]


# --- the published figures ---


@pytest.mark.parametrize(
    ("dataset", "row"),
    [("conllpp", "default 3453 2732.40 2663 3155"), ("mit_movie_trivia", "default 1953 3309.63 3216 3565")],
)
def test_published_prompt_figures(shared: Path, dataset: str, row: str) -> None:
    lines = statistics({"datasets": [dataset], "dataset_dir": str(shared / "data")}).splitlines()
    assert lines[2].split() == row.split()
    assert lines[-1] == "as published (EvalScope 1.14.1): the same"


def test_milu_layout_loads_in_all_languages(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = statistics({"datasets": ["milu"], "dataset_dir": str(shared / "data" / "milu_layout")}).splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines[2:14]}
    assert len(rows) == 12
    assert lines[15].startswith("not as published (EvalScope 1.14.1): ")  # they are not MILU's own
    assert "Hindi differs: prompts here 13,842, published 14,831;" in "\n".join(lines)
    assert rows["all"][0] == "152149"
    # Counted with pyarrow and a two-line template, apart from localeval.
    assert rows["Hindi"] == _milu_figures(shared / "data" / "milu_layout" / "Hindi")
    warnings = capsys.readouterr().err
    assert "4 rows with an empty question or option: Gujarati:13222, Malayalam:13322" in warnings
    assert "Punjabi:13343, Tamil:13618" in warnings


def _milu_figures(folder: Path) -> list[str]:
    import pyarrow.parquet

    before = (
        "Answer the following multiple choice question. The entire content of your response should be of the following "
        "format: 'ANSWER: [LETTER]' (without quotes) where [LETTER] is one of A,B,C,D."
    )
    rows = pyarrow.parquet.read_table(folder / "test-00000-of-00001.parquet").to_pylist()
    lengths = [
        len(before) + 2 + len(row["question"]) + 2 + sum(3 + len(row[f"option{i}"]) for i in (1, 2, 3, 4)) + 3
        for row in rows
    ]
    return [str(len(rows)), f"{sum(lengths) / len(lengths):.2f}", str(min(lengths)), str(max(lengths))]


def test_milu_few_shot_prompt(shared: Path) -> None:
    from localeval.tasks.mcq import task as mcq

    spec = find_spec("milu")
    dataset = load_dataset(spec, dataset_dir=str(shared / "data" / "milu_layout"), subsets=["Tamil"], limit=1, shots=2)
    sample, shown = dataset.samples[0], dataset.shots["Tamil"]
    prompt = mcq.ask(sample, shown[:2], spec.templates)
    assert prompt.startswith("Here are some examples of how to answer similar questions:\n\n" + shown[0].text + "\nA) ")
    assert f"\nD) {shown[0].choices[3]}\nANSWER: {shown[0].gold[0]}\n\n{shown[1].text}\nA) " in prompt
    assert prompt.endswith(f"\n\nD) {sample.choices[3]}".replace("\n\nD", "\nD"))
    assert f"ANSWER: {shown[1].gold[0]}\n\nAnswer the following multiple choice question." in prompt


# --- the shipped definitions and samples ---


def test_builtin_names() -> None:
    assert builtin_names() == [
        "arc", "bc5cdr", "belebele", "conll2003", "conllpp", "cross_ner", "global_mmlu", "medmcqa", "milu",
        "mit_movie_trivia", "mit_restaurant", "mmlu", "mmmlu", "multi_nerd", "ncbi", "ontonotes5", "wnut2017",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["conllpp", "milu", "mit_movie_trivia"])
def test_samples_ship_for_every_subset(name: str) -> None:
    dataset = load_dataset(find_spec(name), dataset_dir=str(SAMPLES), shots=2)
    least = 4 if name == "milu" else 30
    sizes = Counter(sample.subset for sample in dataset.samples)
    assert all(sizes[subset] >= least for subset in dataset.subsets)
    assert dataset.warnings == {}
    assert len(dataset.subsets) == (11 if name == "milu" else 1)


# --- formats ---


def _expect_questions(dataset: Dataset) -> None:
    assert [s.id for s in dataset.samples] == [f"default:{i}" for i in range(5)]
    assert [s.text for s in dataset.samples] == [row["question"] for row in QUESTIONS]
    assert [s.choices for s in dataset.samples] == [tuple(row["options"]) for row in QUESTIONS]
    assert [s.gold for s in dataset.samples] == [(row["answer"],) for row in QUESTIONS]
    assert dataset.samples[4].meta == {"topic": "birds"}


def test_formats_of_tables(mcq_dataset: Path) -> None:
    import datasets
    import pyarrow
    import pyarrow.parquet

    rows = mcq_dataset.parent / "rows"
    _expect_questions(load(mcq_dataset))
    (rows / "test.jsonl").unlink()
    (rows / "test.json").write_text(json.dumps(QUESTIONS))
    _expect_questions(load(mcq_dataset))
    (rows / "test.json").write_text(json.dumps({"data": QUESTIONS}))
    _expect_questions(load(mcq_dataset))
    (rows / "test.json").unlink()
    table = pyarrow.Table.from_pylist(QUESTIONS)
    pyarrow.parquet.write_table(table.slice(0, 3), rows / "test-00000-of-00002.parquet")
    with pytest.raises(LocalevalError, match=r"expected 2 parts, each once; here are: test-00000-of-00002\.parquet"):
        load(mcq_dataset)
    pyarrow.parquet.write_table(table.slice(3), rows / "test-00001-of-00002.parquet")
    _expect_questions(load(mcq_dataset))
    for path in rows.glob("test*"):
        path.unlink()
    datasets.DatasetDict({"test": datasets.Dataset.from_list(QUESTIONS)}).save_to_disk(rows)
    _expect_questions(load(mcq_dataset))


def test_csv_keeps_every_value_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text('q,a,b,right\n"None, or NA?",None,NA,b\nHow many?,007,2.50,a\n')
    spec = tmp_path / "words.yaml"
    spec.write_text(
        "task: mcq\npath: .\ncolumns: {question: q, choices: [a, b], answer: right, answer_is: column}\n"
        'prompt: "{question} {choices}"\nshot: "{answer}"\nshots_prompt: "{shots}{prompt}"\n'
    )
    samples = load(spec).samples
    assert [s.choices for s in samples] == [("None", "NA"), ("007", "2.50")]
    assert [s.gold for s in samples] == [("B",), ("A",)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q,a,b,right\n?,x,y,a,\n", r"line 2: 5 cells under a header of 4"),
        ("q,a,b,right\n?,x,y\n", r"line 2: 3 cells under a header of 4"),
        ("q,a,a,right\n?,x,y,a\n", "two columns are called 'a'"),
        ('q,a,b,right\n"?,x,y,a\n', "not CSV"),
        ("q,a,b,right\n", "there is no row in"),
        ("", "no column 'q'"),
    ],
)
def test_csv_that_is_not_what_it_says(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "test.csv").write_text(text)
    spec = tmp_path / "words.yaml"
    spec.write_text(
        "task: mcq\npath: .\ncolumns: {question: q, choices: [a, b], answer: right, answer_is: column}\n"
        'prompt: "{question} {choices}"\nshot: "{answer}"\nshots_prompt: "{shots}{prompt}"\n'
    )
    with pytest.raises(LocalevalError, match=message):
        load(spec)


@pytest.mark.parametrize(
    ("kind", "value", "letter"),
    [("letter", "b", "B"), ("index", 1, "B"), ("number", 1, "A"), ("index", "2", "C"), ("text", "three 0", "C")],
)
def test_ways_to_name_the_answer(mcq_dataset: Path, kind: str, value: object, letter: str) -> None:
    mcq_dataset.write_text(MCQ_YAML.replace("answer_is: letter", f"answer_is: {kind}"))
    write_jsonl(mcq_dataset.parent / "rows" / "test.jsonl", [{**QUESTIONS[0], "answer": value}])
    assert load(mcq_dataset).samples[0].gold == (letter,)


def test_conll_text(tmp_path: Path) -> None:
    spec = find_spec("conllpp")
    (tmp_path / "test.txt").write_bytes(
        b"\xef\xbb\xbf-DOCSTART- -X- -X- O\r\n\r\nEU NNP B-NP B-ORG\r\nsaid\tVB\tB-VP\tO\r\n\r\n\r\n"
        b"Ann NNP B-NP B-PER\r\nLee NNP I-NP I-PER"
    )
    samples = load_dataset(spec, dataset_dir=str(tmp_path)).samples
    assert [(s.tokens, s.gold) for s in samples] == [
        (("EU", "said"), ("B-ORG", "O")),
        (("Ann", "Lee"), ("B-PER", "I-PER")),
    ]
    (tmp_path / "test.txt").write_text("EU B-ORG\nsaid O\n")
    assert load_dataset(spec, dataset_dir=str(tmp_path)).samples[0].gold == ("B-ORG", "O")


def test_class_labels_of_the_file_go_before_those_of_the_yaml(tmp_path: Path) -> None:
    import datasets

    names = ["O", "B-LOC", "I-LOC", "B-PER"]
    features = datasets.Features(
        {
            "tokens": datasets.Sequence(datasets.Value("string")),
            "ner_tags": datasets.Sequence(datasets.ClassLabel(names=names)),
        }
    )
    rows = datasets.Dataset.from_list([{"tokens": ["Rome", "fell"], "ner_tags": [1, 0]}], features=features)
    rows.to_parquet(tmp_path / "test.parquet")
    # conllpp.yaml numbers B-PER as 1
    assert load_dataset(find_spec("conllpp"), dataset_dir=str(tmp_path)).samples[0].gold == ("B-LOC", "O")
    write_jsonl(tmp_path / "other" / "test.jsonl", [{"tokens": ["Rome", "fell"], "ner_tags": [5, 0]}])
    assert load_dataset(find_spec("conllpp"), dataset_dir=str(tmp_path / "other")).samples[0].gold == ("B-LOC", "O")


# --- where rows are found ---


def test_dataset_dir_holds_it_or_is_it(tmp_path: Path) -> None:
    row = [{"tokens": ["x"], "ner_tags": ["O"]}]
    spec = find_spec("conllpp")
    for number, place in enumerate(["conllpp", "extraordinarylab/conllpp", "."]):
        write_jsonl(tmp_path / str(number) / place / "test.jsonl", row)
        assert len(load_dataset(spec, dataset_dir=str(tmp_path / str(number))).samples) == 1


def test_caches_of_huggingface_and_modelscope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = [{"tokens": ["x"], "ner_tags": ["O"]}]
    spec = find_spec("conllpp")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path / "ms"))
    with pytest.raises(LocalevalError, match="not found") as refused:
        load_dataset(spec)
    assert str(tmp_path / "hf" / "hub" / "datasets--extraordinarylab--conllpp") in str(refused.value)
    assert str(tmp_path / "ms" / "datasets" / "extraordinarylab" / "conllpp") in str(refused.value)
    write_jsonl(tmp_path / "ms" / "datasets" / "extraordinarylab" / "conllpp" / "test.jsonl", row)
    assert len(load_dataset(spec).samples) == 1
    hub = tmp_path / "hf" / "hub" / "datasets--extraordinarylab--conllpp"
    write_jsonl(hub / "snapshots" / "abc" / "data" / "test.jsonl", row * 2)
    assert len(load_dataset(spec).samples) == 2
    write_jsonl(hub / "snapshots" / "def" / "test.jsonl", row * 3)
    with pytest.raises(LocalevalError, match="2 revisions"):
        load_dataset(spec)
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text("def")
    assert len(load_dataset(spec).samples) == 3


def test_an_edited_file_is_another_dataset(mcq_dataset: Path) -> None:
    before = load(mcq_dataset)
    write_jsonl(mcq_dataset.parent / "rows" / "test.jsonl", [{**QUESTIONS[0], "question": "Edited?"}])
    after = load(mcq_dataset)
    assert after.samples[0].text == "Edited?"
    assert before.data_fingerprint("default") != after.data_fingerprint("default")


def test_two_formats_side_by_side_are_refused(mcq_dataset: Path) -> None:
    (mcq_dataset.parent / "rows" / "test.json").write_text(json.dumps(QUESTIONS))
    with pytest.raises(LocalevalError, match="which of these are the rows"):
        load(mcq_dataset)


def test_a_missing_split_says_where_it_looked(mcq_dataset: Path) -> None:
    (mcq_dataset.parent / "rows" / "test.jsonl").unlink()
    with pytest.raises(LocalevalError, match="no test rows of subset 'default'") as refused:
        load(mcq_dataset)
    assert "holds: train.jsonl" in str(refused.value)


def test_limit_is_per_subset() -> None:
    dataset = load_dataset(find_spec("milu"), dataset_dir=str(SAMPLES), limit=2)
    assert Counter(sample.subset for sample in dataset.samples) == dict.fromkeys(dataset.subsets, 2)
    assert [s.id for s in dataset.samples[:3]] == ["English:0", "English:1", "Bengali:0"]


def test_unknown_subset() -> None:
    with pytest.raises(LocalevalError, match="no subset 'Klingon'; its subsets: English"):
        load_dataset(find_spec("milu"), dataset_dir=str(SAMPLES), subsets=["Klingon"])


# --- rows that are refused, or counted ---


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer": "D"}, r"test.jsonl, line 2, column answer: 'D': expected one of A, B, C"),
        ({"answer": None}, r"line 2, column answer: None"),
        ({"options": ["one"]}, r"line 2, column options: \['one'\]: expected 2 to 26 options"),
        ({"options": "one two"}, r"line 2, column options: 'one two': expected a list"),
        ({"question": ["?"]}, r"line 2, column question: \['\?'\]: expected text"),
    ],
)
def test_wrong_mcq_rows(mcq_dataset: Path, change: dict[str, object], message: str) -> None:
    write_jsonl(mcq_dataset.parent / "rows" / "test.jsonl", [QUESTIONS[0], {**QUESTIONS[1], **change}])
    with pytest.raises(LocalevalError, match=message):
        load(mcq_dataset)


def test_a_missing_column_lists_those_there_are(mcq_dataset: Path) -> None:
    write_jsonl(mcq_dataset.parent / "rows" / "test.jsonl", [{"question": "?", "choices": ["a", "b"], "answer": "A"}])
    with pytest.raises(LocalevalError, match="line 1: no column 'options'; it has: question, choices, answer"):
        load(mcq_dataset)


def test_odd_rows_are_counted(mcq_dataset: Path) -> None:
    rows = [{**QUESTIONS[0], "options": ["a", "a", "b"]}, {**QUESTIONS[1], "question": " "}, QUESTIONS[2]]
    write_jsonl(mcq_dataset.parent / "rows" / "test.jsonl", rows)
    assert odd_rows(load(mcq_dataset)) == [
        "quiz: 1 rows with two options of the same text: default:0",
        "quiz: 1 rows with an empty question or option: default:1",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Ann I-PER\n", r"test.txt, line 1, column ner_tags: 'I-PER': token 0 \('Ann'\) goes on with an entity"),
        ("Ann B-PER\nLee I-LOC\n", r"token 1 \('Lee'\) goes on"),
        ("Ann B-ORG\n", "'B-ORG': expected O, or B- or I- and one of PER, LOC"),
        ("Ann PER\n", "'PER': expected O, or B-"),
        ("Ann O\nLee O O\n", "line 2: 3 columns, expected 2 as before: 'Lee O O"),
        ("Ann\n", "line 1: 1 columns, expected at least 2"),
    ],
)
def test_wrong_conll_rows(ner_dataset: Path, text: str, message: str) -> None:
    (ner_dataset.parent / "rows" / "test.txt").write_text(text)
    with pytest.raises(LocalevalError, match=message):
        load(ner_dataset)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"tokens": [], "ner_tags": []}, "a sentence without tokens"),
        ({"tokens": ["a"], "ner_tags": []}, "0 tags for 1 tokens"),
        ({"tokens": ["a", " "], "ner_tags": ["O", "O"]}, "' ': expected tokens that are text and not empty"),
        ({"tokens": ["a"], "ner_tags": [1]}, "a number, and neither the file nor the YAML"),
        ({"tokens": "a b", "ner_tags": ["O"]}, "'a b': expected a list"),
        ({"tokens": ["a"], "ner_tags": [True]}, "True: expected a tag such as 'B-PER'"),
    ],
)
def test_wrong_ner_rows(ner_dataset: Path, row: dict[str, object], message: str) -> None:
    (ner_dataset.parent / "rows" / "test.txt").unlink()
    write_jsonl(ner_dataset.parent / "rows" / "test.jsonl", [row])
    with pytest.raises(LocalevalError, match=message):
        load(ner_dataset)


def test_half_a_file(mcq_dataset: Path) -> None:
    path = mcq_dataset.parent / "rows" / "test.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(LocalevalError, match="line 5: not JSON"):
        load(mcq_dataset)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(LocalevalError, match="is not UTF-8"):
        load(mcq_dataset)
    path.rename(path.with_suffix(".parquet"))
    with pytest.raises(LocalevalError, match="can't be read as parquet"):
        load(mcq_dataset)


def empty(kind: str) -> bytes:
    import pyarrow
    import pyarrow.parquet

    if kind != ".parquet":
        return {".jsonl": b"", ".json": b"[]", ".csv": b"question,options,answer,topic\n"}[kind]
    names = ("question", "answer", "topic")
    columns = [pyarrow.field(name, pyarrow.string()) for name in names]
    options = pyarrow.field("options", pyarrow.list_(pyarrow.string()))
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.schema([*columns, options]).empty_table(), sink)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("kind", [".jsonl", ".json", ".csv", ".parquet"])
def test_a_file_without_rows_is_named(mcq_dataset: Path, kind: str) -> None:
    rows = mcq_dataset.parent / "rows"
    (rows / "test.jsonl").unlink()
    file = rows / f"test{kind}"
    file.write_bytes(empty(kind))
    with pytest.raises(LocalevalError, match=f"dataset quiz: there is no row in {file}"):
        load(mcq_dataset)
    file.write_bytes(b"")
    with pytest.raises(LocalevalError, match=str(file)):
        load(mcq_dataset)


@pytest.mark.parametrize("text", ["", "\n\n", "-DOCSTART- O\n\n-DOCSTART- O\n"])
def test_a_text_without_sentences_is_named(ner_dataset: Path, text: str) -> None:
    file = ner_dataset.parent / "rows" / "test.txt"
    file.write_text(text)
    with pytest.raises(LocalevalError, match=f"dataset names: there is no row in {file}"):
        load(ner_dataset)


# --- definitions that are refused ---


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("shots_split: train", "shot_split: train", r"unknown key 'shot_split' \(did you mean 'shots_split'\?\)"),
        ("task: mcq", "task: qa", "task is 'qa'"),
        ("{question}\\n{choices}\\nOne", "{qustion}\\n{choices}\\nOne", r"prompt: nothing fills \{qustion\}"),
        ("answer_is: letter", "answer_as: letter", "unknown key 'answer_as'"),
        ("answer_is: letter", "answer_is: colour", "answer_is is 'colour'"),
        ("{shots}\\n\\n{prompt}", "{prompt}", r"shots_prompt: \{shots\} must stand in it"),
        ("Q: {question}\\n{choices}\\nOne", "Q: {question}\\n{Choices}\\n{choices}", r"nothing fills \{Choices\}"),
        ("shots_split: train", "subsets: [a, a]", "names one twice"),
        ("shots_split: train", "name: ../up", r"name '\.\./up'"),
        ("task: mcq\n", "", "task is missing"),
    ],
)
def test_wrong_definitions(mcq_dataset: Path, old: str, new: str, message: str) -> None:
    text = mcq_dataset.read_text()
    assert old in text
    mcq_dataset.write_text(text.replace(old, new))
    with pytest.raises(LocalevalError, match=message):
        load_spec(mcq_dataset)


@pytest.mark.parametrize(
    ("entity", "message"),
    [
        ("{label: A, tag: Response, description: x}", "'Response' is taken"),
        ("{label: A, tag: a b, description: x}", "'a b' is no name"),
        ("{label: PER, tag: other, description: x}", "two of them share a label or a tag"),
    ],
)
def test_wrong_entities(ner_dataset: Path, entity: str, message: str) -> None:
    ner_dataset.write_text(ner_dataset.read_text().replace("entities:\n", f"entities:\n  - {entity}\n"))
    with pytest.raises(LocalevalError, match=message):
        load_spec(ner_dataset)


def test_a_label_that_the_data_can_never_have(ner_dataset: Path) -> None:
    ner_dataset.write_text(ner_dataset.read_text() + "label_case: lower\n")
    with pytest.raises(LocalevalError, match="label 'PER' can't be met: label_case is lower"):
        load_spec(ner_dataset)


def test_docstart_rows_of_tables_are_dropped(ner_dataset: Path) -> None:
    (ner_dataset.parent / "rows" / "test.txt").unlink()
    rows = [{"tokens": ["-DOCSTART-"], "ner_tags": ["O"]}, {"tokens": ["Ann"], "ner_tags": ["B-PER"]}]
    write_jsonl(ner_dataset.parent / "rows" / "test.jsonl", rows)
    assert [(s.id, s.tokens) for s in load(ner_dataset).samples] == [("default:0", ("Ann",))]


def test_unknown_dataset() -> None:
    with pytest.raises(LocalevalError, match=r"conlpp: no such dataset \(did you mean 'conllpp'\?\)"):
        find_spec("conlpp")
    with pytest.raises(LocalevalError, match="there is no such file"):
        find_spec("nowhere.yaml")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("quiz", "did you mean ./quiz.yaml?"),
        ("rows.jsonl", "localeval init NAME --from rows.jsonl makes a dataset of it"),
        ("milu,conllpp", "names are separated by spaces"),
        ("mlu", "did you mean"),
    ],
)
def test_what_a_name_that_is_none_may_stand_for(
    name: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("quiz.yaml").write_text("task: mcq")
    Path("rows.jsonl").write_text("{}")
    with pytest.raises(LocalevalError, match=re.escape(hint)):
        find_spec(name)


def test_a_dataset_that_is_not_here_can_be_tried_on_what_ships(tmp_path: Path) -> None:
    for name, offered in (("milu", True), ("mmlu", False)):
        with pytest.raises(LocalevalError) as refused:
            load_dataset(find_spec(name), dataset_dir=str(tmp_path / "none"))
        assert ("--samples" in str(refused.value)) is offered

"""The built-in datasets: what their files say, rows in the form in which they are published, and published figures."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localeval import parse_choice
from localeval.cli import main
from localeval.config import load_config
from localeval.datasets.published import Measured, count_entities, held_against
from localeval.datasets.rows import load_dataset
from localeval.datasets.spec import DatasetSpec, builtin_names, find_spec, load_spec
from localeval.jobs import Job, load_job, load_jobs, settings_digest
from localeval.listing import dataset as shown_dataset
from localeval.listing import everything
from localeval.needed import dataset_files
from localeval.schema import Completion, LocalevalError, Mode
from localeval.tasks.mcq import task as mcq
from localeval.tasks.ner import parse as ner_parse
from localeval.tasks.ner import task as ner
from tests.conftest import Replies, write_jsonl

UNVERIFIED = [
    "arc", "bc5cdr", "belebele", "cross_ner", "global_mmlu", "medmcqa", "milu", "mit_restaurant", "mmlu", "mmmlu",
    "multi_nerd", "ncbi", "ontonotes5", "wnut2017",
]  # fmt: skip


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]] | str) -> None:
    """Rows in the format that the file's name says; text as it is."""
    import pyarrow
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(rows, str):
        path.write_text(rows, encoding="utf-8")
    elif path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([dict(row) for row in rows]), path)
    elif path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    else:
        write_jsonl(path, [dict(row) for row in rows])


def job_of(name: str, root: Path, **args: Any) -> Job:
    (job,) = load_jobs(
        load_config({"engine": "replay:", "datasets": [name], "dataset_dir": str(root), "dataset_args": {name: args}})
    )
    return job


# --- every file ---


@pytest.mark.parametrize("name", builtin_names())
def test_a_definition_says_where_it_is_from(name: str) -> None:
    spec = find_spec(name)
    assert all([spec.title, spec.hub_id, spec.license, spec.published])
    assert any(year in spec.citation for year in map(str, range(2003, 2026))), spec.citation
    assert spec.homepage.startswith("https://")
    assert all(entity.description for subset in spec.subsets for entity in spec.entities_of(subset))
    assert bool(spec.tags) == (spec.task == "ner")


def test_the_list_says_what_was_never_held_against_rows() -> None:
    lines = everything(None).splitlines()
    marked = {cells[0]: cells[4] for line in lines if len(cells := line.split()) > 4 and cells[1] in ("mcq", "ner")}
    assert marked == {name: "no" if name in UNVERIFIED else "yes" for name in builtin_names()}
    shown = shown_dataset("belebele")
    assert "published as facebook/belebele (huggingface)\nlicence: CC BY-SA 4.0\ncite: Bandarkar et al., 2024." in shown
    assert "UNVERIFIED: belebele: its definition was written from what is published" in shown
    assert "compare the counts: localeval list belebele --stats" in shown
    assert "UNVERIFIED" not in shown_dataset("conllpp")


@pytest.mark.parametrize("name", [name for name in builtin_names() if len(find_spec(name).subsets) > 1])
def test_published_figures_fit_together(name: str) -> None:
    spec = find_spec(name)
    assert spec.published is not None
    figures: dict[str, tuple[float, ...]] = {**spec.published.prompts}
    overall = figures.pop("all", ())
    if set(figures) != set(spec.subsets):
        assert set(figures) <= {"each"}  # counts alone
        assert not (figures and overall) or figures["each"][0] * len(spec.subsets) == overall[0]
        return
    n, mean, least, most = zip(*figures.values(), strict=True)
    assert sum(n) == overall[0]
    assert sum(a * b for a, b in zip(n, mean, strict=True)) / sum(n) == pytest.approx(overall[1], abs=0.01)
    assert (min(least), max(most)) == overall[2:]


# --- rows as they are published ---

QUESTION = {"question": "2 + 2?", "choices": ["3", "4"], "subject": "abstract_algebra"}
MMMLU_ROW = {"": 0, "Question": "२ + २?", "A": "३", "B": "४", "C": "५", "D": "६", "Answer": "B", "Subject": "anatomy"}
ARC = {"id": "x", "question": "Which is hot?", "choices": {"text": ["ice", "fire", "snow"], "label": ["1", "2", "3"]}}
BELEBELE = {
    "link": "l", "question_number": 1, "flores_passage": "The river is wide.", "question": "How is it?",
    "mc_answer1": "wide", "mc_answer2": "deep", "mc_answer3": "dry", "mc_answer4": "cold", "correct_answer_num": "1",
    "dialect": "hin_Deva", "ds": "2023-05-03",
}  # fmt: skip
GLOBAL_MMLU = {
    "sample_id": "a/test/0", "subject": "anatomy", "subject_category": "STEM", "question": "Wo?", "option_a": "da",
    "option_b": "dort", "option_c": "hier", "option_d": "weg", "answer": "D", "cultural_sensitivity_label": "CS",
    "is_annotated": True,
}  # fmt: skip
MEDMCQA = {
    "id": "x", "question": "Which nerve?", "opa": "I", "opb": "II", "opc": "III", "opd": "IV", "cop": 2,
    "choice_type": "single", "exp": None, "subject_name": "Anatomy", "topic_name": None,
}  # fmt: skip
SENTENCE = ["Ann", "Lee", "left", "Rome"]


def sentences(*rows: Sequence[str | int]) -> list[dict[str, Any]]:
    return [{"tokens": SENTENCE, "ner_tags": list(tags)} for tags in rows]


MADE: dict[str, tuple[dict[str, Any], list[tuple[str, ...]]]] = {
    # name -> (file below the dataset's folder: rows, the gold of the first subset's samples)
    "mmlu": ({"abstract_algebra/test-00000-of-00001.parquet": [{**QUESTION, "answer": 1}]}, [("B",)]),
    "mmmlu": ({"test/mmlu_AR-XY.csv": [MMMLU_ROW, {**MMMLU_ROW, "": 1, "Answer": "D"}]}, [("B",), ("D",)]),
    "arc": (
        {
            "ARC-Easy/test-00000-of-00001.parquet": [
                {**ARC, "answerKey": "2"},
                {**ARC, "choices": {"text": list("wxyz"), "label": list("ABCD")}, "answerKey": "D"},
            ]
        },
        [("B",), ("D",)],
    ),
    "belebele": ({"data/acm_Arab.jsonl": [BELEBELE, {**BELEBELE, "correct_answer_num": "4"}]}, [("A",), ("D",)]),
    "global_mmlu": ({"am/test-00000-of-00001.parquet": [GLOBAL_MMLU]}, [("D",)]),
    "medmcqa": ({"data/validation-00000-of-00001.parquet": [MEDMCQA]}, [("C",)]),
    "conll2003": ({"data/test-00000-of-00001.parquet": sentences(["B-PER", "I-PER", "O", "B-LOC"])}, []),
    "wnut2017": ({"test.txt": "Ann\tB-person\nLee\tI-person\nleft\tO\nOK\tB-creative-work\n"}, []),
    "mit_restaurant": ({"restauranttest.bio": "B-Rating\tfour\nI-Rating\tstar\nB-Restaurant_Name\tluigis\n"}, []),
    "ontonotes5": ({"test.jsonl": sentences(["B-PERSON", "I-PERSON", "O", "B-GPE"])}, []),
    "bc5cdr": ({"test.jsonl": sentences(["B-Chemical", "I-Chemical", "O", "B-Disease"])}, []),
    "ncbi": ({"test.jsonl": sentences(["B-DISEASE", "I-DISEASE", "O", "O"])}, []),
    "multi_nerd": ({"test/test_de.jsonl": [{**row, "lang": "de"} for row in sentences([1, 2, 0, 5])]}, []),
    "cross_ner": ({"ai/test.txt": "Ann\tB-researcher\nuses\tO\nC\tB-programlang\n"}, []),
}
TAGGED = {
    "conll2003": "<person>Ann Lee</person> left <location>Rome</location>",
    "wnut2017": "<person>Ann Lee</person> left <creative_work>OK</creative_work>",
    "mit_restaurant": "<rating>four star</rating> <restaurant_name>luigis</restaurant_name>",
    "ontonotes5": "<person>Ann Lee</person> left <geopolitical_entity>Rome</geopolitical_entity>",
    "bc5cdr": "<chemical>Ann Lee</chemical> left <disease>Rome</disease>",
    "ncbi": "<disease>Ann Lee</disease> left Rome",
    "multi_nerd": "<person>Ann Lee</person> left <location>Rome</location>",
    "cross_ner": "<researcher>Ann</researcher> uses <programming_language>C</programming_language>",
}


@pytest.mark.parametrize("name", MADE)
def test_rows_are_read_as_they_are_published(name: str, tmp_path: Path) -> None:
    files, golds = MADE[name]
    for path, rows in files.items():
        write_rows(tmp_path / name / path, rows)
    spec = find_spec(name)
    samples = load_dataset(spec, dataset_dir=str(tmp_path), subsets=spec.subsets[:1]).samples
    if spec.task == "mcq":
        assert [sample.gold for sample in samples] == golds
        assert all(parse_choice(f"ANSWER: {s.gold[0]}", s.choices) == s.gold[0] for s in samples)
        return
    (sample,), tags = samples, spec.tags_of(spec.subsets[0])
    assert ner.target(sample, tags) == f"<response>{TAGGED[name]}</response>"
    assert ner_parse.read(ner.target(sample, tags), sample.tokens, tags).tags == list(sample.gold)


def test_what_is_added_is_tried_above() -> None:
    assert set(MADE) == set(builtin_names()) - {"conllpp", "milu", "mit_movie_trivia"}


@pytest.mark.parametrize("name", MADE)
def test_a_reply_that_is_right_is_judged_so(name: str, tmp_path: Path) -> None:
    files, golds = MADE[name]
    for path, rows in files.items():
        write_rows(tmp_path / name / path, rows)
    job = job_of(name, tmp_path, subset_list=find_spec(name).subsets[:1], few_shot_num=0)
    said = [f"ANSWER: {gold[0]}" for gold in golds] or [f"<response>{TAGGED[name]}</response>"]
    modes: tuple[Mode, ...] = ("generate", "constrained")
    for mode in modes:
        asked = replace(job, mode=mode)
        for sample, text in zip(job.dataset.samples, said, strict=True):
            score = asked.judge(sample, Completion(sample.id, text, "stop"), None, False)
            assert all(tally.correct == tally.predicted == tally.gold for tally in score.tallies.values())
            assert score.notes == {}
            assert next(iter(score.tallies.values())).gold > 0
    if name == "cross_ner":
        assert len(job.labels) == 14  # of the domain that is asked; all five have 39


ANSWER = (
    "Answer the following multiple choice question. The entire content of your response should be of the following "
    "format: 'ANSWER: [LETTER]' (without quotes) where [LETTER] is one of {}.\n\n"
)
HINDI = (
    "निम्नलिखित बहुविकल्पीय प्रश्न का उत्तर दें। आपके उत्तर की अंतिम पंक्ति इस प्रारूप में होनी चाहिए: 'ANSWER: [LETTER]' (उद्धरण "
    "चिह्नों के बिना) जहाँ [LETTER] A,B,C,D में से एक है। उत्तर देने से पहले चरणबद्ध तरीके से सोचें।\n\n"
)


@pytest.mark.parametrize(
    ("name", "subset", "file", "row", "prompt"),
    [
        (
            "belebele",
            "hin_Deva",
            "data/hin_Deva.jsonl",
            BELEBELE,
            ANSWER.format("A,B,C,D") + "The river is wide.\n\nHow is it?\n\nA) wide\nB) deep\nC) dry\nD) cold",
        ),
        (
            "arc",
            "ARC-Challenge",
            "ARC-Challenge/test-00000-of-00001.parquet",
            {**ARC, "answerKey": "3"},
            ANSWER.format("A,B,C") + "Which is hot?\n\nA) ice\nB) fire\nC) snow",
        ),
        ("mmmlu", "HI_IN", "test/mmlu_HI-IN.csv", MMMLU_ROW, HINDI + "२ + २?\n\nA) ३\nB) ४\nC) ५\nD) ६"),
    ],
)
def test_prompts_by_hand(name: str, subset: str, file: str, row: dict[str, Any], prompt: str, tmp_path: Path) -> None:
    write_rows(tmp_path / name / file, [row])
    job = job_of(name, tmp_path, subset_list=[subset])
    assert list(job.messages()) == [prompt]


def test_mmlu_is_asked_with_five_examples_of_its_subject(tmp_path: Path) -> None:
    folder = tmp_path / "mmlu" / "anatomy"
    shown = [{**QUESTION, "question": f"{i}?", "subject": "anatomy", "answer": i % 2} for i in range(6)]
    write_rows(folder / "dev-00000-of-00001.parquet", shown)
    write_rows(folder / "test-00000-of-00001.parquet", [{**QUESTION, "subject": "anatomy", "answer": 1}])
    job = job_of("mmlu", tmp_path, subset_list=["anatomy"])
    examples = "".join(f"{i}?\nA) 3\nB) 4\nANSWER: {'AB'[i % 2]}\n\n" for i in range(5))
    assert list(job.messages()) == [
        f"Here are some examples of how to answer similar questions:\n\n{examples}"
        "Answer the following multiple choice question. The last line of your response should be of the following "
        "format: 'ANSWER: [LETTER]' (without quotes) where [LETTER] is one of A,B. Think step by step before answering."
        "\n\n2 + 2?\n\nA) 3\nB) 4"
    ]
    assert job.dataset.samples[0].meta == {"category": "Other"}


def test_each_domain_of_cross_ner_has_its_own_types(tmp_path: Path) -> None:
    for domain, label in (("ai", "researcher"), ("politics", "politician")):
        write_rows(tmp_path / "cross_ner" / domain / "test.txt", f"Ann\tB-{label}\n")
    job = job_of("cross_ner", tmp_path, subset_list=["ai", "politics"], few_shot_num=0)
    ai, politics = job.messages()
    assert ("<researcher>" in ai, "<politician>" in ai) == (True, False)
    assert 'entity types:\ncountry (A country or sovereign state (e.g., "United States", "Germany").), elec' in politics
    assert (
        "Available entity tags: <country>, <election>, <event>, <location>, <misc>, <organisation>, <person>, "
        "<political_party>, <politician>\n"
    ) in politics
    tags = job.dataset.spec.tags_of("ai")
    assert ner_parse.read("<response><politician>Ann</politician></response>", ["Ann"], tags).tags == ["O"]
    write_rows(tmp_path / "cross_ner" / "ai" / "test.txt", "Ann\tB-politician\n")
    with pytest.raises(
        LocalevalError, match=r"ai/test.txt, line 1, column ner_tags: 'B-politician': expected O, or B-"
    ):
        job_of("cross_ner", tmp_path, subset_list=["ai"], few_shot_num=0)


@pytest.mark.parametrize(
    ("name", "file", "row", "message"),
    [
        (
            "arc",
            "ARC-Easy/test.jsonl",
            {**ARC, "answerKey": "4"},
            "line 1, column answerKey: '4': expected the label of",
        ),
        (
            "arc",
            "ARC-Easy/test.jsonl",
            {**ARC, "choices": ["a", "b"], "answerKey": "1"},
            r"choices: \['a', 'b'\]: expected",
        ),
        (
            "medmcqa",
            "data/validation.jsonl",
            {**MEDMCQA, "cop": -1},
            "column cop: -1: expected a whole number from 0 to 3",
        ),
        (
            "belebele",
            "data/acm_Arab.jsonl",
            {**BELEBELE, "correct_answer_num": "0"},
            "'0': expected a whole number from 1",
        ),
        (
            "mmmlu",
            "test/mmlu_AR-XY.csv",
            {**MMMLU_ROW, "Answer": "E"},
            "line 2, column Answer: 'E': expected one of A, B",
        ),
        ("mmmlu", "test/mmlu_AR-XY.csv", {**MMMLU_ROW, "Subject": "magic"}, "column Subject: 'magic': the YAML file"),
        ("multi_nerd", "test/test_de.jsonl", sentences([1, 2, 0, 31])[0], "31: expected a number from 0 to 30"),
    ],
)
def test_rows_that_are_wrong(name: str, file: str, row: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_rows(tmp_path / name / file, [row])
    spec = find_spec(name)
    with pytest.raises(LocalevalError, match=message):
        load_dataset(spec, dataset_dir=str(tmp_path), subsets=spec.subsets[:1])


def test_options_as_a_list_of_mappings(tmp_path: Path) -> None:
    options = [{"text": "ice", "label": "P"}, {"text": "fire", "label": "Q"}]
    write_rows(tmp_path / "arc" / "ARC-Easy" / "test.jsonl", [{**ARC, "choices": options, "answerKey": "Q"}])
    (sample,) = load_dataset(find_spec("arc"), dataset_dir=str(tmp_path), subsets=["ARC-Easy"]).samples
    assert (sample.choices, sample.gold) == (("ice", "fire"), ("B",))


# --- which files of a repository ---

HUB: dict[str, tuple[list[str], list[str], list[str]]] = {
    # name -> (what the repository holds, the subsets that are asked, what is fetched)
    "mmlu": (
        ["README.md", "dataset_infos.json", "all/dev-00000-of-00001.parquet", "all/test-00000-of-00001.parquet"]
        + [f"{s}/{p}-00000-of-00001.parquet" for s in ("anatomy", "virology") for p in ("dev", "test", "validation")],
        ["anatomy"],
        ["README.md", "anatomy/dev-00000-of-00001.parquet", "anatomy/test-00000-of-00001.parquet"],
    ),
    "mmmlu": (
        ["README.md", ".gitattributes", "test/mmlu_AR-XY.csv", "test/mmlu_HI-IN.csv"],
        ["AR_XY", "HI_IN"],
        ["README.md", "test/mmlu_AR-XY.csv", "test/mmlu_HI-IN.csv"],
    ),
    "global_mmlu": (
        ["README.md", *(f"{lang}/{p}-00000-of-00001.parquet" for lang in ("de", "en") for p in ("dev", "test"))],
        ["en"],
        ["README.md", "en/dev-00000-of-00001.parquet", "en/test-00000-of-00001.parquet"],
    ),
    "belebele": (
        ["README.md", "data.zip", "data/README", "data/eng_Latn.jsonl", "data/hin_Deva.jsonl", "unused/belebele.py"],
        ["hin_Deva"],
        ["README.md", "data/hin_Deva.jsonl"],
    ),
    "arc": (
        ["README.md"]
        + [
            f"{s}/{p}-00000-of-00001.parquet"
            for s in ("ARC-Challenge", "ARC-Easy")
            for p in ("test", "train", "validation")
        ],
        ["ARC-Easy", "ARC-Challenge"],
        ["README.md"]
        + [f"{s}/{p}-00000-of-00001.parquet" for s in ("ARC-Challenge", "ARC-Easy") for p in ("test", "train")],
    ),
    "medmcqa": (
        ["README.md", *(f"data/{p}-00000-of-00001.parquet" for p in ("test", "train", "validation"))],
        ["default"],
        ["README.md", "data/train-00000-of-00001.parquet", "data/validation-00000-of-00001.parquet"],
    ),
    "multi_nerd": (
        ["README.md", *(f"{p}/{p}_{lang}.jsonl" for p in ("test", "train", "val") for lang in ("de", "en", "zh"))],
        ["en", "zh"],
        ["README.md", "test/test_en.jsonl", "test/test_zh.jsonl", "train/train_en.jsonl", "train/train_zh.jsonl"],
    ),
    "cross_ner": (
        [
            "README.md",
            *(f"{d}/{p}-00000-of-00001.parquet" for d in ("ai", "music") for p in ("test", "train", "validation")),
        ],
        ["music"],
        ["README.md", "music/test-00000-of-00001.parquet", "music/train-00000-of-00001.parquet"],
    ),
    "wnut2017": (
        ["README.md", *(f"data/{p}-00000-of-00001.parquet" for p in ("test", "train", "validation"))],
        ["default"],
        ["README.md", "data/test-00000-of-00001.parquet", "data/train-00000-of-00001.parquet"],
    ),
}


@pytest.mark.parametrize("name", HUB)
def test_files_that_are_fetched(name: str) -> None:
    holds, subsets, needed = HUB[name]
    spec = find_spec(name)
    assert dataset_files(holds, spec, subsets, spec.shots, spec.hub_id) == set(needed)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "belebele" / "data").mkdir(parents=True)
    with pytest.raises(
        LocalevalError, match=r"no test rows of subset 'hin_Deva'. Looked for .*/data/hin_Deva.jsonl, else"
    ):
        load_dataset(find_spec("belebele"), dataset_dir=str(tmp_path), subsets=["hin_Deva"])
    with pytest.raises(LocalevalError, match=r"as DIR/belebele/data/acm_Arab\.jsonl"):
        load_dataset(find_spec("belebele"), dataset_dir=str(tmp_path / "nowhere"))


# --- what is published ---


def spec_with(published: str, tmp_path: Path) -> DatasetSpec:
    path = tmp_path / "quiz.yaml"
    path.write_text(
        "task: ner\nsubsets: [one, two]\nentities: [{label: PER, tag: person, description: people}]\n"
        f'prompt: "{{text}}"\npublished: {published}\n'
    )
    return load_spec(path)


FIGURES = "{source: a paper, shots: 2, prompts: {one: [3, 10.25, 8, 12], two: [1000], all: [1003]}, entities: {PER: 7}}"
HERE = {"one": (3, 10.2451, 8, 12), "two": (1000, 1.0, 1, 1), "all": (1003, 2.0, 1, 12)}


@pytest.mark.parametrize(
    ("change", "shots", "lines"),
    [
        ({}, 2, ["as published (a paper): the same"]),
        ({"one": (3, 10.26, 8, 13)}, 2, [
            "not as published (a paper): 2 of 7 figures differ",
            "one differs: mean here 10.26, published 10.25; max here 13, published 12",
        ]),
        ({"two": (999, 1.0, 1, 1)}, 2, [
            "not as published (a paper): 1 of 7 figures differ", "two differs: prompts here 999, published 1,000",
        ]),
        ({"one": (3, 99.0, 1, 99)}, 0, [
            "as published (a paper): the same", "published lengths are of 2 shots, here are 0 shots: not compared",
        ]),
        ({"one": (3, 99.0, 1, 99)}, None, [
            "as published (a paper): the same", "published lengths are of 2 shots, here are other words: not compared",
        ]),
        ({"PER": 6}, 2, [
            "not as published (a paper): 1 of 7 figures differ", "PER differs: entities here 6, published 7",
        ]),
    ],
)  # fmt: skip
def test_the_data_at_hand_against_what_is_published(
    change: dict[str, Any], shots: int | None, lines: list[str], tmp_path: Path
) -> None:
    prompts = HERE | {name: figures for name, figures in change.items() if name in HERE}
    measured = Measured(prompts, shots, {"PER": change.get("PER", 7)})
    assert held_against(spec_with(FIGURES, tmp_path), measured) == lines


def test_a_part_is_not_held_against_the_whole(tmp_path: Path) -> None:
    spec = spec_with(FIGURES, tmp_path)
    assert held_against(spec, Measured({"two": (1000, 1.0, 1, 1)}, 2, {"PER": 1})) == [
        "as published (a paper): the same"
    ]
    assert held_against(spec.model_copy(update={"published": None}), Measured(HERE, 2, {})) == []


def test_conll2003_on_its_own_rows(shared: Path) -> None:
    """CoNLL++ ships the training and validation splits of CoNLL-2003 as they are; the counts are tables 1 and 2 of the
    paper."""
    counts = {
        "train": (14041, {"LOC": 7140, "MISC": 3438, "ORG": 6321, "PER": 6600}),
        "validation": (3250, {"LOC": 1837, "MISC": 922, "ORG": 1341, "PER": 1842}),
    }
    for split, (rows, entities) in counts.items():
        spec = find_spec("conll2003").model_copy(update={"split": split})
        samples = load_dataset(spec, local_path=str(shared / "data" / "conllpp")).samples
        assert (len(samples), count_entities(samples)) == (rows, Counter(entities))


def test_mmlu_prompts_on_its_own_rows(shared: Path) -> None:
    """The rows of nine subjects are all here, in another layout, without the examples: what differs between prompts."""
    import pyarrow.parquet

    spec = find_spec("mmlu")
    assert spec.published is not None
    rows = pyarrow.parquet.read_table(shared / "data/milu_layout/English/test-00000-of-00001.parquet").to_pylist()
    whole = 0
    for subject, (n, mean, least, most) in ((s, f) for s, f in spec.published.prompts.items() if len(f) == 4):
        lengths = [len(mcq.ask(_as_mmlu(row), [], spec.templates)) for row in rows if row["subject"] == subject]
        if len(lengths) == n:
            whole += 1
            assert sum(lengths) / n - min(lengths) == pytest.approx(mean - least, abs=0.011)
            assert max(lengths) - min(lengths) == most - least
    assert whole == 9


def _as_mmlu(row: Mapping[str, str]) -> Any:
    from localeval.schema import Sample

    return Sample("", "", row["question"], ("A",), choices=tuple(row[f"option{i}"] for i in (1, 2, 3, 4)))


# --- what a definition says of itself ---

KNOWN = """\
title: Another title
hub_id: someone/else
citation: Someone, 2020.
license: CC0
homepage: https://example.org
unverified: true
files: elsewhere/{split}.jsonl
published: {source: a page, prompts: {default: [5]}}
"""


def digest(path: Path) -> str:
    config = load_config({"engine": "replay:", "datasets": [str(path)]})
    return settings_digest(load_job(config, load_spec(path)), config, {})


def test_what_is_known_of_a_dataset_changes_no_run_folder(mcq_dataset: Path) -> None:
    before, text = digest(mcq_dataset), mcq_dataset.read_text()
    mcq_dataset.write_text(text + KNOWN)
    assert digest(mcq_dataset) == before
    own = 'by_subset: {default: {prompt: "{question} {choices}"}}\n'
    mcq_dataset.write_text(text + own)
    assert digest(mcq_dataset) != before


def test_a_run_says_that_its_dataset_was_never_held_against_rows(
    mcq_dataset: Path, replies: Replies, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mcq_dataset.write_text(mcq_dataset.read_text() + "unverified: true\n")
    file = replies({f"default:{i}": "ANSWER: A" for i in range(5)})
    words = ["--engine", f"replay:{file}", "--datasets", str(mcq_dataset), "--work-dir", str(tmp_path / "runs")]
    assert main(words) == 0
    said = capsys.readouterr()
    doubt = (
        "quiz: its definition was written from what is published, and not held against real rows; compare the counts:"
    )
    assert said.err.count(f"warning: {doubt}") == 1
    (report,) = (tmp_path / "runs").glob("*/*/report.json")
    assert json.loads(report.read_text())["notes"] == [f"{doubt} localeval list {mcq_dataset} --stats"]
    assert f"! {doubt}" in said.out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "by_subset: {defualt: {prompt: x}}",
            r"by_subset: 'defualt' is none of the subsets \(did you mean 'default'\?\)",
        ),
        ("by_subset: {default: {prompt: x}}", r"prompt: \{choices\} must stand in it"),
        ("by_subset: {default: {files: ../up.jsonl}}", "must stay inside its folder"),
        ("files: '{lang}.jsonl'", r"files: nothing fills \{lang\}"),
        ("published: {source: x, prompts: {other: [1]}}", "published: 'other' is none of the subsets"),
        ("published: {source: x, prompts: {default: [1, 2.0, 3, 4]}}", "shots is missing"),
        ("published: {source: x, prompts: {default: [1, 2]}}", r"published.prompts.default"),
        ("groups: {a: {column: topic, parts: {x: [sums], y: [sums]}}}", "a value stands in two of them"),
        ("prompts_of: mlu", r"prompts_of: 'mlu' is no built-in dataset \(did you mean"),
    ],
)
def test_definitions_that_are_wrong(text: str, message: str, mcq_dataset: Path) -> None:
    kept = [line for line in mcq_dataset.read_text().splitlines() if line.split(":")[0] != text.split(":")[0]]
    mcq_dataset.write_text("\n".join([*kept, text]) + "\n")
    with pytest.raises(LocalevalError, match=message):
        load_spec(mcq_dataset)


def test_labels_need_a_place(mcq_dataset: Path) -> None:
    mcq_dataset.write_text(mcq_dataset.read_text().replace("answer_is: letter", "answer_is: label"))
    with pytest.raises(LocalevalError, match=r"answer_is: label needs labels: choices: \{column: "):
        load_spec(mcq_dataset)


@pytest.mark.parametrize(
    ("entities", "message"),
    [
        ("{a: {entities: [{label: X, tag: x, description: d}]}}", "entities of subset 'b'"),
        (
            "{a: {entities: [{label: X, tag: x, description: d}]}, "
            "b: {entities: [{label: X, tag: y, description: d}]}}",
            "a label has two tags, in two subsets",
        ),
    ],
)
def test_entities_by_subset_that_are_wrong(entities: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "names.yaml"
    path.write_text(f"task: ner\nsubsets: [a, b]\nby_subset: {entities}\nprompts_of: conllpp\n")
    with pytest.raises(LocalevalError, match=message):
        load_spec(path)

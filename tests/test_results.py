"""samples.jsonl.gz, and a finished run read sample by sample."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localeval import run_task, score_run, score_tags
from localeval.metrics.ner import pairs
from localeval.results import read_results
from localeval.samples import AskedSample, read_samples, write_samples, written_beside
from localeval.schema import LocalevalError, Sample, Span
from localeval.spans import spans_from_tags
from localeval.store import RunFolder
from tests.conftest import Replies

QUESTION = Sample("Hindi:3", "Hindi", "२ + २?", ("B",), choices=("३", "४\ud83d"), meta={"domain": "गणित"})
SENTENCE = Sample("default:0", "default", "Ada met Bo", ("B-PER", "O", "B-PER"), tokens=("Ada", "met", "Bo"))
ASKED = [AskedSample(QUESTION, "<|im_start|>user\n२ + २?", True), AskedSample(SENTENCE, "Ada met Bo", False)]


def test_samples_come_back_as_they_were(tmp_path: Path) -> None:
    write_samples(RunFolder(tmp_path), ASKED)
    assert list(read_samples(tmp_path)) == ASKED


def test_the_same_samples_are_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_samples(RunFolder(tmp_path / name), ASKED)
    assert (tmp_path / "a" / "samples.jsonl.gz").read_bytes() == (tmp_path / "b" / "samples.jsonl.gz").read_bytes()


def test_a_row_as_other_tools_read_it(tmp_path: Path) -> None:
    write_samples(RunFolder(tmp_path), ASKED[1:])
    assert json.loads(gzip.decompress((tmp_path / "samples.jsonl.gz").read_bytes())) == {
        "sample_id": "default:0",
        "subset": "default",
        "text": "Ada met Bo",
        "tokens": ["Ada", "met", "Bo"],
        "gold": "B-PER O B-PER",
        "message": "Ada met Bo",
    }


def test_a_cut_file_is_named_with_what_mends_it(tmp_path: Path) -> None:
    write_samples(RunFolder(tmp_path), ASKED)
    file = tmp_path / "samples.jsonl.gz"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(LocalevalError, match=r"samples\.jsonl\.gz, line [12]: can't be read .*localeval score"):
        list(read_samples(tmp_path))
    file.unlink()
    with pytest.raises(LocalevalError, match="there is no such file; localeval score RUN_DIR"):
        list(read_samples(tmp_path))


def test_what_is_given_up_leaves_no_file(tmp_path: Path) -> None:
    def endless() -> Iterator[AskedSample]:
        while True:
            yield ASKED[0]

    with pytest.raises(KeyboardInterrupt), written_beside([(RunFolder(tmp_path), endless())]):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_what_goes_wrong_beside_is_raised(tmp_path: Path) -> None:
    def broken() -> Iterator[AskedSample]:
        yield ASKED[0]
        raise LocalevalError("the third")

    with pytest.raises(LocalevalError, match="the third"), written_beside([(RunFolder(tmp_path), broken())]):
        pass


# --- a run ---


@pytest.fixture
def names(ner_dataset: Path, replies: Replies, tmp_path: Path) -> Path:
    """Half a name; another type, with a place that is not there; no reading."""
    said = {
        "default:0": "<response><person>Ann</person> Lee left</response>",
        "default:1": "<response><person>Paris</person> <location>Atlantis</location> slept</response>",
        "default:2": "no",
    }
    fields = {"datasets": [str(ner_dataset)], "engine": f"replay:{replies(said)}", "work_dir": str(tmp_path / "runs")}
    return run_task(fields).runs[0].folder


def test_a_run_sample_by_sample(names: Path) -> None:
    first, second, third = read_results(names)
    assert (first.sample_id, first.text, first.tokens) == ("default:0", "Ann Lee left", ("Ann", "Lee", "left"))
    assert (first.gold, first.score.parsed) == ("B-PER I-PER O", "B-PER O O")
    assert first.completion.text.startswith("<response><person>Ann</person>")
    assert (first.rendered, first.prompt) == (
        False,
        "Mark <person>, <location> (person (people), location (places)):\nAnn Lee left\n",
    )
    assert second.score.invented == (("LOC", "Atlantis"),)
    assert third.score.parsed is None
    assert [each.right for each in (first, second, third)] == [False, False, False]


def test_what_stood_in_place_of_what(names: Path) -> None:
    """Worked out by hand: the PER has another end, the LOC is a PER with the same ends, one LOC is made up."""
    assert json.loads((names / "report.json").read_text())["confusion"] == [
        {"gold": "LOC", "predicted": "PER", "exact": True, "n": 1},
        {"gold": "PER", "predicted": "PER", "exact": False, "n": 1},
        {"gold": None, "predicted": "LOC", "exact": False, "n": 1},
    ]


def test_letters_in_place_of_letters(mcq_dataset: Path, replies: Replies, tmp_path: Path) -> None:
    """Gold is A B C A B."""
    said = {f"default:{n}": text for n, text in enumerate(["ANSWER: A", "ANSWER: A", "who knows", "ANSWER: C", "B)"])}
    fields = {"datasets": [str(mcq_dataset)], "engine": f"replay:{replies(said)}", "work_dir": str(tmp_path / "runs")}
    run = run_task(fields).runs[0]
    assert [result.right for result in read_results(run.folder)] == [True, False, False, False, True]
    assert [(each.gold, each.predicted, each.n) for each in run.report.confusion] == [
        ("A", "A", 1),
        ("A", "C", 1),
        ("B", "A", 1),
        ("B", "B", 1),
        ("C", None, 1),
    ]


def test_a_sentence_without_entities_is_right_if_read(ner_dataset: Path, replies: Replies, tmp_path: Path) -> None:
    said = {f"default:{n}": "<response>Nobody came</response>" for n in range(3)}
    fields = {"datasets": [str(ner_dataset)], "engine": f"replay:{replies(said)}", "work_dir": str(tmp_path / "runs")}
    assert [each.right for each in read_results(run_task(fields).runs[0].folder)] == [False, False, True]


def test_an_older_run_gets_its_samples_where_the_data_is(names: Path) -> None:
    before = (names / "samples.jsonl.gz").read_bytes()
    (names / "samples.jsonl.gz").unlink()
    score_run(names)
    assert (names / "samples.jsonl.gz").read_bytes() == before


@pytest.mark.parametrize("missing", [0, -1])
def test_files_of_two_runs_are_not_joined(names: Path, missing: int) -> None:
    lines = (names / "scores.jsonl").read_text().splitlines(keepends=True)
    del lines[missing]
    (names / "scores.jsonl").write_text("".join(lines))
    with pytest.raises(LocalevalError, match="its samples and its scores are not of one run"):
        list(read_results(names))


def test_a_reply_that_is_missing_is_named(names: Path) -> None:
    lines = (names / "predictions.jsonl").read_text().splitlines(keepends=True)
    (names / "predictions.jsonl").write_text("".join(line for line in lines if "default:1" not in line))
    with pytest.raises(LocalevalError, match="sample default:1 has a score and no reply"):
        list(read_results(names))


# --- pairs of entities ---


@pytest.mark.parametrize(
    ("gold", "predicted", "expected"),
    [
        ("B-PER O", None, [("PER", 0, 1, None)]),
        ("O O", "B-PER I-PER", [(None, ("PER", 0, 2))]),
        ("B-PER I-PER O", "B-PER I-PER O", [("PER", 0, 2, ("PER", 0, 2))]),
        # The one with the same ends is its pair, though another overlaps and comes first.
        ("O B-PER", "O B-LOC", [("PER", 1, 2, ("LOC", 1, 2))]),
        # Two predicted inside one: the first is its pair, the other is spurious.
        ("B-PER I-PER I-PER", "B-PER O B-LOC", [("PER", 0, 3, ("PER", 0, 1)), (None, ("LOC", 2, 3))]),
        # One predicted over two: it is the pair of the one with its ends, or of the first.
        ("B-PER B-LOC", "B-LOC I-LOC", [("PER", 0, 1, ("LOC", 0, 2)), ("LOC", 1, 2, None)]),
        ("B-PER O B-LOC", "O B-MISC O", [("PER", 0, 1, None), (None, ("MISC", 1, 2)), ("LOC", 2, 3, None)]),
    ],
)
def test_pairs(gold: str, predicted: str | None, expected: list[tuple[Any, ...]]) -> None:
    def plain(span: Span | None) -> tuple[str, int, int] | None:
        return None if span is None else (span.label, span.start, span.end)

    wanted = [(None, each[1]) if each[0] is None else (each[:3], each[3]) for each in expected]
    found = pairs(gold.split(" "), predicted.split(" ") if predicted is not None else None)
    assert [(plain(pair.gold), plain(pair.predicted)) for pair in found] == wanted


TAGS = st.lists(st.sampled_from(["O", "B-PER", "B-LOC", "I-PER", "I-LOC"]), min_size=6, max_size=6)


@given(TAGS, TAGS)
def test_no_entity_is_lost_or_counted_twice(gold: list[str], predicted: list[str]) -> None:
    found = pairs(gold, predicted)
    assert Counter(pair.gold for pair in found if pair.gold) == Counter(spans_from_tags(gold))
    assert Counter(pair.predicted for pair in found if pair.predicted) == Counter(spans_from_tags(predicted))
    right = score_tags([gold], [predicted]).entities.correct
    assert right == sum(p.exact and p.gold == p.predicted for p in found)

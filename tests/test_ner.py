"""How tagged replies are read. Each expected tag was decided by reading the reply, not by the code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localeval import score_tags, tags_from_reply
from localeval.datasets.rows import load_dataset
from localeval.datasets.spec import find_spec
from localeval.schema import Sample, Tally
from localeval.tasks.ner import parse as ner_parse
from localeval.tasks.ner import task as ner

ENTITIES = {"PER": "person", "LOC": "location"}


def test_every_given_case(shared: Path) -> None:
    wrong = []
    cases = [json.loads(line) for line in (shared / "cases" / "ner_replies.jsonl").read_text().splitlines()]
    for case in cases:
        tags = tags_from_reply(case["reply"], case["tokens"], case["entities"], case["finish_reason"])
        if tags != case["tags"]:
            wrong.append((case["note"], case["reply"], tags, case["tags"]))
    assert wrong == []
    assert len(cases) == 23


@pytest.mark.parametrize(
    ("dataset", "split", "sentences"),
    [
        ("conllpp", "train", 14041),
        ("conllpp", "test", 3453),
        ("mit_movie_trivia", "train", 6816),
        ("mit_movie_trivia", "test", 1953),
    ],
)
def test_gold_read_back_is_perfect(shared: Path, dataset: str, split: str, sentences: int) -> None:
    spec = find_spec(dataset).model_copy(update={"split": split})
    samples = load_dataset(spec, dataset_dir=str(shared / "data")).samples
    assert len(samples) == sentences
    said = [tags_from_reply(ner.target(sample, spec.tags), sample.tokens, spec.tags) for sample in samples]
    scores = score_tags([sample.gold for sample in samples], said)
    assert (scores.precision, scores.recall, scores.f1, scores.accuracy) == (1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("tokens", "reply", "tags"),
    [
        # a changed word carries no tag, and splits its entity
        ("New York City fell", "<location>New Yerk City</location> fell", "B-LOC O B-LOC O"),
        ("in Syria now", "in <location>Syrian</location> now", "O O O"),
        ("Bo saw Ann", "Bo <person>Ann</person>", "O O B-PER"),
        ("Bo saw Ann in town", "Bo really saw <person>Ann</person> in town", "O O B-PER O O"),
        ("Bo saw Ann", "Bo really saw <person>Ann</person> there", "O O O"),  # too unlike: 16/27
        # folding
        ("the “Louvre” museum", 'the "<location>Louvre</location>" museum', None),
        ("Zoë & Ann", "<person>Zoe\u0308</person> &amp; <person>Ann</person>", "B-PER O B-PER"),
        # nesting and ends
        ("a b c", "<person>a <location>b</person> c</location>", "B-PER I-PER O"),
        ("a b", "a</person> <location>b</location>", "O B-LOC"),
        ("a b", "<person/>a <location>b</location>", "O B-LOC"),
        # a token belongs to a span when more than half of it does
        ("abcd e", "<person>abc</person>d e", "B-PER O"),
        ("abcd e", "<person>ab</person>cd e", "O O"),
        # unknown tags are dropped
        ("a b", "<b>a</b> <city>b</city>", "O O"),
        ("a < b >", "<person>a</person> < b >", "B-PER O O O"),
    ],
)
def test_reading(tokens: str, reply: str, tags: str | None) -> None:
    words = tokens.split() if tags else ["the", "“", "Louvre", "”", "museum"]
    expected = tags.split() if tags else ["O", "O", "B-LOC", "O", "O"]
    assert tags_from_reply(f"<response>{reply}</response>", words, ENTITIES) == expected
    assert tags_from_reply(reply, words, ENTITIES) == expected


@pytest.mark.parametrize(
    ("sentence", "reply", "tags"),
    [
        ("Japan beat Syria", "<organization><location>Japan</location></organization> beat Syria", "B-ORG O O"),
        ("राम ने दिल्ली में सीता से कहा", "<person>रामा</person> ने दिल्ली में सीता से कहा", "O O O O O O O"),
        ("राम ने दिल्ली में सीता से कहा", "<person>राम</person>ा ने दिल्ली में सीता से कहा", "O O O O O O O"),
        ("కమల రామ తో మాట్లాడింది", "కమల <person>రాము</person> తో మాట్లాడింది", "O O O O"),
        ("இங்கே தமிழ நாடு வளரும்", "இங்கே <location>தமிழ் நாடு</location> வளரும்", "O O B-LOC O"),
        ("Jose went home", "<person>José</person> went home", "O O O"),
        ("Jose went home", "<person>Jose\u0301</person> went home", "O O O"),
        ("José went home", "<person>Jose\u0301</person> went home", "B-PER O O"),
        ("Japan beat Syria today", "Japan beat <location>Yemen</location> today", "O O O O"),
        ("a north east wind blew", "a <location>northeast</location> wind blew", "O B-LOC I-LOC O O"),
        ("rose 5 % today", "rose <miscellaneous>6 %</miscellaneous> today", "O O B-MISC O"),
    ],
)
def test_changed_words_of_every_script(sentence: str, reply: str, tags: str) -> None:
    entities = {"PER": "person", "LOC": "location", "ORG": "organization", "MISC": "miscellaneous"}
    assert tags_from_reply(f"<response>{reply}</response>", sentence.split(), entities) == tags.split()


def test_a_replaced_entity_is_invented() -> None:
    reading = ner_parse.read(
        "Japan beat <location>Yemen</location> today", ["Japan", "beat", "Syria", "today"], ENTITIES
    )
    assert [span.label for span in reading.invented] == ["LOC"]


def test_what_is_counted() -> None:
    tokens = ["Ann", "left"]
    plain = ner_parse.read("<response><person>Ann</person> left</response>", tokens, ENTITIES)
    assert (plain.malformed, plain.text_changed, plain.invented) == (0, False, ())
    changed = ner_parse.read("<response><person>ANN</person> left</response>", tokens, ENTITIES)
    assert (changed.tags, changed.text_changed) == (["B-PER", "O"], True)
    broken = ner_parse.read("<response><person>Ann</location> left<person></response>", tokens, ENTITIES)
    assert (broken.tags, broken.malformed) == (["B-PER", "O"], 2)
    unknown = ner_parse.read("<response><b>Ann</b> left</response>", tokens, ENTITIES)
    assert (unknown.tags, unknown.malformed) == (["O", "O"], 2)


def test_an_invented_entity_costs_precision() -> None:
    sample = Sample("default:0", "default", "Ann left town", ("B-PER", "O", "O"), tokens=("Ann", "left", "town"))
    reading = ner_parse.read("<person>Ann</person> left town <location>Oz</location>", sample.tokens, ENTITIES)
    assert [span.label for span in reading.invented] == ["LOC"]
    score = ner.score(sample, reading, ENTITIES)
    assert score.tallies["entity:PER"] == Tally(1, 1, 1)
    assert score.tallies["entity:LOC"] == Tally(0, 1, 0)
    assert dict(score.notes) == {"text_changed": 1, "invented": 1}


@pytest.mark.parametrize(
    "reply", ["", "<response></response>", "I can't do that.", "<think>Ann left town", "<response>"]
)
def test_what_is_no_reading(reply: str) -> None:
    sample = Sample("default:0", "default", "Ann left town", ("B-PER", "O", "O"), tokens=("Ann", "left", "town"))
    reading = ner_parse.read(reply, sample.tokens, ENTITIES)
    assert reading.tags is None
    score = ner.score(sample, reading, ENTITIES)
    assert score.tallies == {"entity:PER": Tally(0, 0, 1), "token": Tally(0, 0, 3)}
    assert score.parsed is None


def test_asking() -> None:
    from localeval.templates import Templates

    templates = Templates("{entities}|{entity_list}|{text}\n", "{text}>{target}", "{shots}#{prompt}")
    types = [ner.EntityType("PER", "person", "people"), ner.EntityType("LOC", "location", "places")]
    sample = Sample("default:0", "default", "Ann Lee left", ("B-PER", "I-PER", "O"), tokens=("Ann", "Lee", "left"))
    assert (
        ner.ask(sample, [], templates, types)
        == "person (people), location (places)|<person>, <location>|Ann Lee left\n"
    )
    shown = "Ann Lee left><response><person>Ann Lee</person> left</response>"
    assert ner.ask(sample, [sample], templates, types).startswith(f"{shown}#person")

"""answer_pattern: replies that a dataset's own pattern reads, and the patterns that are refused."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from localeval import run_task, score_run
from localeval.cli import main
from localeval.compare import differences
from localeval.datasets.spec import load_spec
from localeval.schema import LocalevalError
from localeval.scoring import find_finished
from localeval.store import RunFolder
from localeval.tasks.mcq.pattern import MOST_READ, check, read
from tests.conftest import Replies
from tests.test_run import run

FOUR = ["Paris", "New  York", "Straße", "Bonn"]
FIVE_TIMES = r"\b([A-D])(?:[ ,]+[A-D]){4}\b"


@pytest.mark.parametrize(
    ("pattern", "reply", "letter"),
    [
        (FIVE_TIMES, "B B B B B", "B"),
        (FIVE_TIMES, "B, B, B, B, B.", "B"),
        (FIVE_TIMES, "I take A. C C C C C", "C"),
        (FIVE_TIMES, "B B B B", None),
        (FIVE_TIMES, "ANSWER: B", None),  # it alone decides
        (r"pick ([A-Z])", "I pick A, no: I pick D", "D"),  # the last match
        (r"pick ([A-Z])", "I pick E", None),  # none of the row's
        (r"(?P<said>[a-d])!", "b!", "B"),
        (r"choice: (\S+)", "choice: Ｂ", "B"),
        (r"city: ([^\n]+)", "city: new york", "B"),
        (r"city: ([^\n]+)", "city: NEW \t YORK ", "B"),
        (r"city: ([^\n]+)", "city: STRASSE", "C"),
        (r"city: ([^\n]+)", "city: New York City", None),
        (r"city: ([^\n.]+)", "city: Paris. city: Rome.", None),  # the last one, which is none
        (r"(?m)^([A-D])$", "C\nbecause", "C"),
        (r"(?m)^([A-D])$", "A B C D", None),
        (r"x([A-D])?", "x", None),  # the group takes no part
        (r"([A-D])", "\ud800 B \ue000A\ue001", "A"),
        (r"([A-D])", "", None),
        (r"is ([A-D])", "is A<think>is C</think>is B", "B"),
    ],
)
def test_replies(pattern: str, reply: str, letter: str | None) -> None:
    check(pattern)
    reading = read(pattern, reply, FOUR)
    assert (reading.letter, reading.reason) == (letter, None if letter else "no_claim")


def test_reasoning_is_left_out() -> None:
    assert read("is ([A-D])", "<think>is B", FOUR).reason == "reasoning"
    assert read("is ([A-D])", "is B", FOUR, reasoning_opened=True).reason == "reasoning"
    assert read("is ([A-D])", "is A</think>is B", FOUR, reasoning_opened=True).letter == "B"


def test_two_options_that_are_the_same_text_decide_nothing() -> None:
    assert read(r"say (\w+)", "say one", ["One", "one", "two"]).letter is None
    assert read(r"say (\w+)", "say two", ["One", "one", "two"]).letter == "C"
    assert read(r"say (\w+)", "say A", ["B", "A", "two"]).letter == "A"  # the label, not the text


def test_only_the_end_of_a_long_reply_is_read() -> None:
    assert read("is ([A-D])", "is B" + "." * (MOST_READ - 4), FOUR).letter == "B"
    assert read("is ([A-D])", "is B" + "." * MOST_READ, FOUR).letter is None


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ("([A-D]", "missing"),
        ("[A-D]", "has no group: put the answer's part in brackets"),
        ("([A-D]) or (.)", r"more than one group: write \(\?:\.\.\.\)"),
        ("([A-D])?", "matches the empty text"),
        ("(.*)", "matches the empty text"),
        (r"([A-D]) \1", "invalid escape sequence.*the syntax is RE2's"),
        ("(?<=is )([A-D])", "the syntax is RE2's, without look-around"),
        ("(?:a{1000}){1000}(b)", "invalid repetition size"),
        ("x" * 499 + "()", "it has 501 characters; at most 500"),
        ("([a-zA])(?:.{1,500}[abcA].{1,400}z)?", "s for .* characters: leave out repeats"),
        ("([a-h])(?:" + "|".join(f".*[abcd]{'.' * 40}{c}z" for c in "abcdefgh") + ")?", "leave out repeats"),
    ],
)
def test_what_can_not_read_is_refused_with_file_and_key(mcq_dataset: Path, pattern: str, complaint: str) -> None:
    mcq_dataset.write_text(mcq_dataset.read_text() + f"answer_pattern: '{pattern}'\n")
    with pytest.raises(LocalevalError, match=rf"(?s)quiz\.yaml: answer_pattern: .*{complaint}"):
        load_spec(mcq_dataset)


@pytest.mark.parametrize(
    "pattern", ["(?:(?:x+x+)+)+y([A-D])", "(a|aa|aaa)+$", "([A-D])(?:.*z)?", r"(?i)answer\W*([A-D])\b", FIVE_TIMES]
)
def test_what_is_let_through_is_fast_on_hostile_replies(pattern: str) -> None:
    check(pattern)
    for unit in ("x", "A", "a", "answer: ", "A A A "):
        start = time.thread_time()
        read(pattern, unit * 200_000, FOUR)
        assert time.thread_time() - start < 1.0  # up to 0.05 s by itself; minutes, where it is tried back and forth


def test_a_dataset_of_entities_has_no_such_pattern(ner_dataset: Path) -> None:
    ner_dataset.write_text(ner_dataset.read_text() + "answer_pattern: '([A-D])'\n")
    with pytest.raises(LocalevalError, match="answer_pattern: it reads answers of an mcq dataset"):
        load_spec(ner_dataset)


# --- in a run. The right letters are A B C A B ---

SAID = {"default:0": "AAA", "default:1": "BBB", "default:2": "ANSWER: C", "default:3": "CCC", "default:4": "ANSWER: B"}
THREE = r"\b([A-C])[A-C]{2}\b"


def test_another_pattern_reads_the_same_replies_again(
    mcq_dataset: Path, replies: Replies, capsys: pytest.CaptureFixture[str]
) -> None:
    file, plain = replies(SAID), mcq_dataset.read_text()
    first = run(mcq_dataset, file).runs[0]
    folder = first.folder
    asked = RunFolder(folder).read_json("run.json")["asked"]
    assert first.metrics == {"accuracy": 0.4}  # ANSWER: C, ANSWER: B
    mcq_dataset.write_text(plain + f"answer_pattern: '{THREE}'\n")
    again = run(mcq_dataset, file).runs[0]
    assert (again.folder, again.report.counts["reused"]) == (folder, 5)
    assert again.metrics == {"accuracy": 0.4}  # AAA, BBB
    assert f"READ BY answer_pattern: {THREE}" in again.report.notes
    facts = RunFolder(folder).read_json("run.json")
    assert (facts["asked"], facts["dataset"]["answer_pattern"]) == (asked, THREE)
    # localeval score, with the pattern taken out
    mcq_dataset.write_text(plain)
    scored = score_run(folder).runs[0]
    assert scored.metrics == {"accuracy": 0.4}
    assert scored.read_again is not None
    assert scored.read_again.patterns == (THREE, "")
    change = "5 of 5 readings changed (2 read that were not, 3 no longer read, 0 another answer)"
    assert f"and by answer_pattern none (was {THREE!r}): {change}" in capsys.readouterr().err
    assert RunFolder(folder).read_json("run.json")["dataset"]["answer_pattern"] is None


def test_runs_that_were_read_by_other_patterns_are_told_apart(mcq_dataset: Path, replies: Replies) -> None:
    file, plain = replies(SAID), mcq_dataset.read_text()
    run(mcq_dataset, file, model="one")
    mcq_dataset.write_text(plain + f"answer_pattern: '{THREE}'\n")
    run(mcq_dataset, file, model="two")
    one, two = find_finished([mcq_dataset.parent / "runs"])
    assert differences(one, two) == [f"answer_pattern: None / {THREE}"]


def test_a_reply_that_a_grammar_holds_has_its_own_form(mcq_dataset: Path, replies: Replies) -> None:
    mcq_dataset.write_text(mcq_dataset.read_text() + f"answer_pattern: '{THREE}'\n")
    held = replies({f"default:{i}": f"ANSWER: {letter}" for i, letter in enumerate("ABCAB")})
    assert run(mcq_dataset, held, constrain=True).runs[0].metrics == {"accuracy": 1.0}
    assert run(mcq_dataset, held).runs[0].metrics == {"accuracy": 0.0}


def test_the_list_shows_it(mcq_dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mcq_dataset.write_text(mcq_dataset.read_text() + f"answer_pattern: '{THREE}'\n")
    for words in (["list", str(mcq_dataset)], ["list", str(mcq_dataset), "--show", "1"]):
        assert main(words) == 0
        assert f"replies are read by answer_pattern: {THREE}" in capsys.readouterr().out


# --- --read lists ---


def test_lists_are_part_of_the_settings_and_stand_in_the_report(ner_dataset: Path, replies: Replies) -> None:
    said = {f"default:{i}": f"<response>{text}</response>" for i, text in enumerate(["Ann Lee left", "Paris slept"])}
    file = replies({**said, "default:2": "<response>Nobody came</response>"})
    usual, lists = run(ner_dataset, file).runs[0], run(ner_dataset, file, read="lists").runs[0]
    assert usual.folder != lists.folder
    assert [note[:10] for note in lists.report.notes] == ["READ LISTS"]
    assert usual.report.notes == ()
    assert RunFolder(lists.folder).read_json("run.json")["config"]["read"] == "lists"
    assert score_run(lists.folder).runs[0].report == lists.report
    one, two = (find_finished([each.folder])[0] for each in (usual, lists))
    assert differences(one, two) == ["read: None / lists"]


def test_lists_say_nothing_of_multiple_choice(
    mcq_dataset: Path, replies: Replies, capsys: pytest.CaptureFixture[str]
) -> None:
    file = replies(SAID)
    usual, lists = run(mcq_dataset, file).runs[0], run(mcq_dataset, file, read="lists").runs[0]
    assert "--read lists has no effect: none of the datasets asks for entities" in capsys.readouterr().err
    assert (lists.folder, lists.report.notes) == (usual.folder, ())
    with pytest.raises(LocalevalError, match=r"read is 'list' .did you mean 'lists'"):
        run_task({"engine": f"replay:{file}", "datasets": [str(mcq_dataset)], "read": "list"})

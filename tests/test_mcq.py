"""How multiple-choice replies are read. Each expected letter was decided by reading the reply, not by the code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localeval import parse_choice
from localeval.schema import Sample
from localeval.tasks import mcq
from localeval.templates import Templates

FOUR = ["p", "q", "r", "s"]
TEN = [str(number) for number in range(10)]


def test_every_given_case(shared: Path) -> None:
    wrong = []
    cases = [json.loads(line) for line in (shared / "cases" / "mcq_replies.jsonl").read_text().splitlines()]
    for case in cases:
        letter = parse_choice(case["reply"], case["choices"], case["finish_reason"])
        if letter != case["answer"]:
            wrong.append((case["note"], case["reply"], letter, case["answer"]))
    assert wrong == []
    assert len(cases) == 79


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        # a label, in every dress
        ("answer: b", "B"),
        ("answer: b)", "B"),
        ("<b>C</b>", "C"),
        ("ANSWER: <b>C</b>", "C"),
        ("ANSWER: <B>", "B"),
        ("**Answer: B**", "B"),
        ("**B)** because", "B"),
        ("ANSWER: \\text{B}", "B"),
        ("final_answer: D", "D"),
        ("ＡＮＳＷＥＲ：Ｃ", "C"),
        ("The answer is: \n\n**C) r**", "C"),
        # in other words and scripts
        ("Correct option: B", "B"),
        ("The best choice is (c).", "C"),
        ("উত্তরঃ B", "B"),
        ("ഉത്തരം: A ആണ്", "A"),
        ("答案是B。", "B"),
        ("उत्तर प्रदेश", None),
        ("उत्तरी", None),
        # an article is no label
        ("The answer is a polymer", None),
        ("The answer is A polymer", None),
        ("Answer: A polymer", "A"),
        ("The answer is A because B is wrong", "A"),
        # words and initials are no labels
        ("ANSWER: DNA", None),
        ("B-complex", None),
        ("ANSWER: C's", None),
        ("A.P.J. Abdul Kalam", None),
        # several labels
        ("ANSWER: AB", None),
        ("ANSWER: B C", None),
        ("ANSWER: **B** or **C**", None),
        ("The answer is (B) and (C)", None),
        ("ANSWER: B, since A and C are wrong", "B"),
        ("ANSWER: B\nC is wrong", "B"),
        # a later marker decides, if it says anything
        ("ANSWER: B\nANSWER: F", None),
        ("answer A is wrong. ANSWER: C", "C"),
        ("ANSWER: C. Because answer B is wrong.", "C"),
        ("ANSWER: B.\n\nExplanation: A is wrong; C is not. The answer is thus clear.", "B"),
        # going on with another question
        ("B\n\nQuestion: What?\nA) x\nB) y\nAnswer: C", "B"),
        ("ANSWER: B, C\n\nQuestion: x\nANSWER: A", None),
        ("B) q\n\nA) is wrong\nB) is right", "B"),
        # a list of options is no answer, but one may follow
        ("A) p\nB) q\nC) r\nD) s", None),
        ("A) x\nB) y\nANSWER: D", "D"),
        # reasoning
        ("<think>ANSWER: A", None),
        ("<think>x</think><think>ANSWER: A", None),
    ],
)
def test_reading(reply: str, letter: str | None) -> None:
    assert parse_choice(reply, FOUR) == letter


@pytest.mark.parametrize(
    ("reply", "choices", "letter"),
    [
        ("ANSWER: -5", ["5", "-5", "0", "1"], "B"),
        ("ANSWER: f(x)", ["f(x)", "g(x)", "x", "y"], "A"),
        ("ANSWER: (a+b)^2", ["a", "(a+b)^2", "x", "y"], "B"),
        ("ANSWER: $5", ["$5", "5", "6", "7"], "A"),
        ("ANSWER: .5", [".5", "5", "6", "7"], "A"),
        ("ANSWER: B) C", ["A", "C", "D", "K"], "B"),
        ("ANSWER: A and B", ["p", "q", "A and B", "none"], "C"),
        ("ANSWER: C) A and B", ["p", "q", "A and B", "none"], "C"),
        ("My answer: No.", ["Yes", "No"], "B"),
        ("I", TEN, "I"),
        ("I think so", TEN, None),
    ],
)
def test_option_texts(reply: str, choices: list[str], letter: str | None) -> None:
    assert parse_choice(reply, choices) == letter


def test_a_prompt_that_opened_the_reasoning() -> None:
    assert mcq.read("ANSWER: A, or is it", FOUR, reasoning_opened=True) is None
    assert mcq.read("ANSWER: A?</think>ANSWER: B", FOUR, reasoning_opened=True) == "B"


def test_impossible_numbers_of_options() -> None:
    with pytest.raises(ValueError, match="2 to 26 options, not 1"):
        parse_choice("A", ["only"])


def test_asking() -> None:
    templates = Templates("{question}|{choices}|{letters}", "{question}:{choices}={answer}", "{shots}#{prompt}")
    sample = Sample("default:0", "default", "Which {choices}?", ("B",), choices=("x", "{question}"))
    assert mcq.ask(sample, [], templates) == "Which {choices}?|A) x\nB) {question}|A,B"
    shown = "Which {choices}?:A) x\nB) {question}=B"
    assert (
        mcq.ask(sample, [sample, sample], templates)
        == f"{shown}\n\n{shown}#Which {{choices}}?|A) x\nB) {{question}}|A,B"
    )


def test_score() -> None:
    sample = Sample("default:0", "default", "?", ("B",), choices=tuple(FOUR))
    right, wrong, unread = (mcq.score(sample, letter, "length") for letter in ("B", "A", None))
    assert [s.tallies["answer"].recall for s in (right, wrong, unread)] == [1.0, 0.0, 0.0]
    assert dict(right.notes) == {"truncated": 1}
    assert dict(unread.notes) == {"unparsed": 1, "truncated": 1}

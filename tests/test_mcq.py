"""How multiple-choice replies are read. Each expected letter was decided by reading the reply, not by the code."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from localeval import parse_choice
from localeval.schema import Sample
from localeval.tasks.mcq import parse
from localeval.tasks.mcq import task as mcq
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
    assert len(cases) == 78


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
        ("<answer>\nC\n</answer>", "C"),
        ("<answer> C </answer>", "C"),
        ('{"answer": "b"}', "B"),
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
        ("Answer: A polymer", None),
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
        ("ANSWER: B\nANSWER: F", "B"),
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
        ("ANSWER: I think B", TEN, "B"),
    ],
)
def test_option_texts(reply: str, choices: list[str], letter: str | None) -> None:
    assert parse_choice(reply, choices) == letter


POLYMERS = ["Thermosetting polymer", "Bakelite", "All of the above", "None of these"]
PRESIDENTS = ["Zakir Husain", "A. P. J. Abdul Kalam", "V. V. Giri", "C. Rajagopalachari"]
# Replies that break simpler readers: lists, formulas, initials, comments, other scripts; found by a hostile reading.
HARD: list[tuple[str, list[str], str | None]] = [
    ("A. Thermosetting polymer B. Bakelite C. All of the above D. None of these", POLYMERS, None),
    ("A. Thermosetting polymer\n   - A class of polymers\nB. Bakelite\n   - one\nC. All\n   - no", POLYMERS, None),
    ("A: Thermosetting polymer\nThis is wrong.\nB: Bakelite\nThis is right.", POLYMERS, None),
    ("A - x\nB - y\nC - z\nD - w", FOUR, None),
    ("a) x\nb) y\nc) z\nd) w", FOUR, None),
    ("a. x\nb. y", FOUR, None),
    ("A: x; B: y; C: z; D: w", FOUR, None),
    ("Answer:\nA) x\nB) y\nC) z\nD) w", FOUR, None),
    ("Choose the correct answer:\nA) x\nB) y\nC) z\nD) w\n\nBakelite is a polymer made of", POLYMERS, None),
    ("Select the correct answer: A) x B) y C) z D) w", FOUR, None),
    ("The answer is -sin x", ["sin x", "-sin x", "a", "b1"], "B"),
    ("The answer is **-sin x**", ["sin x", "-sin x", "a", "b1"], "B"),
    ("Answer: \\boxed{-sin x}", ["sin x", "-sin x", "a", "b1"], "B"),
    ("The answer is -√2", ["√2", "-√2", "1", "2"], "B"),
    ("The answer is $-√2$", ["√2", "-√2", "1", "2"], "B"),
    ("ANSWER: B\n\nWhat?\na) x\nb) y\nc) z\nd) w\nANSWER: C", FOUR, "B"),
    ("ANSWER: B\n\nWhat?\n- A) x\n- B) y\n- C) z\n- D) w\nANSWER: C", FOUR, "B"),
    ("ANSWER: B\n\nWhat?\nA) x B) y C) z D) w\nANSWER: C", FOUR, "B"),
    ("ANSWER: B\n\nWhat? A) x B) y C) z D) w\nANSWER: C", FOUR, "B"),
    ("ANSWER: B\n\nWhat?\nA - x\nB - y\nC - z\nD - w\nANSWER: C", FOUR, "B"),
    ("ANSWER: B\n\nसवाल: foo\nANSWER: C", FOUR, "B"),
    ("ANSWER: B\n\n**Question**\nfoo\nANSWER: C", FOUR, "B"),
    ("ANSWER: B\n\nQuestion #2: foo\nANSWER: C", FOUR, "B"),
    ("ANSWER: B\n\nQ: foo\nANSWER: C", FOUR, "B"),
    ("Answer: Option B and Option C", FOUR, None),
    ("Answer: B and option C", FOUR, None),
    ("उत्तर: B और C", FOUR, None),
    ("উত্তর: B এবং C", FOUR, None),
    ("答案：B和C", FOUR, None),
    ("答案：B、C", FOUR, None),
    ("सही उत्तर A और B दोनों हैं", FOUR, None),
    ("Answer: A*", ["BFS", "DFS", "A*", "Dijkstra"], "C"),
    ("The answer is A*.", ["BFS", "DFS", "A*", "Dijkstra"], "C"),
    ("A*", ["BFS", "DFS", "A*", "Dijkstra"], "C"),
    ("<final_answer>B</final_answer>\nC is wrong because x", FOUR, "B"),
    ("[ANSWER]B[/ANSWER]\nC is wrong because x", FOUR, "B"),
    ("B) Bakelite\n\nExplanation: Option (A) is wrong and (C) is too broad.", POLYMERS, "B"),
    ("B. Bakelite\n\nExplanation: (A) is wrong.", POLYMERS, "B"),
    ("B) Bakelite\nA) is wrong because it is a class", POLYMERS, "B"),
    ("B. Bakelite\n\nC. is too broad", POLYMERS, "B"),
    ("(D) Both (A) and (B)", ["p", "q", "r", "Both A and B"], "D"),
    ("D) Both (A) and (B)", FOUR, "D"),
    ("D. (A) and (B) both", FOUR, "D"),
    ("B) Bakelite\nC) All of the above", POLYMERS, None),
    ("ANSWER: B. A. P. J. Abdul Kalam", PRESIDENTS, "B"),
    ("B. A. P. J. Abdul Kalam", PRESIDENTS, "B"),
    ("C. V. V. Giri", PRESIDENTS, "C"),
    ("ANSWER: C. V. V. Giri", PRESIDENTS, "C"),
    ("D. C. Rajagopalachari", PRESIDENTS, "D"),
    ("The correct answer is D. C. Rajagopalachari. He was", PRESIDENTS, "D"),
    ("<answer>Bakelite</answer>", POLYMERS, "B"),
    ("<final_answer>Bakelite</final_answer>", POLYMERS, "B"),
    ("Answer: <b>Bakelite</b>", POLYMERS, "B"),
    ('{"answer": "Bakelite", "reason": "It is a thermoset"}', POLYMERS, "B"),
    ('{"answer": "Bakelite"}<|im_end|>', POLYMERS, "B"),
    ("B.बेकेलाइट", FOUR, "B"),
    ("उत्तर: B.बेकेलाइट", FOUR, "B"),
    ("B.Bakelite", POLYMERS, "B"),
    ("Answer: B.Bakelite", POLYMERS, "B"),
    ("B:Bakelite", POLYMERS, "B"),
    ("B—Bakelite", POLYMERS, "B"),
    ("The answer is $\\frac{1}{2}$.", ["$\\frac{1}{3}$", "$\\frac{1}{2}$", "1", "2"], "B"),
    ("The answer is \\(\\frac{1}{2}\\)", ["$\\frac{1}{3}$", "$\\frac{1}{2}$", "1", "2"], "B"),
    ("The answer is $\\boxed{\\frac{1}{2}}$.", ["$\\frac{1}{3}$", "$\\frac{1}{2}$", "1", "2"], "B"),
    ("Answer: \\boxed{\\frac{1}{2}}", ["$\\frac{1}{3}$", "$\\frac{1}{2}$", "1", "2"], "B"),
    ("The answer is (5, 3).", ["(3, 5)", "(5, 3)", "1", "2"], "B"),
    ("Answer: \\boxed{(5, 3)}", ["(3, 5)", "(5, 3)", "1", "2"], "B"),
    ("The correct answer is **(3, 5)**.", ["(3, 5)", "(5, 3)", "1", "2"], "A"),
    ("The answer is [1, 2].", ["[2, 1]", "[1, 2]", "1", "2"], "B"),
    ("\\boxed{2}", ["1", "2", "3", "4"], "B"),
    ("\\boxed{(5, 3)}", ["(3, 5)", "(5, 3)", "1", "2"], "B"),
    ("\\boxed{\\text{Bakelite}}", POLYMERS, "B"),
    ("Answer: D) A and C", ["p", "q", "r", "Both A and C"], "D"),
    ("Answer: (D) A and C both", ["p", "q", "r", "Both A and C"], "D"),
    ("Answer: D) B and C are true", ["p", "q", "r", "Only B and C are true"], "D"),
    ("D. A and C", ["p", "q", "r", "Both A and C"], "D"),
    ("The answer is B (C is incorrect because it is broad)", FOUR, "B"),
    ("Answer: B (A and C are wrong)", FOUR, "B"),
    ("Answer: D (A and C)", FOUR, "D"),
    ("Answer: __B__", FOUR, "B"),
    ("__B__", FOUR, "B"),
    ("_B_", FOUR, "B"),
    ("答案：【B】", FOUR, "B"),
    ("答案：「B」", FOUR, "B"),
    ("ANSWER: ‹B›", FOUR, "B"),
    ("ANSWER: C\nANSWER: 5", ["5", "5", "6", "7"], "C"),
    ("answer: b\r\nBecause", FOUR, "B"),
    ("B\r\nBecause", FOUR, "B"),
    ("ANSWER: B\nUse ANSWER: X", FOUR, "B"),
    ("Answer: b - Bakelite", POLYMERS, "B"),
    ("ANSWER: A - 1, B - 2, C - 3, D - 4", FOUR, None),
    ("ANSWER: A-1; B-2; C-3; D-4", FOUR, None),
    ("ANSWER: A→1, B→2, C→3", FOUR, None),
    ("A: 1, B: 2, C: 3, D: 4", FOUR, None),
    ("Answer: C - A - B - D", FOUR, None),
    ("C→A→B→D", FOUR, None),
    ("Answer: A is true, but R is false", ["p", "q", "A is true but R is false", "s"], "C"),
    ("Answer: A only, because", ["B only", "A only", "r", "s"], "B"),
    ("Answer: I don't know", TEN, None),
    ("The answer is C++ because it compiles", ["C++", "Java", "Go", "Perl"], "A"),
    ("Answer: C# is a language", FOUR, None),
    ("C-14 because", FOUR, None),
    ("D-Day because", FOUR, None),
    ("Answer: $A = \\pi r^{2}$", FOUR, None),
    ("Answer: A∪B", FOUR, None),
    ("A > B > C > D", FOUR, None),
    ("ANSWER: B. The incorrect option is C.", FOUR, "B"),
    ("ANSWER: B\nThe wrong answer is C.", FOUR, "B"),
    ("ANSWER: C\n\nWhy the other options are wrong:\nThe first choice: A thermosetting polymer", FOUR, "C"),
    ("Answer: C\n\nOption analysis:\nThe first option: A is a class.\nThe second option: B is a thing.", FOUR, "C"),
    ("ANSWER: B\nUse the format ANSWER: A to D.", FOUR, "B"),
    ("Answer: A-D", FOUR, None),
    ("Answer: B, B", FOUR, "B"),
    ("Answer: B or B", FOUR, "B"),
    ("Answer: B (B)", FOUR, "B"),
    ("Answer: B; C", FOUR, None),
    ("Answer: B + C", FOUR, None),
    ("सही उत्तर विकल्प B है।", FOUR, "B"),
    ("उत्तर: विकल्प B", FOUR, "B"),
    ("The answer would be B", FOUR, "B"),
    ("The answer to this question is B", FOUR, "B"),
    ("**B** Bakelite", POLYMERS, "B"),
    ("Answer: Bakelite because", POLYMERS, "B"),
    ("```text\nB\n```", FOUR, "B"),
    ("ANSWER: \u200bB", FOUR, "B"),
    ("\ufeffB", FOUR, "B"),
    ("ANSWER: A\n\nB) foo\nC) bar", FOUR, "A"),
    ("A) Thermosetting polymer\n\nB) is wrong because", POLYMERS, "A"),
    ("ANSWER: B) Bakelite\n\nQuestion: next?\nA) x\nB) y\nANSWER: A", POLYMERS, "B"),
    ("A) p", FOUR, "A"),
    ("ANSWER: A) p\n\nNext?\nA) x\nB) y\nC) z\nANSWER: D", FOUR, "A"),
    ("A\nB\nC\nD", FOUR, None),
    ("The correct answer is:\n\nB) Bakelite\n\nA) Thermosetting is wrong", POLYMERS, "B"),
]


@pytest.mark.parametrize(("reply", "choices", "letter"), HARD)
def test_hard_replies(reply: str, choices: list[str], letter: str | None) -> None:
    assert parse_choice(reply, choices) == letter


BEFORE = [
    "ANSWER:", "answer :", "The answer is", "The correct answer is", "Final answer:", "**Answer:**", "**Answer**:", "### Answer:",
    "उत्तर:", "সঠিক উত্তর:", "பதில்:", "జవాబు:", "答案：", "The correct option is", "Answer: option", "<answer>", "ANSWER -",
    "answer =", '{"answer":',
]  # fmt: skip
DRESS = [
    "{}", "**{}**", "({})", "[{}]", "`{}`", '"{}"', "'{}'", "$\\boxed{{{}}}$", "\\boxed{{{}}}", "<b>{}</b>", "_{}_", "__{}__",
    "\\text{{{}}}", "**({})**", "$ {} $", "\\( {} \\)", "\\(\\boxed{{\\text{{{}}}}}\\)", "【{}】", "<answer>{}</answer>", "{})", "{}.",
]  # fmt: skip
AFTER = [
    "", ".", " \n", "\n\nBecause it is so.", "\nExplanation: the other options are wrong.", " because it is known.",
    ", because of that.", ". The others are wrong.", "\n</answer>", '"}', " है।", "।", "\r\nDone.", "<|im_end|>", "\n\n---\n", "!",
]  # fmt: skip


@pytest.mark.parametrize("before", BEFORE)
def test_every_dress_after_every_marker(before: str) -> None:
    """What a person reads at a glance: a marker, a letter in some dress, something after it."""
    for gap, dress, after, letter in itertools.product((" ", "\n", "\n\n"), DRESS, AFTER, "ABCD"):
        reply = before + gap + dress.format(letter) + after
        assert parse_choice(reply, POLYMERS) == letter, reply


@pytest.mark.parametrize(
    ("piece", "letter"),
    [
        ("*", None),
        ("answer ", None),
        ("answer: A. ", "A"),
        ("<answer>B</answer>", "B"),
        ("the option is ", None),
        ("A)\nB)\n", None),
        ("Question\n", None),
        ("\n", None),
        ("The answer is B. ", "B"),
        ("\\boxed{", None),
        ("$", None),
        ("(", None),
        ("ANSWER: A) x\nB) y\n", None),
    ],
)
def test_a_reply_that_repeats_itself(piece: str, letter: str | None) -> None:
    """Models do, up to their budget; a pattern that backtracks would not come back from it."""
    assert parse_choice(piece * (16000 // len(piece)), POLYMERS) == letter
    assert parse_choice("Question" + piece * (16000 // len(piece)), POLYMERS) in (letter, None)


def test_a_prompt_that_opened_the_reasoning() -> None:
    assert parse.read("ANSWER: A, or is it", FOUR, reasoning_opened=True).letter is None
    assert parse.read("ANSWER: A?</think>ANSWER: B", FOUR, reasoning_opened=True).letter == "B"


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
    right, wrong, unread = (mcq.score(sample, parse.Reading(letter), "length") for letter in ("B", "A", None))
    assert [s.tallies["answer"].recall for s in (right, wrong, unread)] == [1.0, 0.0, 0.0]
    assert dict(right.notes) == {"truncated": 1}
    assert dict(unread.notes) == {"unparsed": 1, "truncated": 1}

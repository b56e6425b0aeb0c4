"""Multiple-choice replies with the reading that a careful person gives them: real ones, and written ones."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localeval import parse_choice
from localeval.tasks.mcq.letters import letters_of
from localeval.tasks.mcq.parse import read

LANGUAGES = sorted((Path(__file__).parent / "replies").glob("*.jsonl"))


def rows_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def said(row: dict[str, Any]) -> str | None:
    return parse_choice(row["reply"], row["choices"], row.get("finish_reason", "stop"))


# --- real replies ---

UNREAD = {
    "zh_lawbench:551": "repeats an option behind the word for answer, and numbers the rest up to 130",
    "en_thoughtsource:1337": "answers in prose, in other words than the option's",
    "en_thoughtsource:1612": "answers in prose: what is said of each option must be compared with the question",
}
"""The sure rows that are not read as a person reads them, each with the reason."""
AT_LEAST = {"zabir-nabil/bangla-multilingual-llm-eval": 0.97, "OpenBioLink/ThoughtSource": 0.88}


def test_real_replies(shared: Path) -> None:
    rows = [row for row in rows_of(shared / "cases" / "mcq_real.jsonl") if row["certainty"] != "arguable"]
    wrong = {row["id"]: row for row in rows if said(row) != row["answer"]}
    assert set(wrong) == set(UNREAD)
    assert not [row_id for row_id, row in wrong.items() if row["certainty"] == "agreed"]
    sure = Counter(row["source"] for row in rows if row["certainty"] == "sure")
    missed = Counter(row["source"] for row in wrong.values())
    for source, count in sure.items():
        assert 1 - missed[source] / count >= AT_LEAST.get(source, 0.95), source
    assert 1 - len(wrong) / sum(sure.values()) >= 0.96
    letters = [row for row in wrong.values() if said(row) is not None]
    assert len(letters) / sum(sure.values()) <= 0.005


def test_hard_replies_of_every_kind(shared: Path) -> None:
    rows = rows_of(shared / "cases" / "mcq_hard.jsonl")
    assert [row["id"] for row in rows if said(row) != row["answer"]] == []


# --- written replies, by language: the right value of each was decided before anything read it ---


@pytest.mark.parametrize("file", LANGUAGES, ids=[file.stem for file in LANGUAGES])
def test_replies_in_every_language(file: Path) -> None:
    rows = rows_of(file)
    assert len(rows) >= 25
    wrong = [row for row in rows if said(row) != row["answer"]]
    known = NOT_READ.get(file.stem, [])
    assert [row["reply"] for row in wrong if not row["reply"].startswith(tuple(known))] == []
    assert len(wrong) == len(known)


NOT_READ = {
    "bn": ["ক হতে পারে না, কারণ ক্লাইভ ১৮শ শতকের।"],
    "de": ["Folglich kommt nur b) in Frage.", "Der Bundespräsident wird von der Bundesversammlung gewählt."],
    "en": [
        "No, because a set with two negative numbers can still have a positive product.", "This problem has two parts.",
        "Looking at each of the elements:", "Tuberculosis is caused by a bacterium.",
        "The passage is a speech in which a woman justifies", "We'd like to count the number of spanning subgraphs...",
        "Statement 1 is correct. The Reserve Bank issues", " The balanced equation shows that 2 mol of HCl",
        "I don't remember exactly, but if I had to choose", "| Element | Noble gas? |", "Using $s = ut +",
        "The virus that needs the surface antigen", "12 + 35 = 47 #### E",
    ],
    "es": ["La afirmación es falsa.", "Ninguna otra opción encaja tan bien como la A.", "La respuesta correcta es la be."],
    "fr": ["L'affirmation est fausse."],
    "gu": ["સાચો જવાબ: 1 અને 2 બન્ને"],
    "it": ["L'affermazione è falsa."],
    "ja": ["ア ×（明治改元の年）", "この記述は誤りです。"],
    "kn": ["ಉತ್ತರ: **ಐನ್ ಸ್ಟೈನ್**"],
    "ko": ["- 가. 국권 피탈의 해 (X)", "이 진술은 거짓입니다.", "만약 단백질 합성을 묻는 문제라면"],
    "ml": ["തൃശൂർ"],
    "or": ["ଆସନ୍ତୁ ସମସ୍ତ ବିକଳ୍ପ ଦେଖିବା:\n\n- A) ପିତ୍ତଳ – ତମ୍ବା"],
    "pa": ["23 ਮਾਰਚ 1931 ਨੂੰ ਰਾਜਗੁਰੂ ਅਤੇ ਸੁਖਦੇਵ ਦੇ ਨਾਲ"],
    "pt": [
        "O romance narrado por Bentinho", "A afirmação é falsa.", "A afirmação é verdadeira.",
        "Para resolver a questão, convém recordar", "A resposta certa é a letra cê",
        'O autor de "Vidas Secas" é Graciliano Ramos.', "a) Incorreta. A Mata Atlântica é úmida.",
    ],
    "te": ["జవాబు: **ఐన్ స్టీన్**"],
    "zh": [
        "甲以非法占有为目的", "这一说法是正确的。", "6 × 4 = 24，所以一共有24种不同的走法。", "本题为选非题。", "本案中，甲、乙共同实施侵权行为",
        "[正确答案]B<eoa>\n\n验算",
    ],
}  # fmt: skip
"""How replies of those files begin that are not read: no letter is better than a guessed one."""


def test_nothing_that_is_not_read_becomes_a_letter() -> None:
    wrong = [row["reply"] for file in LANGUAGES for row in rows_of(file) if said(row) not in (row["answer"], None)]
    taken_back = "[正确答案]B<eoa>\n\n验算"  # after its end
    assert [reply for reply in wrong if not reply.startswith(taken_back)] == []
    assert len(wrong) == 1


# --- what never changes a letter ---

OPTIONS = ["Godavari", "Krishna", "Kaveri", "Mahanadi"]
PLAIN = [
    "ANSWER: {x}", "The answer is {x}.", "Answer: ({x})", "The correct option is {x}.", "{x}", "{x}) {text}", "उत्तर: {x}",
    "সঠিক উত্তর হল {x}।", "சரியான விடை: {x}", "答案：{x}", "La respuesta correcta es {x}.", "Die richtige Antwort ist {x}.",
    "Option {x} is correct.", "So the final answer is {x}.", "\\boxed{{{x}}}", "正解は{x}です。", "정답은 {x}입니다.",
    '{{"answer": "{x}"}}', "$\\boxed{{\\text{{{x}}}}}$", "\\[\\boxed{{\\text{{({x}) {text}}}}}\\]", "The answer is \\textbf{{{x}}}.",
]  # fmt: skip
WRAPPED = [
    "{}", "**{}**", "*{}*", "# {}", "> {}", "```\n{}\n```", "<answer>{}</answer>", "  {}\n\n", "{}<|im_end|>", "{}</s>",
    "<think>It could be B. ANSWER: D</think>{}", "Let me think.\n\n{}",
]  # fmt: skip
AFTER = [
    "", "\n\nThe others do not fit.", "\n\nExplanation: it rises in the Western Ghats.", "\nThis is because of its length.",
    "\n\nWhy not the others:\n- {o} is shorter.\n- {p} flows to the east.",
    "\n\nOption {o} is incorrect because it is shorter. {p} is wrong, too.",
    "\n\nQuestion: What is the capital of France?\nA) Rome\nB) Paris\nC) Bonn\nD) Oslo\nAnswer: {o}",
    "\n\nUser: And which one is longest?\nAssistant: The answer is {o}.",
    "\n\nMany people think that the answer is {o}.", "\n\nIf it had asked for the longest, the answer would be {o}.",
    "\n\nThe answer is not {o}.",
]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(PLAIN), st.sampled_from(WRAPPED), st.sampled_from(AFTER), st.permutations("ABCD"))
def test_dress_reasons_and_what_follows_change_nothing(plain: str, wrapped: str, after: str, order: list[str]) -> None:
    x, o, p, _ = order
    answer = plain.format(x=x, text=OPTIONS["ABCD".index(x)])
    reply = wrapped.format(answer) + after.format(o=o, p=p)
    assert parse_choice(reply, OPTIONS) == x, reply


def test_a_denial_at_the_end_makes_no_answer() -> None:
    for row in (row for file in LANGUAGES for row in rows_of(file) if len(row["reply"]) < 500):
        before = said(row)
        for letter in letters_of(row["choices"]):
            if letter != before:
                after = parse_choice(f"{row['reply']}\n\nThe answer is not {letter}.", row["choices"])
                assert after != letter, row["reply"]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(PLAIN[:5] + PLAIN[6:]), st.permutations(OPTIONS), st.sampled_from("ABCD"), st.data())
def test_what_a_label_says_does_not_depend_on_the_options(
    plain: str, order: list[str], x: str, data: st.DataObject
) -> None:
    reply = plain.format(x=x, text="")
    assert parse_choice(reply, order) == x
    renamed = [
        data.draw(st.sampled_from([option, f"The {option}", f"{option} river", "42", "None of these"]))
        for option in order
    ]
    assert parse_choice(reply, renamed) == x


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([*PLAIN, "", "I am not sure.", "Let us look at the options.", "It is a river of the south."]),
    st.sampled_from("ABCD"),
    st.sampled_from("ABCD"),
    st.booleans(),
)
def test_a_denial_never_makes_its_letter(plain: str, x: str, denied: str, before: bool) -> None:
    answer, denial = plain.format(x=x, text=OPTIONS["ABCD".index(x)]), f"The answer is not {denied}."
    reply = f"{denial}\n{answer}" if before else f"{answer}\n{denial}"
    found = parse_choice(reply, OPTIONS)
    assert found != denied or (denied == x and plain)


# --- a reading explains itself ---


@pytest.mark.parametrize(
    ("reply", "finish_reason", "reason"),
    [
        ("<think>It is B", "length", "reasoning"),
        ("<think>It is B</think>", "stop", "reasoning"),
        ("The answer is A or C.", "stop", "several"),
        ("The correct answers are B and D.", "length", "several"),
        ("I cannot answer this question without more information.", "stop", "refused"),
        ("The provided text does not give enough information to answer the question.", "stop", "refused"),
        ("Let us begin. The Kaveri rises in the Western Ghats and", "length", "cut"),
        ("A river is a stream of water.", "stop", "no_claim"),
        ("", "stop", "no_claim"),
        ("The answer is none of the above.", "stop", "no_claim"),
    ],
)
def test_why_a_reply_is_not_read(reply: str, finish_reason: str, reason: str) -> None:
    reading = read(reply, OPTIONS, finish_reason)
    assert (reading.letter, reading.reason) == (None, reason)


def test_a_reading_names_what_decided() -> None:
    reading = read("At first I thought A. Wait, the answer is C.", OPTIONS)
    assert reading.claim is not None
    assert (reading.letter, reading.claim.said, reading.claim.polarity) == ("C", "marker", "asserted")
    assert read("ANSWER: B) Kaveri", OPTIONS).label_mismatch
    assert not read("ANSWER: B) Krishna", OPTIONS).label_mismatch

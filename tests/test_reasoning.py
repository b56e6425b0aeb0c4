"""Reasoning in the forms in which models write it: what is left of a reply for both tasks, and what would end it."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest

from localeval import run_task
from localeval.config import TaskConfig
from localeval.prompts import Prompter
from localeval.reply import REASONING_TAGS, Tags, closing_tag, tags_in, without_reasoning
from localeval.schema import LocalevalError
from localeval.tasks.mcq import parse
from localeval.tasks.ner import parse as ner
from tests.conftest import Replies
from tests.fakes import CHATML, make_tokenizer
from tests.test_run import run

FOUR = ["Paris", "Rome", "Oslo", "Bonn"]
TOKENS = ["Ann", "left", "Rome"]
TAGS = {"PER": "person", "LOC": "location"}
MINE = (Tags("<<muse>>", "<</muse>>"),)

FORMS = {
    "think": ("<think>\n{}\n</think>\n\n{}"),
    "think in capitals": ("<THINK>{}</THINK>{}"),
    "opened by the prompt": ("{}\n</think>\n\n{}"),
    "thinking": ("<thinking>{}</thinking>{}"),
    "thought": ("<Thought>\n{}\n</Thought>\n{}"),
    "reasoning": ("<reasoning>{}</reasoning>\n{}"),
    "reflection inside": ("<thinking>a<reflection>{}</reflection>b</thinking>{}"),
    "several": ("<think>{}</think><reflection>ANSWER: A</reflection>{}"),
    "Magistral": ("[THINK]{}[/THINK]{}"),
    "Seed-OSS": ("<seed:think>{}<seed:cot_budget_reflect>x</seed:cot_budget_reflect></seed:think>{}"),
    "Kimi": ("◁think▷{}◁/think▷{}"),
    "Sky-T1": (
        "<|begin_of_thought|>\n\n{}\n\n<|end_of_thought|>\n\n<|begin_of_solution|>\n\n{}\n\n<|end_of_solution|>"
    ),
    "a solution after a thought without end": ("<|begin_of_thought|>{}<|begin_of_solution|>{}<|end_of_solution|>"),
    "Command A": ("<|START_THINKING|>{}<|END_THINKING|><|START_RESPONSE|>{}<|END_RESPONSE|>"),
    "LongCat": ("<longcat_think>\n{}\n</longcat_think>\n{}"),
    "Gemma": ("<|channel>thought\n{}<channel|>{}"),
    "Apriel": ("Here are my reasoning steps:\n{}\n[BEGIN FINAL RESPONSE]\n{}\n[END FINAL RESPONSE]"),
    "Granite": ("Here's my thought process: {}\n\nHere is my response: {}"),
    "Hunyuan": ("<think>\n{}\n</think>\n<answer>\n{}\n</answer>"),
    "gpt-oss": ("<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>{}<|return|>"),
    "gpt-oss with a comment and a form": (
        "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>commentary<|message|>ANSWER: A<|end|>"
        "<|start|>assistant<|channel|>final <|constrain|>text<|message|>{}"
    ),
    "gpt-oss without special tokens": ("analysisWe need one. {}assistantfinal{}"),
    "gpt-oss in another script": ("analysisप्रश्न {}assistantfinal{}"),
    "one's own": ("<<muse>>{}<</muse>>{}"),
    "names mixed up": ("<thinking>{}</think>{}"),
    "a tag of the same kind within": ("<think>the <think> tag {}</think>{}"),
    "an end tag that is spoken of before the end": ("<think>after </think> I say {}</think>{}"),
    "in another reasoning without start": ("{}</reasoning>ANSWER: A</think>{}"),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_what_follows_the_reasoning_is_read(form: str) -> None:
    said = form.format("It may be ANSWER: A", "ANSWER: B")
    assert parse.read(said, FOUR, reasoning_tags=MINE).letter == "B"
    said = form.format("<response>Ann left Rome</response>", "<response>Ann left <location>Rome</location></response>")
    assert ner.read(said, TOKENS, TAGS, reasoning_tags=MINE).tags == ["O", "O", "B-LOC"]


CUT = {
    "think": "<think>so ANSWER: B",
    "after one that ended": "<think>x</think><think>so ANSWER: B",
    "in an inner one": "<think>a <reflection>b</reflection> so ANSWER: B",
    "after an answer": "ANSWER: B\n<think>or",
    "Magistral": "[THINK]so ANSWER: B",
    "Kimi": "◁think▷so ANSWER: B",
    "Sky-T1": "<|begin_of_thought|>so ANSWER: B",
    "Granite": "Here is my thought process: ANSWER: B",
    "Apriel": "Here are my reasoning steps:\nANSWER: B",
    "gpt-oss": "<|channel|>analysis<|message|>so ANSWER: B",
    "gpt-oss, a comment": "<|channel|>analysis<|message|>x<|end|><|channel|>commentary<|message|>ANSWER: B",
    "gpt-oss without special tokens": "analysisSo ANSWER: B",
    "gpt-oss thinks again": "analysisXassistantfinalANSWER: B<|channel|>analysis<|message|>or",
    "one's own": "<<muse>>so ANSWER: B",
}


@pytest.mark.parametrize("reply", CUT.values(), ids=CUT)
def test_a_reasoning_without_end_is_no_answer(reply: str) -> None:
    assert without_reasoning(reply, tags=MINE) is None
    reading = parse.read(reply, FOUR, reasoning_tags=MINE)
    assert (reading.letter, reading.reason) == (None, "reasoning")
    sentence = reply.replace("ANSWER: B", "<response>Ann left <location>Rome</location></response>")
    tagged = ner.read(sentence, TOKENS, TAGS, reasoning_tags=MINE)
    assert (tagged.tags, tagged.reason) == (None, "reasoning")


@pytest.mark.parametrize(
    ("reply", "tags", "left"),
    [
        ("ANSWER: B", (), None),
        ("so</think>ANSWER: B", (), "ANSWER: B"),
        ("a<reflection>b</reflection>c", (), None),  # an inner one ended, not the prompt's
        ("a<reflection>b</reflection>c</think>ANSWER: B", (), "ANSWER: B"),
        ("so[/THINK]ANSWER: B", (Tags("[THINK]", "[/THINK]"),), "ANSWER: B"),
        ("so</thinking>ANSWER: B", (), "ANSWER: B"),  # the wrong name, and yet an end
        ("so<</muse>>ANSWER: B", MINE, "ANSWER: B"),
        ("so<</muse>>ANSWER: B", (), None),
    ],
)
def test_a_reasoning_that_the_prompt_has_opened(reply: str, tags: tuple[Tags, ...], left: str | None) -> None:
    assert without_reasoning(reply, reasoning_opened=True, tags=tags) == left


@pytest.mark.parametrize(
    "reply",
    [
        "ANSWER: B, after analysis: the analysis of all four.",
        "Analysis shows B",
        "analysis: B",
        "analysis of the four: B",
        "The `<think>` tag is not needed. ANSWER: B",
        'I leave out "<think>" and "[THINK]". ANSWER: B',
        "I think <b>B</b>; [I think] so",
        "Here is my response: B",
        "It is B. Here is my thought process: Rome is in Italy.",
        "My final analysisassistantfinal is B",
    ],
)
def test_what_only_looks_like_reasoning_stays(reply: str) -> None:
    assert without_reasoning(reply) == reply


@pytest.mark.parametrize(
    ("reply", "opened", "tags", "closing"),
    [
        ("ANSWER: B", False, (), None),
        ("<think>x</think>ANSWER: B", True, (), None),
        ("so", True, (), "</think>"),
        ("so", True, (Tags("[THINK]", "[/THINK]"), *MINE), "[/THINK]"),
        ("<thinking>so", False, (), "</thinking>"),
        ("<think>a <reflection>so", False, (), "</think>"),
        ("◁think▷so", False, (), "◁/think▷"),
        ("<<muse>>so", False, MINE, "<</muse>>"),
        ("<|channel|>analysis<|message|>so", False, (), "<|end|><|start|>assistant<|channel|>final<|message|>"),
        ("analysisSo", False, (), "<|end|><|start|>assistant<|channel|>final<|message|>"),
        ("Here are my reasoning steps:\nso", False, (), "[BEGIN FINAL RESPONSE]"),
    ],
)
def test_what_would_end_a_reasoning(reply: str, opened: bool, tags: tuple[Tags, ...], closing: str | None) -> None:
    assert closing_tag(reply, opened, tags) == closing
    if closing is not None:
        assert without_reasoning(f"{reply}{closing}ANSWER: B", opened, tags) == "ANSWER: B"


HOSTILE = [tag for pair in REASONING_TAGS for tag in pair if tag] + [
    "<",
    "[",
    "◁",
    "<|",
    "<thin",
    "`<think>`",
    "İ",
    " ",
]


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_long_reply_takes_no_time(kind: str) -> None:
    for reply in (kind * (1_000_000 // len(kind)), "analysisx" + kind * (1_000_000 // len(kind))):
        best = math.inf
        for _ in range(3):
            start = time.process_time()
            without_reasoning(reply)
            best = min(best, time.process_time() - start)
        assert best < 0.4  # 0.03 to 0.1 s on a machine that does nothing else


# --- what a template says ---


def test_the_tags_that_a_template_shows() -> None:
    template = (
        "{% if x %}<think>\n\n</think>{% endif %}<my_thoughts>{{ a['reasoning'] }}</my_thoughts>"
        "<|reason_start|>..<|reason_end|> [SCRATCH]..[/SCRATCH] <reasoning_effort> <tool>..</tool> "
        "<|thinking|>x<|/thinking|>"
    )
    assert tags_in(template) == (
        Tags("<think>", "</think>"),
        Tags("<my_thoughts>", "</my_thoughts>"),
        Tags("<|reason_start|>", "<|reason_end|>"),
        Tags("[SCRATCH]", "[/SCRATCH]"),
        Tags("<|thinking|>", "<|/thinking|>"),
    )
    assert tags_in("{{ content }}") == ()


@pytest.mark.parametrize(
    ("ending", "given", "thinking", "first"),
    [
        ("<think>\n", (), "on", ("<think>", "</think>")),
        ("[THINK]", (), "on", ("[THINK]", "[/THINK]")),
        ("<seed:think>", (), "on", ("<seed:think>", "</seed:think>")),
        ("<|channel>thought\n", (), "on", ("<|channel>thought", "<channel|>")),
        ("Here are my reasoning steps:\n", (), "on", ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]")),
        ("<<muse>>\n", MINE, "on", ("<<muse>>", "<</muse>>")),
        ("<<muse>>\n", (), "none", None),
        ("<my_thoughts>{{ '' if true else '</my_thoughts>' }}", (), "on", ("<my_thoughts>", "</my_thoughts>")),
        ("<think></think>", (), "none", ("<think>", "</think>")),
        ("", MINE, "none", ("<<muse>>", "<</muse>>")),
    ],
)
def test_a_prompt_that_opens_the_reasoning(
    tmp_path: Path, ending: str, given: tuple[Tags, ...], thinking: str, first: tuple[str, str] | None
) -> None:
    template = CHATML.replace("assistant\n{% endif %}", f"assistant\n{ending}{{% endif %}}")
    prompter = Prompter(make_tokenizer(tmp_path, template), reasoning_tags=given)
    assert (prompter.thinking, prompter.reasoning_opened) == (thinking, thinking == "on")
    assert next(iter(prompter.reasoning_tags), None) == first
    assert not prompter.without_template().reasoning_opened


def test_a_template_of_channels_always_reasons(tmp_path: Path) -> None:
    template = "{# <|channel|>analysis<|message|> #}" + CHATML
    prompter = Prompter(make_tokenizer(tmp_path, template))
    assert (prompter.thinking, prompter.reasoning_opened) == ("on", False)
    assert closing_tag("", True, prompter.reasoning_tags) == "<|end|><|start|>assistant<|channel|>final<|message|>"


# --- what the user says ---


@pytest.mark.parametrize(
    ("given", "pairs"),
    [
        (["<a>", "</a>"], [("<a>", "</a>")]),
        ([["<a>", "</a>"], ["<b>", "</b>"]], [("<a>", "</a>"), ("<b>", "</b>")]),
        ([], []),
    ],
)
def test_a_pair_or_several(given: Any, pairs: list[tuple[str, str]]) -> None:
    assert TaskConfig(model="m", datasets=["milu"], reasoning_tags=given).reasoning_tags == pairs


@pytest.mark.parametrize("given", [["<a>", "<A>"], ["<", "</a>"], [" <a>", "</a>"], ["<a>", "x" * 101]])
def test_what_is_no_pair(given: Any) -> None:
    with pytest.raises(LocalevalError, match="is no pair of tags: two different texts of 3 to 100 characters"):
        TaskConfig(model="m", datasets=["milu"], reasoning_tags=given)


def test_the_users_tags_read_the_run_and_its_scoring(mcq_dataset: Path, replies: Replies) -> None:
    said = {f"default:{i}": f"<<muse>>ANSWER: B<</muse>>ANSWER: {letter}" for i, letter in enumerate("ABCAB")}
    said["default:4"] = "<<muse>>ANSWER: B"
    file = replies(said)
    unknown = run(mcq_dataset, file).runs[0]
    known = run(mcq_dataset, file, reasoning_tags=["<<muse>>", "<</muse>>"]).runs[0]
    assert (unknown.metrics, known.metrics) == ({"accuracy": 1.0}, {"accuracy": 0.8})
    assert known.folder == unknown.folder  # the same replies, read in another way
    from localeval import score_run
    from localeval.store import RunFolder

    facts = RunFolder(known.folder).read_json("run.json")
    assert facts["reasoning_tags"] == [["<<muse>>", "<</muse>>"]]
    assert score_run(known.folder).runs[0].metrics == {"accuracy": 0.8}
    RunFolder(known.folder).write_json("run.json", {k: v for k, v in facts.items() if k != "reasoning_tags"})
    assert score_run(known.folder).runs[0].metrics == {"accuracy": 1.0}
    RunFolder(known.folder).write_json("run.json", {**facts, "reasoning_tags": [3]})
    with pytest.raises(LocalevalError, match=r"run\.json is no record of a run"):
        score_run(known.folder)


@pytest.mark.parametrize("tags", [["<person>", "</person>"], ["<think>", "</response>"], ["[LOC]", "[/LOC]"]])
def test_tags_of_the_answer_are_no_reasoning(ner_dataset: Path, replies: Replies, tags: list[str]) -> None:
    with pytest.raises(LocalevalError, match="is a tag of the answer"):
        run_task({"engine": f"replay:{replies({})}", "datasets": [str(ner_dataset)], "reasoning_tags": tags})


@pytest.mark.parametrize("name", ["think", "Thought", "reasoning", "response"])
def test_a_type_of_entity_is_called_otherwise(ner_dataset: Path, replies: Replies, name: str) -> None:
    ner_dataset.write_text(ner_dataset.read_text().replace("tag: person", f"tag: {name}"))
    with pytest.raises(LocalevalError, match=f"'{name}' is taken"):
        run_task({"engine": f"replay:{replies({})}", "datasets": [str(ner_dataset)]})

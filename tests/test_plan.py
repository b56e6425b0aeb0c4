"""Budgets, stops and overflow: what each request is given."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localeval.config import load_config
from localeval.grammar import Choice, TaggedSentence
from localeval.identity import request_key
from localeval.jobs import load_jobs
from localeval.plan import Plan, keyed, plan_requests
from localeval.prompts import Prompter
from localeval.reply import Tags
from localeval.schema import LocalevalError
from tests.conftest import QUESTIONS, write_jsonl
from tests.fakes import CHATML, THINKING, make_tokenizer, make_word_tokenizer


def plan(
    dataset: Path,
    template: str | None = CHATML,
    context: int | None = None,
    joined: tuple[str, ...] = (),
    **fields: Any,
) -> Plan:
    config = load_config({"model": "m", "datasets": [str(dataset)], **fields})
    folder = make_tokenizer(dataset.parent / "tokenizer", template, joined=joined)
    (job,) = load_jobs(config)
    return keyed(plan_requests(job, config, Prompter(folder, thinking=config.thinking), context), "model", {})


def test_mcq_budget(mcq_dataset: Path) -> None:
    assert {(r.max_tokens, r.stop) for r in plan(mcq_dataset).requests} == {(512, ())}
    assert {r.max_tokens for r in plan(mcq_dataset, THINKING, thinking="on").requests} == {512 + 8192}
    assert {r.max_tokens for r in plan(mcq_dataset, THINKING, thinking="off").requests} == {512}
    given = plan(mcq_dataset, generation_config={"max_tokens": 7, "stop": ["\n"]}).requests
    assert {(r.max_tokens, r.stop) for r in given} == {(7, ("\n",))}


def test_ner_budget_is_of_its_own_sentence(ner_dataset: Path) -> None:
    # one token a byte: "Ann Lee left" is 12, "Paris slept" 11, "Nobody came" 11
    requests = plan(ner_dataset).requests
    assert [r.max_tokens for r in requests] == [3 * 12 + 64, 3 * 11 + 64, 3 * 11 + 64]
    assert {r.stop for r in requests} == {("</response>",)}
    assert {r.stop for r in plan(ner_dataset, stop_at_end_tag=False).requests} == {()}
    # a thinking model may draft, and quote the format
    thinking = plan(ner_dataset, THINKING).requests
    assert thinking[0].max_tokens == 3 * 12 + 64 + 8192
    assert {r.stop for r in thinking} == {()}


def test_a_prompt_too_long_is_refused_by_id_and_length(mcq_dataset: Path) -> None:
    lengths = [len(r.prompt_token_ids) for r in plan(mcq_dataset).requests]
    with pytest.raises(LocalevalError, match=rf"5 prompts leave no room .* default:0 \({lengths[0]}\)"):
        plan(mcq_dataset, context=lengths[0])
    fits = plan(mcq_dataset, context=lengths[0] + 100).requests
    assert fits[0].max_tokens == 100


def test_shots_are_dropped_where_they_must(mcq_dataset: Path) -> None:
    args = {"quiz": {"few_shot_num": 2}}
    full = len(plan(mcq_dataset, dataset_args=args).requests[0].prompt_token_ids)
    bare = len(plan(mcq_dataset).requests[0].prompt_token_ids)
    dropped = plan(mcq_dataset, context=full, dataset_args=args, on_overflow="drop-shots")
    assert dropped.fewer_shots == {f"default:{n}": 1 for n in range(5)}
    assert bare < len(dropped.requests[0].prompt_token_ids) < full
    with pytest.raises(LocalevalError, match=rf"5 prompts leave no room .* default:0 \({bare}\), default:1"):
        plan(mcq_dataset, context=bare, dataset_args=args, on_overflow="drop-shots")


def test_the_few_of_10_000_that_are_too_long(mcq_dataset: Path) -> None:
    """One token a byte, so that a prompt is as long as its text: each that is too long is found, and no other."""
    longer = {17: 330, 4_096: 300, 9_999: 1_000}
    rows = [{**QUESTIONS[0], "question": "x" * longer.get(n, 100)} for n in range(10_000)]
    write_jsonl(mcq_dataset.parent / "rows" / "test.jsonl", rows)
    args = {"quiz": {"few_shot_num": 1}}
    around = len(plan(mcq_dataset, limit=1).requests[0].prompt_token_ids) - 100
    with pytest.raises(LocalevalError) as refused:
        plan(mcq_dataset, context=around + 300)
    assert f"quiz: 3 prompts leave no room for a reply in {around + 300} tokens: " in str(refused.value)
    named = re.findall(r"default:(\d+) \((\d+)\)", str(refused.value))
    assert [(int(n), int(length)) for n, length in named] == [(n, around + more) for n, more in longer.items()]
    shown = len(plan(mcq_dataset, limit=1, dataset_args=args).requests[0].prompt_token_ids) - 100 - around
    rows[9_999] = rows[0]
    write_jsonl(mcq_dataset.parent / "rows" / "test.jsonl", rows)
    # With their shot the prompts of 300 and 330 are too long for this, and without not.
    dropped = plan(mcq_dataset, context=around + 300 + shown, dataset_args=args, on_overflow="drop-shots")
    lengths = [len(request.prompt_token_ids) for request in dropped.requests]
    assert dropped.fewer_shots == {"default:17": 0, "default:4096": 0}
    assert [n for n, length in enumerate(lengths) if length != around + 100 + shown] == [17, 4_096]
    assert (lengths[17], lengths[4_096]) == (around + 330, around + 300)


# --- tokens that the model lacks, templates that refuse ---


def asked(dataset: Path, template: str | None, vocabulary: int | None, **fields: Any) -> Plan:
    config = load_config({"model": "m", "datasets": [str(dataset)], **fields})
    prompter = Prompter(make_tokenizer(dataset.parent / "tokenizer", template, joined=(" A", " B", " C", "ne")))
    (job,) = load_jobs(config)
    return plan_requests(job, config, prompter, None, vocabulary)


def test_a_token_that_the_model_lacks_is_named_with_its_sample(mcq_dataset: Path) -> None:
    """260 tokens of bytes, then " A" (260), " B", " C", and "ne" (263), which stands in "One of" and in "one 0"."""
    for enough in (None, 264, 1_000):
        assert len(asked(mcq_dataset, None, enough).requests) == 5
    with pytest.raises(LocalevalError) as refused:
        asked(mcq_dataset, None, 263)
    assert "quiz, default:0: token 263 of its prompt is none of the 263 that the model knows" in str(refused.value)
    assert "the tokenizer of tokenizer has 264" in str(refused.value)
    text = mcq_dataset.read_text()
    mcq_dataset.write_text(text.replace("One of", "Of"))
    rows = mcq_dataset.parent / "rows" / "test.jsonl"
    rows.write_text(rows.read_text().replace("one 0", "two 0").replace("one 1", "two 1"))
    with pytest.raises(LocalevalError, match="quiz, default:2: token 263"):
        asked(mcq_dataset, None, 263)
    rows.write_text(rows.read_text().replace("one", "two"))
    assert len(asked(mcq_dataset, None, 263).requests) == 5  # a token more that no prompt has
    with pytest.raises(LocalevalError, match="quiz, logprob, default:0: token 260 of its prompt"):
        asked(mcq_dataset, None, 260, mcq="logprob")  # " A" is what the prompt may go on with


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("{{ raise_exception('No question 3, please') }}", "No question 3, please"),
        ("{{ (1).nothing.at_all }}", "'int object' has no attribute 'nothing'"),
        ("{{ 'text' + 3 }}", "TypeError: can only concatenate str"),
        ("{{ 1 // 0 }}", "ZeroDivisionError: "),
        ("{{ {}['key'] + 1 }}", "has no attribute 'key'"),
    ],
)
def test_a_template_that_raises_names_the_sample(mcq_dataset: Path, place: str, said: str) -> None:
    template = "{% if 'Question 3?' in messages[-1]['content'] %}" + place + "{% endif %}" + CHATML
    with pytest.raises(LocalevalError) as refused:
        plan(mcq_dataset, template)
    folder = mcq_dataset.parent / "tokenizer"
    assert f"quiz, default:3: the chat template of {folder} refuses the messages: " in str(refused.value)
    assert said in str(refused.value)


def test_keys_are_unique_and_stable(mcq_dataset: Path) -> None:
    keys = [r.key for r in plan(mcq_dataset).requests]
    assert len(set(keys)) == 5
    assert keys == [r.key for r in plan(mcq_dataset).requests]


# --- constrained ---


def test_a_constrained_budget_is_the_longest_reply_in_bytes(mcq_dataset: Path) -> None:
    requests = plan(mcq_dataset, constrain=True).requests
    assert {r.constraint for r in requests} == {Choice("ABC")}
    assert {r.max_tokens for r in requests} == {len("ANSWER: A") + 1}
    thinking = plan(mcq_dataset, THINKING, constrain=True, thinking="on").requests
    assert {r.constraint for r in thinking} == {Choice("ABC", after_reasoning=True)}
    assert {r.max_tokens for r in thinking} == {len("ANSWER: A") + 1 + 8192}
    assert {r.max_tokens for r in plan(mcq_dataset, constrain=True, generation_config={"max_tokens": 3}).requests} == {
        3
    }


def test_an_answer_is_made_of_its_usual_tokens(mcq_dataset: Path) -> None:
    """So that the space does not stand alone where a token holds it and the letter."""
    request = plan(mcq_dataset, constrain=True, joined=LETTERS).requests[0]
    letters = {4 + ord(character) - ord("!") for character in "ANSWER:"}
    assert set(request.allowed_token_ids) == {*letters, 260, 261, 262, 1}
    assert plan(mcq_dataset, THINKING, constrain=True, thinking="on").requests[0].allowed_token_ids == ()
    assert plan(mcq_dataset).requests[0].allowed_token_ids == ()


def test_a_constrained_sentence_can_be_tagged_token_by_token(ner_dataset: Path) -> None:
    requests = plan(ner_dataset, constrain=True).requests
    assert requests[0].constraint == TaggedSentence(("Ann", "Lee", "left"), ("person", "location"))
    widest = "<response><location>Ann</location> <location>Lee</location> <location>left</location></response>"
    assert requests[0].max_tokens == len(widest) + 1
    assert {r.stop for r in requests} == {("</response>",)}


def test_a_sentence_that_holds_the_end_tag_has_no_stop(ner_dataset: Path) -> None:
    rows = ner_dataset.parent / "rows" / "test.txt"
    rows.write_text("Ann B-PER\n</response> O\n\nParis B-LOC\n")
    assert [r.stop for r in plan(ner_dataset).requests] == [(), ("</response>",)]


def test_keys_tell_a_constrained_request_from_a_free_one(mcq_dataset: Path) -> None:
    budget = {"max_tokens": 10}
    free = plan(mcq_dataset, generation_config=budget)
    held = plan(mcq_dataset, generation_config=budget, constrain=True)
    assert [r.prompt_token_ids for r in free.requests] == [r.prompt_token_ids for r in held.requests]
    assert not {r.key for r in free.requests} & {r.key for r in held.requests}


# --- options by their likelihood ---

LETTERS = (" A", " B", " C")


def test_the_prompt_ends_where_the_letter_begins(mcq_dataset: Path) -> None:
    free, asked = plan(mcq_dataset, joined=LETTERS), plan(mcq_dataset, joined=LETTERS, mcq="logprob")
    spelled = [4 + ord(character) - ord("!") for character in "ANSWER:"]
    for before, request in zip(free.requests, asked.requests, strict=True):
        assert list(request.prompt_token_ids) == [*before.prompt_token_ids, *spelled]
        assert (request.max_tokens, request.stop, request.wanted_logprobs) == (1, (), 0)
    # 4 special tokens and 256 bytes come first; the letters without a space are bytes
    expected = {" A": (260,), "A": (36,), " B": (261,), "B": (37,), " C": (262,), "C": (38,)}
    assert dict(asked.requests[0].continuations) == expected
    assert asked.warnings == ()
    assert asked.requests[0].length == len(asked.requests[0].prompt_token_ids) + 2


def test_without_a_template_the_answer_begins_on_a_new_line(mcq_dataset: Path) -> None:
    free = plan(mcq_dataset, None, joined=LETTERS).requests[0]
    asked = plan(mcq_dataset, None, joined=LETTERS, mcq="logprob").requests[0]
    (newline,) = set(asked.prompt_token_ids[len(free.prompt_token_ids) :][:1])
    assert newline == free.prompt_token_ids[len("Q: Question 0?")]
    assert len(asked.prompt_token_ids) == len(free.prompt_token_ids) + len("\nANSWER:")


def test_a_letter_of_several_tokens_is_a_sequence(mcq_dataset: Path) -> None:
    asked = plan(mcq_dataset, joined=(" A", " B"), mcq="logprob")
    space = asked.requests[0].continuations[" C"][0]
    assert dict(asked.requests[0].continuations) == {" A": (260,), " B": (261,), " C": (space, 38)}
    assert asked.warnings == (
        "--mcq logprob: the tokenizer writes 'C' after a space as 2 tokens, not one: each letter is scored as a "
        "sequence of its own",
    )


def test_cloze_asks_the_question_and_each_text(mcq_dataset: Path) -> None:
    asked = plan(mcq_dataset, None, mcq="cloze").requests[0]
    text = "Question: Question 0?\nAnswer:"
    assert len(asked.prompt_token_ids) == len(text)
    assert {letter: len(ids) for letter, ids in asked.continuations.items()} == {
        "text A": len(" one 0"), "text B": len(" two 0"), "text C": len(" three 0"),
    }  # fmt: skip
    assert asked.length == len(text) + len(" three 0") + 1
    shown = plan(mcq_dataset, None, mcq="cloze", dataset_args={"quiz": {"few_shot_num": 1}}).requests[0]
    assert len(shown.prompt_token_ids) == len(f"Question: Shown: Question 0?\nAnswer: one 0\n\n{text}")


def test_room_is_needed_for_the_longest_option(mcq_dataset: Path) -> None:
    needed = plan(mcq_dataset, None, mcq="cloze").requests[0].length
    assert len(plan(mcq_dataset, None, mcq="cloze", context=needed).requests) == 5
    with pytest.raises(LocalevalError, match=r"quiz, cloze: 5 prompts leave no room"):
        plan(mcq_dataset, None, mcq="cloze", context=needed - 1)


def test_a_cloze_prompt_may_end_in_empty_lines(mcq_dataset: Path) -> None:
    """A token that joins the last break with the space before an option is met, and not passed over."""
    mcq_dataset.write_text(mcq_dataset.read_text() + 'cloze: "{question}\\n\\n"\n')
    asked = plan(mcq_dataset, None, mcq="cloze").requests[0]
    assert len(asked.continuations["text A"]) == len(" one 0")


def test_letters_that_are_written_alike_are_refused(mcq_dataset: Path) -> None:
    config = load_config({"model": "m", "datasets": [str(mcq_dataset)], "mcq": "logprob"})
    prompter = Prompter(make_word_tokenizer(mcq_dataset.parent / "words", ["ANSWER", ":", "A"]))
    (job,) = load_jobs(config)
    with pytest.raises(LocalevalError, match="writes two of the letters A, B, C in one way, so"):
        plan_requests(job, config, prompter, None)


def test_the_text_of_a_special_token_can_not_be_constrained(ner_dataset: Path) -> None:
    rows = ner_dataset.parent / "rows" / "test.txt"
    rows.write_text("Ann B-PER\nleft O\n\nParis</s> B-LOC\n")
    assert len(plan(ner_dataset).requests) == 2
    with pytest.raises(
        LocalevalError, match=r"names, constrained: default:1 holds '</s>': special tokens of tokenizer"
    ):
        plan(ner_dataset, constrain=True)
    rows.write_text("Ann B-PER\n")
    ner_dataset.write_text(ner_dataset.read_text().replace("tag: person", "tag: s"))
    with pytest.raises(LocalevalError, match="an entity tag holds '<s>'"):
        plan(ner_dataset, constrain=True)


def test_a_sentence_too_long_for_a_grammar_is_named(ner_dataset: Path) -> None:
    rows = ner_dataset.parent / "rows" / "test.txt"
    rows.write_text("Ann B-PER\n\n" + "and O\n" * 481)
    with pytest.raises(LocalevalError, match=r"names, default:1: can't be constrained: .* up to 480 tokens"):
        plan(ner_dataset, constrain=True)


@pytest.mark.parametrize(
    ("tags", "fields", "kept"),
    [
        ((), {}, False),
        ((Tags("<muse>", "</muse>"),), {}, False),
        ((Tags("<|im_start|>muse", "<|im_end|>"),), {}, True),  # two special tokens of this tokenizer
        ((Tags("<|im_start|>muse", "<|im_end|>"),), {"mcq": "logprob"}, False),
    ],
)
def test_special_tokens_stay_where_reasoning_stands_between_some(
    mcq_dataset: Path, tags: tuple[Tags, ...], fields: dict[str, Any], kept: bool
) -> None:
    config = load_config({"model": "m", "datasets": [str(mcq_dataset)], **fields})
    folder = make_tokenizer(mcq_dataset.parent / "tokenizer", joined=(" A", " B", " C"))
    (job,) = load_jobs(config)
    requests = plan_requests(job, config, Prompter(folder, reasoning_tags=tags), None).requests
    assert {request.keeps_special for request in requests} == {kept}
    plain, special = (replace(requests[0], keeps_special=value) for value in (False, True))
    assert request_key(plain, "m", "d", "e") != request_key(special, "m", "d", "e")

"""The chat template once, one BOS; what the template says about thinking."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localeval.prompts import Prompter, TemplateRefuses, context_length, misfits, vocabulary_of
from localeval.schema import LocalevalError
from tests.fakes import ALWAYS_THINKING, CHATML, THINKING, WITH_BOS, make_model, make_tokenizer


def ids_of(prompter: Prompter, text: str, system: str | None = None) -> list[int]:
    return list(next(iter(prompter.encode([text], system))))


def spelled(text: str) -> list[int]:
    """Printable ASCII, worked out by hand: GPT-2's byte alphabet, sorted, begins with "!"."""
    return [4 + ord(character) - ord("!") for character in text]


def test_chat_template_is_applied_once(tmp_path: Path) -> None:
    prompter = Prompter(make_tokenizer(tmp_path))
    newline = ids_of(prompter, "x")[-1]
    user, assistant = spelled("user"), spelled("assistant")
    assert ids_of(prompter, "Hi") == [2, *user, newline, *spelled("Hi"), 3, newline, 2, *assistant, newline]


def test_one_bos(tmp_path: Path) -> None:
    # the template writes a BOS, and the tokenizer would add another
    prompter = Prompter(make_tokenizer(tmp_path / "a", WITH_BOS, adds_bos=True))
    assert ids_of(prompter, "Hi").count(0) == 1
    # no template: the plain prompt, with what the tokenizer adds, and a warning
    plain = Prompter(make_tokenizer(tmp_path / "b", None, adds_bos=True))
    assert ids_of(plain, "Hi") == [0, *spelled("Hi")]
    assert plain.warnings == ["b has no chat template: it is given the plain prompt"]


def test_no_end_token_before_the_reply(tmp_path: Path) -> None:
    """Some tokenizers end every text with one; a reply is to follow."""
    plain = Prompter(make_tokenizer(tmp_path / "a", None, adds_bos=True, adds_eos=True))
    assert ids_of(plain, "Hi") == [0, *spelled("Hi")]
    both = Prompter(make_tokenizer(tmp_path / "b", WITH_BOS, adds_bos=True, adds_eos=True))
    assert 1 not in ids_of(both, "Hi")
    assert 1 not in ids_of(both.without_template(), "Hi")


def test_long_prompts_are_not_cut_by_the_tokenizers_own_settings(tmp_path: Path) -> None:
    assert len(ids_of(Prompter(make_tokenizer(tmp_path, None)), "x" * 5000)) == 5000


def test_batches_keep_the_order(tmp_path: Path) -> None:
    prompter = Prompter(make_tokenizer(tmp_path, None))
    texts = [str(number) for number in range(1300)]
    assert [list(ids) for ids in prompter.encode(texts)] == [spelled(text) for text in texts]
    assert prompter.lengths(texts) == [len(text) for text in texts]


@pytest.mark.engine
def test_agrees_with_transformers_on_a_real_tokenizer(smollm2: Path) -> None:
    from transformers import AutoTokenizer

    reference = AutoTokenizer.from_pretrained(smollm2)
    text = "टीम India जीती\n<|im_start|> A) 1\n"
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    expected = reference.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert ids_of(Prompter(smollm2), text, "Be brief.") == expected


@pytest.mark.parametrize(
    ("template", "asked", "thinking", "opened", "ending"),
    [
        (CHATML, None, "none", False, "assistant\n"),
        (THINKING, None, "on", False, "assistant\n"),
        (THINKING, "off", "off", False, "<think>\n\n</think>\n\n"),
        (THINKING, "on", "on", False, "assistant\n"),
        (ALWAYS_THINKING, None, "on", True, "<think>\n"),
    ],
)
def test_thinking(tmp_path: Path, template: str, asked: str | None, thinking: str, opened: bool, ending: str) -> None:
    prompter = Prompter(make_tokenizer(tmp_path, template), thinking=asked)
    assert (prompter.thinking, prompter.reasoning_opened) == (thinking, opened)
    assert prompter.render(["Hi"])[0].endswith(ending)


def test_a_template_without_the_switch(tmp_path: Path) -> None:
    prompter = Prompter(make_tokenizer(tmp_path / "m"), thinking="off")
    assert prompter.warnings == ["--thinking off: the chat template of m has no such switch"]
    with pytest.raises(LocalevalError, match="has no chat template to switch it in"):
        Prompter(make_tokenizer(tmp_path / "n", None), thinking="off")


def test_a_template_that_refuses(tmp_path: Path) -> None:
    template = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHATML
    prompter = Prompter(make_tokenizer(tmp_path, template))
    with pytest.raises(LocalevalError, match="refuses the messages: no system role"):
        ids_of(prompter, "Hi", "Be brief.")


@pytest.mark.parametrize(
    ("template", "said"), [("{{ messages | nonsense }}", "No filter named 'nonsense'"), ("{% if %}", "Expected an")]
)
def test_a_template_that_is_none(tmp_path: Path, template: str, said: str) -> None:
    with pytest.raises(LocalevalError, match=f"the chat template of {tmp_path} refuses the messages: {said}"):
        Prompter(make_tokenizer(tmp_path, template))


def test_the_message_that_is_refused_is_the_one_in_its_place(tmp_path: Path) -> None:
    template = "{% if messages[0]['content'] == 'no' %}{{ raise_exception('no') }}{% endif %}" + CHATML
    prompter = Prompter(make_tokenizer(tmp_path, template))
    messages = ["yes"] * 2_000
    messages[1_500:1_502] = "no", "no"
    with pytest.raises(TemplateRefuses) as refused:
        list(prompter.encode(messages))
    assert refused.value.place == 1_500


@pytest.mark.parametrize(
    ("rows", "known", "doubtful"),
    [
        (260, 260, False),
        (288, 260, False),  # 260 of 288 are 90.3%
        (289, 260, True),
        (151_936, 151_665, False),  # Qwen2.5
        (51_200, 50_295, False),  # Phi-2, the most padding among those that are known
        (129_280, 128_815, False),  # DeepSeek-V3
        (128_256, 32_000, True),  # Llama-3 with the tokenizer of Llama-2
        (32_000, 128_256, False),  # is an error, where a prompt has one of those tokens
    ],
)
def test_a_tokenizer_that_is_much_smaller_than_its_model(tmp_path: Path, rows: int, known: int, doubtful: bool) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": rows}))
    prompter = Prompter(make_tokenizer(tmp_path))
    assert prompter.vocabulary == 260
    prompter.vocabulary = known
    warnings = misfits(tmp_path, prompter)
    assert warnings == (
        [f"{tmp_path} knows {rows:,} tokens and its tokenizer {known:,}, much fewer than padding explains: is the "
         "tokenizer that of this model?"] if doubtful else []
    )  # fmt: skip


def test_ends_that_the_tokenizer_lacks(tmp_path: Path) -> None:
    config = {"model_type": "llama", "vocab_size": 260, "bos_token_id": 259, "eos_token_id": [1, 260]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert misfits(tmp_path, Prompter(make_tokenizer(tmp_path))) == [
        f"{tmp_path}/config.json: eos_token_id 260 is no token of its tokenizer, which has 260"
    ]
    assert vocabulary_of(tmp_path) == 260


def test_context_length(tmp_path: Path) -> None:
    assert context_length(make_model(tmp_path, context=777)) == 777


def test_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(LocalevalError, match="the tokenizer can't be loaded"):
        Prompter(tmp_path)


# --- what a prompt may go on with ---


def test_the_reply_may_be_begun(tmp_path: Path) -> None:
    prompter = Prompter(make_tokenizer(tmp_path / "chat"))
    assert prompter.render(["Hi"], start="ANSWER:")[0].endswith("<|im_start|>assistant\nANSWER:")
    begun = list(next(iter(prompter.encode(["Hi"], start="ANSWER:"))))
    assert begun == [*ids_of(prompter, "Hi"), *spelled("ANSWER:")]
    plain = Prompter(make_tokenizer(tmp_path / "plain", None))
    assert plain.render(["Hi"], start="ANSWER:") == ["Hi\nANSWER:"]
    assert plain.render(["Hi"]) == ["Hi"]


def test_continuations_are_the_tokens_that_a_text_adds(tmp_path: Path) -> None:
    prompter = Prompter(make_tokenizer(tmp_path, None, adds_bos=True, joined=(" A", "AB")))
    _, space, _ = ids_of(prompter, " C")  # after the BOS
    assert prompter.continuations("ANSWER:", [" A", "A", " B", ""]) == [(260,), (36,), (space, 37), ()]
    assert prompter.continuations("A", ["B", "C"]) == [None, (38,)]  # "AB" is one token


def test_views_share_the_tokenizer_and_change_the_template(tmp_path: Path) -> None:
    prompter = Prompter(make_tokenizer(tmp_path / "a", THINKING))
    off = prompter.without_thinking()
    assert (prompter.thinking, off.thinking) == ("on", "off")
    assert off.render(["Hi"])[0].endswith("<think>\n\n</think>\n\n")
    assert off.template_args == {"enable_thinking": False}
    bare = prompter.without_template()
    assert bare.render(["Hi"], "Be brief.") == ["Be brief.\n\nHi"]
    assert (bare.thinking, bare.has_template) == ("none", False)
    assert prompter.render(["Hi"])[0].endswith("assistant\n")
    always = Prompter(make_tokenizer(tmp_path / "b", ALWAYS_THINKING))
    assert always.without_thinking().thinking == "on"  # it has no switch
    none = Prompter(make_tokenizer(tmp_path / "c", CHATML))
    assert none.without_thinking() is none

"""vLLM and transformers as engines, on a tiny random model: budgets, stops, seeds, a long queue, grammars, options.

One token a byte, so that a budget of bytes is used up to its last where a grammar lets it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localeval.engines.base import Engine, EngineConfig, start_engine
from localeval.engines.transformers import TransformersEngine
from localeval.grammar import Choice, TaggedSentence
from localeval.schema import Constraint, Request, Sampling
from tests.test_grammar import ENTITIES, SCRIPTS, hostile_tokens

pytestmark = pytest.mark.engine

PROMPT = [40, 50, 60, 70]


@pytest.fixture(scope="module", params=["vllm", "transformers"])
def engine(request: pytest.FixtureRequest, tiny: Path) -> Iterator[Engine]:
    started = start_engine(request.param, EngineConfig(tiny, max_model_len=1024, logprobs=10, constrained=True))
    yield started
    started.close()


def test_each_request_has_its_own_settings(engine: Engine) -> None:
    requests = [
        Request("d", "greedy", PROMPT, 5, wanted_logprobs=2, key="a"),
        Request("d", "long", PROMPT, 9, key="b"),
        Request("d", "drawn", PROMPT, 5, sampling=Sampling(temperature=1.5, seed=1), key="c"),
        Request("d", "again", PROMPT, 5, key="d"),
    ]
    found = {reply.key: reply for reply in engine.generate(requests)}
    assert {key: reply.output_tokens for key, reply in found.items()} == {"a": 5, "b": 9, "c": 5, "d": 5}
    assert {reply.finish_reason for reply in found.values()} == {"length"}
    assert found["a"].token_ids == found["d"].token_ids == found["b"].token_ids[:5]
    assert found["c"].token_ids != found["a"].token_ids
    assert found["b"].logprobs is None
    steps = found["a"].logprobs
    assert steps is not None
    assert [max(step, key=lambda token: step[token]) for step in steps] == list(found["a"].token_ids)
    assert found["a"].prompt_tokens == 4


def test_a_stop_string_ends_the_reply_and_is_kept(engine: Engine) -> None:
    (free,) = engine.generate([Request("d", "x", PROMPT, 60, key="x")])
    stop = free.text[10:13]
    assert len(stop) == 3
    (cut,) = engine.generate([Request("d", "x", PROMPT, 60, stop=(stop,), key="x")])
    assert cut.finish_reason == "stop"
    assert cut.text == free.text[: free.text.index(stop) + 3]


def test_special_tokens_stay_in_the_text_if_they_are_to(engine: Engine) -> None:
    start, end = 2, 1  # <|im_start|>, and </s>, which ends a reply
    if isinstance(engine, TransformersEngine):  # a reply is held to some tokens only by vLLM
        texts = [engine._decode(ids, kept) for ids in ([start, end], [start]) for kept in (False, True)]
        assert texts == ["", "<|im_start|>", "", "<|im_start|>"]
        return
    asked = [
        Request("d", "dropped", PROMPT, 3, allowed_token_ids=(start,), key="dropped"),
        Request("d", "kept", PROMPT, 3, allowed_token_ids=(start,), keeps_special=True, key="kept"),
        Request("d", "ended", PROMPT, 3, allowed_token_ids=(end,), keeps_special=True, key="ended"),
    ]
    found = {reply.key: (reply.text, reply.finish_reason) for reply in engine.generate(asked)}
    assert found == {"dropped": ("", "length"), "kept": ("<|im_start|>" * 3, "length"), "ended": ("", "stop")}


def test_greedy_again_is_the_same(engine: Engine) -> None:
    requests = [Request("d", str(n), [*PROMPT, 10 + n], 12, key=str(n)) for n in range(20)]
    first = {reply.key: reply.token_ids for reply in engine.generate(requests)}
    again = {reply.key: reply.token_ids for reply in engine.generate(reversed(requests))}
    assert first == again
    assert len(first) == 20


def test_requests_are_taken_as_there_is_room(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream of any length: replies come while requests are still being made."""
    import localeval.engines.vllm

    monkeypatch.setattr(localeval.engines.vllm, "WAITING", 16)
    made = 0

    def stream() -> Iterator[Request]:
        nonlocal made
        for n in range(400):
            made += 1
            yield Request("d", str(n), [*PROMPT, 10 + n % 90], 2, key=str(n))

    replies = engine.generate(stream())
    next(replies)
    assert made < 400
    assert 1 + sum(1 for _ in replies) == 400


# --- grammars ---


def held(constraint: Constraint, sample_id: str, budget: int | None = None) -> Request:
    drawn = Sampling(temperature=1.0, seed=len(sample_id))
    longest = constraint.longest + 1 if budget is None else budget
    return Request("d", sample_id, PROMPT, longest, sampling=drawn, constraint=constraint, key=sample_id)


def test_a_random_model_says_exactly_what_its_grammar_allows(engine: Engine) -> None:
    """Every reply in a grammar of its own, beside free ones; none is cut. A random model would say none of this."""
    sentences = {
        name: TaggedSentence(hostile_tokens(text)[:12], tuple(ENTITIES.values())) for name, text in SCRIPTS.items()
    }
    constraints: dict[str, Constraint] = {**sentences, **{f"mcq {n}": Choice("ABCDEFGHIJ"[:n]) for n in (2, 3, 4, 10)}}
    requests = [held(constraint, name) for name, constraint in constraints.items()]
    free = [Request("d", f"free {n}", [*PROMPT, n + 9], 20, wanted_logprobs=2, key=f"free {n}") for n in range(4)]
    requests = [replace(request, wanted_logprobs=2) for request in requests]
    replies = {reply.key: reply for reply in engine.generate([*free[:2], *requests, *free[2:]])}
    assert len(replies) == len(requests) + 4
    for name, constraint in constraints.items():
        assert constraint.accepts(replies[name].text), (name, replies[name].text)
        assert replies[name].finish_reason == "stop", name
        assert len(replies[name].text.encode()) <= constraint.longest
        steps = replies[name].logprobs
        assert steps is not None
        forced = steps[0]  # "<" or "A": there is one way to begin
        assert list(forced.values()) == pytest.approx([0.0], abs=1e-6)
    tagged = sum(replies[name].text.count("</") - 1 for name in sentences)
    assert tagged > 20  # half of what may follow a token is a tag, and a random model takes it
    for request in free:
        assert replies[request.key].logprobs is not None
        assert len(replies[request.key].text) > 0


@pytest.mark.parametrize("letter", "BCD")
def test_a_reply_may_be_held_to_some_tokens(engine: Engine, letter: str) -> None:
    """Of the letters only one is left (and A, which "ANSWER" begins with, is not among the options)."""
    request = Request("d", "x", PROMPT, 10, constraint=Choice("BCD"), key="x")
    (free,) = engine.generate([request])
    others = {4 + ord(other) - ord("!") for other in "BCD" if other != letter}
    allowed = {*free.token_ids, 4 + ord(letter) - ord("!")} - others
    (held,) = engine.generate([replace(request, allowed_token_ids=tuple(sorted(allowed)))])
    assert held.text == f"ANSWER: {letter}"
    assert held.finish_reason == "stop"


def test_logprobs_of_a_held_reply_are_among_what_its_grammar_allows(engine: Engine) -> None:
    """Whatever else narrows the draw: the ten letters have their probabilities, and they add up to 1."""
    narrow = Sampling(temperature=1.0, top_k=1, top_p=0.5, seed=1)
    request = Request("d", "x", PROMPT, 10, (), narrow, 10, Choice("ABCDEFGHIJ"), key="x")
    (reply,) = engine.generate([request])
    assert reply.logprobs is not None
    step = reply.logprobs[len("ANSWER: ")]
    assert len(step) == 10
    assert sum(math.exp(value) for value in step.values()) == pytest.approx(1.0, abs=1e-4)
    (only,) = engine.generate([replace(request, allowed_token_ids=reply.token_ids)])
    assert only.logprobs is not None
    assert only.logprobs[len("ANSWER: ")] == pytest.approx(step, abs=1e-4)


def test_a_reply_may_be_cut_inside_its_grammar(engine: Engine) -> None:
    constraint = TaggedSentence(("Ann", "Lee"), ("person",))
    (reply,) = engine.generate([held(constraint, "x", budget=15)])
    assert reply.finish_reason == "length"
    assert reply.text.startswith("<response>")
    assert not constraint.accepts(reply.text)


# --- options ---


def test_continuations_have_the_probabilities_of_a_plain_forward_pass(engine: Engine, tiny: Path) -> None:
    """One token and several, beside replies with logprobs of their own; against log_softmax over the whole sequence."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)

    def expected(prompt: list[int], ids: tuple[int, ...]) -> float:
        with torch.inference_mode():
            steps = model(torch.tensor([[*prompt, *ids]])).logits[0].log_softmax(-1)
        return sum(float(steps[len(prompt) - 1 + n][token]) for n, token in enumerate(ids))

    options: list[dict[str, tuple[int, ...]]] = [
        {" A": (36,), "A": (37,), " B": (38,)},
        {f" {n}": (40 + n,) for n in range(52)},
        {"A": (50,), "B": (51, 52, 53), "C": (51, 52), "D": (51, 52)},
    ]
    prompts = [[*PROMPT, 80 + n] for n in range(9)]
    asked = [
        Request("d", str(n), prompt, 1, continuations=options[n % 3], key=f"asked {n}")
        for n, prompt in enumerate(prompts)
    ]
    free = [Request("d", str(n), prompt, 6, wanted_logprobs=2, key=f"free {n}") for n, prompt in enumerate(prompts)]
    mixed = [request for pair in zip(asked, free, strict=True) for request in pair]
    replies = {reply.key: reply for reply in engine.generate(mixed)}
    assert len(replies) == 18
    for number, request in enumerate(asked):
        found = replies[request.key].continuations
        assert found is not None
        assert list(found) == list(request.continuations)
        for name, ids in request.continuations.items():
            assert found[name] == pytest.approx(expected(prompts[number], ids), abs=1e-4)
    for number, prompt in enumerate(prompts):
        steps = replies[f"free {number}"].logprobs
        assert steps is not None
        assert len(steps) == 6
        for token, value in steps[0].items():
            assert value == pytest.approx(expected(prompt, (token,)), abs=1e-4)
        assert len(steps[0]) >= 2

"""vLLM and transformers as engines, on a tiny random model: budgets, stops, seeds, a long queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localeval.engines.base import Engine, EngineConfig, start_engine
from localeval.schema import Request, Sampling

pytestmark = pytest.mark.engine

PROMPT = [40, 50, 60, 70]


@pytest.fixture(scope="module", params=["vllm", "transformers"])
def engine(request: pytest.FixtureRequest, tiny: Path) -> Iterator[Engine]:
    started = start_engine(request.param, EngineConfig(tiny, max_model_len=512, logprobs=2))
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
        for n in range(200):
            made += 1
            yield Request("d", str(n), [*PROMPT, 10 + n % 90], 2, key=str(n))

    replies = engine.generate(stream())
    next(replies)
    assert made < 200
    assert 1 + sum(1 for _ in replies) == 200

"""One stream through a real engine in its own process: ids, settings, the engine's setting up, drafts."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest

from localeval.config import load_config
from localeval.engines.base import EngineConfig
from localeval.engines.child import ChildEngine
from localeval.engines.sizing import Speculation, work_of
from localeval.engines.vllm import VllmEngine
from localeval.grammar import Choice
from localeval.jobs import load_jobs
from localeval.order import arranged
from localeval.plan import keyed, plan_requests
from localeval.prompts import Prompter
from localeval.schema import Completion, Request, Sampling
from tests.engine.conftest import MainJob, blocked_network, child_engine
from tests.engine.test_main_job import predictions

pytestmark = pytest.mark.engine


def test_each_request_of_a_long_stream_has_its_own_reply_and_settings(tiny: Path) -> None:
    """More requests than wait anywhere, of every kind mixed; each reply is the one of that request asked alone."""
    shared = [40 + n % 50 for n in range(70)]
    requests = []
    for n in range(1_500):
        own = Request("d", f"{n % 3}:{n}", [*shared, 10 + n % 85, 10 + n // 85], 1 + n % 7, key=str(n))
        if n % 5 == 1:
            own = replace(own, sampling=Sampling(temperature=1.0, seed=n))
        elif n % 5 == 2:
            own = replace(own, max_tokens=12, constraint=Choice("ABCD"[: 2 + n % 3]))
        elif n % 5 == 3:
            own = replace(own, max_tokens=1, continuations={" A": (36,), " B": (38,)})
        requests.append(own)
    ordered = arranged(requests)
    engine = child_engine(EngineConfig(tiny, max_model_len=128, constrained=True, work=work_of(ordered)))
    try:
        found = list(engine.generate(ordered))
        assert sorted(reply.key for reply in found) == sorted(request.key for request in requests)
        replies = {reply.key: reply for reply in found}
        for request in requests:
            reply = replies[request.key]
            assert reply.sample_id == request.sample_id
            assert reply.prompt_tokens == 72
            if request.constraint is not None:
                assert request.constraint.accepts(reply.text)
            elif not request.continuations:
                assert reply.output_tokens <= request.max_tokens
                assert reply.output_tokens == request.max_tokens or reply.finish_reason == "stop"
            assert (reply.continuations is None) == (not request.continuations)
        # 70 of the 72 tokens are shared by all: a block of 64.
        assert engine.settings()["block_size"] == 64
        assert sum(reply.cached_tokens for reply in found) >= 1_400 * 64
        for request in requests[:60:4]:
            (alone,) = engine.generate([request])
            same(replies[request.key], alone)
        followed(engine)
        # Left in the middle, as by an error: it ends at once, and not when all is answered.
        left = engine.generate(ordered)
        next(left)
        begin = time.monotonic()
        engine.close()
        assert time.monotonic() - begin < 10
        assert not psutil.pid_exists(engine._process.pid)
    finally:
        engine.close()


def followed(engine: ChildEngine) -> None:
    """Each reply leads to a second request that goes on from it: asked at once, and most of it is in the cache."""
    firsts = {
        f"first {n}": Request("d", str(n), [n % 80 + 10, *range(40, 100), n // 80 + 10], 40, then=8, key=f"first {n}")
        for n in range(800)
    }
    waiting, ready = deque(firsts.values()), deque[Request]()
    out, done = 0, list[Completion]()

    def stream() -> Iterator[Request | None]:
        nonlocal out
        while waiting or ready or out:
            request = ready.popleft() if ready else waiting.popleft() if waiting else None
            out += request is not None
            yield request

    for reply in engine.generate(stream()):
        out -= 1
        done.append(reply)
        if reply.key in firsts:
            ids = [*firsts[reply.key].prompt_token_ids, *reply.token_ids, 50, 51]
            asked = Request(
                "d", reply.sample_id, ids, 1, continuations={"A": (36,)}, forced=True, key=f"then {reply.key}"
            )
            ready.append(asked)
    places = {reply.key: place for place, reply in enumerate(done)}
    assert len(places) == len(done) == 1_600
    # Between a reply and what it leads to come the others that run, and few more.
    between = [places[f"then {key}"] - places[key] for key in firsts]
    assert sorted(between)[720] < 400
    second = [reply for reply in done if reply.continuations is not None]
    assert sum(reply.cached_tokens for reply in second) >= 0.9 * 800 * 64


def same(a: Completion, b: Completion) -> None:
    assert (a.text, a.token_ids, a.finish_reason) == (b.text, b.token_ids, b.finish_reason)
    if a.continuations is not None and b.continuations is not None:
        assert a.continuations == pytest.approx(b.continuations, abs=1e-4)


def test_the_setting_up_is_recorded(main_job: MainJob) -> None:
    facts = [json.loads((run.folder / "run.json").read_text()) for run in main_job.result.runs]
    engine, seconds = facts[0]["engine"], facts[0]["seconds"]
    assert engine["process"] == "child"
    assert engine["enable_prefix_caching"] is True
    assert "log probabilities" in engine["reasons"]["speculative_config"]
    assert "speculative_config" not in engine
    assert seconds["generate"] > 0
    # The engine began before the data was read, so less was waited for than it took.
    assert seconds["start"] < facts[0]["served"]["seconds"] <= seconds["start"] + seconds["prepare"] + 5
    for run, each in zip(main_job.result.runs, facts, strict=True):
        rows = predictions(run.folder).values()
        assert each["tokens"] == {
            side: sum(getattr(row, f"{side}_tokens") for row in rows) for side in ("prompt", "cached", "output")
        }
        assert 0 < each["tokens"]["cached"] < each["tokens"]["prompt"]
        assert f"replies {each['tokens']['output']:,} tokens" in (run.folder / "report.md").read_text()


def test_drafts_change_no_reply(data_dir: Path, smollm2: Path) -> None:
    """12 sentences, free and held to their grammars, with tokens drafted from the prompt and without."""
    fields = {"model": "smollm2-135m", "datasets": ["conllpp"], "dataset_dir": str(data_dir), "limit": 12}
    # A process of its own: what drafts bring with them keeps further engines of vLLM 0.32 from starting.
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        (plain, steps), (drafted, fewer) = pool.submit(_with_and_without_drafts, fields, smollm2).result()
    assert plain == drafted
    assert len(plain) == 24
    assert fewer < 0.7 * steps  # drafts were made, and were right


Said = dict[str, tuple[str, tuple[int, ...], str]]


def _with_and_without_drafts(fields: dict[str, Any], model: Path) -> list[tuple[Said, int]]:
    """What is said without and with drafts, and in how many steps of the engine."""
    requests: list[Request] = []
    for held in (False, True):
        config = load_config({**fields, "constrain": held, "generation_config": {"max_tokens": 80}})
        (job,) = load_jobs(config)
        requests += keyed(plan_requests(job, config, Prompter(model), 2048), "", {}).requests
    work, longest = work_of(arranged(requests)), max(request.length for request in requests)
    found = []
    ways: tuple[Speculation, ...] = ("off", "auto")
    for how in ways:
        engine = VllmEngine(EngineConfig(model, longest, constrained=True, work=work, speculation=how))
        assert ("speculative_config" in engine.settings()) is (how == "auto")
        with mock.patch.object(engine._llm.llm_engine, "step", wraps=engine._llm.llm_engine.step) as step:
            said = {r.key: (r.text, r.token_ids, r.finish_reason) for r in engine.generate(requests)}
            found.append((said, step.call_count))
        engine.close()
    return found


def test_the_network_is_blocked_in_the_engines_process_too(tiny: Path, tmp_path: Path) -> None:
    """Else nothing would be shown where nothing was tried."""
    with blocked_network(tmp_path) as tried, pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALEVAL_TEST_LOOKUP", "far")
        engine = ChildEngine("transformers", {})
        engine.start(EngineConfig(tiny, max_model_len=128))
        engine.close()
    assert "getaddrinfo far" in tried

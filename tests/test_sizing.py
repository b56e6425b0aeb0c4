"""How an engine is set up: what is counted of the work, and what is chosen for it, with its reasons."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import pytest

from localeval.engines.sizing import ANY, Machine, Work, shared_prefix, size, work_of
from localeval.grammar import Choice
from localeval.schema import Request, Sampling

CPU = Machine(on_cpu=True, memory=12 * 2**30, kv_bytes=46_080)  # SmolLM2-135M: 2 x 30 layers x 3 heads x 64 x 4 bytes
GPU = Machine(on_cpu=False)
MCQ = Work(sequences=40, prompt_tokens=6_000, reply_tokens=20_480, longest_reply=512)
NER = Work(sequences=16, prompt_tokens=8_000, reply_tokens=2_000, longest_reply=300, copied=1.0)
LETTERS = replace(MCQ, reply_tokens=40, longest_reply=1, plain=False)


# --- what is counted ---


def test_shared_prefix() -> None:
    a = array("I", range(100))
    for length in (0, 1, 31, 32, 99, 100):
        b = array("I", [*range(length), 999, 999])
        assert shared_prefix(a, b) == shared_prefix(b, a) == length
    assert shared_prefix(a, array("I")) == 0


def test_the_work_is_counted() -> None:
    prompt = array("I", range(70))
    requests = [
        Request("d", "s:0", prompt, 100, copies=True),
        Request("d", "s:1", array("I", [*range(65), 7, 7]), 50),
        Request("d", "s:2", array("I", [9]), 50, constraint=Choice("AB")),
    ]
    assert work_of(requests) == Work(
        sequences=3,
        prompt_tokens=70 + 67 + 1,
        reply_tokens=200,
        longest_reply=100,
        cached={32: 64, 64: 64, 96: 0, 128: 0},  # the second shares 65 tokens with the first, the third none
        copied=0.5,
    )


def test_letters_are_one_sequence_and_texts_one_each() -> None:
    letters = Request("d", "s:0", array("I", range(10)), 1, continuations={" A": (1,), "A": (2,), " B": (3,)})
    texts = Request("d", "s:1", array("I", range(10)), 1, continuations={"A": (1, 2), "B": (3,), "C": (3,)})
    work = work_of([letters, texts])
    assert (work.sequences, work.prompt_tokens, work.longest_reply) == (1 + 2, 10 + 20, 1)
    assert not work.plain
    assert not work_of([Request("d", "s:0", (1,), 5, wanted_logprobs=2)]).plain
    assert not work_of([Request("d", "s:0", (1,), 5, sampling=Sampling(temperature=0.5))]).greedy
    assert work_of([]).sequences == 0


# --- what is chosen ---


@pytest.mark.parametrize(
    ("shared", "block"),
    [
        (0, 128),  # nothing is shared: vLLM's own
        (31, 128),
        (50, 32),  # an instruction of 50 tokens: 32 of them, and none with 64
        (70, 64),
        (100, 96),
        (127, 96),
        (128, 128),
        (161, 32),  # 160 of them, 128 with any other
        (192, 96),  # all of them with 32, 64 and 96: the largest
    ],
)
def test_a_cpus_block_is_the_one_that_shares_most(shared: int, block: int) -> None:
    prompts = [array("I", [*range(shared), 1000 + n, 1000 + n]) for n in range(5)]
    work = work_of([Request("d", f"s:{n}", prompt, 5) for n, prompt in enumerate(prompts)])
    assert size(work, CPU).arguments["block_size"] == block
    assert "block_size" not in size(work, GPU).arguments


@pytest.mark.parametrize(
    ("work", "eager"),
    [
        (LETTERS, True),  # one token
        (replace(LETTERS, sequences=10**6, prompt_tokens=10**9, reply_tokens=10**6), True),
        (MCQ, True),  # 512 steps
        (replace(MCQ, sequences=152_149, reply_tokens=152_149 * 512), False),  # MILU: 304,298 steps
        (replace(NER, sequences=3_453, reply_tokens=3_453 * 200), True),  # CoNLL++: 2,698 steps
        (replace(MCQ, longest_reply=8_704), False),  # one reply that thinks
        (ANY, False),
    ],
)
def test_graphs_are_captured_where_a_run_earns_them_back(work: Work, eager: bool) -> None:
    sizing = size(work, GPU)
    assert sizing.arguments.get("enforce_eager", False) is eager
    assert ("enforce_eager" in sizing.reasons) is eager
    assert size(work, CPU).arguments["enforce_eager"] is True


def test_a_gpu_is_not_made_ready_for_more_than_there_is() -> None:
    assert size(MCQ, GPU).arguments["max_num_seqs"] == 40
    assert "max_num_seqs" not in size(replace(MCQ, sequences=256), GPU).arguments


@pytest.mark.parametrize(
    ("work", "machine", "wanted", "drafts", "why"),
    [
        (NER, CPU, "auto", True, "100% of the reply tokens"),
        (NER, GPU, "auto", True, "100% of the reply tokens"),
        (NER, CPU, "off", False, "switched off"),
        (MCQ, CPU, "auto", False, "0% of the reply tokens"),
        (MCQ, CPU, "on", True, "switched on"),
        (replace(NER, sequences=15), CPU, "auto", False, "fewer than 16 sequences"),
        (replace(NER, sequences=1_000), CPU, "auto", True, "100% of the reply tokens"),
        (replace(NER, sequences=1_000), GPU, "auto", False, "more than 64 sequences"),
        (replace(NER, sequences=1_000), GPU, "on", True, "switched on"),
        (replace(NER, greedy=False), CPU, "on", False, "drawn"),
        (replace(NER, plain=False), CPU, "on", False, "log probabilities"),
        (LETTERS, GPU, "on", False, "log probabilities"),
    ],
)
def test_drafts_where_they_pay(work: Work, machine: Machine, wanted: Any, drafts: bool, why: str) -> None:
    sizing = size(work, machine, wanted)
    assert ("speculative_config" in sizing.arguments) is drafts
    assert why in sizing.reasons["speculative_config"]


def test_drafts_are_not_put_beside_what_they_may_not_go_with() -> None:
    for name in ("async_scheduling", "max_num_batched_tokens", "pipeline_parallel_size", "speculative_config"):
        sizing = size(NER, GPU, engine_args={name: 2})
        assert "speculative_config" not in sizing.arguments
        assert name in sizing.reasons["speculative_config"]
    assert "speculative_config" in size(NER, GPU, engine_args={"max_num_seqs": 2}).arguments


def test_a_cpus_cache_holds_the_sequences_at_once() -> None:
    assert size(MCQ, CPU).cache_gib == 2  # 40 x 662 tokens x 46,080 bytes = 1.14 GiB
    assert size(NER, CPU).cache_gib == 1  # 10,000 tokens
    long = replace(MCQ, sequences=10_000, prompt_tokens=10_000 * 900, reply_tokens=10_000 * 512)
    assert size(long, CPU).cache_gib == 4  # 64 x 1,412 tokens = 3.88 GiB
    assert size(long, replace(CPU, memory=4 * 2**30)).cache_gib == 2  # half of it
    assert size(long, replace(CPU, memory=-(2**30))).cache_gib == 1
    assert size(long, replace(CPU, memory=4 * 2**30, room=70_000)).cache_gib == 4  # 3.004 GiB: the longest must fit
    assert size(long, replace(CPU, kv_bytes=None)).cache_gib == 1
    assert size(long, GPU).cache_gib is None


def test_each_choice_has_its_reason() -> None:
    for machine in (CPU, GPU):
        for work in (MCQ, NER, LETTERS, ANY):
            sizing = size(work, machine)
            assert set(sizing.arguments) <= set(sizing.reasons)
            assert all(sizing.reasons.values())

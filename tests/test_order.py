"""The order in which requests go to an engine: none is lost or changed, and what begins alike is asked together."""

from __future__ import annotations

import random
from array import array
from dataclasses import replace
from itertools import pairwise

from localeval.engines.sizing import shared_prefix
from localeval.order import arranged
from localeval.schema import Request


def ask(sample_id: str, prompt: list[int], budget: int = 8, dataset: str = "d") -> Request:
    return Request(dataset, sample_id, array("I", prompt), budget, key=f"{dataset} {sample_id} {budget} {prompt}")


def test_every_request_is_there_once_and_as_it_was() -> None:
    draw = random.Random(0)
    requests = [
        ask(f"{subset}:{n}", [draw.randrange(3) for _ in range(draw.randrange(6))], draw.randrange(1, 99))
        for subset in ("b", "a")
        for n in range(300)
    ]
    found = arranged(requests)
    assert sorted(map(id, found)) == sorted(map(id, requests))
    assert arranged(requests) == found  # the same again
    assert arranged([]) == []


def test_subsets_follow_one_another_as_they_were_given() -> None:
    requests = [ask("Hindi:0", [1]), ask("Tamil:0", [1]), ask("Hindi:1", [2]), ask("default:0", [1], dataset="e")]
    assert [request.sample_id for request in arranged(requests)] == ["Hindi:0", "Hindi:1", "Tamil:0", "default:0"]


def test_what_begins_alike_is_asked_together() -> None:
    """Two modes of one question share its prompt, and two rows their examples."""
    rows = {"s:0": [7, 7, 1, 5], "s:1": [9, 9, 2, 5], "s:2": [7, 7, 3, 5], "s:3": [9, 9, 1, 4]}
    generated = [ask(name, ids, 512) for name, ids in rows.items()]
    scored = [ask(name, [*ids, 6], 1) for name, ids in rows.items()]
    found = arranged([*generated, *scored])
    assert [(request.sample_id, request.max_tokens) for request in found] == [
        ("s:0", 512), ("s:0", 1), ("s:2", 512), ("s:2", 1), ("s:3", 512), ("s:3", 1), ("s:1", 512), ("s:1", 1),
    ]  # fmt: skip
    shared = [shared_prefix(array("I", a.prompt_token_ids), array("I", b.prompt_token_ids)) for a, b in pairwise(found)]
    assert shared == [4, 2, 4, 0, 4, 2, 4]


def test_what_vllm_does_not_run_together_is_not_mixed() -> None:
    best = [replace(ask(f"s:{n}", [n], 9), wanted_logprobs=2) for n in range(5)]
    named = [replace(ask(f"s:{n}", [n, 6], 1), continuations={" A": (1,)}) for n in range(5)]
    found = arranged([*named, *best])
    assert [request.wanted_logprobs for request in found] == [2] * 5 + [0] * 5
    assert arranged([*best, ask("s:9", [0, 1])])[1].sample_id == "s:9"  # a plain reply goes beside either


def test_the_tenth_with_the_longest_budgets_goes_first() -> None:
    requests = [ask(f"s:{n}", [100 - n], budget=n) for n in range(100)]
    found = [request.max_tokens for request in arranged(requests)]
    assert found[:9] == [99, 98, 97, 96, 95, 94, 93, 92, 91]
    # The prompt of the one with budget 90 is [10], that of 89 [11], and so on.
    assert found[9:] == list(range(90, -1, -1))
    alike = [request.sample_id for request in arranged([ask(f"s:{n}", [9 - n]) for n in range(10)])]
    assert alike == [f"s:{n}" for n in range(9, -1, -1)]

"""Budgets, stops and overflow: what each request is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from localeval.config import load_config
from localeval.jobs import load_jobs
from localeval.plan import Plan, plan_requests
from localeval.prompts import Prompter
from localeval.schema import LocalevalError
from tests.fakes import CHATML, THINKING, make_tokenizer


def plan(dataset: Path, template: str = CHATML, context: int | None = None, **fields: Any) -> Plan:
    config = load_config({"model": "m", "datasets": [str(dataset)], **fields})
    prompter = Prompter(make_tokenizer(dataset.parent / "tokenizer", template), thinking=config.thinking)
    return plan_requests(load_jobs(config)[0], config, prompter, context, "model", {})


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
    assert dropped.dropped_shots == 5
    assert bare < len(dropped.requests[0].prompt_token_ids) < full
    with pytest.raises(LocalevalError, match="1 prompts leave no room"):
        plan(mcq_dataset, context=bare, dataset_args=args, on_overflow="drop-shots")


def test_keys_are_unique_and_stable(mcq_dataset: Path) -> None:
    keys = [r.key for r in plan(mcq_dataset).requests]
    assert len(set(keys)) == 5
    assert keys == [r.key for r in plan(mcq_dataset).requests]

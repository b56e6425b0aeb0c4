"""``--dry-run``: all that a run does before it needs an engine, and what it would then ask. Writes no run folder.

Data is checked, models are found and their weights hashed, prompts are made and held against the context, earlier
replies are counted, and weights and cache are held against the memory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localeval.checkpoints import Checkpoint, find_checkpoints
from localeval.config import TaskConfig, load_config
from localeval.doctor.check import as_list
from localeval.doctor.examine import in_memory
from localeval.doctor.gpus import find_gpus, visible
from localeval.doctor.model import Packed, locate
from localeval.doctor.place import gib
from localeval.engines.settings import runs_on_cpu
from localeval.engines.sizing import BLOCKS, work_of
from localeval.evaluation import Evaluation, Prepared, answered
from localeval.identity import short
from localeval.jobs import right_reply
from localeval.model import Model, find_model, find_replay
from localeval.model_names import load_models
from localeval.offline import go_offline
from localeval.order import arranged
from localeval.report.text import table
from localeval.run import refuse_alone, refuse_together
from localeval.schema import LocalevalError, Request

HEADER = ["to ask", "rows", "reused", "asked", "prompt tokens", "longest prompt", "if right", "at most"]
LEGEND = (
    "prompt tokens: of what is asked. if right: the reply tokens, where each reply is the right one in the form asked "
    "for and\nno word more; a model that explains or thinks first makes more, up to `at most`, its budget."
)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """text: what would be asked. failed: the models of which nothing would be."""

    text: str
    failed: tuple[str, ...] = ()


def dry_run(source: TaskConfig | Mapping[str, Any]) -> Rehearsal:
    """Goes through a run up to the engine. Raises LocalevalError for what would end it; of several models the one."""
    go_offline()
    config = load_config(source).with_absolute_paths()
    if config.engine.startswith("replay:"):
        refuse_alone(config)
        return Rehearsal(_said([_replayed(config)], ""))
    checkpoints = find_checkpoints(config.asked_models, load_models(config.models))
    if len(checkpoints) == 1:
        refuse_alone(config)
    evaluation = Evaluation(config)
    if len(checkpoints) > 1:
        refuse_together(config, checkpoints)
    parts, failed = [], []
    for checkpoint in checkpoints:
        try:
            parts.append(_of_model(evaluation, config.of_model(checkpoint.asked), checkpoint))
        except (LocalevalError, OSError) as error:
            if len(checkpoints) == 1:
                raise
            failed.append(checkpoint.label)
            parts.append(f"{checkpoint.label} would fail: {error}")
    return Rehearsal(_said(parts), tuple(failed))


def _said(parts: Sequence[str], legend: str = LEGEND) -> str:
    return "\n\n".join(["dry run: no engine is started, no run folder is written", *parts, legend]).rstrip()


def _replayed(config: TaskConfig) -> str:
    evaluation = Evaluation(config)
    model, replay = find_replay(config, evaluation.jobs)
    try:
        prepared = evaluation.prepare(model, config)
        found = answered(prepared, config)
        replay.check(request for each in _left(prepared, found) for request in each)
    finally:
        replay.close()
    head = f"{model.name} ({short(model.fingerprint)}), replayed from {replay.path}; each row has its reply"
    return "\n\n".join([head, _asked(prepared, found, config), _folders(prepared)])


def _of_model(evaluation: Evaluation, config: TaskConfig, checkpoint: Checkpoint) -> str:
    weights = locate(config, checkpoint.asked)
    if isinstance(weights, Packed):
        return (
            f"{checkpoint.label}: {weights.file}: a run unpacks it first, into {weights.folder} ({gib(weights.size)}); "
            "its prompts are counted after that"
        )
    model = find_model(config, checkpoint.asked)
    prepared = evaluation.prepare(model, config)
    found = answered(prepared, config)
    left = [request for each in _left(prepared, found) for request in each]
    requests = [request for each in prepared for request in each.plan.requests]
    parts = [_head(model), _asked(prepared, found, config), _folders(prepared)]
    if left:
        checks = in_memory(config, weights, model.name, requests, _gpus())
        parts += [_shared(left), as_list(checks)]
    else:
        forced = ", but for forced answers that are missing" if config.force_answer else ""
        parts.append(f"nothing is left to ask{forced}: no engine would be started")
    return "\n\n".join(parts)


def _head(model: Model) -> str:
    assert model.weights is not None  # it is not replayed
    return f"{model.name} ({short(model.fingerprint)}), {model.identity['engine']}: {model.weights.folder}"


def _gpus() -> Sequence[Any] | None:
    """Those that a program sees; None where models run on the CPU."""
    seen = visible(find_gpus().gpus, os.environ)
    return None if runs_on_cpu() or not seen else seen


def _left(prepared: Sequence[Prepared], found: Sequence[set[str]]) -> list[list[Request]]:
    """What is to be asked, one list a job."""
    return [
        [request for request in each.plan.requests if request.key not in keys]
        for each, keys in zip(prepared, found, strict=True)
    ]


def _asked(prepared: Sequence[Prepared], found: Sequence[set[str]], config: TaskConfig) -> str:
    rows = [_row(each, left) for each, left in zip(prepared, _left(prepared, found), strict=True)]
    shown = table(HEADER, rows)
    if config.noise:
        shown += f"\n--noise {config.noise}: all rows are asked {config.noise} times; the figures are of the first"
    if config.force_answer:
        shown += (
            "\n--force-answer: a reply that can't be read is asked once more, for one token; it is not in the figures"
        )
    return shown


def _row(prepared: Prepared, left: Sequence[Request]) -> list[str]:
    requests = prepared.plan.requests
    counts = [f"{len(requests):,}", f"{len(requests) - len(left):,}", f"{len(left):,}"]
    if prepared.model.prompter is None:
        return [prepared.plan.job.title, *counts, "–", "–", "–", "–"]
    longest = max(requests, key=lambda request: len(request.prompt_token_ids))
    work = work_of(left)
    return [
        prepared.plan.job.title,
        *counts,
        f"{_prompt_tokens(left):,}",
        f"{len(longest.prompt_token_ids):,} ({longest.sample_id})",
        f"{_if_right(prepared, left):,}",
        f"{work.reply_tokens:,}",
    ]


def _prompt_tokens(requests: Sequence[Request]) -> int:
    """As a run counts them: an option of several tokens is a part of the prompt that it is read in."""
    options = [set(request.continuations.values()) for request in requests]
    several = [ends for ends in options if any(len(end) > 1 for end in ends)]
    return work_of(requests).prompt_tokens + sum(len(end) for ends in several for end in ends)


def _if_right(prepared: Prepared, left: Sequence[Request]) -> int:
    """Tokens of the right replies, each with the one that ends it; where nothing is generated, one a row."""
    job, prompter = prepared.plan.job, prepared.model.prompter
    if not job.generated or prompter is None:
        return len(left)
    asked = {request.sample_id: request.max_tokens for request in left}
    samples = [sample for sample in job.dataset.samples if sample.id in asked]
    lengths = prompter.lengths(right_reply(job.dataset.spec, sample) for sample in samples)
    return sum(min(length + 1, asked[sample.id]) for sample, length in zip(samples, lengths, strict=True))


def _shared(left: Sequence[Request]) -> str:
    work, block = work_of(arranged(left)), BLOCKS[0]
    return (
        f"{work.cached[block]:,} of {_prompt_tokens(left):,} prompt tokens begin as the prompt before them does, in "
        f"blocks of {block}: what is in the cache is not computed again"
    )


def _folders(prepared: Sequence[Prepared]) -> str:
    return "\n".join([f"{each.plan.job.title}: {_short(each.folder.path)}" for each in prepared])


def _short(path: Path) -> str:
    return f"{path}{'' if path.exists() else ' (new)'}"

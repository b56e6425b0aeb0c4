"""``localeval list DATASET --show N``: some prompts as they are asked, each with what would be right.

Starts no engine and hashes no weights; of a model it loads the tokenizer alone, where one is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice, zip_longest
from typing import Any

from localeval.config import TaskConfig, load_config
from localeval.datasets.rows import odd_rows
from localeval.jobs import Job, load_jobs, right_reply
from localeval.offline import go_offline
from localeval.plan import Plan, prompt_texts
from localeval.progress import warn
from localeval.prompts import Prompter
from localeval.schema import LocalevalError, Sample

WIDTH = 100
"""Characters of the rules between prompts."""


def prompts(asked: Mapping[str, Any], count: int) -> str:
    """The first ``count`` prompts, the first of each subset before the second of any.

    asked: fields of a TaskConfig; where it names a model, prompts are as its chat template makes them. Raises
    LocalevalError.
    """
    if count < 1:
        raise LocalevalError(f"--show {count}: expected how many prompts, 1 or more")
    go_offline()
    config = load_config({"limit": count, **asked, **({} if asked.get("model") else {"engine": "replay:"})})
    (job,) = load_jobs(config)
    for line in odd_rows(job.dataset):
        warn(line)
    prompter = _prompter(config, job) if config.asked_models else None
    some = list(islice(_one_of_each(job), count))
    part = replace(job, dataset=replace(job.dataset, samples=tuple(some)))
    texts = prompt_texts(Plan(part, ()), prompter)
    given = f"as {config.asked_models[0]} is given them" if prompter else "the user's message, before a chat template"
    head = f"{job.name}, {job.shots} shots; the first of each subset first; {given}"
    if job.answer_pattern:
        head += f"\nreplies are read by answer_pattern: {job.answer_pattern}"
    system = _block("system prompt", job.args.system_prompt) if job.args.system_prompt and not prompter else []
    shown = [_sample(job, sample, text) for sample, text in zip(some, texts, strict=True)]
    return "\n".join([head, "", *system, *chain(*shown)]).rstrip()


def _prompter(config: TaskConfig, job: Job) -> Prompter:
    from localeval.doctor.model import Packed, locate, unhashed
    from localeval.model import for_mode

    weights = locate(config, config.asked_models[0])
    if isinstance(weights, Packed):
        raise LocalevalError(f"{weights.file}: a first run unpacks it; before that there is no tokenizer to read")
    prompter = for_mode(unhashed(config, weights), job, config).prompter
    assert prompter is not None  # the model above has one
    return prompter


def _one_of_each(job: Job) -> Iterator[Sample]:
    subsets: dict[str, list[Sample]] = {}
    for sample in job.dataset.samples:
        subsets.setdefault(sample.subset, []).append(sample)
    for turn in zip_longest(*subsets.values()):
        yield from (sample for sample in turn if sample is not None)


def _sample(job: Job, sample: Sample, prompt: str) -> list[str]:
    groups = "".join(f" · {name} {value}" for name, value in sample.meta.items())
    right = right_reply(job.dataset.spec, sample)
    if sample.choices:
        letter = sample.gold[0]
        right = f"{letter}) {sample.choices[ord(letter) - ord('A')]}\n(a reply that says so: {right})"
    return [*_block(sample.id + groups, prompt), *_block("gold", right, "-"), ""]


def _block(title: str, text: str, rule: str = "=") -> Sequence[str]:
    return [f"{rule * 2} {title} ".ljust(WIDTH, rule), text]

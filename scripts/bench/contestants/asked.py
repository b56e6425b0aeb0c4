"""What every contestant is asked: localeval's own prompts, and how a contestant's replies are judged where it can't."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trial import report_of

from localeval.config import load_config
from localeval.jobs import Job, load_jobs
from localeval.model_names import load_models
from localeval.plan import plan_requests, reply_start
from localeval.prompts import Prompter, context_length
from localeval.report.build import headline
from localeval.schema import Completion, Request
from localeval.weights import Sources, find_weights

SUBSET = "English"
"""Of MILU: one language is enough to time, and keeps the prompts of like length."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rows of each job, and the most new tokens of a reply, which are the same for every contestant."""

    rows_mcq: int
    rows_ner: int
    tokens_mcq: int
    tokens_ner: int


@dataclass(frozen=True, slots=True)
class Work:
    """One job.

    name: ``milu`` and ``conllpp`` ask for a reply, ``letters`` for the letters' probabilities. fields: of localeval's
    config. prompts: the texts that the token ids of ``requests`` are made of, chat template included; messages: the
    user's turn alone.
    """

    name: str
    fields: Mapping[str, Any]
    model: Path
    job: Job
    prompter: Prompter
    requests: tuple[Request, ...]
    prompts: tuple[str, ...]
    messages: tuple[str, ...]

    @property
    def rows(self) -> int:
        return len(self.requests)

    @property
    def max_tokens(self) -> int:
        return max(request.max_tokens for request in self.requests)

    @property
    def stop(self) -> list[str]:
        """Strings that end a reply."""
        return list(dict.fromkeys(text for request in self.requests for text in request.stop))

    @property
    def longest(self) -> int:
        """The most tokens of a prompt and its reply, and one: lm-eval makes a token after a letter."""
        return max(request.length for request in self.requests) + 1

    @property
    def gold(self) -> list[int]:
        """The place of each question's right letter."""
        return [ord(sample.gold[0]) - ord("A") for sample in self.job.dataset.samples]

    def judge(self, replies: Sequence[Completion]) -> float | None:
        """The score that localeval gives to replies in the order of the rows."""
        report = report_of(self.job, self.prompter, replies)
        return report.metrics[headline(report)].value

    def same_ids(self, found: Sequence[Sequence[int]]) -> str:
        """How a contestant's prompts compare with localeval's, token by token and in any order."""
        return _compared({tuple(request.prompt_token_ids) for request in self.requests}, set(map(tuple, found)))

    def same_messages(self, found: Sequence[tuple[str, int]]) -> str:
        """The same by the user's message and the number of the whole prompt's tokens, where that is all there is."""
        counts = [len(request.prompt_token_ids) for request in self.requests]
        return _compared(set(zip(self.messages, counts, strict=True)), set(found))


def _compared(own: Set[object], found: Set[object]) -> str:
    differ = max(len(own - found), len(found - own))
    return f"{differ} differ" if differ else "same"


def load_work(name: str, model: str, dataset_dir: str, sizes: Sizes) -> Work:
    """The first rows of a job. Raises LocalevalError."""
    dataset = "conllpp" if name == "conllpp" else "milu"
    fields: dict[str, Any] = {
        "model": model,
        "datasets": [dataset],
        "dataset_dir": dataset_dir,
        "dataset_args": {"milu": {"subset_list": [SUBSET]}} if dataset == "milu" else {},
        "limit": sizes.rows_ner if name == "conllpp" else sizes.rows_mcq,
        "generation_config": {"max_tokens": sizes.tokens_ner if name == "conllpp" else sizes.tokens_mcq},
        "mcq": "logprob" if name == "letters" else "generate",
    }
    config = load_config(fields)
    folder = find_weights(model, Sources(load_models()), print).folder
    prompter = Prompter(folder).without_thinking()
    (job,) = load_jobs(config)
    plan = plan_requests(job, config, prompter, context_length(folder))
    messages = tuple(job.messages())
    prompts = tuple(prompter.render(messages, job.args.system_prompt, reply_start(job)))
    return Work(name, fields, folder, job, prompter, plan.requests, prompts, messages)


def write_json(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return path


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """A JSON object a line."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path

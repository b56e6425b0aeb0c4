"""lm-evaluation-harness, as published, with its transformers and its vLLM back end.

Its task is written here: a row's prompt is localeval's, chat template included, so that it asks the same; the ids that
reach its back end are compared with localeval's. Questions are its multiple_choice over the four letters; replies are
its generate_until, for which it has no score, so that localeval's is shown.

On transformers its batch is 1, its default: a batch of other rows is padded to its longest, and on a CPU costs more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from contestants import envs
from contestants.asked import Work, write_rows
from contestants.own import completions
from contestants.told import Ask, Place, Told
from localeval.engines.settings import runs_on_cpu
from localeval.tasks.likelihood import spellings

_IN_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
"""Else two more processes import everything again, which takes a minute on two cores."""


def lm_eval(backend: str) -> Ask:
    """backend: ``hf`` or ``vllm``, as it calls them. One object does all jobs, one task after another."""

    def ask(works: Sequence[Work], place: Place) -> list[Told]:
        folder = place.folder / "tasks"
        folder.mkdir()
        asked = {
            "backend": backend,
            "arguments": _arguments(backend, works),
            "folder": str(folder),
            "tasks": [_write_task(work, folder) for work in works],
        }
        python = envs.python_of(envs.LM_EVAL, place.envs)
        variables = {"HF_DATASETS_CACHE": str(place.folder / "cache"), **envs.VARIABLES, **_IN_PROCESS}
        whole, told = place.program(python, "in_lm_eval", asked, variables)
        start = whole - sum(job["work"] for job in told["jobs"])
        return [_told(work, start, told["loading"], job) for work, job in zip(works, told["jobs"], strict=True)]

    return ask


def _told(work: Work, start: float, loading: float, job: Mapping[str, Any]) -> Told:
    return Told(
        start=start,
        work=job["work"],
        loading=loading,
        prompt_tokens=job["prompt_tokens"],
        output_tokens=job["output_tokens"],
        score=_score(work, job),
        prompts=work.same_ids(job["prompts"]),
    )


def _score(work: Work, job: Mapping[str, Any]) -> float | None:
    if not work.job.generated:
        return float(job["results"]["acc,none"])
    return work.judge(completions(work.requests, job["replies"]))


def _arguments(backend: str, works: Sequence[Work]) -> dict[str, Any]:
    common: dict[str, Any] = {"pretrained": str(works[0].model), "dtype": "float32"}
    if backend == "hf":
        return {**common, "batch_size": 1, **({"device": "cpu"} if runs_on_cpu() else {})}
    eager = {"enforce_eager": True} if runs_on_cpu() else {}
    longest = max(work.longest for work in works)
    return {**common, "batch_size": "auto", "max_model_len": longest, **eager, **envs.ON_CPU}


def _write_task(work: Work, folder: Path) -> str:
    """Writes a task's YAML and its rows; gives back its name."""
    name = f"peers_{work.name}"
    gold = [{}] * work.rows if work.job.generated else [{"gold": place} for place in work.gold]
    rows = [{"prompt": prompt, **place} for prompt, place in zip(work.prompts, gold, strict=True)]
    task: dict[str, Any] = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(write_rows(folder / f"{work.name}.jsonl", rows))}},
        "test_split": "test",
        "doc_to_text": "{{prompt}}",
        "target_delimiter": "",
        **(_replies(work) if work.job.generated else _LETTERS),
    }
    (folder / f"{work.name}.yaml").write_text(yaml.safe_dump(task), encoding="utf-8")
    return name


_LETTERS: Mapping[str, Any] = {
    "output_type": "multiple_choice",
    "doc_to_choice": [spellings(letter)[0] for letter in "ABCD"],
    "doc_to_target": "gold",
    "metric_list": [{"metric": "acc"}],
}


def _replies(work: Work) -> dict[str, Any]:
    return {
        "output_type": "generate_until",
        "doc_to_target": "",
        "generation_kwargs": {"until": work.stop, "max_gen_toks": work.max_tokens, "do_sample": False},
        "metric_list": [{"metric": "bypass"}],
    }

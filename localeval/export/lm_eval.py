"""Finished runs -> the files of lm-evaluation-harness, ``results_<time>.json`` and ``samples_<task>_<time>.jsonl``.

The format is that of its 0.4.13. A dataset of several subsets is a group of tasks, one a subset. What has no place
there (intervals, counts, entity types, the run itself) stands in the results under ``localeval``, which its readers
leave alone. Knows nothing about models or engines.
"""

from __future__ import annotations

import errno
import hashlib
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from localeval.export.named import Batch, Named, as_file_name, by_subset, row_of
from localeval.metrics import mcq
from localeval.metrics.ner import entity_tally
from localeval.results import SampleResult
from localeval.store import write_atomically
from localeval.tasks.likelihood import text_name

FILTER = "none"
"""What comes between a reply and what is judged has no names here."""
INVALID = "[invalid]"
"""What the harness says where it can't read a reply."""
UNKNOWN = "N/A"
_LOWER = {"nll", "nll_per_character", "brier", "ece", "outside"}
"""Metrics of which less is better; more of all others is."""


@dataclass(slots=True)
class _Task:
    """A subset's samples, as far as the results need them: hashes, and each metric's values, one a sample."""

    hashes: list[str] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=dict)


def write_lm_eval(batch: Batch, output: Path) -> list[Path]:
    """Writes ``<output>/<model>/`` for each model, and gives the results' files back.

    Raises FileExistsError where there is such a file.
    """
    date = batch.at.isoformat().replace(":", "-")
    written = []
    by_model = attrgetter("model")
    for model, runs in groupby(sorted(batch.runs, key=by_model), key=by_model):
        folder = output / model
        file = folder / f"results_{date}.json"
        if file.exists():
            raise FileExistsError(errno.EEXIST, "it is there already", str(file))
        folder.mkdir(parents=True, exist_ok=True)
        results = _results(list(runs), folder, date, batch.at.timestamp())
        write_atomically(file, [json.dumps(results, ensure_ascii=False, indent=2, allow_nan=False)])
        written.append(file)
    return written


# --- results ---


def _results(runs: Sequence[Named], folder: Path, date: str, timestamp: float) -> dict[str, Any]:
    """Writes the samples, and gives back what ``results_<time>.json`` holds. runs: of one model."""
    found: dict[str, dict[str, Any]] = {name: {} for name in _BY_TASK}
    for named in runs:
        tasks = _write_samples(named, folder, date)
        report = named.run.report
        together = _together(tasks.values())
        if len(report["subsets"]) == 1:
            (only,) = report["subsets"].values()
            _add(found, named, named.task, (only, together))
            found["group_subtasks"][named.task] = []
            continue
        names = {subset: f"{named.task}_{as_file_name(subset)}" for subset in tasks}
        for subset, name in names.items():
            _add(found, named, name, (report["subsets"][subset], tasks[subset]))
        whole = _metrics(named, named.task, {"n": report["n"], "metrics": report["metrics"]}, together)
        found["results"][named.task] = found["groups"][named.task] = whole
        found["group_subtasks"][named.task] = list(names.values())
        found["versions"][named.task] = _version(named)
        found["n-shot"][named.task] = named.run.facts["dataset"]["shots"]
        found["higher_is_better"][named.task] = _better(report["metrics"], named)
    if not found["groups"]:
        del found["groups"]
    whole_runs = {each.task: {"run": each.run.facts, "report": each.run.report} for each in runs}
    return {**found, **_about(runs[0], timestamp), "localeval": whole_runs}


_BY_TASK = (
    "results",
    "groups",
    "group_subtasks",
    "configs",
    "versions",
    "n-shot",
    "higher_is_better",
    "n-samples",
    "task_hashes",
)


def _add(found: dict[str, dict[str, Any]], named: Named, name: str, part: tuple[Mapping[str, Any], _Task]) -> None:
    """Adds one task. part: its group of the report, and its samples."""
    group, task = part
    facts = named.run.facts
    better = _better(group["metrics"], named)
    limited = named.run.report["limited"]
    found["results"][name] = _metrics(named, name, group, task)
    found["configs"][name] = {
        "task": name,
        "dataset_path": facts["dataset"]["name"],
        "output_type": "generate_until" if _generated(named) else "multiple_choice",
        "num_fewshot": facts["dataset"]["shots"],
        "metric_list": [{"metric": metric, "higher_is_better": higher} for metric, higher in better.items()],
        "metadata": {"version": _version(named), "mode": named.run.mode},
    }
    found["versions"][name] = _version(named)
    found["n-shot"][name] = facts["dataset"]["shots"]
    found["higher_is_better"][name] = better
    # How many rows there would have been is not known of a limited run.
    found["n-samples"][name] = {"original": None if limited else group["n"], "effective": group["n"]}
    found["task_hashes"][name] = _hash("".join(task.hashes))


def _metrics(named: Named, name: str, group: Mapping[str, Any], task: _Task) -> dict[str, Any]:
    """A task's or a group's values; what is not defined is not there. An error is that of a mean over its samples."""
    row: dict[str, Any] = {"name": name, "alias": name, "sample_len": group["n"]}
    for metric, estimate in group["metrics"].items():
        if estimate["value"] is None:
            continue
        known = _known_as(metric, named)
        values = task.values.get(known, [])
        error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else UNKNOWN
        row |= {f"{known},{FILTER}": estimate["value"], f"{known}_stderr,{FILTER}": error}
    return row


def _known_as(metric: str, named: Named) -> str:
    """``acc`` is a share of questions there; that of tokens must not be taken for one."""
    if metric != "accuracy":
        return metric
    return "acc" if named.run.task == "mcq" else "token_acc"


def _better(metrics: Iterable[str], named: Named) -> dict[str, bool]:
    return {_known_as(metric, named): metric not in _LOWER for metric in metrics}


def _version(named: Named) -> str:
    """Of the rules by which replies are read, and of the task as it was asked."""
    return f"{named.run.report['reading']}-{named.run.facts['asked'][:8]}"


def _about(named: Named, timestamp: float) -> dict[str, Any]:
    """What is of the model and the run as a whole."""
    facts = named.run.facts
    model, config, versions = facts["model"], facts["config"], facts["versions"]
    seconds = facts.get("seconds")
    return {
        "config": {
            "model": str(model["identity"]["engine"]),
            "model_args": {"pretrained": model["asked_as"] or model["name"]},
            "model_sha": model["fingerprint"],
            "limit": config["limit"],
            "gen_kwargs": config["generation_config"],
            "random_seed": config["seed"],
        },
        "git_hash": facts["git"],
        "date": timestamp,
        "transformers_version": versions.get("transformers"),
        "model_source": str(model["identity"]["engine"]),
        "model_name": named.model,
        "model_name_sanitized": named.model,
        "total_evaluation_time_seconds": str(round(sum(seconds.values()), 3)) if seconds else None,
    }


# --- samples ---


def _write_samples(named: Named, folder: Path, date: str) -> dict[str, _Task]:
    """One file a subset; what the results need of them is given back."""
    tasks = {}
    several = len(named.run.report["subsets"]) > 1
    for subset, results in by_subset(named.run):
        name = f"{named.task}_{as_file_name(subset)}" if several else named.task
        tasks[subset] = task = _Task()
        rows = (json.dumps(row, ensure_ascii=False) + "\n" for row in _noted(named, results, task))
        write_atomically(folder / f"samples_{name}_{date}.jsonl", rows)
    return tasks


def _noted(named: Named, results: Iterable[SampleResult], task: _Task) -> Iterator[dict[str, Any]]:
    for result in results:
        row = sample_row(named, result)
        task.hashes.append(row["doc_hash"] + row["prompt_hash"] + row["target_hash"])
        for metric in row["metrics"]:
            task.values.setdefault(metric, []).append(row[metric])
        yield row


def _together(tasks: Iterable[_Task]) -> _Task:
    whole = _Task()
    for task in tasks:
        for metric, values in task.values.items():
            whole.values.setdefault(metric, []).extend(values)
        whole.hashes += task.hashes
    return whole


def sample_row(named: Named, result: SampleResult) -> dict[str, Any]:
    """A row of ``samples_<task>_<time>.jsonl``."""
    doc = {
        "sample_id": result.sample_id,
        "subset": result.subset,
        "groups": dict(result.groups),
        "text": result.text,
        **({"choices": list(result.choices)} if result.choices else {"tokens": list(result.tokens)}),
        "gold": result.gold,
    }
    values = _values(named, result)
    return {
        "doc_id": row_of(result),
        "doc": doc,
        "target": result.gold,
        **(_reply(named, result) if _generated(named) else _options(named, result)),
        "filter": FILTER,
        "metrics": list(values),
        "doc_hash": _hash(json.dumps(doc, indent=2, ensure_ascii=False)),
        "prompt_hash": _hash(result.prompt),
        "target_hash": _hash(result.gold),
        **values,
    }


def _generated(named: Named) -> bool:
    return named.run.mode in ("generate", "constrained")


def _reply(named: Named, result: SampleResult) -> dict[str, Any]:
    said = {"arg_0": result.prompt, "arg_1": named.run.facts["config"]["generation_config"]}
    parsed = INVALID if result.score.parsed is None else result.score.parsed
    return {"arguments": {"gen_args_0": said}, "resps": [[result.completion.text]], "filtered_resps": [parsed]}


def _options(named: Named, result: SampleResult) -> dict[str, Any]:
    """Each option's log likelihood. Whether it is what the model would have said is not known: ``None``."""
    letters = list(result.score.logprobs)
    if named.run.mode == "cloze":
        whole = result.completion.continuations or {}
        names, found = list(result.choices), [whole[text_name(letter)] for letter in letters]
    else:
        names, found = letters, [result.score.logprobs[letter] for letter in letters]
    asked = {f"gen_args_{i}": {"arg_0": result.prompt, "arg_1": name} for i, name in enumerate(names)}
    said = [[str(value), "None"] for value in found]
    return {"arguments": asked, "resps": [[one] for one in said], "filtered_resps": said}


def _values(named: Named, result: SampleResult) -> dict[str, float]:
    """By metric a sample's own value; of a sentence also the counts out of which micro averages are made."""
    if named.run.task == "mcq":
        return {"acc": float(result.right), **mcq.smooth(result.score, named.run.mode)}
    found = entity_tally(result.score)
    counts = {"correct": found.correct, "predicted": found.predicted, "gold": found.gold}
    return {"exact_match": float(result.right), **{name: float(count) for name, count in counts.items()}}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", errors="backslashreplace")).hexdigest()

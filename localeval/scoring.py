"""The replies of a run folder -> its scores and reports. Needs no model, no tokenizer and no engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localeval import record
from localeval.config import load_config
from localeval.offline import go_offline
from localeval.plan import Job, load_job, settings_digest
from localeval.report.build import build_report, report_json
from localeval.report.text import console_text, markdown
from localeval.schema import Completion, LocalevalError, Report, Score
from localeval.store import PREDICTIONS, RunFolder, read_predictions


@dataclass(frozen=True, slots=True)
class Run:
    """One dataset asked of one model. metrics: name -> value; None for what is not defined."""

    folder: Path
    report: Report
    metrics: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class RunResult:
    """All runs of one config, and what the command prints of them."""

    runs: tuple[Run, ...]
    report_text: str


def finish(job: Job, folder: RunFolder, replies: list[Completion], facts: Mapping[str, Any], reused: int) -> Run:
    """Reads and scores the replies, and writes scores and reports."""
    opened = bool(facts["reasoning_opened"])
    samples = job.dataset.samples
    scores: list[Score] = [
        job.judge(sample, reply.text, reply.finish_reason, opened)
        for sample, reply in zip(samples, replies, strict=True)
    ]
    spec = job.dataset.spec
    report = build_report(
        dataset=job.name,
        model=facts["model"]["name"],
        task=job.task,
        samples=samples,
        scores=scores,
        subsets=job.dataset.subsets,
        group_names=list(spec.groups),
        labels=[kind.label for kind in job.entity_types],
        limited=facts["config"]["limit"] is not None,
        comparable=not facts["config"]["samples"],
        reused=reused,
        notes=[f"{facts['dropped_shots']} prompts lost shots to fit the model"] if facts["dropped_shots"] else [],
    )
    folder.write_scores(scores)
    folder.write_json("report.json", report_json(report))
    folder.write_text("report.md", markdown(report, record.measured(facts)))
    return Run(folder.path, report, {name: value.value for name, value in report.metrics.items()})


def score_run(path: Path, dataset_dir: str | None = None) -> RunResult:
    """Reads and scores the replies of finished runs again: no model, no tokenizer.

    path: a run folder, or a folder of them. dataset_dir: where the data is now, if it has moved. Raises LocalevalError
    where the data or the dataset's definition is not what it was.
    """
    go_offline()
    folders = [path] if (path / "run.json").is_file() else sorted(file.parent for file in path.rglob("run.json"))
    if not folders:
        raise LocalevalError(
            f"{path}: no run.json there or below; a run folder is <work-dir>/<model>-<hex>/<dataset>-<hex>"
        )
    runs = tuple(_score_again(RunFolder(folder), dataset_dir) for folder in folders)
    return RunResult(runs, console_text([run.report for run in runs]))


def _score_again(folder: RunFolder, dataset_dir: str | None) -> Run:
    facts = folder.read_json("run.json")
    given = {**facts["config"], **({} if dataset_dir is None else {"dataset_dir": dataset_dir})}
    config = load_config(given)
    job = load_job(config, facts["dataset"]["asked_as"])
    if settings_digest(job, config, facts["model"]["identity"]) != facts["settings"]:
        raise LocalevalError(f"{folder.path}: the definition of dataset {job.name} is not what it was in this run")
    for name, digest in facts["dataset"]["fingerprints"].items():
        if job.dataset.fingerprints[name] != digest:
            raise LocalevalError(
                f"{folder.path}: {job.dataset.files[name]} is not what was asked: its bytes have changed"
            )
    rows = {row.sample_id: row for row in read_predictions(folder.path / PREDICTIONS)}
    missing = [sample.id for sample in job.dataset.samples if sample.id not in rows]
    if missing:
        raise LocalevalError(
            f"{folder.path}: {len(missing)} samples have no reply, the first {missing[0]}; run it again"
        )
    reused = folder.read_json("report.json")["counts"]["reused"] if (folder.path / "report.json").is_file() else 0
    return finish(job, folder, [rows[sample.id] for sample in job.dataset.samples], facts, reused)

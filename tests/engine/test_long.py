"""The main job with every default, and transformers over all of it: minutes of a model's time."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from localeval import run_task
from tests.engine.conftest import DATASETS, blocked_network
from tests.engine.test_main_job import check_same_tokens, predictions

pytestmark = [pytest.mark.engine, pytest.mark.long]


def test_whole_replies_are_those_of_transformers(data_dir: Path, smollm2: Path, tmp_path: Path) -> None:
    config = {
        "model": "smollm2-135m",
        "datasets": DATASETS,
        "dataset_dir": str(data_dir),
        "limit": 8,
        "logprobs": 2,
        "work_dir": str(tmp_path),
    }
    with blocked_network(tmp_path) as tried:
        ours = run_task({**config, "engine": "vllm"})
        theirs = run_task({**config, "engine": "transformers"})
    assert tried == []
    differ = []
    for run, reference in zip(ours.runs, theirs.runs, strict=True):
        expected = predictions(reference.folder)
        for sample_id, reply in predictions(run.folder).items():
            check_same_tokens(reply, expected[sample_id])
            if reply.token_ids != expected[sample_id].token_ids:
                differ.append(f"{run.report.dataset} {sample_id}")
    print(f"{len(differ)} of 104 replies part at a near tie: {differ}")
    assert len(differ) <= 10


def test_the_curve_of_a_real_training_rises(tmp_path: Path) -> None:
    """transformers' own Trainer, 400 steps, a quiz of four options. The last checkpoint is better beyond chance."""
    script = Path(__file__).parents[2] / "scripts" / "bench" / "train_tiny.py"
    words = [str(tmp_path / "tiny"), "--every", "100"]
    subprocess.run([sys.executable, str(script), *words], check=True, timeout=580)
    result = run_task(
        {
            "model": str(tmp_path / "tiny" / "run"),
            "datasets": [str(tmp_path / "tiny" / name) for name in ("quiz.yaml", "names.yaml")],
            "generation_config": {"max_tokens": 64},
            "work_dir": str(tmp_path / "runs"),
        }
    )
    assert result.failed == ()
    assert result.folder is not None
    with (result.folder / "curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    for dataset in ("quiz", "names"):
        values = [float(row["value"]) for row in rows if row["dataset"] == dataset]
        assert len(values) == 5
        assert values == sorted(values)
        assert values[-1] > 0.8  # measured 0.95 (quiz) and 0.947 (names), the same with plain transformers
    comparison = json.loads((result.folder / "comparison.json").read_text())
    for block in comparison["blocks"]:
        overall = [test for test in block["tests"] if test["kind"] == "all"]
        assert overall[-1]["verdict"] == "better"

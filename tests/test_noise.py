"""How much a score moves by itself, with an engine whose replies change in a known way."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localeval import LocalevalError, run_task
from localeval.engines.base import EngineConfig
from localeval.schema import Completion, Request
from tests.conftest import GOLD
from tests.fakes import make_model


class Moody:
    """The first time 3 of 5 are right, the second 4, the third 3 with other words."""

    time = 0
    orders: list[list[str]] = []
    pieces: list[int] = []

    def __init__(self, *_: Any) -> None:
        pass

    def start(self, _: EngineConfig) -> float:
        return 0.0

    def generate(self, requests: Iterable[Request]) -> Iterator[Completion]:
        asked = list(requests)
        if not Moody.orders or len(Moody.orders[-1]) == 5:
            Moody.time += 1
            Moody.orders.append([])
        Moody.orders[-1] += [request.sample_id for request in asked]
        Moody.pieces.append(len(asked))
        for request in asked:
            row = int(request.sample_id.rpartition(":")[2])
            letter = GOLD[row] if row < (4 if Moody.time == 2 else 3) else "."
            said = "Answer" if Moody.time == 3 and row == 0 else "ANSWER"
            yield Completion(request.sample_id, f"{said}: {letter}", "stop", key=request.key)

    def forget_prompts(self) -> None:
        pass

    def settings(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


def test_noise_by_hand(tmp_path: Path, mcq_dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localeval.engines.successive.ChildEngine", Moody)
    config = {"model": str(make_model(tmp_path / "m")), "datasets": [str(mcq_dataset)], "engine": "transformers"}
    result = run_task({**config, "work_dir": str(tmp_path / "out"), "noise": 3})
    (run,) = result.runs
    assert run.noise is not None
    assert run.noise.values == (0.6, 0.8, 0.6)
    assert run.noise.deviation == pytest.approx(0.11547, abs=1e-5)  # of 0.6, 0.8, 0.6
    assert (run.noise.n, run.noise.changed_replies, run.noise.changed_readings) == (5, 2, 1)
    assert run.metrics["accuracy"] == 0.6  # the first time is the result
    assert (
        "accuracy 0.6000 to 0.8000, standard deviation 0.1155; of 5 samples 2 had not always the same reply, 1 not"
        in (result.report_text)
    )
    first, second, third = Moody.orders
    assert first == [f"default:{n}" for n in range(5)]
    assert sorted(second) == sorted(third) == first
    assert len({tuple(order) for order in Moody.orders}) == 3
    assert Moody.pieces[0] == 5
    assert len(Moody.pieces) == 1 + 3 + 3
    written = json.loads((run.folder / "noise.json").read_text())
    assert written["values"] == [0.6, 0.8, 0.6]
    # Again: all is taken over; once more beside it: one time more is asked.
    assert run_task({**config, "work_dir": str(tmp_path / "out"), "noise": 3}).runs[0].noise == run.noise
    assert Moody.time == 3
    more = run_task({**config, "work_dir": str(tmp_path / "out"), "noise": 4}).runs[0].noise
    assert more is not None
    assert more.values[:3] == (0.6, 0.8, 0.6)
    assert Moody.time == 4


def test_noise_is_no_setting_for_a_file(mcq_dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(LocalevalError, match="a file says the same each time"):
        run_task({"engine": f"replay:{tmp_path}", "datasets": [str(mcq_dataset)], "noise": 2})
    with pytest.raises(LocalevalError, match="noise"):
        run_task({"model": "m", "datasets": [str(mcq_dataset)], "noise": 1})

"""An engine that dies is started once more, and asked again what it had not answered; no model is loaded."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from localeval.engines.base import EngineConfig, EngineDied
from localeval.engines.restart import Restarted
from localeval.engines.successive import Successive
from localeval.identity import state_of
from localeval.schema import Completion, LocalevalError, Request, RunFailed

REQUESTS = [Request("d", f"default:{n}", [n], 1, key=f"key {n}") for n in range(10)]


class Mortal:
    """An engine that takes three requests, answers the second of them, and so on, and dies after some answers."""

    lives: list[int] = []
    configs: list[EngineConfig] = []
    asked: list[list[str]] = []

    def __init__(self, kind: str, environment: Mapping[str, str], said: Any = None) -> None:
        self.asked.append([])

    def start(self, config: EngineConfig) -> float:
        if not self.lives:
            raise RunFailed("vLLM can't load m: no room")
        self.left = self.lives.pop(0)
        self.configs.append(config)
        return 0.0

    def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        held: list[Request] = []
        for request in requests:
            if request is None:
                continue
            held.append(request)
            self.asked[-1].append(request.sample_id)
            if len(held) == 3:
                yield self._answer(held.pop(1))
        for request in held:
            yield self._answer(request)

    def _answer(self, request: Request) -> Completion:
        if self.left == 0:
            raise EngineDied("the engine's process was killed")
        self.left -= 1
        return Completion(request.sample_id, "A", "stop", key=request.key)

    def forget_prompts(self) -> None:
        if self.left == 0:
            raise EngineDied("the engine's process was killed")

    def settings(self) -> Mapping[str, Any]:
        return {"max_num_seqs": 8}

    def close(self) -> None:
        pass


@pytest.fixture
def successive(monkeypatch: pytest.MonkeyPatch) -> Successive:
    for name in ("lives", "configs", "asked"):
        monkeypatch.setattr(Mortal, name, [])
    monkeypatch.setattr("localeval.engines.successive.ChildEngine", Mortal)
    return Successive()


def restarted(successive: Successive, lives: list[int]) -> Restarted:
    Mortal.lives += lives
    config = EngineConfig(Path("m"), max_model_len=10)
    return Restarted(successive, successive.serve("vllm", config)[0], "vllm", config)


def test_what_was_not_answered_is_asked_again_and_nothing_else(
    successive: Successive, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = restarted(successive, [4, 100])
    found = [reply.sample_id for reply in engine.generate([REQUESTS[0], None, *REQUESTS[1:]])]
    # Taken 0 1 2 -> 1; 3 -> 2; 4 -> 3; 5 -> 4; 6 -> it dies over 5: 0, 5 and 6 have no answer.
    assert found[:4] == ["default:1", "default:2", "default:3", "default:4"]
    assert Mortal.asked[1] == ["default:0", "default:5", "default:6", "default:7", "default:8", "default:9"]
    assert sorted(found) == sorted(request.sample_id for request in REQUESTS)
    assert [config.cautious for config in Mortal.configs] == [False, True]
    assert engine.settings() == {"max_num_seqs": 8, "restarted": "the engine's process was killed"}
    said = capsys.readouterr().err
    assert "the engine's process was killed. It is started once more" in said
    assert "3 are asked again" in said


def test_a_second_death_ends_it(successive: Successive) -> None:
    engine = restarted(successive, [4, 2, 100])
    found: list[str] = []
    with pytest.raises(EngineDied, match="died a second time: the engine's process was killed; the same command"):
        found += (reply.sample_id for reply in engine.generate(REQUESTS))
    assert len(found) == len(set(found)) == 6


def test_an_engine_that_can_not_be_started_again_says_both_reasons(successive: Successive) -> None:
    engine = restarted(successive, [0])
    with pytest.raises(RunFailed, match=r"the engine died .the engine's process was killed., .* vLLM can't load m: no"):
        list(engine.generate(REQUESTS))


def test_an_engine_that_lives_is_left_alone(successive: Successive) -> None:
    engine = restarted(successive, [10])
    assert len(list(engine.generate(REQUESTS))) == 10
    assert engine.settings() == {"max_num_seqs": 8}
    assert len(Mortal.configs) == 1


def test_weights_that_were_written_anew_meanwhile_are_not_gone_on_with(successive: Successive, tmp_path: Path) -> None:
    """Half of the replies would be of one checkpoint, half of another."""
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"before")
    Mortal.lives += [4, 100]
    config = EngineConfig(tmp_path, max_model_len=10)
    engine = Restarted(successive, successive.serve("vllm", config)[0], "vllm", config, state_of([weights]))
    replies = engine.generate(REQUESTS)
    assert len(list(itertools.islice(replies, 4))) == 4
    weights.write_bytes(b"written anew")
    with pytest.raises(LocalevalError, match=r"model.safetensors was changed while the engine was started once more"):
        next(replies)


def test_an_engine_that_dies_between_two_times_is_started_once_more(successive: Successive) -> None:
    engine = restarted(successive, [5, 100])
    assert len(list(engine.generate(REQUESTS[:5]))) == 5
    engine.forget_prompts()
    assert len(list(engine.generate(REQUESTS[5:]))) == 5
    assert [config.cautious for config in Mortal.configs] == [False, True]

"""A training run is followed: each checkpoint once, when it is whole. While the watcher sleeps, the trainer writes."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localeval import LocalevalError
from localeval.cli import main
from localeval.config import load_config
from localeval.series import Series
from localeval.watch import Watching, _Looks, watch
from tests.conftest import FakeEngine
from tests.fakes import make_model

Turn = Callable[[], None]


@pytest.fixture
def follow(tmp_path: Path, mcq_dataset: Path, fake_engine: type[FakeEngine]) -> Any:
    """Watches ``x`` while the trainer does one turn at each sleep; gives back what was evaluated, in order."""
    (tmp_path / "x").mkdir()

    def run(turns: list[Turn], **watching: Any) -> list[tuple[str, str]]:
        left = iter(turns)
        settings = {"datasets": [str(mcq_dataset)], "engine": "transformers", "work_dir": str(tmp_path / "out")}
        watch({**settings, "model": str(tmp_path / "x")}, Watching(every=0.0, **watching), lambda _: next(left)())
        (folder,) = (tmp_path / "out").glob("checkpoints-*")
        rows = [json.loads(line) for line in (folder / "checkpoints.jsonl").read_text().splitlines()]
        return [(row["label"], row["status"]) for row in rows]

    return run


def nothing() -> None:
    pass


def written(folder: Path, step: int) -> Turn:
    def turn() -> None:
        shutil.copytree(make_model(folder.parent / f"made-{step}"), folder / f"checkpoint-{step}")

    return turn


def test_each_once_in_order_until_a_step(follow: Any, tmp_path: Path) -> None:
    x = tmp_path / "x"
    turns = [written(x, 3), nothing, nothing, written(x, 1), written(x, 5), nothing]
    assert follow(turns, until_step=5) == [("checkpoint-3", "done"), ("checkpoint-1", "done"), ("checkpoint-5", "done")]
    assert FakeEngine.started == ["checkpoint-3"]
    # A restart asks nothing again, and ends at once.
    assert follow([nothing, nothing], until_step=5) == [
        ("checkpoint-3", "done"), ("checkpoint-1", "done"), ("checkpoint-5", "done")
    ]  # fmt: skip
    assert FakeEngine.started == ["checkpoint-3"]


def test_the_newest_first(follow: Any, tmp_path: Path) -> None:
    x = tmp_path / "x"
    for step in (1, 3, 5):
        written(x, step)()
    evaluated = follow([nothing, nothing], newest_first=True, until_step=5)
    assert [name for name, _ in evaluated] == ["checkpoint-5", "checkpoint-3", "checkpoint-1"]


def test_one_that_is_being_written_is_waited_for(follow: Any, tmp_path: Path) -> None:
    """File by file, a weight file in two halves; the index comes before the shards, as trainers write it."""
    source = make_model(tmp_path / "made", shard="60KB")
    target = tmp_path / "x" / "checkpoint-3"
    shards = sorted(source.glob("*.safetensors"))
    half = len(shards[0].read_bytes()) // 2
    looks: list[list[tuple[str, str]]] = []

    def copied(*names: str) -> Turn:
        def turn() -> None:
            target.mkdir(exist_ok=True)
            for name in names:
                shutil.copy(source / name, target / name)
            looks.append([(name, "") for name in FakeEngine.started])

        return turn

    def cut() -> None:
        (target / shards[0].name).write_bytes(shards[0].read_bytes()[:half])
        looks.append([(name, "") for name in FakeEngine.started])

    rest = [path.name for path in source.iterdir() if path.suffix != ".safetensors"]
    turns = [
        copied("config.json"), nothing, copied(*rest), nothing, cut, nothing, nothing,
        copied(*(shard.name for shard in shards[:-1])), nothing, nothing, copied(shards[-1].name), nothing, nothing,
    ]  # fmt: skip
    assert follow(turns, until_step=3) == [("checkpoint-3", "done")]
    assert all(look == [] for look in looks)  # nothing was started before the last file was there


def test_one_that_fails_is_recorded_and_asked_again_only_when_it_changes(follow: Any, tmp_path: Path) -> None:
    x = tmp_path / "x"
    written(x, 3)()
    config = x / "checkpoint-3" / "tokenizer.json"
    whole = config.read_text()
    config.write_text("{}")
    assert follow([nothing] * 3, until_step=3) == [("checkpoint-3", "failed")]
    assert follow([nothing] * 3, until_step=3) == [("checkpoint-3", "failed")]
    config.write_text(whole)
    assert follow([nothing] * 3, until_step=3) == [("checkpoint-3", "done")]


def test_a_folder_is_left_alone_for_a_while(tmp_path: Path, mcq_dataset: Path) -> None:
    """Two looks that follow at once, as after a checkpoint that failed at once, show nothing."""
    written(tmp_path / "x", 3)()
    config = load_config({"model": "x", "datasets": [str(mcq_dataset)], "work_dir": str(tmp_path / "out")})
    looks = _Looks(tmp_path / "x", Series(config, ["x"]), every=0.5)
    assert looks.ready() == looks.ready() == []
    time.sleep(0.3)
    (tmp_path / "x" / "checkpoint-3" / "chat_template.jinja").write_text("late")
    assert looks.ready() == []
    time.sleep(0.3)
    assert looks.ready() == []
    time.sleep(0.3)
    assert [each.label for each in looks.ready()] == ["checkpoint-3"]


def test_clocks_and_times_of_files_decide_nothing(
    tmp_path: Path, mcq_dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock goes back, files are of the future or the past, and one is written anew with its old size and time."""
    hours = iter(range(1_000_000))
    begin = time.time()
    monkeypatch.setattr(time, "time", lambda: begin - 3600.0 * next(hours))
    for step, moment in ((3, begin + 1e8), (5, 0.0)):
        written(tmp_path / "x", step)()
        for file in (tmp_path / "x" / f"checkpoint-{step}").iterdir():
            os.utime(file, (moment, moment))
    config = load_config({"model": "x", "datasets": [str(mcq_dataset)], "work_dir": str(tmp_path / "out")})
    looks = _Looks(tmp_path / "x", Series(config, ["x"]), every=0.0)
    assert looks.ready() == []  # never at the first look
    weights = tmp_path / "x" / "checkpoint-5" / "model.safetensors"
    stat = weights.stat()
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    time.sleep(0.02)  # the clock of a file system ticks
    weights.write_bytes(content)
    os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert [each.label for each in looks.ready()] == ["checkpoint-3"]
    assert [each.label for each in looks.ready()] == ["checkpoint-3", "checkpoint-5"]


def test_one_that_changes_while_it_is_evaluated_is_asked_again(
    follow: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "x", 3)()
    generate, template = FakeEngine.generate, tmp_path / "x" / "checkpoint-3" / "chat_template.jinja"
    times = 0

    def late(self: FakeEngine, requests: Any) -> Any:
        nonlocal times
        times += 1
        if times == 1:
            template.write_text("{{ messages[0].content }} late")
        return generate(self, requests)

    monkeypatch.setattr(FakeEngine, "generate", late)
    assert follow([nothing] * 4, until_step=3) == [("checkpoint-3", "done")]
    assert times == 2
    assert "its files changed while it was evaluated" in capsys.readouterr().err


def test_a_run_folder_that_is_gone_is_made_again(follow: Any, tmp_path: Path) -> None:
    written(tmp_path / "x", 3)()
    assert follow([nothing], until_step=3) == [("checkpoint-3", "done")]
    shutil.rmtree(next((tmp_path / "out").glob("checkpoint-3-*")))
    assert follow([nothing], until_step=3) == [("checkpoint-3", "done")]
    assert (next((tmp_path / "out").glob("checkpoint-3-*/*")) / "report.json").is_file()


def test_idle_exit_says_what_never_became_whole(
    tmp_path: Path,
    mcq_dataset: Path,
    fake_engine: type[FakeEngine],
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "x" / "checkpoint-7").mkdir(parents=True)
    command = ["watch", str(tmp_path / "x"), "--datasets", str(mcq_dataset), "--engine", "transformers"]
    command += ["--work-dir", str(tmp_path / "out"), "--idle-exit", "0.3", "--every", "0.1"]
    assert main(command) == 0
    assert "checkpoint-7: no config.json" in capsys.readouterr().err


def test_what_can_not_be_watched(tmp_path: Path, mcq_dataset: Path) -> None:
    settings = {"datasets": [str(mcq_dataset)], "engine": "transformers"}
    with pytest.raises(LocalevalError, match="is a model itself; watch takes the folder that checkpoints appear in"):
        watch({**settings, "model": str(make_model(tmp_path / "m"))}, Watching())
    with pytest.raises(LocalevalError, match="neither it nor the folder above it is there"):
        watch({**settings, "model": str(tmp_path / "no" / "where")}, Watching())
    with pytest.raises(LocalevalError, match="takes one folder"):
        watch({**settings, "model": ["a", "b"]}, Watching())
    (tmp_path / "file").touch()
    with pytest.raises(LocalevalError, match="file is no folder"):
        watch({**settings, "model": str(tmp_path / "file")}, Watching())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--every", "nan"], "--every nan: expected seconds, from 0 to 10,000,000"),
        (["--every", "-1"], "--every -1.0: expected seconds"),
        (["--every", "inf"], "--every inf: expected seconds"),
        (["--idle-exit", "nan"], "--idle-exit nan: expected seconds"),
    ],
)
def test_pauses_that_are_none(
    words: list[str], said: str, tmp_path: Path, mcq_dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", str(tmp_path), "--datasets", str(mcq_dataset), *words]) == 2
    assert said in capsys.readouterr().err

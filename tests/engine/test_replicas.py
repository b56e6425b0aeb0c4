"""Replicas on real Ray clusters of this machine: what one engine says, whatever dies on the way."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from localeval import LocalevalError, RunFailed, run_task
from localeval.engines.base import Cluster, EngineConfig
from localeval.engines.child import ChildEngine
from localeval.engines.sizing import ANY
from localeval.schema import Request
from tests.conftest import MCQ_YAML, write_jsonl
from tests.engine.conftest import MainJob
from tests.engine.test_main_job import check_same_tokens, predictions
from tests.fakes import make_model

pytestmark = pytest.mark.engine

ROWS = 600
DELAY = 0.02
"""Seconds a reply: two replicas have 6 s to be killed in."""


@pytest.fixture(scope="module", autouse=True)
def own_folder_of_ray() -> Iterator[None]:
    """What another program's Ray has left on this machine must not be taken for a cluster. Sockets want short paths."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        yield


@pytest.fixture(scope="module")
def quiz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Questions, and replies to them of every length, right, wrong and unread."""
    return make_quiz(tmp_path_factory.mktemp("quiz"), "so ")


def make_quiz(folder: Path, thought: str) -> Path:
    rows = [
        {"question": f"Q {n}?", "options": ["one", "two", "three"], "answer": "ABC"[n % 3], "topic": f"t{n % 4}"}
        for n in range(ROWS)
    ]
    write_jsonl(folder / "rows" / "test.jsonl", rows)
    said = [
        {"sample_id": f"default:{n}", "text": thought * (n % 50) + (f"ANSWER: {'ABC'[n * n % 3]}" if n % 7 else "none")}
        for n in range(ROWS)
    ]
    write_jsonl(folder / "replies.jsonl", said)
    (folder / "quiz.yaml").write_text(MCQ_YAML)
    return folder


def config_of(quiz: Path, work_dir: Path, **further: Any) -> dict[str, Any]:
    replay = f"replay:{quiz / 'replies.jsonl'}"
    return {"engine": replay, "datasets": [str(quiz / "quiz.yaml")], "work_dir": str(work_dir), **further}


@pytest.fixture(scope="module")
def one_engine(quiz: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of one engine."""
    return run_task(config_of(quiz, tmp_path_factory.mktemp("one"))).runs[0].folder


def same_as(folder: Path, one_engine: Path, reused: int = 0) -> None:
    """To the byte, but for the order in which replies came, and what says how many were reused."""
    report = (folder / "report.json").read_text()
    assert report == (one_engine / "report.json").read_text().replace('"reused": 0', f'"reused": {reused}')
    assert (folder / "scores.jsonl").read_bytes() == (one_engine / "scores.jsonl").read_bytes()
    lines = (folder / "predictions.jsonl").read_bytes().splitlines()
    assert sorted(lines) == sorted((one_engine / "predictions.jsonl").read_bytes().splitlines())
    assert len(lines) == ROWS


# --- the command, which starts a cluster of its own ---


def start(quiz: Path, work_dir: Path, *further: str) -> subprocess.Popen[str]:
    words = ["--engine", f"replay:{quiz / 'replies.jsonl'}", "--engine-args", json.dumps({"delay": DELAY})]
    words += ["--datasets", str(quiz / "quiz.yaml"), "--work-dir", str(work_dir), "--replicas", "2", *further]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_AUTH_MODE"}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as a shell's foreground has it
    return subprocess.Popen(
        [sys.executable, "-m", "localeval", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def wait_for_rows(process: subprocess.Popen[str], work_dir: Path, count: int) -> list[psutil.Process]:
    """Until so many rows are written; gives back all processes of the command and its cluster."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        file = next(work_dir.glob("*/*/predictions.jsonl"), None)
        if file is not None and file.read_bytes().count(b"\n") >= count:
            return psutil.Process(process.pid).children(recursive=True)
        time.sleep(0.05)
    process.kill()
    raise AssertionError(f"no {count} rows came: {process.communicate()[1]}")


def named(processes: list[psutil.Process], word: str) -> list[psutil.Process]:
    found = []
    for each in processes:
        with suppress(psutil.Error):  # it has ended
            if word in " ".join(each.cmdline()):
                found.append(each)
    return found


def holds_nothing(processes: list[psutil.Process]) -> bool:
    """Whether all engines and replicas end soon."""
    left = named(processes, "engines.child") + named(processes, "MapWorker")
    return not psutil.wait_procs(left, timeout=20)[1]


@pytest.mark.parametrize("what", ["MapWorker", "engines.child replay"])
def test_a_replica_killed_in_the_middle_is_replaced(quiz: Path, one_engine: Path, tmp_path: Path, what: str) -> None:
    """The replica's process, or its engine's alone."""
    process = start(quiz, tmp_path)
    of_command = wait_for_rows(process, tmp_path, 60)
    both = named(of_command, what)
    assert len(both) == 2
    both[0].kill()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "is in place of one that died, whose blocks were asked again" in errors
    (folder,) = tmp_path.glob("*/*")
    same_as(folder, one_engine)
    made = json.loads((folder / "run.json").read_text())["engine"]["replicas"]
    assert (made["number"], made["died"], sum(made["engines"].values())) == (2, 1, 3)
    assert holds_nothing(of_command)


def test_the_driver_killed_and_the_command_given_again(quiz: Path, one_engine: Path, tmp_path: Path) -> None:
    killed = start(quiz, tmp_path)
    of_command = wait_for_rows(killed, tmp_path, 100)
    killed.kill()
    killed.communicate()
    assert holds_nothing(of_command)
    (file,) = tmp_path.glob("*/*/predictions.jsonl")
    kept = file.read_bytes().count(b"\n")
    assert 100 <= kept < ROWS

    interrupted = start(quiz, tmp_path)
    wait_for_rows(interrupted, tmp_path, kept + 60)
    interrupted.send_signal(signal.SIGINT)
    _, errors = interrupted.communicate(timeout=60)
    assert interrupted.returncode == 130, errors
    assert f"{kept} of {ROWS} replies reused" in errors
    assert "replies are kept" in errors
    assert "the same command goes on from there" in errors
    assert "Traceback" not in errors
    kept = file.read_bytes().count(b"\n")

    whole = start(quiz, tmp_path)
    _, errors = whole.communicate(timeout=120)
    assert whole.returncode == 0, errors
    assert f"{kept} of {ROWS} replies reused" in errors
    same_as(file.parent, one_engine, reused=kept)


# --- clusters that are there ---


@contextmanager
def nodes(*cpus: int) -> Iterator[Any]:
    """A cluster of so many nodes, each with so many CPUs; Ray's own, on this machine."""
    from ray.cluster_utils import Cluster

    there = Cluster(initialize_head=True, head_node_args={"num_cpus": cpus[0], "include_dashboard": False})
    try:
        for count in cpus[1:]:
            there.add_node(num_cpus=count)
        yield there
    finally:
        there.shutdown()


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Any]:
    with nodes(1, 1) as there:
        yield there


def test_two_replicas_say_what_one_engine_says(
    quiz: Path, one_engine: Path, two_nodes: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = run_task(config_of(quiz, tmp_path, ray=two_nodes.address))  # as many as there are nodes
    same_as(result.runs[0].folder, one_engine)
    made = json.loads((result.runs[0].folder / "run.json").read_text())["engine"]["replicas"]
    assert made["number"] == 2
    assert sum(made["engines"].values()) == 2  # both have answered
    said = capfd.readouterr()
    assert all(line.startswith("localeval: ") for line in said.err.splitlines()), said.err
    assert said.out == ""
    assert "replay, 2 replicas" in (result.runs[0].folder / "report.md").read_text()


def test_more_replicas_than_there_is_room_for(quiz: Path, two_nodes: Any, tmp_path: Path) -> None:
    with pytest.raises(LocalevalError, match=r"no room for 3 replicas, each of one CPU: it has .*0 GPUs, 1 CPUs, .*"):
        run_task(config_of(quiz, tmp_path, ray=two_nodes.address, replicas=3))


def test_a_real_model_on_two_replicas(main_job: MainJob, two_nodes: Any, tmp_path: Path) -> None:
    """Token by token what one engine has said, but for a near tie."""
    result = run_task({**main_job.config, "ray": two_nodes.address, "limit": 2, "work_dir": str(tmp_path)})
    compared = same = 0
    for ours, theirs in zip(result.runs, main_job.result.runs, strict=True):
        alone = predictions(theirs.folder)
        for sample_id, reply in predictions(ours.folder).items():
            check_same_tokens(reply, alone[sample_id])
            compared += 1
            same += reply == alone[sample_id] or reply.token_ids == alone[sample_id].token_ids
        made = json.loads((ours.folder / "run.json").read_text())
        assert made["engine"]["replicas"]["number"] == 2
        assert made["served"]["how"] == "started"
    assert compared == 26
    assert same >= 24


def test_checkpoints_are_swapped_on_every_replica(two_nodes: Any, tmp_path: Path, mcq_dataset: Path) -> None:
    for step in (1, 2, 3):
        make_model(tmp_path / "x" / f"checkpoint-{step}", seed=step)
    config = {"model": str(tmp_path / "x"), "datasets": [str(mcq_dataset)], "engine": "vllm", "mcq": "logprob"}
    one = run_task({**config, "work_dir": str(tmp_path / "one")})
    two = run_task({**config, "work_dir": str(tmp_path / "two"), "ray": two_nodes.address})
    assert not two.failed
    made = [json.loads((run.folder / "run.json").read_text()) for run in two.runs]
    assert [each["served"]["how"] for each in made] == ["started", "swapped", "swapped"]
    of = [each["engine"]["replicas"] for each in made]
    assert [sum(each["engines"].values()) for each in of] == [2, 2, 2]
    assert all(list(each["served"]) == [how] for each, how in zip(of, ["started", "swapped", "swapped"], strict=True))
    for ours, theirs in zip(two.runs, one.runs, strict=True):
        alone = predictions(theirs.folder)
        for sample_id, reply in predictions(ours.folder).items():
            assert reply.continuations == pytest.approx(alone[sample_id].continuations, abs=1e-4)


def test_a_replica_that_cannot_start_says_where_and_why(two_nodes: Any, tmp_path: Path, mcq_dataset: Path) -> None:
    model = make_model(tmp_path / "model", context=512)
    config = {"model": str(model), "datasets": [str(mcq_dataset)], "engine": "vllm", "work_dir": str(tmp_path / "out")}
    begin = time.monotonic()
    with pytest.raises(RunFailed, match=r"a replica on \S+: vLLM can't load .*model: .*no_such_setting"):
        run_task({**config, "ray": two_nodes.address, "engine_args": {"no_such_setting": 1}})
    assert time.monotonic() - begin < 120


HOLDS_ALL = """
import ray, sys, time

@ray.remote(num_cpus=1)
class Holds:
    def there(self): return True

ray.init(address=sys.argv[1])
both = [Holds.remote() for _ in range(2)]
ray.get([each.there.remote() for each in both])
print("held", flush=True)
time.sleep(300)
"""


DRIVER = """
import sys
from pathlib import Path
from localeval.engines import cluster, stream
from localeval.engines.base import Cluster, EngineConfig
from localeval.engines.ray import RayEngine
from localeval.schema import LocalevalError, Request, RunFailed

address, replies, rows = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
{settings}
config = EngineConfig(replies, 0, cluster=Cluster(address), engine_args={{"delay": 0.02}})
try:
    engine = RayEngine("replay", config)
    for reply in engine.generate(Request("quiz", f"default:{{n}}", (), 0, key=str(n)) for n in range(rows)):
        print(reply.sample_id, flush=True)
except (LocalevalError, RunFailed) as error:
    print(f"{{type(error).__name__}}: {{error}}", flush=True)
"""
"""An engine of many, in a process in which waits are short."""


def driver(quiz: Path, two_nodes: Any, settings: str) -> subprocess.Popen[str]:
    code = DRIVER.format(settings=settings)
    words = [two_nodes.address, str(quiz / "replies.jsonl"), str(ROWS)]
    return subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_replica_that_dies_again_and_again_is_an_error(quiz: Path, two_nodes: Any) -> None:
    process = driver(quiz, two_nodes, "stream.REPLACED = 0")
    assert process.stdout is not None
    for _ in range(60):
        assert process.stdout.readline().startswith("default:")
    named(list(psutil.process_iter()), "MapWorker")[0].kill()
    said, _ = process.communicate(timeout=60)
    (last,) = [line for line in said.splitlines() if line.startswith("RunFailed")]
    assert re.match(r"RunFailed: Ray: \(pid: \d+, ip: \S+\) .*its worker process has died", last), last


def wait_for(work_dir: Path, rows: int) -> None:
    while sum(file.read_bytes().count(b"\n") for file in work_dir.glob("*/*/predictions.jsonl")) < rows:
        time.sleep(0.05)


def test_replicas_that_find_no_place_are_not_waited_for_for_ever(quiz: Path, two_nodes: Any) -> None:
    """Another job holds what they need."""
    other = subprocess.Popen([sys.executable, "-c", HOLDS_ALL, two_nodes.address], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        process = driver(quiz, two_nodes, "stream.READY, cluster.REPORTS = 6.0, 2.0")
        said, errors = process.communicate(timeout=60)
    finally:
        other.kill()
        other.wait()
    expected = r"RunFailed: no replica was ready in 6 s: 2 replicas of 0 GPUs are wanted; free are 0 GPUs, 0 CPUs\. "
    assert re.match(expected, said), said
    assert "no replica is ready yet" in errors


def test_the_wait_for_a_node_has_an_end(quiz: Path, two_nodes: Any) -> None:
    """Its disk does not answer."""
    settings = "cluster.LOOKED, cluster.REPORTS = 4.0, 1.0\ncluster.look = lambda _: __import__('time').sleep(60)"
    said, _ = driver(quiz, two_nodes, settings).communicate(timeout=60)
    assert said.startswith("RunFailed: 2 nodes have not looked at their files in 4 s: "), said


def test_what_a_lost_node_had_is_asked_of_the_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A node ends, and nothing takes its place; answers are so large that they lie there until they are fetched."""
    heavy = make_quiz(tmp_path, "so " * 400)
    alone = run_task(config_of(heavy, tmp_path / "alone")).runs[0].folder
    with nodes(1, 1) as there:
        (lost,) = there.worker_nodes
        folders: list[Path] = []

        def lose() -> None:
            wait_for(tmp_path / "out", 60)
            there.remove_node(lost, allow_graceful=False)

        thread = threading.Thread(target=lose, daemon=True)
        thread.start()
        result = run_task(config_of(heavy, tmp_path / "out", ray=there.address, engine_args={"delay": DELAY}))
        folders = [run.folder for run in result.runs]
        thread.join(20)
        assert not thread.is_alive()
    same_as(folders[0], alone)
    assert re.search(r"the last \d+ blocks are asked again; gone is \S+ \(\S+\)", capfd.readouterr().err)


def test_a_node_without_the_weights_is_named_before_anything_starts(tmp_path: Path, mcq_dataset: Path) -> None:
    """A second node in a mount namespace of its own, in which the folder is empty."""
    model = make_model(tmp_path / "model")
    ray = shutil.which("ray", path=Path(sys.executable).parent)
    assert ray is not None
    hide = f"mount -t tmpfs none {model} && exec {ray} start --block --num-cpus=1 --node-name=second --address="
    unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    if subprocess.run([*unshare, "true"], check=False).returncode:
        pytest.skip("this machine allows no mount namespace")
    with nodes(1) as there:
        second = subprocess.Popen(
            [*unshare, "sh", "-c", hide + there.address],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            there_are_two(there.address)
            config = {"model": str(model), "datasets": [str(mcq_dataset)], "engine": "vllm", "ray": there.address}
            with pytest.raises(LocalevalError) as error:
                run_task({**config, "work_dir": str(tmp_path / "out")})
        finally:
            os.killpg(second.pid, signal.SIGKILL)
            second.communicate()
    files = len(list(model.iterdir()))
    named_node = f"(second): {files} of {files} files are missing, the first {model}/"
    assert str(error.value).count("files are missing") == 1
    assert named_node in str(error.value)
    assert not list((tmp_path / "out").glob("*/*/report.json"))


def there_are_two(address: str) -> None:
    look = "import ray, sys; ray.init(address=sys.argv[1]); print(sum(each['Alive'] for each in ray.nodes()))"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done = subprocess.run([sys.executable, "-c", look, address], capture_output=True, text=True, check=True)
        if done.stdout.strip() == "2":
            return
    raise AssertionError("the second node did not come")


def test_the_drivers_memory_stays_flat(two_nodes: Any, tmp_path: Path) -> None:
    """200,000 requests and replies of 2,000 characters, 0.4 GB, through two replicas."""
    rows = 200_000
    replies = tmp_path / "replies.jsonl"
    with replies.open("w") as file:
        file.writelines(f'{{"sample_id": "default:{n}", "text": "{"x" * 2_000}"}}\n' for n in range(rows))
    requests = (Request("quiz", f"default:{n}", array("I", range(300)), 512, key=str(n)) for n in range(rows))
    config = EngineConfig(replies, 0, work=replace(ANY, sequences=rows))
    engine = ChildEngine("ray:replay", {})
    (ours,) = [each for each in psutil.Process().children() if "engines.child" in " ".join(each.cmdline())]
    held = []
    try:
        engine.start(replace(config, cluster=Cluster(two_nodes.address)))
        for n, reply in enumerate(engine.generate(requests), 1):
            assert len(reply.text) == 2_000
            if n % 50_000 == 0:
                held.append(
                    sum(each.memory_info().rss - each.memory_info().shared for each in (psutil.Process(), ours))
                )
    finally:
        engine.close()
    assert len(held) == 4
    print(f"memory in bytes after each 50,000 rows: {held}")
    # Ray Data keeps some 4 KB of statistics for each block, of which there are 4,700 after the first 50,000 rows.
    assert held[-1] - held[0] < 60e6, held

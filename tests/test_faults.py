"""What goes wrong around a run, made to happen: nothing that was finished is lost, and the same command goes on.

Whatever happened, each line of predictions.jsonl is a prediction, none is there twice, and the report is in the end
that of an undisturbed run. docs/reliability.md is the table of these. Of real engines: tests/engine/test_faults.py.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localeval import run_task, score_run
from localeval.cli import main
from localeval.datasets import reading
from localeval.schema import LocalevalError, RunFailed
from localeval.store import RunFolder, read_predictions
from tests.conftest import MCQ_YAML, Replies, write_jsonl
from tests.killing import ROWS, make, result_of, stage_of
from tests.test_run import FIVE, run

WITH_DATA = "LOCALEVAL_TEST_DATA" in os.environ
ROOT = Path(__file__).parent.parent


def program(*command: str) -> dict[str, Any]:
    """What a program of the tests prints as JSON."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# --- kill -9 ---


def test_the_command_is_killed_50_times(tmp_path: Path) -> None:
    found = program(sys.executable, "-m", "tests.killing", "drivers", str(tmp_path), "50", "1")
    assert found["wrong"] == []
    assert found["killed"] >= 50
    assert found["stages"]["replies"] > 0  # most moments lie there or in the opening


def test_the_engines_process_is_killed_50_times(tmp_path: Path) -> None:
    found = program(sys.executable, "-m", "tests.killing", "engines", str(tmp_path), "50", "2")
    assert found["wrong"] == []
    assert found["killed"] >= 50
    assert found["ends"]["started again"] > 0
    assert found["ends"]["ended, died a second time"] > 0


# --- signals ---

PAUSED = """
import importlib, os, pathlib, sys, time
from localeval.cli import main
module, name, mark, *words = sys.argv[1:]
owner = importlib.import_module(module)
*path, last = name.split(".")
for part in path:
    owner = getattr(owner, part)
original = getattr(owner, last)
def paused(*a, **k):
    pathlib.Path(mark).touch()
    time.sleep(60)
    return original(*a, **k)
setattr(owner, last, paused)
sys.exit(main(words))
"""
"""localeval, which stands still for a minute at the first call of a function, and says so by a file."""

PHASES = {
    "the data is read": ("localeval.jobs", "load_dataset"),
    "prompts are made": ("localeval.evaluation", "plan_replay"),
    "run.json is written": ("localeval.record", "run_record"),
    "the engine starts": ("localeval.engines.replay", "ReplayEngine.check"),
    "scores are written": ("localeval.evaluation", "finish"),
    "reports are written": ("localeval.evaluation", "write_report"),
}
GENERATING = "replies come"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(scope="module")
def quiz(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], dict[str, Any]]:
    """A folder, the words of a run over it but for the work dir, and what an undisturbed run of them gives."""
    folder = tmp_path_factory.mktemp("faults")
    config = make(folder)
    words = ["--engine", config["engine"], "--datasets", *config["datasets"], "--work-dir"]
    run_task({**config, "engine_args": {}, "work_dir": str(folder / "whole")})
    return folder, words, result_of(folder / "whole")


Quiz = tuple[Path, list[str], dict[str, Any]]


def until(happened: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        assert process is None or process.poll() is None, process.communicate() if process else ""
        time.sleep(0.005)


def started(quiz: Quiz, name: str, *command: str, **options: Any) -> subprocess.Popen[str]:
    folder, words, _ = quiz
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell runs in its background ignores it
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
    return subprocess.Popen(
        [sys.executable, *command, *words, str(folder / name)], text=True, cwd=ROOT, **{**pipes, **options}
    )


def slow(quiz: Quiz, name: str, **options: Any) -> subprocess.Popen[str]:
    """A run whose replies take a second in all."""
    return started(quiz, name, "-m", "localeval", "--engine-args", '{"delay": 0.02}', **options)


def has_rows(quiz: Quiz, name: str, count: int) -> bool:
    return any(path.read_bytes().count(b"\n") >= count for path in (quiz[0] / name).glob("*/*/predictions.jsonl"))


def goes_on(quiz: Quiz, name: str) -> None:
    """What a stopped run has left is whole, and the same command gives what an undisturbed run gives."""
    folder, words, whole = quiz
    stage_of(folder / name)
    assert main([*words, str(folder / name)]) == 0
    assert result_of(folder / name) == whole


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_at_every_phase_ends_in_order(quiz: Quiz, number: signal.Signals) -> None:
    folder = quiz[0]
    runs = {}
    for phase, (module, function) in PHASES.items():
        name = f"{number.name} {phase}"
        runs[name] = started(quiz, name, "-c", PAUSED, module, function, str(folder / f"{name} reached"))
    for name, process in runs.items():
        until((folder / f"{name} reached").exists, process)
        process.send_signal(number)
    generating = f"{number.name} {GENERATING}"
    runs[generating] = slow(quiz, generating)
    until(lambda: has_rows(quiz, generating, 3), runs[generating])
    runs[generating].send_signal(number)
    for name, process in runs.items():
        said = process.communicate(timeout=60)[1]
        assert process.returncode == 130, (name, said)
        assert f"localeval: interrupted by {number.name}; the same command goes on from there" in said, name
        assert "Traceback" not in said, name
        goes_on(quiz, name)


def test_more_signals_lose_nothing(quiz: Quiz) -> None:
    """Until the process has ended, and not only until the run has."""
    process = slow(quiz, "twice")
    until(lambda: has_rows(quiz, "twice", 5), process)
    begin = time.monotonic()
    while process.poll() is None and time.monotonic() < begin + 0.9:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.0005)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130, said
    assert "replies are kept" in said
    assert "the same command goes on from there" in said
    goes_on(quiz, "twice")


def test_a_stop_that_hangs_is_ended_by_a_later_signal(quiz: Quiz) -> None:
    folder = quiz[0]
    mark = folder / "hangs reached"
    words = ("localeval.evaluation", "Receiver.finish", str(mark), "--engine-args", '{"delay": 0.02}')
    process = started(quiz, "hangs", "-c", PAUSED, *words)
    until(lambda: has_rows(quiz, "hangs", 5), process)
    process.send_signal(signal.SIGTERM)
    until(mark.exists, process)
    time.sleep(1.1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert has_rows(quiz, "hangs", 5)
    goes_on(quiz, "hangs")


def test_a_terminal_that_closes(quiz: Quiz) -> None:
    """Nothing can be said any more, and the run ends in order all the same."""
    ours, theirs = pty.openpty()

    def own_terminal() -> None:
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    process = slow(quiz, "hangup", stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=own_terminal)
    os.close(theirs)
    until(lambda: has_rows(quiz, "hangup", 5), process)
    os.close(ours)
    assert process.wait(timeout=60) == 130
    goes_on(quiz, "hangup")


def test_nohup_stays_nohup(quiz: Quiz) -> None:
    process = slow(quiz, "nohup", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    until(lambda: has_rows(quiz, "nohup", 5), process)
    process.send_signal(signal.SIGHUP)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, said
    assert result_of(quiz[0] / "nohup") == quiz[2]


FROZEN = """
import os, pathlib, signal, sys
from localeval import run
from localeval.cli import main
from localeval.engines.child import ChildEngine
from tests.killing import InAProcess
mark, *words = sys.argv[1:]
find, start = run.find_replay, ChildEngine.start
def found(*a):
    model, replay = find(*a)
    return model, InAProcess(replay)
def frozen(self, config):
    os.kill(self._process.pid, signal.SIGSTOP)
    pathlib.Path(mark).write_text(str(self._process.pid))
    return start(self, config)
run.find_replay, ChildEngine.start = found, frozen
sys.exit(main(words))
"""


def test_a_signal_while_the_engines_process_starts(quiz: Quiz) -> None:
    mark = quiz[0] / "frozen reached"
    process = started(quiz, "frozen", "-c", FROZEN, str(mark))
    until(lambda: mark.exists() and mark.read_text(), process)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130, said
    assert not Path(f"/proc/{mark.read_text()}").exists()
    goes_on(quiz, "frozen")


def test_a_program_keeps_its_own_handlers(quiz: Quiz, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, words, _ = quiz
    seen: list[Any] = []

    def noted(*asked: Any) -> None:
        seen.append([signal.getsignal(number) for number in SIGNALS])
        raise LocalevalError("enough")

    monkeypatch.setattr("localeval.run.Evaluation", noted)
    own = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(LocalevalError, match="enough"):
        run_task({"engine": words[1], "datasets": [words[3]], "work_dir": str(folder / "program")})
    assert main([*words, str(folder / "program")]) == 2
    assert seen[0] == own
    assert all(ours != theirs for ours, theirs in zip(seen[1], own, strict=True))
    assert [signal.getsignal(number) for number in SIGNALS] == own


# --- a disk without room, and one that takes no writing ---


@pytest.fixture(scope="module")
def mounts(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """Runs tests/mounts.py where file systems may be mounted."""

    def run(what: str) -> dict[str, Any]:
        if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
            assert not WITH_DATA, "unshare -m must work here: run the tests as root"
            pytest.skip("no file system can be mounted here (unshare -m)")
        folder = str(tmp_path_factory.mktemp(what))
        return program("unshare", "-m", sys.executable, "-m", "tests.mounts", what, folder)

    return run


def test_a_full_disk(mounts: Callable[[str], dict[str, Any]]) -> None:
    found = mounts("full")
    written = {".lock", "predictions.jsonl", "scores.jsonl", "report.json", "report.md", "run.json"}
    for name in (*written, "run.json, at the end"):
        case = found[name]
        assert f"/{name.partition(',')[0]}: [Errno 28] No space left on device" in case["said"], name
        assert (case["status"], case["again"], case["more"], case["same"]) == (1, 0, "", True), name
    # The 10th reply met a full disk; some more went into the page that was there.
    assert 9 <= found["predictions.jsonl"]["kept"] < ROWS
    for name in ("scores.jsonl", "report.json", "report.md", "run.json, at the end"):
        assert found[name]["kept"] == ROWS
    score = found["score"]
    assert "/report.json: [Errno 28] No space left on device" in score["said"]
    assert (score["status"], score["kept"], score["again"]) == (1, True, 0)
    stale = found["predictions.stale.jsonl"]
    assert "/predictions.stale.jsonl: [Errno 28] No space left on device" in stale["said"]
    assert (stale["status"], stale["again"], stale["set aside"], stale["once"]) == (1, 0, ROWS, ROWS)
    digests = found["digests"]
    assert digests == {"status": 0, "said": "", "left": 0, "again": 0, "kept": [64]}


def test_a_folder_that_takes_no_writing(mounts: Callable[[str], dict[str, Any]]) -> None:
    found = mounts("readonly")
    for name in ("a new run", "a run that goes on", "a work dir to be made", "score"):
        status, said = found[name]
        assert status == 2, name
        assert "can't be written ([Errno 30] Read-only file system" in said, name
        assert "name another folder with --work-dir" in said, name
    assert found["asked"] == []  # it was refused before anything was asked
    assert [found[name][0] for name in ("report", "compare", "list")] == [0, 0, 0]


# --- another process in the same folder ---


def test_a_folder_that_another_process_holds(quiz: Quiz, capsys: pytest.CaptureFixture[str]) -> None:
    folder, words, _ = quiz
    process = slow(quiz, "held")
    until(lambda: has_rows(quiz, "held", 1), process)
    assert main([*words, str(folder / "held")]) == 2
    said = capsys.readouterr().err
    assert f"another localeval is writing here: process {process.pid} on {os.uname().nodename}, of " in said
    assert str(folder / "held") in said
    assert said.endswith("; wait for it or stop it\n")
    (run_dir,) = (folder / "held").glob("*/*")
    assert main(["score", str(run_dir)]) == 2
    assert f"process {process.pid}" in capsys.readouterr().err
    process.kill()  # a lock without a process is none
    process.communicate()
    goes_on(quiz, "held")


def test_two_watchers_of_one_folder(tmp_path: Path, mcq_dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").mkdir()
    words = ["watch", str(tmp_path / "x"), "--datasets", str(mcq_dataset), "--engine", "transformers"]
    words += ["--work-dir", str(tmp_path / "out")]
    first = subprocess.Popen(
        [sys.executable, "-m", "localeval", *words, "--every", "0.1"], stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert first.stderr is not None
    until(lambda: "watching" in (first.stderr.readline() if first.stderr else ""), first)
    assert main([*words, "--idle-exit", "0"]) == 2
    assert f"another localeval is writing here: process {first.pid} on" in capsys.readouterr().err
    first.send_signal(signal.SIGTERM)
    said = first.communicate(timeout=60)[1]
    assert first.returncode == 130
    assert "interrupted by SIGTERM; the same command goes on from there" in said


# --- files that change while they are read ---


def rewritten(path: Path) -> None:
    """In place, with as many bytes."""
    path.write_bytes(path.read_bytes()[::-1])


def replaced(path: Path) -> None:
    shutil.copy2(path, path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)


def appended(path: Path) -> None:
    with path.open("a") as file:
        file.write("\n")


@pytest.mark.parametrize("change", [rewritten, replaced, appended, Path.unlink])
def test_data_that_changes_while_it_is_read(
    mcq_dataset: Path, replies: Replies, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    file, test = replies(FIVE), mcq_dataset.parent / "rows" / "test.jsonl"

    def read_late(*asked: Any) -> Any:
        found = reading.read_rows(*asked)
        kept = list(found.rows)
        change(test)
        return type(found)(iter(kept), {})

    monkeypatch.setattr("localeval.datasets.rows.read_rows", read_late)
    if change is Path.unlink:
        with pytest.raises(FileNotFoundError, match=r"test\.jsonl"):
            run(mcq_dataset, file)
    else:
        with pytest.raises(
            LocalevalError, match=r"test\.jsonl was changed while dataset quiz was read.*give the command"
        ):
            run(mcq_dataset, file)
    assert not (mcq_dataset.parent / "runs").exists()


def test_replies_that_change_while_they_are_replayed(mcq_dataset: Path, replies: Replies) -> None:
    """The second run is over the new file alone, in a folder of its own."""
    from localeval.engines.replay import ReplayEngine

    file = replies(FIVE)
    engine = ReplayEngine(file)
    replaced(file)
    with pytest.raises(LocalevalError, match=r"replies\.jsonl was replaced while it was read"):
        engine.digest()
    engine = ReplayEngine(file)
    assert len(engine.digest()) == 64
    rewritten(file)
    with pytest.raises(LocalevalError, match=r"replies\.jsonl was changed while it was replayed"):
        engine.digest()
    rewritten(file)
    generate = ReplayEngine.generate

    def late(self: ReplayEngine, requests: Any) -> Iterator[Any]:
        for number, reply in enumerate(generate(self, requests)):
            yield reply
            if number == 1:
                file.write_text(file.read_text().replace("ANSWER: B", "ANSWER: C"))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ReplayEngine, "generate", late)
        with pytest.raises(LocalevalError, match=r"replies\.jsonl was changed while it was replayed; give the command"):
            run(mcq_dataset, file)
    (folder,) = (mcq_dataset.parent / "runs").glob("*/*")
    assert len(list(read_predictions(folder / "predictions.jsonl"))) == 2
    again = run(mcq_dataset, file)
    assert again.runs[0].folder != folder
    assert again.runs[0].report.counts["reused"] == 0
    assert again.runs[0].metrics == {"accuracy": 0.4}  # the last answer is wrong now


# --- rows that are not as they were written ---


@pytest.fixture
def half(mcq_dataset: Path, replies: Replies) -> tuple[Callable[[], Any], Path]:
    """A command, and its predictions.jsonl after a kill with two of five rows there."""
    file = replies(FIVE)
    predictions = run(mcq_dataset, file).runs[0].folder / "predictions.jsonl"
    predictions.write_bytes(b"".join(predictions.read_bytes().splitlines(keepends=True)[:2]))
    return lambda: run(mcq_dataset, file), predictions


Half = tuple[Callable[[], Any], Path]


@pytest.mark.parametrize(
    "tail", [b"\0" * 4096, b'{"sample_id": "default:2", "te' + b"\0" * 700, b'{"sample_id"', b"\xff"]
)
def test_a_torn_end_and_the_nul_bytes_of_a_power_cut(half: Half, tail: bytes) -> None:
    command, predictions = half
    predictions.write_bytes(predictions.read_bytes() + tail)
    result = command()
    assert result.runs[0].metrics == {"accuracy": 0.6}
    assert result.runs[0].report.counts["reused"] == 2
    assert [row.sample_id for row in read_predictions(predictions)] == [f"default:{n}" for n in range(5)]


@pytest.mark.parametrize("line", [b"\0" * 100, b'{"sample_id": "def\0\0\0', b"{broken", b"[]", b'"text"', b"\xff\xfe"])
def test_a_broken_line_that_is_not_the_last(half: Half, line: bytes) -> None:
    """It is not ours to guess what was lost: the line is named, and the row is asked again when it is taken out."""
    command, predictions = half
    first, second = predictions.read_bytes().splitlines(keepends=True)
    predictions.write_bytes(first + line + b"\n" + second)
    with pytest.raises(
        LocalevalError, match=r"predictions.jsonl, line 2: not a prediction .*take the line out"
    ) as said:
        command()
    assert ("NUL bytes, which stand where a file system has lost" in str(said.value)) is (b"\0" in line)
    assert predictions.read_bytes() == first + line + b"\n" + second
    predictions.write_bytes(first + second)
    assert command().runs[0].metrics == {"accuracy": 0.6}


def test_rows_that_are_there_twice_or_of_another_run(half: Half) -> None:
    command, predictions = half
    first, second = predictions.read_bytes().splitlines(keepends=True)
    other = json.dumps({**json.loads(first), "text": "ANSWER: C", "key": "0" * 32}).encode() + b"\n"
    lying = first.replace(b"ANSWER: A", b"ANSWER: B")  # a second reply to what the first line answers
    predictions.write_bytes(first + other + second + lying + second)
    assert command().runs[0].metrics == {"accuracy": 0.6}
    rows = [json.loads(line) for line in predictions.read_text().splitlines()]
    assert [(row["sample_id"], row["text"]) for row in rows] == [
        (name, text if isinstance(text, str) else text[0]) for name, text in FIVE.items()
    ]
    stale = [json.loads(line) for line in (predictions.parent / "predictions.stale.jsonl").read_text().splitlines()]
    assert [row["key"] for row in stale] == ["0" * 32]


def test_replies_and_reports_are_on_the_disk_before_a_run_is_complete(
    mcq_dataset: Path, replies: Replies, synced: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def noted(descriptor: int) -> None:
        link = Path(f"/proc/self/fd/{descriptor}")
        name = link.readlink().name.strip(".").removesuffix(f".{os.getpid()}")
        order.append(name + (" complete" if b'"complete": true' in link.read_bytes() else ""))

    monkeypatch.setattr("os.fsync", noted)
    run(mcq_dataset, replies(FIVE))
    assert order == [
        "lock",
        "run.json",
        "samples.jsonl.gz",
        "predictions.jsonl",
        "scores.jsonl",
        "report.json",
        "report.md",
        "report.html",
        "run.json complete",
    ]


# --- many rows ---


def test_many_rows_are_resumed(tmp_path: Path) -> None:
    """20,000 rows, every second one there already, in another order. Time and memory: scripts/bench/memory.py."""
    count = 20_000
    rows = [
        {"question": f"{n}?", "options": ["one", "two", "six"], "answer": "ABC"[n % 3], "topic": "t"}
        for n in range(count)
    ]
    write_jsonl(tmp_path / "rows" / "test.jsonl", rows)
    (tmp_path / "quiz.yaml").write_text(MCQ_YAML)
    said = [{"sample_id": f"default:{n}", "text": f"ANSWER: {'AB'[n % 2]}"} for n in range(count)]
    file = write_jsonl(tmp_path / "replies.jsonl", said)
    folder = run(tmp_path / "quiz.yaml", file).runs[0].folder
    report = json.loads((folder / "report.json").read_text())
    lines = (folder / "predictions.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "predictions.jsonl").write_bytes(b"".join(reversed(lines[::2])))
    (folder / "report.json").unlink()
    assert run(tmp_path / "quiz.yaml", file).runs[0].report.counts["reused"] == count // 2
    resumed = json.loads((folder / "report.json").read_text())
    assert resumed == {**report, "counts": {**report["counts"], "reused": count // 2}}
    # A, B, A, B, ... against A, B, C, A, ...: of each six rows the first two are right.
    assert report["metrics"]["accuracy"]["value"] == (3_333 * 2 + 2) / count
    ids = [row.sample_id for row in read_predictions(folder / "predictions.jsonl")]
    assert sorted(ids) == sorted(f"default:{n}" for n in range(count))


# --- clocks ---


def test_a_clock_that_goes_back(quiz: Quiz, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at it is an hour before the last; and the files are of the future."""
    folder, words, whole = quiz
    hours = iter(range(10_000_000))
    begin, begin_ns = time.time(), time.time_ns()
    monkeypatch.setattr(time, "time", lambda: begin - 3600.0 * next(hours))
    monkeypatch.setattr(time, "time_ns", lambda: begin_ns - 3_600_000_000_000 * next(hours))
    for path in (folder / "rows" / "test.jsonl", folder / "replies.jsonl"):
        os.utime(path, (begin + 1e8, begin + 1e8))
    assert main([*words, str(folder / "clock")]) == 0
    assert result_of(folder / "clock") == whole
    (run_json,) = (folder / "clock").glob("*/*/run.json")
    seconds = json.loads(run_json.read_text())["seconds"]
    assert seconds
    assert all(value >= 0 for value in seconds.values())
    predictions = run_json.parent / "predictions.jsonl"
    predictions.write_bytes(b"".join(predictions.read_bytes().splitlines(keepends=True)[:7]))
    os.utime(predictions, (0, 0))
    goes_on(quiz, "clock")


# --- score over many runs ---


def test_score_goes_on_after_a_run_that_cant_be_scored(
    mcq_dataset: Path, replies: Replies, capsys: pytest.CaptureFixture[str]
) -> None:
    file = replies(FIVE)
    folders = {name: run(mcq_dataset, file, model=name).runs[0].folder for name in "abcd"}
    (folders["b"] / "predictions.jsonl").write_bytes(b"")
    (folders["c"] / "run.json").write_text("{}")
    for folder in folders.values():
        (folder / "report.json").unlink()
    capsys.readouterr()
    assert main(["score", str(mcq_dataset.parent / "runs")]) == 1
    shown = capsys.readouterr().out
    assert [name for name in "abcd" if (folders[name] / "report.json").is_file()] == ["a", "d"]
    assert "quiz: a\n" in shown
    assert "quiz: d\n" in shown
    assert f"failed: {folders['b']}: {folders['b']}/predictions.jsonl: 5 samples have no reply, the first" in shown
    assert f"failed: {folders['c']}: {folders['c']}/run.json is no record of a run" in shown
    with pytest.raises(RunFailed, match="5 samples have no reply"):  # the only run: its failure is the command's
        score_run(folders["b"])
    RunFolder(folders["b"]).lock()  # it was let go

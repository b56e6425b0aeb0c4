"""The command as a user has it: a process, its output and its exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from localeval.cli import main
from tests.conftest import Replies
from tests.test_run import FIVE


def localeval(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "localeval", *words], capture_output=True, text=True, cwd=cwd, check=False
    )


def test_help_and_version() -> None:
    shown = localeval("--help")
    assert shown.returncode == 0
    for word in ("--model", "--datasets", "--limit", "--engine", "--thinking", "score RUN_DIR", "exit status"):
        assert word in shown.stdout
    assert localeval("--version").stdout.startswith("localeval 0.")
    assert localeval("score", "--help").returncode == 0
    assert localeval().returncode == 2


def test_a_run_from_the_command_line(mcq_dataset: Path, replies: Replies) -> None:
    words = ["--engine", f"replay:{replies(FIVE)}", "--datasets", str(mcq_dataset), "--work-dir", "out"]
    done = localeval(*words, cwd=mcq_dataset.parent)
    assert done.returncode == 0, done.stderr
    assert "micro accuracy 0.6000" in done.stdout
    assert "replies: 5 of 5" in done.stderr
    folder = next((mcq_dataset.parent / "out").glob("*/*"))
    assert folder.name.startswith("quiz-")
    again = localeval("score", str(folder), cwd=mcq_dataset.parent)
    assert again.stdout == done.stdout
    same = localeval("eval", *words, cwd=mcq_dataset.parent)
    assert same.stdout == done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "m", "--datasets", "conlpp"], "did you mean 'conllpp'"),
        (["--model", "m", "--datasets", "milu", "--dataset-args", "{broken"], "--dataset-args takes a JSON object"),
        (["--model", "m", "--datasets", "milu", "--limit", "0"], "limit is 0"),
        (["--datasets", "milu"], "model is missing"),
        (["--model", "m"], "datasets"),
        (["--model", "m", "--datasets", "milu", "--dataset-dir", "/nowhere"], "dataset milu was not found"),
        (["--model", "none/such", "--datasets", "milu", "--samples"], "localeval fetch --models none/such --to DIR"),
        (["socre", "runs"], "there is no command 'socre' (did you mean 'score'?)"),
        (
            ["--model", "m", "--datasets", "milu", "--generation-config", '{"temperature": Infinity}'],
            "takes a JSON object",
        ),
        (["--model", "/no/such", "--datasets", "milu", "--samples"], "Give the model's folder as --model"),
        (["score", "/nowhere"], "no run.json"),
        (["list", "none.yaml"], "there is no such file"),
    ],
)
def test_errors_are_one_message_and_status_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown


def test_a_terminal_that_knows_only_ascii(mcq_dataset: Path, replies: Replies) -> None:
    words = [
        "--engine",
        f"replay:{replies(FIVE)}",
        "--datasets",
        str(mcq_dataset),
        "--work-dir",
        str(mcq_dataset.parent),
    ]
    command = [sys.executable, "-m", "localeval", *words]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=False)
    assert done.returncode == 0, done.stderr
    assert b"n 5 ? unparsed 1" in done.stdout
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert b"No space left on device: 'standard output'" in done.stderr


@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-", "<&- 2>&-"])
def test_a_standard_error_that_takes_nothing_is_no_reason_to_stop(
    mcq_dataset: Path, replies: Replies, stderr: str
) -> None:
    words = f"--engine replay:{replies(FIVE)} --datasets {mcq_dataset} --work-dir {mcq_dataset.parent}"
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m localeval {words} {stderr}"], stdout=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, "micro accuracy 0.6000" in done.stdout) == (0, True)
    assert "localeval:" not in done.stdout
    refused = subprocess.run(["sh", "-c", f"{sys.executable} -m localeval no {stderr}"], check=False)
    assert refused.returncode == 2


def test_a_package_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "psutil.py").write_text("raise ImportError('No module named psutil')\n")
    done = subprocess.run(
        [sys.executable, "-m", "localeval", "--model", "m", "--datasets", "milu", "--samples"],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "No module named psutil; localeval doctor says what mends it" in done.stderr


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    assert "milu" in shown
    assert "smollm2-135m" in shown
    assert main(["list", "conllpp"]) == 0
    assert "PER <person>" in capsys.readouterr().out
    assert main(["list", "milu", "--stats", "--samples"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:2] == ["all", "55"]


def test_options_go_before_the_config_file(
    mcq_dataset: Path, replies: Replies, capsys: pytest.CaptureFixture[str]
) -> None:
    file = mcq_dataset.parent / "run.yaml"
    file.write_text(
        f"engine: replay:{replies(FIVE)}\ndatasets: {mcq_dataset}\nwork_dir: {mcq_dataset.parent / 'runs'}\nlimit: 1\n"
    )
    assert main(["--config", str(file), "--limit", "2"]) == 0
    assert "n 2 ·" in capsys.readouterr().out

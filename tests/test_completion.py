"""Completion in the shell, as bash does it."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from localeval.cli import main
from localeval.completion import PARSERS
from localeval.completion import script as made


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script for bash, in a folder with a few files."""
    folder = tmp_path_factory.mktemp("completion")
    for name in ("quiz.yaml", "names.yml", "notes.txt", "rows.jsonl", "small.gguf"):
        (folder / name).touch()
    (folder / "runs").mkdir()
    (folder / "my work" / "a b").mkdir(parents=True)
    (folder / "my work" / "x.jsonl").touch()
    (folder / "my work" / "y.jsonl").touch()
    (folder / "complete.sh").write_text(made("bash"))
    return folder / "complete.sh"


ASKED = [
    ("localeval li", ["list"]),
    ("localeval --datasets mil", ["milu"]),
    ("localeval --datasets milu mit_mov", ["mit_movie_trivia"]),
    ("localeval --datasets milu qu", ["quiz.yaml"]),
    ("localeval --datasets na", ["names.yml"]),
    ("localeval --datasets milu --dry", ["--dry-run"]),
    ("localeval --model smol", ["smollm2-135m"]),
    ("localeval --model sma", ["small.gguf"]),
    ("localeval --model x --use", ["--use-cache"]),
    ("localeval --work-dir r", ["runs"]),
    ("localeval eval --thinking o", ["off", "on"]),
    ("localeval eval --engine v", ["vllm"]),
    ("localeval list conl", ["conll2003", "conllpp"]),
    ("localeval score r", ["runs"]),
    ("localeval init x --from ro", ["rows.jsonl"]),
    ("localeval init x --from 'my work/x'", ["my work/x.jsonl"]),
    ("localeval score 'my work/a'", ["my work/a b"]),
    ("localeval bundle v", ["verify"]),
    ("localeval completion z", ["zsh"]),
]


def test_words_are_completed_in_bash(script: Path) -> None:
    lines = ["source ./complete.sh"]
    for typed, _ in ASKED:
        words = shlex.split(typed)
        lines.append(f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _shtab_localeval")
        lines.append("(IFS='|'; echo \"${COMPREPLY[*]}\")")
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)], cwd=script.parent, capture_output=True, text=True, check=True
    )
    found = [sorted(line.split("|")) for line in done.stdout.splitlines()]
    assert dict(zip([typed for typed, _ in ASKED], found, strict=True)) == dict(ASKED)


def test_every_command_is_completed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonesuch"]) == 2
    commands = capsys.readouterr().err.strip().rpartition("commands: ")[2].split(", ")
    assert list(PARSERS) == commands


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_scripts_of_other_shells_name_what_there_is(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    shown = capsys.readouterr().out
    for word in ("dry-run", "milu", "smollm2-135m", "init"):
        assert word in shown

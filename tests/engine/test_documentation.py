"""The commands of the README and of docs/, as they stand there: run in order, and held against what the page shows.

Each page has a fresh folder, with the repository's scripts/ in it, as in a clone. The home is empty at first, and all
pages share it. ``tests/pages.py`` says how a block is marked that is not run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import PAGES, REPOSITORY, Block, blocks

pytestmark = [pytest.mark.engine, pytest.mark.long]

RUN = [page for page in PAGES if any(block.runs for block in blocks(page))]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def run(block: Block, folder: Path, home: Path) -> str:
    """What a block prints to the standard output. Its first command that fails ends it."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("HF_", "MODELSCOPE_", "LOCALEVAL_"))
    }
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    words = [sys.executable, "-c"] if block.language == "python" else ["bash", "-euo", "pipefail", "-c"]
    done = subprocess.run(
        [*words, block.text],
        cwd=folder,
        env={**kept, "HOME": str(home), "PATH": path},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, (
        f"{block.where}: status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    )
    return done.stdout


def lines_of(text: str) -> list[str]:
    """Lines of which two are equal where they differ in figures, fingerprints and the widths of columns alone."""
    text = re.sub(r"\b[0-9a-f]{8}\b", "H", text)
    text = re.sub(r"[-+]?\d[\d,.]*|–", "0", text)
    return [re.sub(r"-+", "-", " ".join(line.split())) for line in text.splitlines() if line.strip()]


def missing(shown: str, printed: str) -> list[str]:
    """The first lines of what a page shows that are not printed together, after those before them; none if all are."""
    there = lines_of(printed)
    start = 0
    for piece in re.split(r"(?m)^\s*\.\.\.$", shown):
        wanted = [re.escape(line).replace(r"\.\.\.", ".*") for line in lines_of(piece)]
        places = range(start, len(there) - len(wanted) + 1)
        found = next((at for at in places if all(map(re.fullmatch, wanted, there[at : at + len(wanted)]))), None)
        if found is None:
            return lines_of(piece)
        start = found + len(wanted)
    return []


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run_and_print_what_it_shows(page: Path, home: Path, tmp_path: Path) -> None:
    (tmp_path / "scripts").symlink_to(REPOSITORY / "scripts")
    printed = ""
    for block in blocks(page):
        if block.runs:
            printed = run(block, tmp_path, home)
        elif block.mark == "prints":
            assert missing(block.text, printed) == [], f"{block.where} is not printed; but this is:\n{printed}"


@pytest.mark.parametrize(
    ("shown", "printed", "expected"),
    [
        ("a  1.5\n...\nb 2", "x\na 17\ny\nz\nb   3,000\n", []),
        ("n 55 · unparsed 28 ...", "n 3 · unparsed 1 · truncated 0", []),
        ("a 1\nb 2", "a 1\nc\nb 2", ["a 0", "b 0"]),
        ("...\nb 2\n...\na 1", "a 1\nb 2", ["a 0"]),
        ("(6b6eeeb3), –\n-----  --", "(00000000), 0.5\n-  -----", []),
        ("better", "worse", ["better"]),
    ],
)
def test_figures_may_differ_and_words_may_not(shown: str, printed: str, expected: list[str]) -> None:
    assert missing(shown, printed) == expected

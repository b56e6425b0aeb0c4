"""The way onto a machine without a network, rehearsed: fetch, carry, verify, install and run, with no network at all.

The hubs are stand-ins; packages come from the index that pip knows. What is installed and run afterwards sees no
interface but the loopback, an empty home, and none of pip's settings.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from localeval.bundle import read_manifest
from localeval.datasets.spec import find_spec
from tests.engine.conftest import DATASETS
from tests.hub import Hub

pytestmark = pytest.mark.engine

REPOSITORY = Path(__file__).parent.parent.parent
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
# Raises the loopback (SIOCSIFFLAGS, IFF_UP | IFF_RUNNING), tells which interfaces there are, and becomes the command.
INSIDE = """
import fcntl, os, socket, struct, sys
with socket.socket() as one:
    fcntl.ioctl(one, 0x8914, struct.pack("16sh", b"lo", 0x41))
assert [name for _, name in socket.if_nameindex()] == ["lo"], socket.if_nameindex()
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture(scope="module")
def alone() -> list[str]:
    """What stands before a command, so that it sees no network. Where the system refuses that, nothing is rehearsed."""
    for words in (["unshare", "--net"], ["unshare", "--map-root-user", "--net"]):
        if (
            shutil.which("unshare")
            and subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
        ):
            return [*words, sys.executable, "-c", INSIDE]
    pytest.fail("the rehearsal needs a network namespace, and `unshare --net` is refused here")


@pytest.fixture
def parts() -> Iterator[dict[str, float]]:
    """Seconds of each part, shown at the end (pytest -s)."""
    seconds: dict[str, float] = {}
    yield seconds
    print("\nrehearsal:", ", ".join(f"{name} {took:.0f} s" for name, took in seconds.items()))


def call(words: Sequence[str], parts: dict[str, float], part: str, **options: object) -> str:
    start = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    parts[part] = time.monotonic() - start
    assert done.returncode == 0, f"{part}: status {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return str(done.stdout)


def clone(to: Path) -> Path:
    """The files that git knows or would take, as they are: what a clone of the next commit is."""
    known = ["git", "-C", str(REPOSITORY), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(known, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and (REPOSITORY / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, to / name)
    return to


def published(hub: Hub, data_dir: Path, smollm2: Path) -> Mapping[str, str]:
    """The datasets and the model, each in its repository: name -> commit."""
    commits = {name: hub.add("dataset", find_spec(name).hub_id, (data_dir / name).resolve()) for name in DATASETS}
    return {**commits, MODEL: hub.add("model", MODEL, smollm2)}


def test_from_a_hub_to_a_report_without_a_network(
    hub: Hub, data_dir: Path, smollm2: Path, alone: list[str], tmp_path: Path, parts: dict[str, float]
) -> None:
    commits = published(hub, data_dir, smollm2)
    localeval = [sys.executable, "-m", "localeval"]
    fetched, bundle = tmp_path / "fetched", tmp_path / "disk" / "bundle"
    fetch = [*localeval, "fetch", "--to", str(fetched)]
    environment = {**os.environ, **hub.environment()}
    call([*fetch, "--datasets", *DATASETS, "--models", MODEL], parts, "fetch of data and weights", env=environment)
    call([*fetch, "--wheels", "cpu"], parts, "fetch of wheels", env=environment)
    fetched_files = len(hub.log)
    bundle.parent.mkdir()
    fetched.rename(bundle)
    assert "5 items" in call([*localeval, "bundle", "verify", str(bundle)], parts, "verify")

    code, home = clone(tmp_path / "clone"), tmp_path / "home"
    home.mkdir()
    bare = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(tmp_path),
        "PYTHON": f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}",
        "LANG": "C.UTF-8",
    }
    install = [*alone, "scripts/setup", "--bundle", str(bundle), "cpu"]
    call(install, parts, "installing", env=bare, cwd=code)
    job = [".venv/bin/localeval", "--bundle", str(bundle), "--model", MODEL, "--datasets", *DATASETS, "--limit", "1"]
    budget = ["--generation-config", '{"max_tokens": 16}']
    shown = call([*alone, *job, "--engine", "vllm", *budget], parts, "running", env=bare, cwd=code)

    assert len(hub.log) == fetched_files
    counts = {"milu": 11, "conllpp": 1, "mit_movie_trivia": 1}
    reports = [json.loads(file.read_text()) for file in (code / "runs").rglob("report.json")]
    assert {report["dataset"]: report["n"] for report in reports} == counts
    assert all(f"{name}: SmolLM2-135M-Instruct" in shown for name in DATASETS)
    for file in (code / "runs").rglob("run.json"):
        told = json.loads(file.read_text())
        name = told["dataset"]["name"]
        assert told["complete"] is True
        assert told["dataset"]["bundle"]["id"] == find_spec(name).hub_id
        assert told["dataset"]["bundle"]["revision"] == commits[name]
        assert told["model"]["bundle"] == {"hub": "huggingface", "id": MODEL, "revision": commits[MODEL]}
        assert Path(told["model"]["folder"]).is_relative_to(bundle)
    assert {item.kind for item in read_manifest(bundle)} == {"dataset", "model", "wheels"}
    assert "whole" in call([*localeval, "bundle", "verify", str(bundle)], parts, "verify again")

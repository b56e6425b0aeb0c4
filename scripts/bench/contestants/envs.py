"""Each peer's own virtual environment, made once and used again. None of them is a dependency of localeval.

The peers are pinned to what was tested; torch, transformers and vLLM are those that localeval itself runs on, so that
it is the programs that differ and not their libraries.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contestants.measure import Failed
from localeval.engines.settings import runs_on_cpu

ROOT = Path(__file__).resolve().parents[3]
LOCALEVAL = Path(sys.executable).parent
"""Where the programs of localeval's own environment are."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer's environment. own: its pinned requirements. shared: packages in the version that localeval has."""

    name: str
    own: tuple[str, ...]
    shared: tuple[str, ...]
    vllm: bool = False

    def requirements(self) -> list[str]:
        shared = [*self.shared, *([_vllm()] if self.vllm else [])]
        return [*self.own, *(f"{package}=={_public_version(package)}" for package in shared)]


ON_CPU: Mapping[str, Any] = {"gpu_memory_utilization": 0.4} if runs_on_cpu() else {}
"""What a vLLM that is left to its own choices still needs on a CPU: by itself it wants 92% of the memory to be free."""
VARIABLES = {"VLLM_HOST_IP": "127.0.0.1", **({"VLLM_CPU_KVCACHE_SPACE": "1"} if runs_on_cpu() else {})}
"""The same as variables: nobody asks the network for this machine's address, and the cache has localeval's room."""

EVALSCOPE = Peer("evalscope", ("evalscope==1.14.1", "seqeval==1.2.2"), ("torch", "transformers", "accelerate"))
LM_EVAL = Peer("lm-eval", ("lm-eval[hf]==0.4.13",), ("torch", "transformers", "accelerate"), vllm=True)


def _vllm() -> str:
    return "vllm-cpu" if runs_on_cpu() else "vllm"


def _public_version(package: str) -> str:
    """Without ``+cpu``: an index serves a build by its public version."""
    return importlib.metadata.version(package).partition("+")[0]


def python_of(peer: Peer, folder: Path) -> Path:
    """The peer's interpreter; its environment is made where it isn't there yet. Raises Failed."""
    venv = folder / peer.name
    python = venv / "bin" / "python"
    requirements = peer.requirements()
    stamp = hashlib.sha256("\n".join(requirements).encode()).hexdigest()
    stamp_file = venv / ".installed"
    if stamp_file.is_file() and stamp_file.read_text(encoding="utf-8") == stamp:
        return python
    print(f"{peer.name}: installing {', '.join(requirements)}", file=sys.stderr, flush=True)
    shutil.rmtree(venv, ignore_errors=True)
    _call("venv", "--python", sys.executable, str(venv))
    kind = "cpu" if runs_on_cpu() else "gpu"
    overrides = ROOT / "scripts" / "requirements" / f"overrides-{kind}.txt"
    _call("pip", "install", "--python", str(python), "--override", str(overrides), *_torch(kind), *requirements)
    if peer.vllm and kind == "cpu":
        _name_vllm(venv)
    stamp_file.write_text(stamp, encoding="utf-8")
    return python


def _name_vllm(venv: Path) -> None:
    """lm-eval asks for the version of a distribution ``vllm``, and vLLM takes its platform from that version's end."""
    (packages,) = venv.glob("lib/python*/site-packages")
    version = f"{_public_version('vllm-cpu')}+cpu"
    folder = packages / f"vllm-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n", encoding="utf-8")


def _torch(kind: str) -> list[str]:
    """The CPU build of torch comes from a find-links folder with it, else from torch's own index, which uv knows."""
    folders = os.environ.get("PIP_FIND_LINKS", "").split()
    held = any(file for folder in folders for file in Path(folder).glob("torch-*+cpu*.whl"))
    return [] if kind == "gpu" or held else ["--torch-backend", "cpu"]


def _call(*words: str) -> None:
    uv = LOCALEVAL / "uv"
    if not uv.is_file():
        raise Failed(f"{uv} is not there; scripts/setup installs it")
    done = subprocess.run(
        [str(uv), *words, "--quiet"],
        env={**os.environ, **_settings_of_pip()},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Failed(f"uv {words[0]}: {' '.join(done.stderr.split())[:300]}")


def _settings_of_pip() -> Mapping[str, str]:
    """Settings for uv, which reads none of pip's, as scripts/setup hands them over."""
    pip = {
        "UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", "").replace(" ", ","),
        "UV_DEFAULT_INDEX": os.environ.get("PIP_INDEX_URL", ""),
        "UV_INDEX": os.environ.get("PIP_EXTRA_INDEX_URL", ""),
        "SSL_CERT_FILE": os.environ.get("PIP_CERT", ""),
        "UV_HTTP_TIMEOUT": "300",
    }
    return {name: value for name, value in pip.items() if value and name not in os.environ}

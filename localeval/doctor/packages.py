"""The installed packages: versions, what each asks of the others, what torch is built for. Imports none of them.

``probe`` imports one in a process of its own, so that one that crashes or hangs is a finding and nothing more.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# What torch knows of the GPUs; no context is made on any of them.
TORCH = (
    "import json, torch; c = torch.cuda; a = c.is_available(); "
    "print(json.dumps({'available': a, 'devices': c.device_count() if a else 0, 'archs': c.get_arch_list()}))"
)
VLLM = "import json, vllm; print(json.dumps({'version': vllm.__version__}))"


@dataclass(frozen=True, slots=True)
class Unmet:
    """A requirement that is not met. owner: the package that asks. installed: None where there is none at all."""

    owner: str
    requirement: str
    installed: str | None


@dataclass(frozen=True, slots=True)
class Probe:
    """What an import in a process of its own came to. said: what it printed. trouble: its last words, if it failed."""

    said: str = ""
    trouble: str = ""


def version(name: str) -> str | None:
    """By the package's own metadata; None where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def requirement_of(owner: str, name: str, extra: str = "") -> str:
    """The versions of a package that another one's metadata asks for, such as ``>=0.24,<0.34``; empty for any."""
    for line in _requires(owner):
        asked = Requirement(line)
        if canonicalize_name(asked.name) == name and _applies(asked, (extra,)):
            return ",".join(sorted(str(asked.specifier).split(","), reverse=True))
    return ""


def python_range() -> str:
    """The Python versions that localeval's metadata asks for; empty where it is not installed."""
    try:
        return importlib.metadata.metadata("localeval")["Requires-Python"] or ""
    except importlib.metadata.PackageNotFoundError:
        return ""


def unmet(roots: Sequence[str]) -> list[Unmet]:
    """Every requirement that is not met, of the packages named and of all that these need, nearest first."""
    todo: list[tuple[str, tuple[str, ...]]] = [(name, ()) for name in roots]
    seen, found = set(todo), []
    for name, extras in todo:  # grows while it is gone through
        for line in _requires(name):
            asked = Requirement(line)
            if not _applies(asked, extras or ("",)):
                continue
            installed = version(asked.name)
            if installed is None or not asked.specifier.contains(installed, prereleases=True):
                found.append(Unmet(name, f"{asked.name}{asked.specifier}", installed))
            following = (canonicalize_name(asked.name), tuple(sorted(asked.extras)))
            if following not in seen:
                seen.add(following)
                todo.append(following)
    return found


def _requires(name: str) -> list[str]:
    try:
        return importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return []


def _applies(asked: Requirement, extras: Sequence[str]) -> bool:
    return asked.marker is None or any(asked.marker.evaluate({"extra": extra}) for extra in extras)


def torch_cuda() -> str | None:
    """The CUDA version that torch is built with, as its file version.py says; None for a CPU build, or where it is not.

    PyPI's own wheels carry it in no version number.
    """
    found = importlib.util.find_spec("torch")  # looks, and imports nothing
    if found is None or found.origin is None:
        return None
    try:
        text = (Path(found.origin).parent / "version.py").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    match = re.search(r"^cuda\b[^=\n]*= *['\"]([\d.]+)['\"]", text, re.MULTILINE)
    return match[1] if match else None


def probe(code: str, seconds: float) -> Probe:
    """Runs a statement in another Python. seconds: what it may take."""
    command = [sys.executable, "-P", "-c", code]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Probe(trouble=f"no end after {seconds:g} s")
    last = (done.stdout.strip().splitlines() or [""])[-1]
    if done.returncode == 0:
        try:
            json.loads(last)
        except ValueError:
            return Probe(trouble=f"it said {last[:200]!r}")
        return Probe(last)
    words = (done.stderr.strip().splitlines() or ["no word"])[-1][:300]
    how = f"killed by signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
    return Probe(trouble=f"{words} ({how})")

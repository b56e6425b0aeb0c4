"""The wheels of every package that a run needs -> the folder ``wheels`` of a bundle, with the pins' own hashes.

``wheels/<kind>.txt`` names them for pip and uv, each with the SHA-256 of the very file that lies there. Knows nothing
about hubs, nor about who writes the manifest.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from localeval.bundle import MANIFEST, BundledFile, Item, how_to_fetch_again, read_manifest, refuse_links
from localeval.progress import track
from localeval.schema import LocalevalError, RunFailed

Say = Callable[[str], None]
KINDS = ("cpu", "gpu")
FOLDER = "wheels"
_PYTHONS = ("3.11", "3.12", "3.13")
_GLIBC = 28
"""Wheels for a C library of 2.28 and older are taken first, as they run on the most machines."""
_NEWEST_GLIBC = 42
_TOGETHER = 16
"""Wheels that one process of pip brings."""
_TORCH = (
    "; torch's CPU build comes from torch's own index, whose address its install page gives: name it with "
    "PIP_EXTRA_INDEX_URL, or a folder that holds the wheel with PIP_FIND_LINKS"
)


def fetch_wheels(kind: str, python: str | None, bundle: Path, say: Say) -> Item:
    """Brings every wheel of one kind into ``<bundle>/wheels``: the packages that are pinned, uv, and localeval itself.

    kind: cpu or gpu. python: for which one, such as ``3.12``; None: the one that runs this. pip does the work, with the
    user's own settings; all of it is there, whole, or nothing has changed. The manifest is not touched. Raises
    LocalevalError for what can't be asked here, RunFailed where pip fails.
    """
    version = python or f"{sys.version_info.major}.{sys.version_info.minor}"
    _check(kind, version)
    source = _source()
    refuse_links(bundle, FOLDER)
    bundle.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".wheels-", dir=bundle) as name:
        folder = Path(name)
        say(f"wheels for {kind}, Python {version}: pip brings them")
        _download(pins_of(kind), version, folder)
        _pip(["wheel", "--no-deps", "--wheel-dir", str(folder), str(source)], "localeval's own wheel was not built")
        files = [_file(path) for path in sorted(folder.glob("*.whl"))]
        listed = folder / f"{kind}.txt"
        listed.write_text(_requirements(kind, version, files), encoding="utf-8")
        files.append(_file(listed))
        (bundle / FOLDER).mkdir(exist_ok=True)
        for file in files:
            path = folder / file.path
            path.chmod(0o644)
            path.replace(bundle / FOLDER / file.path)
    _remove_older(kind, bundle, files, say)
    release = f"{importlib.metadata.version('localeval')}, Python {version}, glibc 2.{_glibc(files)}"
    return Item("wheels", kind, FOLDER, "", "localeval", release, "", "", tuple(files))


def pins_of(kind: str) -> str:
    """The text of the pins of what runs: inside the installed package, or of the source checkout."""
    inside = Path(__file__).parent / "requirements" / f"{kind}.txt"
    checkout = Path(__file__).parent.parent / "scripts" / "requirements" / f"{kind}.txt"
    return (inside if inside.is_file() else checkout).read_text(encoding="utf-8")


def _check(kind: str, version: str) -> None:
    if kind not in KINDS:
        raise LocalevalError(f"wheels are of the kinds {' and '.join(KINDS)}, not {kind!r}")
    if version not in _PYTHONS:
        raise LocalevalError(f"wheels for Python {version}: localeval runs on {', '.join(_PYTHONS)}")
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise LocalevalError(f"wheels are brought for Linux on x86_64, and on it; this is {platform.platform()}")
    if importlib.util.find_spec("pip") is None:
        raise LocalevalError(f"{sys.executable} has no pip, which brings the wheels: {sys.executable} -m ensurepip")


def _source() -> Path:
    """The source checkout that localeval runs from, of which its own wheel is built."""
    folder = Path(__file__).parent.parent
    project = folder / "pyproject.toml"
    if not project.is_file() or 'name = "localeval"' not in project.read_text(encoding="utf-8"):
        raise LocalevalError(
            f"localeval's own wheel is built from its source, and this one is installed in {folder}: run "
            "localeval fetch --wheels from a clone, after scripts/setup"
        )
    return folder


def _remove_older(kind: str, bundle: Path, files: Sequence[BundledFile], say: Say) -> None:
    """Takes away what an earlier fetch of the kind has left, and no other kind needs.

    localeval's own wheel is of every kind, and has one name whatever it is built of: a kind that named another is told.
    """
    items = read_manifest(bundle) if (bundle / MANIFEST).is_file() else ()
    wheels = [item for item in items if item.kind == "wheels"]
    others = [item for item in wheels if item.name != kind]
    digests = {file.path: file.sha256 for file in files}
    for item in others:
        if any(digests.get(file.path, file.sha256) != file.sha256 for file in item.files):
            again = how_to_fetch_again(bundle, item)
            say(f"the {item.name} wheels are of another localeval, whose wheel has gone; bring them again: {again}")
    named = {*digests, *(file.path for item in others for file in item.files)}
    for file in (file for item in wheels if item.name == kind for file in item.files):
        if file.path not in named:
            (bundle / FOLDER / file.path).unlink(missing_ok=True)


def _download(pins: str, version: str, folder: Path) -> None:
    """A few at a time and several times at once: pip is busy with the pages of an index for longer than with files."""
    blocks: list[str] = re.findall(r"^[^\s#].*\n(?:[ \t]+.*\n)*", pins, re.MULTILINE)
    # pip takes either all or none of them with hashes.
    some = [[block for block in blocks if "--hash=" not in block]]
    hashed = [block for block in blocks if "--hash=" in block]
    some += [hashed[start : start + _TOGETHER] for start in range(0, len(hashed), _TOGETHER)]
    target = ["--implementation", "cp", "--python-version", version]
    for tag in _platforms():  # said outright: what is brought must not depend on the machine that brings it
        target += ["--platform", tag]

    def bring(blocks: Sequence[str]) -> Sequence[str]:
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
            file.writelines(blocks)
            file.flush()
            words = ["download", "--only-binary=:all:", "--no-deps", *target, "-r", file.name, "-d", str(folder)]
            hint = _TORCH if any("+cpu" in block for block in blocks) else ""
            _pip(words, f"not all wheels could be brought{hint}")
        return blocks

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        groups = [group for group in some if group]
        for _ in track((block for group in pool.map(bring, groups) for block in group), len(blocks), "wheels"):
            pass


def _platforms() -> list[str]:
    """What wheels may be called, the best first. pip spells out none but the oldest names by itself."""
    machine = platform.machine()
    old = [f"manylinux_2_{glibc}_{machine}" for glibc in range(_GLIBC, 4, -1)]
    old += [f"{name}_{machine}" for name in ("manylinux2014", "manylinux2010", "manylinux1")]
    return old + [f"manylinux_2_{glibc}_{machine}" for glibc in range(_GLIBC + 1, _NEWEST_GLIBC)]


def _glibc(files: Iterable[BundledFile]) -> int:
    """The C library that all of them need: the second part of its version."""
    needed = [
        min(map(int, found)) for file in files if (found := re.findall(r"manylinux_2_(\d+)_", file.path.split("-")[-1]))
    ]
    return max(needed, default=17)


def _pip(words: Sequence[str], failed: str) -> None:
    """Its complaints alone are shown, on the standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", words[0], "--quiet", "--disable-pip-version-check", *words[1:]],
        stdin=subprocess.DEVNULL,
        stdout=2,
        check=False,
    )
    if done.returncode:
        raise RunFailed(f"{failed} (pip ended with {done.returncode}; its words are above). The same command goes on")


def _file(path: Path) -> BundledFile:
    with path.open("rb") as file:
        return BundledFile(path.name, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def _requirements(kind: str, version: str, files: Iterable[BundledFile]) -> str:
    lines = [
        f"# Python {version}, glibc 2.{_glibc(files)}",
        f"# The {kind} packages that lie here, for Linux on {platform.machine()}:",
        f"#   python{version} -m venv DIR",
        f"#   DIR/bin/pip install --no-index --no-deps --find-links . --requirement {kind}.txt",
    ]
    for file in files:
        name, release = file.path.split("-")[:2]  # so are wheels named
        lines.append(f"{name}=={release} --hash=sha256:{file.sha256}")
    return "\n".join(lines) + "\n"

"""The machine, the disk and the environment: facts of them, and what they mean for a run. Writes nothing.

Whether a folder can be written to is asked of the system, not tried.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from localeval.doctor.check import Check, Verdict
from localeval.doctor.gpus import Found, Gpu
from localeval.engines.sizing import GIB

LITTLE = 2 * GIB
"""Bytes of a disk below which it is said; run folders of 100,000 rows are smaller."""
TOO_LITTLE = GIB // 8
"""Bytes of a disk with which no run gets far."""
SHARED = GIB
"""Bytes of /dev/shm that several workers of vLLM need at the least: they, and NCCL, hand tensors on through it."""


@dataclass(frozen=True, slots=True)
class Machine:
    """cores: those that this process may use. free, total: bytes of memory, of the container where there is one."""

    cores: int
    free: int
    total: int


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that is written to, or will be made. free, total: bytes of its disk. variable: what names another."""

    role: str
    path: Path
    writable: bool
    free: int
    total: int
    variable: str
    needed: bool = True


# --- facts ---


def read_machine() -> Machine:
    """Cores and memory."""
    import psutil

    memory = psutil.virtual_memory()
    free, total = memory.available, memory.total
    with suppress(OSError, ValueError):  # no container, or one without a limit ("max")
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        free, total = min(free, max(limit - used, 0)), min(total, limit)
    return Machine(len(os.sched_getaffinity(0)), free, total)


def read_folder(role: str, path: Path, variable: str, needed: bool = True) -> Folder:
    """A folder as it is, or as the nearest folder above it that is there lets it be made."""
    at = path.absolute()
    while not os.path.lexists(at) and at != at.parent:
        at = at.parent
    try:
        usage = shutil.disk_usage(at)
        free, total = usage.free, usage.total
    except OSError:
        free, total = 0, 0
    writable = at.is_dir() and os.access(at, os.W_OK | os.X_OK)
    return Folder(role, path, writable, free, total, variable, needed)


def temporary_folder() -> Path:
    """Where Python puts what is temporary; /tmp where it finds none."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        return Path("/tmp")


# --- what they mean ---


def judge_machine(machine: Machine) -> list[Check]:
    """Cores and memory are said; whether they are enough depends on a model."""
    found = f"{gib(machine.free)} free of {gib(machine.total)}"
    return [Check("Machine", "cores", "ok", str(machine.cores)), Check("Machine", "memory", "ok", found)]


def judge_gpus(found: Found, seen: Sequence[Gpu], environment: Mapping[str, str], on_cpu: bool) -> list[Check]:
    """found: all GPUs. seen: those that a program can see. on_cpu: whether models run on the CPU."""
    if found.trouble:
        mend = "nvidia-smi shows it too; after an update of the driver: load its module again, or restart the machine"
        return [Check("Machine", "GPU", "note" if on_cpu else "problem", found.trouble, mend)]
    if not seen:
        return [_none_seen(found, environment, on_cpu)]
    checks = [Check("Machine", f"GPU {gpu.index}", "ok", _described(gpu)) for gpu in seen]
    named = environment.get("CUDA_VISIBLE_DEVICES", "")
    counted = any(word.strip().isdecimal() for word in named.split(","))
    if counted and len({gpu.name for gpu in found.gpus}) > 1 and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        told = f"CUDA_VISIBLE_DEVICES={named}: CUDA counts from the fastest GPU on, nvidia-smi (and this list) by slot"
        checks.append(Check("Machine", "order of GPUs", "note", told, "export CUDA_DEVICE_ORDER=PCI_BUS_ID"))
    if len(seen) < len(found.gpus):
        told = f"{len(found.gpus) - len(seen)} of {len(found.gpus)} GPUs or MIG devices are hidden from a program"
        checks.append(Check("Machine", "hidden", "note", told, "CUDA_VISIBLE_DEVICES names those that are seen"))
    return checks


def _described(gpu: Gpu) -> str:
    version = f", compute capability {gpu.capability[0]}.{gpu.capability[1]}" if gpu.capability else ""
    memory = "memory not told"
    if gpu.total is not None and gpu.free is not None:
        memory = f"{gib(gpu.free)} free of {gib(gpu.total)}"
    return f"{gpu.name}{f' MIG {gpu.mig}' if gpu.mig else ''}, {memory}{version}, driver {gpu.driver}"


def _none_seen(found: Found, environment: Mapping[str, str], on_cpu: bool) -> Check:
    verdict: Verdict = "ok" if on_cpu else "problem"
    if found.gpus:
        named = environment.get("CUDA_VISIBLE_DEVICES", "")
        return Check(
            "Machine", "GPU", "note" if on_cpu else "problem",
            f"CUDA_VISIBLE_DEVICES={named} hides all {len(found.gpus)} that are there, or names none of them",
            "unset CUDA_VISIBLE_DEVICES",
        )  # fmt: skip
    if found.installed:
        return Check("Machine", "GPU", verdict, "nvidia-smi lists none", "" if on_cpu else "in a container: --gpus all")
    mend = "" if on_cpu else "install NVIDIA's driver; in a container: --gpus all, with its container toolkit"
    return Check("Machine", "GPU", verdict, "none: there is no nvidia-smi", mend)


def judge_folders(folders: Sequence[Folder], workers: int) -> list[Check]:
    """workers: how many processes of vLLM share one model."""
    return [_shared(folder, workers) if folder.path == Path("/dev/shm") else _folder(folder) for folder in folders]


def _folder(folder: Folder) -> Check:
    found = f"{folder.path}, {gib(folder.free)} free of {gib(folder.total)}"
    bad: Verdict = "problem" if folder.needed else "note"
    if not folder.writable:
        lost = "" if folder.needed else ": what is kept there is made anew each time"
        mend = f"name another: {folder.variable}; or see ls -ld {folder.path}"
        return Check("Disk", folder.role, bad, f"{folder.path}: can't be written to{lost}", mend)
    if folder.free < TOO_LITTLE:
        mend = f"make room (df -h {folder.path}), or name another: {folder.variable}"
        return Check("Disk", folder.role, bad, f"{found}: full", mend)
    if folder.free < LITTLE:
        return Check("Disk", folder.role, "note", f"{found}: little")
    return Check("Disk", folder.role, "ok", found)


def _shared(folder: Folder, workers: int) -> Check:
    if folder.total == 0 or not folder.writable:
        found = "/dev/shm: can't be used"
    else:
        found = f"/dev/shm, {gib(folder.free)} free of {gib(folder.total)}"
        if folder.free >= SHARED:
            return Check("Disk", folder.role, "ok", found)
        found += f": vLLM's workers want {gib(SHARED)} where several share a model"
    mend = "in a container: --ipc=host, or --shm-size=16g; else: mount -o remount,size=16g /dev/shm"
    return Check("Disk", folder.role, "problem" if workers > 1 else "note", found, mend)


def judge_offline(environment: Mapping[str, str], sets: Mapping[str, str]) -> list[Check]:
    """environment: the user's. sets: what a run sets, whatever the user's environment says."""
    group = "Offline"
    against = {name: environment[name] for name, value in sets.items() if environment.get(name, value) != value}
    checks = [Check(group, "a run sets", "ok", " ".join(f"{name}={value}" for name, value in sets.items()))]
    if against:
        said = ", ".join(f"{name}={value}" for name, value in against.items())
        found = f"{said}: a run sets the opposite, for itself"
        checks.append(Check(group, "environment", "note", found, f"unset {' '.join(against)}"))
    for name, why in _OWN_WORD.items():
        if environment.get(name, "") not in ("", "0", "false", "False"):
            checks.append(Check(group, name, "note", f"{environment[name]}: {why}", f"unset {name}"))
    for name in ("HF_HOME", "HF_HUB_CACHE", "MODELSCOPE_CACHE"):
        if environment.get(name) and not Path(os.path.expanduser(environment[name])).is_dir():
            found = f"{environment[name]}: there is no such folder, so nothing is found in that cache"
            checks.append(Check(group, name, "note", found, f"unset {name}, or name the folder that holds the cache"))
    return checks


_OWN_WORD = {
    "VLLM_USE_MODELSCOPE": "vLLM would ask ModelScope for what it is not given as a folder; it is always given one",
    "VLLM_CPU_KVCACHE_SPACE": "GiB of a CPU's cache, before what the work at hand asks for",
    "VLLM_PLUGINS": "vLLM loads these plugins of other packages",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "vLLM's processes unpickle what they hand each other",
}


def gib(size: int) -> str:
    """Bytes, to a tenth of a GiB; MiB where it is less than one."""
    return f"{size / GIB:,.1f} GiB" if size >= GIB else f"{size / 2**20:,.0f} MiB"

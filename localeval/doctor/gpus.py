"""The GPUs of this machine, as nvidia-smi tells of them: no CUDA context is made, and no library of CUDA is loaded.

Knows nothing about what they are wanted for. The parts of the output that are read: one line a GPU of ``--query-gpu``
(``nvidia-smi --help-query-gpu``), and, where one is split into MIG devices, ``-L`` for their names and ``-q -x`` for
their memory.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

MIB = 2**20
SECONDS = 10.0
"""What nvidia-smi may take: it hangs where a driver does."""
_FIELDS = "index,uuid,name,memory.total,memory.free,driver_version,compute_cap,mig.mode.current"
_MIG = re.compile(r"^\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[^)]+)\)")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, or one MIG device of one.

    index: nvidia-smi's, of the whole GPU. total, free: bytes; None where it does not say. capability: (9, 0) of an
    H200. mig: the profile of a MIG device, such as ``1g.18gb``.
    """

    index: int
    uuid: str
    name: str
    total: int | None
    free: int | None
    driver: str
    capability: tuple[int, int] | None
    mig: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """All GPUs that are there. trouble: why nvidia-smi could not tell; None of both where there is no nvidia-smi."""

    gpus: tuple[Gpu, ...] = ()
    trouble: str = ""
    installed: bool = True


class _Silent(Exception):
    """nvidia-smi gave no answer; the message says why."""


def find_gpus(seconds: float = SECONDS) -> Found:
    """Asks nvidia-smi. seconds: what each question may take."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return Found(installed=False)
    try:
        listed = _ask([program, f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"], seconds)
        gpus, split = parse_query(listed)
        if split:
            names, memory = _ask([program, "-L"], seconds), _ask([program, "-q", "-x"], seconds)
            gpus = with_mig(gpus, split, names, memory)
    except _Silent as error:
        return Found(trouble=str(error))
    except (ValueError, ET.ParseError) as error:
        return Found(trouble=f"nvidia-smi says what can't be read ({error})")
    return Found(tuple(gpus))


def _ask(command: Sequence[str], seconds: float) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise _Silent(f"nvidia-smi gave no answer in {seconds:g} s") from error
    except OSError as error:
        raise _Silent(f"nvidia-smi can't be run: {error}") from error
    if done.returncode:
        said = " ".join((done.stdout + done.stderr).split())
        raise _Silent(f"nvidia-smi ended with status {done.returncode}: {said[:300] or 'no word'}")
    return done.stdout


def parse_query(text: str) -> tuple[list[Gpu], set[int]]:
    """The GPUs of ``--query-gpu``, and the indices of those that are split into MIG devices. Raises ValueError."""
    gpus, split = [], set()
    for line in text.splitlines():
        if not line.strip() or line.startswith("No devices"):
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(_FIELDS.split(",")):
            raise ValueError(line)
        index, uuid, name, total, free, driver, capability, mig = cells
        gpus.append(Gpu(int(index), uuid, name, _bytes(total), _bytes(free), driver, _capability(capability)))
        if mig == "Enabled":
            split.add(int(index))
    return gpus, split


def _bytes(mebibytes: str) -> int | None:
    return int(mebibytes) * MIB if mebibytes.isdecimal() else None  # [N/A]: memory that is shared with the CPU


def _capability(said: str) -> tuple[int, int] | None:
    match = re.fullmatch(r"(\d+)\.(\d+)", said)
    return (int(match[1]), int(match[2])) if match else None


def with_mig(gpus: Sequence[Gpu], split: set[int], listed: str, xml: str) -> list[Gpu]:
    """Each GPU that is split, replaced by its MIG devices: names of ``-L``, memory of ``-q -x``. Raises ValueError."""
    names: dict[int, list[re.Match[str]]] = {}
    of = -1
    for line in listed.splitlines():
        if whole := re.match(r"GPU (\d+):", line):
            of = int(whole[1])
        elif device := _MIG.match(line):
            names.setdefault(of, []).append(device)
    memory = {uuid: _mig_memory(gpu) for gpu in ET.fromstring(xml).iter("gpu") if (uuid := gpu.findtext("uuid"))}
    found = []
    for gpu in gpus:
        if gpu.index not in split:
            found.append(gpu)
        for device in names.get(gpu.index, []) if gpu.index in split else []:
            total, free = memory.get(gpu.uuid, {}).get(device[2], (None, None))
            found.append(replace(gpu, uuid=device[3], total=total, free=free, mig=device[1]))
    return found


def _mig_memory(gpu: ET.Element) -> dict[str, tuple[int | None, int | None]]:
    def amount(device: ET.Element, name: str) -> int | None:
        return _bytes((device.findtext(f"fb_memory_usage/{name}") or "").removesuffix("MiB").strip())

    return {device.findtext("index", ""): (amount(device, "total"), amount(device, "free"))
            for device in gpu.iter("mig_device")}  # fmt: skip


def visible(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> list[Gpu]:
    """Those that ``CUDA_VISIBLE_DEVICES`` lets a program see, in its order.

    By index or by the beginning of a UUID; CUDA passes over everything after the first name that is none. Of MIG
    devices it takes one alone, and then no whole GPU beside it.
    https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables
    https://docs.nvidia.com/datacenter/tesla/mig-user-guide/#cuda-device-enumeration
    """
    found = list(gpus)
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        found = []
        for word in (part.strip() for part in named.split(",")):
            match = next((gpu for gpu in gpus if _is_named(gpu, word)), None)
            if match is None or match in found:
                break
            found.append(match)
    return [gpu for gpu in found if gpu.mig][:1] or found


def _is_named(gpu: Gpu, word: str) -> bool:
    if word.isdecimal():
        return gpu.index == int(word)
    return word.startswith(("GPU-", "MIG-")) and gpu.uuid.startswith(word)

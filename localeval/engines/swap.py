"""Another checkpoint's weights in a running vLLM engine, and the proof that they are there.

Runs inside vLLM's worker, which takes ``InPlace`` as its extension: methods are called by name, with plain values, so
that no code is serialised. Knows torch and safetensors, and vLLM's modules by what they have; imports nothing of vLLM.

Reloading alone can leave an old copy behind: a layer that the checkpoint lacks keeps its weights, and CPU kernels
compute with a packed copy of them. So the proof looks at what modules compute, beside what they hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from localeval.engines.nan import count_by_maximum, spread_nan

EXTENSION = f"{__name__}.InPlace"
"""What vLLM is told as ``worker_extension_cls``."""
_ROWS = 4
"""Random vectors that each layer is given."""
_BLOCK = 8192
"""Rows of a weight that are multiplied at once in float32."""
# How far a layer's output may be from the file's weights, of its norm: the rounding of its type, with room.
_TOLERANCE = {torch.float32: 1e-3, torch.float16: 4e-3, torch.bfloat16: 1.6e-2}
_COVERED = {"UnquantizedLinearMethod", "UnquantizedEmbeddingMethod"}


@dataclass(slots=True)
class Proof:
    """problems: what could not be shown, none if all was. outputs: what each layer computed, by tensor of the file."""

    problems: list[str] = field(default_factory=list)
    outputs: dict[tuple[str, str], _Outputs] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Outputs:
    """The same vectors through the engine's layer, and through the file's weights."""

    of_layer: torch.Tensor
    of_file: torch.Tensor


class InPlace:
    """Methods of vLLM's worker."""

    def localeval_prove(self, folder: str) -> list[str]:
        """What could not be shown of the engine's holding, and computing with, the weights in ``folder``."""
        worker: Any = self
        before: Proof = getattr(self, "_localeval_proof", Proof())
        if worker.vllm_config.parallel_config.pipeline_parallel_size > 1:
            return ["pipeline parallelism is not covered"]
        model = worker.get_model()
        tied = bool(getattr(model.config, "tie_word_embeddings", False))
        with torch.inference_mode():
            proof = prove(model, Path(folder), tied, before.outputs)
        self._localeval_proof = proof
        return proof.problems

    def localeval_swap(self, folder: str) -> list[str]:
        """Loads the weights in ``folder`` in place of those that are there; gives back what could not be proven."""
        worker: Any = self
        model = worker.get_model()
        places = _places(model)
        worker.reload_weights(weights_path=folder)
        with torch.inference_mode():
            for module in model.modules():
                # A tied head is not loaded by name, and so not made ready by vLLM again.
                if hasattr(module, "org_vocab_size") and hasattr(module, "quant_method"):
                    module.quant_method.process_weights_after_loading(module)
        moved = [name for name, place in _places(model).items() if places.get(name, place) != place]
        if moved:  # a captured CUDA graph would go on reading the old place
            return [f"{moved[0]} is not where it was"]
        return self.localeval_prove(folder)

    def localeval_watch_numbers(self, drafts: bool) -> None:
        """Has what is no number noticed in each step. drafts: whether tokens are drafted."""
        worker: Any = self
        count_by_maximum()
        if drafts:
            spread_nan(worker.get_model())


def _places(model: torch.nn.Module) -> dict[str, int]:
    return {name: each.data_ptr() for name, each in model.named_parameters() if each.is_cuda}


def prove(model: torch.nn.Module, folder: Path, tied: bool, before: Mapping[tuple[str, str], _Outputs]) -> Proof:
    """Compares every parameter with the file's tensor, and every linear layer, embedding and head by what it computes.

    tied: the head is the embedding. before: the outputs of the proof before this one; a layer whose weights have
    changed in the file must not give what it gave then, to the bit.
    """
    with _Files(folder, getattr(getattr(model, "hf_to_vllm_mapper", None), "orig_to_new_prefix", {})) as files:
        proof = Proof()
        names = _Names(model, files)
        for name, module in model.named_modules():
            parameters = dict(module.named_parameters(recurse=False))
            reason = _not_covered(module)
            if reason is not None:
                proof.problems.append(f"{name}: {reason}")
                continue
            for kind, parameter in parameters.items():
                sources = names.of(name, kind)
                if sources is None:
                    proof.problems.append(f"{name}.{kind} is not in the checkpoint")
                    continue
                tensors = {each: _share(module, place, files.tensor(each)) for place, each in enumerate(sources)}
                if not _holds(parameter, list(tensors.values())):
                    proof.problems.append(f"{name}.{kind} is not what the checkpoint says")
                elif kind == "weight" and getattr(module, "quant_method", None) is not None:
                    _compute(name, module, tensors, proof, before)
        ignored = {name for name in files.names if name.endswith("rotary_emb.inv_freq")}
        ignored |= {"lm_head.weight"} if tied else set()
        left = sorted(set(files.names) - names.used - ignored)
        proof.problems += [f"{left[0]} of the checkpoint has no place in the engine"] if left else []
    return proof


def _not_covered(module: torch.nn.Module) -> str | None:
    """Why nothing can be shown of a module: it is quantised, or keeps something made of its weights elsewhere."""
    method = getattr(module, "quant_method", None)
    if method is not None and type(method).__name__ not in _COVERED:
        return f"{type(method).__name__} is not covered"
    own = hasattr(module, "process_weights_after_loading") and type(module).__name__ != "Attention"
    return f"{type(module).__name__} makes something of its weights that is not covered" if own else None


def _share(module: torch.nn.Module, place: int, tensor: torch.Tensor) -> torch.Tensor:
    """What this worker holds of a file's tensor: under tensor parallelism some of its rows, or of its columns.

    place: which of the tensors that are fused into the module's it is; of query, key, value the last two may have
    fewer heads than there are workers, and then several workers hold the same.
    """
    held: Any = module
    kinds = {kind.__name__ for kind in type(module).__mro__}
    if "VocabParallelEmbedding" in kinds:
        indices = held.shard_indices
        return tensor[indices.org_vocab_start_index : indices.org_vocab_end_index]
    workers, rank = getattr(held, "tp_size", 1), getattr(held, "tp_rank", 0)
    if workers == 1:
        return tensor
    if "RowParallelLinear" in kinds:
        return tensor if tensor.ndim == 1 else tensor.chunk(workers, 1)[rank]
    if "ColumnParallelLinear" in kinds:
        copies = getattr(held, "num_kv_head_replicas", 1) if place else 1
        return tensor.chunk(workers // copies)[rank // copies]
    return tensor


def _holds(parameter: torch.Tensor, tensors: list[torch.Tensor]) -> bool:
    """Whether a parameter is the tensors one below the other; what lies below them (a padded vocabulary) is free.

    An empty parameter has been taken away for a packed copy, of which only what it computes can be seen.
    """
    if parameter.numel() == 0:
        return True
    start = 0
    for tensor in tensors:
        part = parameter[start : start + len(tensor)] if parameter.ndim else parameter
        if part.shape != tensor.shape or not torch.equal(part, tensor.to(part.device, part.dtype)):
            return False
        start += len(tensor) if parameter.ndim else 0
    return True


def _compute(
    layer: str,
    module: torch.nn.Module,
    tensors: Mapping[str, torch.Tensor],
    proof: Proof,
    before: Mapping[tuple[str, str], _Outputs],
) -> None:
    """Random vectors through the layer and through the file's weights, tensor by tensor of the file."""
    held: Any = module
    weight = held.weight
    width = next(iter(tensors.values())).shape[1]
    x = torch.randn(_ROWS, width, generator=torch.Generator().manual_seed(width)).to(weight.device, weight.dtype)
    output = held.quant_method.apply(held, x)
    start = 0
    for name, tensor in tensors.items():
        of_layer = output[:, start : start + len(tensor)].float().cpu()
        of_file = _multiplied(x, tensor.to(weight.dtype)).cpu()
        start += len(tensor)
        if of_layer.shape != of_file.shape:
            proof.problems.append(f"{layer} gives {tuple(of_layer.shape)} for {name}, not {tuple(of_file.shape)}")
            continue
        off = (of_layer - of_file).norm().item() / (of_file.norm().item() or 1.0)
        if not off <= _TOLERANCE.get(weight.dtype, 0.0):
            proof.problems.append(f"{layer} computes {off:.1%} off what {name} of the checkpoint gives")
        old = before.get((layer, name))
        if old is not None and torch.equal(old.of_layer, of_layer) and not torch.equal(old.of_file, of_file):
            proof.problems.append(f"{layer} still computes with {name} of the checkpoint before")
        proof.outputs[layer, name] = _Outputs(of_layer, of_file)


def _multiplied(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """``x @ weight.T`` in float32, some rows of the weight at a time."""
    rows = x.float()
    return torch.cat([rows @ block.to(x.device).float().T for block in weight.split(_BLOCK)], dim=1)


# --- which tensors of the file a parameter is made of ---


class _Files:
    """The tensors of a checkpoint folder by the engine's names for them; read where they are asked for."""

    def __init__(self, folder: Path, prefixes: Mapping[str, str | None]) -> None:
        self._open: dict[str, Any] = {}
        self._homes: dict[str, tuple[str, str]] = {}
        for file, name in _listed(folder):
            self._homes[_renamed(name, prefixes)] = (str(file), name)

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.clear()

    @property
    def names(self) -> set[str]:
        return set(self._homes)

    def tensor(self, name: str) -> torch.Tensor:
        file, own = self._homes[name]
        if file not in self._open:
            self._open[file] = safe_open(file, framework="pt")
        found: torch.Tensor = self._open[file].get_tensor(own)
        return found


def _listed(folder: Path) -> Iterator[tuple[Path, str]]:
    """Every tensor with its file: as the index says where there is one, else of all safetensors files."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        for name, file in json.loads(index.read_text())["weight_map"].items():
            yield folder / file, name
        return
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118  it is no mapping
                yield file, name


def _renamed(name: str, prefixes: Mapping[str, str | None]) -> str:
    for old, new in prefixes.items():
        if new is not None and name.startswith(old):
            return new + name.removeprefix(old)
    return name


class _Names:
    """A parameter's name in the engine -> the tensors of the file that it is made of, in their order."""

    def __init__(self, model: torch.nn.Module, files: _Files) -> None:
        self._packed: Mapping[str, list[str]] = getattr(model, "packed_modules_mapping", None) or {}
        self._files = files
        self.used: set[str] = set()
        self._tied: dict[int, str] = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            self._tied.setdefault(id(parameter), name)
        self._first = {
            name: self._tied[id(parameter)] for name, parameter in model.named_parameters(remove_duplicate=False)
        }

    def of(self, module: str, kind: str) -> list[str] | None:
        """None where the file lacks one. A parameter that is shared is found under the name of its first holder."""
        holder = self._first.get(f"{module}.{kind}", f"{module}.{kind}").rpartition(".")[0]
        found = self._parts(holder, kind)
        self.used.update(found or ())
        return found

    def _parts(self, module: str, kind: str) -> list[str] | None:
        parent, _, last = module.rpartition(".")
        whole = f"{module}.{kind}".lstrip(".")
        if whole in self._files.names:
            return [whole]
        parts = [f"{parent}.{part}.{kind}".lstrip(".") for part in self._packed.get(last, ())]
        return parts if parts and all(part in self._files.names for part in parts) else None

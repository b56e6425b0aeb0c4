"""A model's name -> the local folder that holds its weights. Downloads nothing, loads no weights but to unpack a GGUF.

a name in models.yaml | a folder | a LoRA adapter's folder | a .gguf file | a Hugging Face id in the local cache
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from localeval.bundle import find_item, folder_of, how_to_fetch
from localeval.checkpoints import ADAPTER, ADAPTER_CONFIG, named_in, weight_files
from localeval.datasets.source import modelscope_cache
from localeval.identity import (
    State,
    checkpoint_fingerprint,
    digest_of,
    model_files,
    state_of,
)
from localeval.model_names import ModelSpec
from localeval.nearest import nearest
from localeval.progress import LATE, measure
from localeval.schema import LocalevalError
from localeval.tensors import names_in, why_broken
from localeval.unpacking import packaged, unpack_gguf

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter: its folder, what its base model is called, the rank of its matrices, the modules that it changes.

    modules: the last parts of their names, such as ``q_proj``.
    """

    folder: Path
    base: str
    rank: int
    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Weights:
    """A model that can be loaded. name: as reports call it. asked: what the user wrote, byte for byte.

    folder: the model's, or of an adapter the base model's; fingerprint: of both together; folder_fingerprint: of the
    folder alone. state: what the files of both were before their fingerprints were taken.
    """

    asked: str
    name: str
    folder: Path
    fingerprint: str
    folder_fingerprint: str
    engine_args: Mapping[str, Any] = field(default_factory=dict)
    chat_template_args: Mapping[str, Any] = field(default_factory=dict)
    adapter: Adapter | None = None
    state: State = ()

    @property
    def tokenizer(self) -> Path:
        """The folder of the tokenizer and the chat template: an adapter's own, where it has one."""
        own = self.adapter is not None and (self.adapter.folder / "tokenizer_config.json").is_file()
        return self.adapter.folder if self.adapter is not None and own else self.folder

    @property
    def pickled(self) -> bool:
        """Whether the model has no safetensors; it was then allowed to be pickled."""
        return not weight_files(self.folder)

    @property
    def files(self) -> list[Path]:
        """Every file of weights that is no pickle."""
        return [*weight_files(self.folder), *([self.adapter.folder / ADAPTER] if self.adapter else [])]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where models are looked for, and how.

    models: by name, of models.yaml. base: of adapters, instead of the one that they name. pickles: the user has asked
    for weights that are pickled, by name. bundle: where ids are looked for before the local caches.
    """

    models: Mapping[str, ModelSpec]
    revision: str | None = None
    base: str | None = None
    pickles: bool = False
    bundle: Path | None = None


def find_weights(asked: str, sources: Sources, say: Say) -> Weights:
    """Resolves ``--model``. Raises LocalevalError that lists where it looked and how to bring the weights."""
    spec = sources.models.get(asked)
    place = place_of(asked, sources)
    folder = unpack_gguf(place, say) if place.is_file() else place
    found = _in_folder(asked, folder, sources, say)
    if spec is None:
        return found
    return replace(found, name=asked, engine_args=spec.engine_args, chat_template_args=spec.chat_template_args)


def place_of(asked: str, sources: Sources) -> Path:
    """The folder, or the .gguf file, that a model's name stands for; nothing in it is read.

    Raises LocalevalError that lists where it looked and how to bring the weights.
    """
    spec = sources.models.get(asked)
    if spec is None:
        return _place_of(asked, sources.revision, sources)
    if spec.gguf is not None:
        return packaged(asked, spec)
    assert spec.path is not None  # ModelSpec has one of the two
    return _place_of(spec.path, sources.revision or spec.revision, sources)


def _in_folder(asked: str, folder: Path, sources: Sources, say: Say) -> Weights:
    if (folder / ADAPTER_CONFIG).is_file():
        return _with_adapter(asked, folder, sources, say)
    check_folder(folder, sources.pickles)
    state = state_of(model_files(folder))
    with measure(sum(file[1] for file in state), f"hashing {folder.name}", LATE) as passed:
        fingerprint = checkpoint_fingerprint(folder, passed)
    return Weights(asked, safe_name(asked), folder, fingerprint, fingerprint, state=state)


def read_adapter(folder: Path, base: str | None) -> Adapter:
    """An adapter's own files. Raises LocalevalError for one that no engine here can apply as it is.

    base: the base model, instead of the one that the adapter names.
    """
    file = folder / ADAPTER_CONFIG
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        kind, rank, named = told.get("peft_type"), told.get("r"), told.get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError) as error:
        raise LocalevalError(f"{file}: can't be read ({error}); bring the adapter's files again") from error
    if kind != "LORA" or not isinstance(rank, int) or rank < 1:
        raise LocalevalError(f"{file}: peft_type {kind!r}, r {rank!r}: only LoRA adapters are applied; {_MERGE}")
    extra = [name for name in _NOT_APPLIED if told.get(name)] + (["bias"] if told.get("bias", "none") != "none" else [])
    if str(told.get("init_lora_weights")).lower().startswith(_OF_THE_BASE):
        extra.append(f"init_lora_weights {told['init_lora_weights']}")
    if extra:
        raise LocalevalError(f"{file}: {', '.join(extra)} can't be applied by the engine; {_MERGE}")
    if not (folder / ADAPTER).is_file():
        raise LocalevalError(f"{folder}: no {ADAPTER} (an adapter that is pickled, adapter_model.bin, is not loaded)")
    if base is None and not named:
        raise LocalevalError(f"{file} names no base model: give it with --base")
    modules = {name.partition(".lora_")[0].rpartition(".")[2] for name in names_in(folder / ADAPTER)}
    return Adapter(folder, base or str(named), rank, tuple(sorted(modules)))


def _with_adapter(asked: str, folder: Path, sources: Sources, say: Say) -> Weights:
    adapter = read_adapter(folder, sources.base)
    try:
        base = find_weights(adapter.base, replace(sources, base=None), say)
    except LocalevalError as error:
        raise LocalevalError(f"{folder} is an adapter, and its base model: {error} (or name it with --base)") from error
    if base.adapter is not None:
        raise LocalevalError(f"{folder}: its base model {base.asked} is an adapter itself; {_MERGE}")
    state = base.state + state_of(model_files(folder))
    both = digest_of([base.fingerprint, checkpoint_fingerprint(folder)])
    return replace(base, asked=asked, name=safe_name(asked), fingerprint=both, adapter=adapter, state=state)


# Some of these vLLM refuses too, some its older versions pass over in silence.
_NOT_APPLIED = (
    "modules_to_save", "use_dora", "lora_bias", "trainable_token_indices", "target_parameters", "rank_pattern",
    "alpha_pattern",
)  # fmt: skip
_OF_THE_BASE = ("pissa", "olora", "corda", "loftq")
"""Ways of beginning that change the base model's own weights (``init_lora_weights``)."""
_MERGE = "merge it into its base model (peft's merge_and_unload, then save_pretrained), and give that folder"


def refuse_unknown(asked: str, sources: Sources) -> None:
    """Raises LocalevalError for a model that is nowhere; looks at no weights."""
    if asked not in sources.models and not Path(os.path.expanduser(asked)).exists():
        _place_of(asked, sources.revision, sources)


def safe_name(asked: str) -> str:
    """The last part of a path or id, as the name of a folder."""
    path = Path(asked)
    last = path.resolve().name if len(path.name) < 256 and path.exists() else asked.rsplit("/", 1)[-1]
    return re.sub(r"[^\w.+-]", "_", last.removesuffix(".gguf"))[:80].lstrip(".") or "model"


def _place_of(asked: str, revision: str | None, sources: Sources) -> Path:
    path = Path(os.path.expanduser(asked))
    if path.is_file() and path.suffix == ".gguf":
        return path
    if path.is_dir():
        return path.resolve()
    if path.exists():
        raise LocalevalError(f"--model {asked}: neither a folder nor a .gguf file")
    looked = [f"{path.absolute()} (a folder or .gguf file)"]
    found = _bundled(asked, revision, sources.bundle, looked) or _cached(asked, revision, looked)
    if found is not None:
        return found
    raise _not_found(asked, list(sources.models), looked)


def _not_found(asked: str, names: list[str], looked: list[str]) -> LocalevalError:
    places = "".join(f"\n  {place}" for place in looked)
    how = "Give the model's folder as --model; an id on Hugging Face has the form owner/name"
    if _is_id(asked):
        how = (
            f"On a connected machine, `{how_to_fetch('model', asked)}` brings the weights; carry DIR here, and name it "
            "with --bundle DIR. Or give the model's folder as --model"
        )
    return LocalevalError(
        f"--model {asked}: not found{nearest(asked, names)}. Looked in models.yaml ({', '.join(names)}) and:{places}\n"
        f"Nothing is downloaded here. {how}"
    )


def _bundled(asked: str, revision: str | None, bundle: Path | None, looked: list[str]) -> Path | None:
    """A model of the bundle; of a revision that is asked for, that one alone."""
    item = find_item(bundle, "model", asked) if bundle is not None else None
    if bundle is None or item is None:
        looked += [] if bundle is None else [f"{bundle} (a bundle)"]
        return None
    if revision is not None and item.revision != revision:
        looked.append(f"{bundle / item.folder}: of revision {item.revision}, not {revision}")
        return None
    return folder_of(bundle, item)


def check_folder(folder: Path, pickles: bool) -> None:
    """Refuses a folder that can't be loaded, by name of what it lacks."""
    if not (folder / "config.json").is_file():
        ggufs = sorted(folder.glob("*.gguf"))
        hint = f"; it holds {ggufs[0].name}: give that file" if ggufs else ""
        raise LocalevalError(f"{folder}: no config.json{hint}")
    files = weight_files(folder)
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise LocalevalError(f"{folder}: {len(missing)} of {len(files)} weight files are missing: {missing[0]} ...")
    for file in files:
        if (reason := why_broken(file)) is not None:
            raise LocalevalError(f"{folder}: {reason}: it is still being written, or was cut; bring it again")
    if not files:
        _check_pickles(folder, pickles)


def _check_pickles(folder: Path, allowed: bool) -> None:
    """Of a folder without safetensors: whether there are pickles, and may be."""
    pickled = sorted(p.name for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pth"))
    if not pickled:
        raise LocalevalError(f"{folder}: no *.safetensors")
    if not allowed:
        raise LocalevalError(
            f"{folder}: the weights are pickled ({pickled[0]}), and unpickling can run code. Save them as safetensors "
            "(model.save_pretrained(DIR)); or, where you trust whoever made them, load them with --allow-pickle"
        )
    if all(name.endswith(".pth") for name in pickled):
        raise LocalevalError(f"{folder}: no engine loads {pickled[0]}; save the weights as safetensors")
    for index in folder.glob("*.bin.index.json"):
        named_in(index)  # or the engine would open what lies elsewhere


def _is_id(asked: str) -> bool:
    return re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", asked) is not None and not re.search(r"--|\.\.", asked)


def _cached(asked: str, revision: str | None, looked: list[str]) -> Path | None:
    """A Hugging Face id in the local caches of Hugging Face and ModelScope. looked: gains where it is not."""
    if not _is_id(asked):
        return None
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(asked, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError:
        looked.append(f"{HF_HUB_CACHE}/models--{asked.replace('/', '--')}" + (f" @ {revision}" if revision else ""))
    home = modelscope_cache()
    for place in (home / "models" / asked, home / "hub" / "models" / asked, home / "hub" / asked):
        if place.is_dir() and revision is None:
            return place
        looked.append(str(place))
    return None

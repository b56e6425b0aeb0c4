"""Fingerprints: what makes two checkpoints, two requests or two runs the same. Knows nothing of their use."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from localeval.schema import Completion, LocalevalError, Request

_MODEL_FILE = re.compile(
    r".*\.(safetensors|gguf|bin|pt|pth|model|tiktoken|jinja|py)|merges\.txt|vocab\..*"
    r"|(config|adapter_config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|chat_template"
    r"|model\.safetensors\.index|tekken|params|hf_quant_config)\.json"
)
_WEIGHTS = re.compile(r".*\.(safetensors|gguf|bin|pt|pth)|model\.safetensors\.index\.json")
# What a trainer or a library writes of itself into config.json.
_OF_THE_WRITER = {"_name_or_path", "transformers_version"}
# What a trainer leaves beside a checkpoint does not change what the model says.
_TRAINING_FILE = re.compile(r"(optimizer|scheduler|rng_state.*|training_args|scaler)\.(pt|pth|bin)")
_BLOB = re.compile(r"[0-9a-f]{64}")
_SMALL = 1 << 20
"""Bytes of a file that is read again each time."""
_FORCED = "forced answer 1"
"""Raised where the same reply is asked for its answer in another way."""
_SETTLED = 2_000_000_000
"""Nanoseconds after which a file that is changed again has another time, on whatever file system."""


Passed = Callable[[int], None]


def _unseen(_: int) -> None:
    """Nobody looks on."""


def short(digest: str) -> str:
    """The 8 hex digits that name a folder."""
    return digest[:8]


def digest_of(value: Any) -> str:
    """SHA-256 of a value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def cache_folder() -> Path:
    """Where localeval keeps what it can make again: ``LOCALEVAL_CACHE``, else below the user's cache folder."""
    named = os.environ.get("LOCALEVAL_CACHE")
    if named:
        return Path(os.path.expanduser(named))
    return Path(os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")) / "localeval"


def frame_of(folder: Path) -> dict[str, str]:
    """All of a model but its weights: the digest of each file, and each value of config.json.

    Two checkpoints with one frame differ in the numbers alone: same architecture, dtype, tokenizer, chat template.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        frame = {f"config.json {name}": json.dumps(value, sort_keys=True) for name, value in config.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise LocalevalError(f"{folder / 'config.json'}: can't be read: {error}") from error
    for name in _OF_THE_WRITER:
        frame.pop(f"config.json {name}", None)
    generation = folder / "generation_config.json"
    try:
        if generation.is_file():  # transformers passes over one that it can't read, and with it where replies end
            json.loads(generation.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LocalevalError(f"{generation}: can't be read: {error}") from error
    for file in model_files(folder):
        if not is_weights(file) and file.name != "config.json":
            frame[file.name] = file_digest(file)
    return frame


def is_weights(file: Path) -> bool:
    """Whether a model's file holds its weights, or their index."""
    return _WEIGHTS.fullmatch(file.name) is not None


def model_files(folder: Path) -> list[Path]:
    """The files that make a model what it is, sorted."""
    return sorted(p for p in folder.iterdir() if _MODEL_FILE.fullmatch(p.name) and not _TRAINING_FILE.fullmatch(p.name))


def checkpoint_fingerprint(folder: Path, passed: Passed = _unseen) -> str:
    """SHA-256 over names and contents of a model folder's weights, configuration, code, tokenizer and chat template.

    Every byte is read, once: a file's digest is remembered under its path, size, time and inode. A file of a Hugging
    Face cache carries the digest of its weights as its name, and is not read. passed: is told of bytes.
    """
    files = model_files(folder)
    if not files:
        raise LocalevalError(f"{folder} holds no model: expected config.json and *.safetensors")
    return digest_of([[path.name, digest] for path, digest in zip(files, file_digests(files, passed), strict=True)])


def file_digests(paths: Sequence[Path], passed: Passed = _unseen) -> list[str]:
    """``file_digest`` of each, several at a time."""
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda path: file_digest(path, passed), paths))


State = tuple[tuple[str, int, int, int], ...]
"""Path, bytes, time of the last writing and inode of some files."""


def state_of(files: Iterable[Path]) -> State:
    """What some files are now: equal where none has been written, replaced or taken away in between."""
    found = []
    for path in files:
        try:
            found.append(_state(path, path.stat()))
        except FileNotFoundError:
            found.append((str(path), 0, 0, 0))
    return tuple(found)


def _state(path: Path, stat: os.stat_result) -> tuple[str, int, int, int]:
    return str(path), stat.st_size, stat.st_mtime_ns, stat.st_ino


def refuse_changed(before: State, during: str) -> None:
    """Raises LocalevalError that names the first file that is not what it was. during: what was done with them."""
    for was in before:
        if state_of([Path(was[0])]) != (was,):
            raise LocalevalError(
                f"{was[0]} was changed while {during}: what was read is of no one state; give the command again when "
                "nothing writes there any more"
            )


def _hub_cache() -> Path:
    """Where Hugging Face's own tools keep files under their digests."""
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    return Path(os.path.expanduser(os.environ.get("HF_HUB_CACHE", f"{home}/hub"))).resolve()


def file_digest(path: Path, passed: Passed = _unseen) -> str:
    """SHA-256 of a file's bytes, remembered in the cache folder while the file stays as it is.

    passed: is told of bytes as they are read, of all at once where none is. Raises LocalevalError where it was changed
    while it was read.
    """
    target = path.resolve()
    if _BLOB.fullmatch(target.name) and target.parent.name == "blobs" and target.parents[2] == _hub_cache():
        passed(target.stat().st_size)
        return target.name  # anywhere else a stranger may have called it so
    now, stat = time.time_ns(), target.stat()
    if stat.st_size <= _SMALL:
        return hashlib.sha256(target.read_bytes()).hexdigest()
    # The time of the last change can't be set: a file that is written anew and given its old time is another one.
    known_by = [str(target), stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_dev, stat.st_ctime_ns]
    remembered = cache_folder() / "digests" / digest_of(known_by)
    with suppress(OSError):
        if _BLOB.fullmatch(found := remembered.read_text()):  # a power cut may have left it empty
            passed(stat.st_size)
            return found
    digest = hashlib.sha256()
    with target.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
            passed(len(block))
    refuse_changed((_state(target, stat),), "its fingerprint was taken")
    if now - stat.st_ctime_ns > _SETTLED:
        keep(remembered, digest.hexdigest().encode())
    return digest.hexdigest()


def keep(file: Path, content: bytes) -> None:
    """Keeps something in the cache folder that can be had again; a power cut may leave it empty."""
    partial = file.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    with suppress(OSError):  # where nothing can be kept, it is read or made again the next time
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_bytes(content)
            partial.replace(file)
        except OSError:
            partial.unlink()


def request_key(request: Request, checkpoint: str, data: str, engine: str) -> str:
    """32 hex digits over all that a reply depends on.

    That is prompt ids, sampling, budget, stops, constraint, continuations, checkpoint, data and engine.
    """
    digest = hashlib.sha256(token_bytes(request.prompt_token_ids))
    constraint: Any = request.constraint
    rest = [
        request.dataset,
        request.sample_id,
        request.max_tokens,
        list(request.stop),
        asdict(request.sampling),
        request.wanted_logprobs,
        constraint and [type(constraint).__name__, asdict(constraint)],
        request.allowed_token_ids,
        request.continuations,
        checkpoint,
        data,
        engine,
        *(["keeps_special"] if request.keeps_special else []),
    ]
    digest.update(digest_of(rest).encode())
    return digest.hexdigest()[:32]


def forced_key(reply: Completion) -> str:
    """The key of the forced answer to a reply: bound to its key and to its text, so that another reply has another."""
    return digest_of([_FORCED, reply.key, reply.text])[:32]


def token_bytes(ids: Sequence[int]) -> bytes:
    """Token ids as little-endian 4-byte numbers, whatever holds them."""
    packed = ids if isinstance(ids, array) and ids.itemsize == 4 else array("I", ids)
    if sys.byteorder == "big":
        packed = packed[:]
        packed.byteswap()
    return packed.tobytes()

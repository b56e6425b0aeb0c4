"""Safetensors files, looked at without loading them: whether they are whole, and whether they hold numbers.

The format: 8 bytes with the header's length (little-endian), the header (JSON: dtype, shape and place of each tensor),
the tensors. https://huggingface.co/docs/safetensors. Knows nothing about models.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from localeval.identity import cache_folder, file_digest
from localeval.schema import LocalevalError

# A number whose exponent bits are all set is infinite or none at all; of F8_E4M3 only all bits set is none.
_EXPONENT = {
    "F64": ("<u8", 0x7FF0000000000000),
    "F32": ("<u4", 0x7F800000),
    "F16": ("<u2", 0x7C00),
    "BF16": ("<u2", 0x7F80),
    "F8_E5M2": ("u1", 0x7C),
    "F8_E4M3": ("u1", 0x7F),
}
_BLOCK = 1 << 24
"""Numbers that are looked at together."""
_LONGEST_HEADER = 100_000_000


def why_broken(file: Path) -> str | None:
    """Why a file can't be what was meant to be written: it is cut, or its header is none. None where it is whole."""
    try:
        start, header = _header(file)
        end = start + max((entry["data_offsets"][1] for entry in header.values()), default=0)
        size = file.stat().st_size
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        return f"{file.name}: its header can't be read ({error})"
    if size != end:
        return f"{file.name} has {size:,} bytes, and its header speaks of {end:,}"
    return _contradiction(file)


def _contradiction(file: Path) -> str | None:
    """What the format's own library finds wrong in a header: overlapping tensors, a shape that is not its bytes'."""
    import safetensors

    try:
        with safetensors.safe_open(file, framework="np"):
            return None
    except (safetensors.SafetensorError, OSError) as error:
        return f"{file.name}: its header contradicts itself ({error})"


def names_in(file: Path) -> list[str]:
    """The names of a file's tensors. Raises LocalevalError for one that can't be read."""
    if (reason := why_broken(file)) is not None:
        raise LocalevalError(f"{file.parent}: {reason}: it is still being written, or was cut; bring it again")
    return list(_header(file)[1])


def types_in(files: Iterable[Path]) -> list[str]:
    """The types of the numbers in some files, such as ``BF16``, sorted."""
    return sorted({entry["dtype"] for file in files for entry in _header(file)[1].values()})


def sizes_in(files: Iterable[Path]) -> list[tuple[str, int]]:
    """The type and the number of elements of each tensor in some files. Raises LocalevalError for a broken one."""
    found = []
    for file in files:
        names_in(file)
        found += [(str(entry["dtype"]), math.prod(entry["shape"])) for entry in _header(file)[1].values()]
    return found


def refuse_nonfinite(files: Iterable[Path], passed: Callable[[int], None] = lambda _: None) -> None:
    """Raises LocalevalError that names file and tensor of the first NaN or infinite number.

    passed: is told of each file's bytes when it has been looked through. Every byte is read, once: a file that has
    passed is remembered under its digest.
    """
    paths = list(files)
    with ThreadPoolExecutor(min(8, max(1, len(paths)))) as pool:
        for path, found in zip(paths, pool.map(_first_nonfinite, paths), strict=True):
            if found is not None:
                raise LocalevalError(f"{path}: {found} holds NaN or infinite numbers: the training went wrong there")
            passed(path.stat().st_size)


def _first_nonfinite(file: Path) -> str | None:
    import numpy as np

    passed = cache_folder() / "finite" / file_digest(file)
    if passed.exists():
        return None
    start, header = _header(file)
    for name, entry in header.items():
        if entry["dtype"] not in _EXPONENT:
            continue
        kind, mask = _EXPONENT[entry["dtype"]]
        low, high = entry["data_offsets"]
        count = (high - low) // np.dtype(kind).itemsize
        if not count:
            continue
        numbers = np.memmap(file, kind, "r", start + low, (count,))
        for at in range(0, count, _BLOCK):
            block = numbers[at : at + _BLOCK]
            if bool(((block & mask) == mask).any()):
                return name
    try:
        passed.parent.mkdir(parents=True, exist_ok=True)
        passed.touch()
    except OSError:  # where nothing can be kept, it is read again the next time
        pass
    return None


def _header(file: Path) -> tuple[int, dict[str, Any]]:
    """Where the tensors begin, and name -> dtype, shape, data_offsets."""
    with file.open("rb") as opened:
        first = opened.read(8)
        length = int.from_bytes(first, "little")
        if len(first) < 8 or length > _LONGEST_HEADER:
            raise ValueError("it does not begin with the length of a header")
        text = opened.read(length)
    if len(text) < length:
        raise ValueError("the file ends inside it")
    header = json.loads(text)
    header.pop("__metadata__", None)
    return 8 + length, header

"""samples.jsonl.gz: what each sample of a run was, and the text that the model was given. Reads and writes the file.

With it a run folder can be read without the data and without the tokenizer. Knows nothing about replies.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from localeval.schema import LocalevalError, Sample
from localeval.store import SAMPLES, RunFolder


@dataclass(frozen=True, slots=True)
class AskedSample:
    """A sample with its prompt.

    prompt: the text that the model was given, chat template and all; or the user's message, where ``rendered`` is
    False: replies that are replayed were made elsewhere.
    """

    sample: Sample
    prompt: str
    rendered: bool


def write_samples(folder: RunFolder, asked: Iterable[AskedSample]) -> None:
    """One row a sample, whole or not at all; the same samples give the same bytes."""
    folder.write_rows(SAMPLES, map(_row, asked))


@contextmanager
def written_beside(works: Sequence[tuple[RunFolder, Iterable[AskedSample]]]) -> Iterator[None]:
    """Writes the samples of some folders in a thread, while what stands in the context is done.

    All are written when the context is left; it is given up where that is left by an error. Raises what went wrong.
    """
    given_up = Event()

    def write() -> None:
        for folder, asked in works:
            write_samples(folder, _until(given_up, asked))

    with ThreadPoolExecutor(1, "samples") as pool:
        written = pool.submit(write)
        try:
            yield
        except BaseException:
            given_up.set()
            raise
        written.result()


def _until(given_up: Event, asked: Iterable[AskedSample]) -> Iterator[AskedSample]:
    for each in asked:
        if given_up.is_set():
            raise CancelledError
        yield each


def _row(asked: AskedSample) -> dict[str, Any]:
    sample = asked.sample
    return {
        "sample_id": sample.id,
        "subset": sample.subset,
        **({"groups": dict(sample.meta)} if sample.meta else {}),
        "text": sample.text,
        **({"tokens": list(sample.tokens)} if sample.tokens else {}),
        **({"choices": list(sample.choices)} if sample.choices else {}),
        "gold": " ".join(sample.gold),
        "prompt" if asked.rendered else "message": asked.prompt,
    }


def read_samples(folder: Path) -> Iterator[AskedSample]:
    """The samples of a run folder, in their order. Raises LocalevalError that names file and line."""
    path = folder / SAMPLES
    if not path.is_file():
        raise LocalevalError(f"{path}: there is no such file; localeval score RUN_DIR writes it where the data is")
    number = 0
    try:
        with gzip.open(path, "rb") as file:
            for line in file:
                yield _sample(json.loads(line))
                number += 1
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LocalevalError(
            f"{path}, line {number + 1}: can't be read ({error!r}); take the file away, and localeval score RUN_DIR "
            "writes it where the data is"
        ) from error


def _sample(row: dict[str, Any]) -> AskedSample:
    rendered = "prompt" in row
    sample = Sample(
        id=row["sample_id"],
        subset=row["subset"],
        text=row["text"],
        gold=tuple(row["gold"].split(" ")),
        tokens=tuple(row.get("tokens", ())),
        choices=tuple(row.get("choices", ())),
        meta=dict(row.get("groups", {})),
    )
    return AskedSample(sample, row["prompt" if rendered else "message"], rendered)

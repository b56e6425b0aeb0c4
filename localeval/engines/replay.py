"""Replies from a file: for tests, and for replies that were made elsewhere. Needs no model and no tokenizer.

Rows are ``{sample_id, text, finish_reason?, dataset?, continuations?, forced?}``, so a predictions.jsonl is one. A row
with ``"forced": true``, as a forced.jsonl has them, is a forced answer, and stands beside the sample's reply. Only
where each row stands is kept in memory; it is read when it is asked for.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from localeval.identity import file_digest
from localeval.schema import Completion, LocalevalError, Request, log_probabilities


class ReplayEngine:
    """Looks each request up by its sample's id, and by its dataset where the rows name one."""

    def __init__(self, path: Path, datasets: int = 1, delay: float = 0.0) -> None:
        """datasets: how many the run asks; where it is more than one, every row must say which it is of.

        delay: seconds that each reply takes, one after another: what a cluster does can be rehearsed without a GPU.
        Raises LocalevalError that names file and line.
        """
        self.path, self._delay = path, delay
        self._places: dict[tuple[str | None, str, bool], int] = {}
        if not path.is_file():
            what = "is no plain file" if path.exists() else "there is no such file"
            raise LocalevalError(f"--engine replay:{path}: {what} (looked for {path.absolute()})")
        self._file = path.open("rb")
        self._state = self._state_now()
        start = 0
        for number, line in enumerate(self._file, 1):
            if line.strip():
                name, reply, forced = _read(line, f"{path}, line {number}")
                self._take((name, reply.sample_id, forced), start, f"{path}, line {number}", datasets)
            start += len(line)
        self._refuse_changed()

    def _state_now(self) -> tuple[int, int]:
        stat = os.fstat(self._file.fileno())
        return stat.st_size, stat.st_mtime_ns

    def _refuse_changed(self) -> None:
        if self._state_now() != self._state:
            raise LocalevalError(
                f"{self.path} was changed while it was replayed; give the command again when nothing writes there "
                "any more"
            )

    def digest(self) -> str:
        """SHA-256 of the rows that are replayed. Raises LocalevalError where the file is another one by now."""
        found = file_digest(self.path)
        self._refuse_changed()
        if not os.path.samestat(self.path.stat(), os.fstat(self._file.fileno())):
            raise LocalevalError(f"{self.path} was replaced while it was read; give the command again")
        return found

    def _take(self, name: tuple[str | None, str, bool], start: int, place: str, datasets: int) -> None:
        dataset, sample_id, forced = name
        if dataset is None and datasets > 1:
            raise LocalevalError(f'{place}: no dataset is named, and {datasets} are asked: add "dataset" to each row')
        if name in self._places:
            raise LocalevalError(f"{place}: a second {'forced answer' if forced else 'reply'} to {sample_id}")
        self._places[name] = start

    def _place(self, request: Request) -> int | None:
        named = self._places.get((request.dataset, request.sample_id, request.forced))
        return self._places.get((None, request.sample_id, request.forced)) if named is None else named

    def check(self, requests: Iterable[Request]) -> None:
        """Raises LocalevalError that names the first samples without a reply."""
        missing = [request for request in requests if self._place(request) is None]
        if missing:
            raise self._lacks(missing)

    def _lacks(self, requests: Sequence[Request]) -> LocalevalError:
        shown = ", ".join(f"{request.dataset} {request.sample_id}" for request in requests[:5])
        more = f" and {len(requests) - 5} more" if len(requests) > 5 else ""
        if requests[0].forced:
            return LocalevalError(
                f"{self.path} has no forced answer to {shown}{more}, whose reply can't be read: add rows with "
                '"forced": true and continuations, or leave out --force-answer'
            )
        named = sorted({dataset for dataset, _, _ in self._places if dataset})
        holds = f"; it holds replies to {', '.join(named)}" if named else ""
        return LocalevalError(f"{self.path} has no reply to {shown}{more}{holds}")

    def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        for request in requests:
            if request is None:
                continue
            place = self._place(request)
            if place is None:
                raise self._lacks([request])
            self._file.seek(place)
            line = self._file.readline()
            self._refuse_changed()  # a row may stand elsewhere now, or another one here
            _, found, _ = _read(line, f"{self.path}, byte {place}")
            if self._delay:
                time.sleep(self._delay)
            yield replace(found, key=request.key)

    def forget_prompts(self) -> None:
        """Nothing is kept."""

    def settings(self) -> Mapping[str, Any]:
        return {"file": str(self.path)}

    def close(self) -> None:
        self._file.close()


def _read(line: bytes, place: str) -> tuple[str | None, Completion, bool]:
    """A row: the dataset that it names, if any, the reply, and whether it is a forced answer.

    Raises LocalevalError that names the place.
    """
    try:
        row = json.loads(line.decode("utf-8-sig"))
        sample_id, text = row["sample_id"], row["text"]
    except UnicodeDecodeError as error:
        raise LocalevalError(f"{place}: not UTF-8: {error}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise LocalevalError(f"{place}: expected {{sample_id, text, finish_reason?, dataset?}} ({error!r})") from error
    dataset, finish_reason, forced = row.get("dataset"), row.get("finish_reason", "stop"), row.get("forced", False)
    fields = {"sample_id": sample_id, "text": text, "finish_reason": finish_reason}
    for name, value in {**fields, "dataset": "" if dataset is None else dataset}.items():
        if not isinstance(value, str):
            raise LocalevalError(f"{place}: {name} is {value!r}; expected text")
    if not isinstance(forced, bool):
        raise LocalevalError(f"{place}: forced is {forced!r}; expected true or false")
    continuations = row.get("continuations")
    try:
        found = None if continuations is None else log_probabilities(continuations)
    except (ValueError, OverflowError) as error:
        raise LocalevalError(f"{place}: {error}") from error
    return dataset, Completion(sample_id, text, finish_reason, continuations=found), forced

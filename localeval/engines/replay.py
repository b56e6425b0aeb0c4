"""Replies from a file: for tests, and for replies that were made elsewhere. Needs no model and no tokenizer.

Rows are ``{sample_id, text, finish_reason?, dataset?, continuations?}``, so a predictions.jsonl is one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from localeval.schema import Completion, LocalevalError, Request, log_probabilities


class ReplayEngine:
    """Looks each request up by its sample's id, and by its dataset where the rows name one."""

    def __init__(self, path: Path, datasets: int) -> None:
        """datasets: how many the run asks; where it is more than one, every row must say which it is of.

        Raises LocalevalError that names file and line.
        """
        self._path = path
        self._rows: dict[tuple[str | None, str], Completion] = {}
        if not path.is_file():
            raise LocalevalError(f"--engine replay:{path}: there is no such file (looked for {path.absolute()})")
        try:
            with path.open(encoding="utf-8-sig") as file:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        self._take(line, f"{path}, line {number}", datasets)
        except UnicodeDecodeError as error:
            raise LocalevalError(f"{path} is not UTF-8: {error}") from error

    def _take(self, line: str, place: str, datasets: int) -> None:
        try:
            row = json.loads(line)
            sample_id, text = row["sample_id"], row["text"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise LocalevalError(
                f"{place}: expected {{sample_id, text, finish_reason?, dataset?}} ({error!r})"
            ) from error
        dataset, finish_reason = row.get("dataset"), row.get("finish_reason", "stop")
        fields = {"sample_id": sample_id, "text": text, "finish_reason": finish_reason}
        for name, value in {**fields, "dataset": "" if dataset is None else dataset}.items():
            if not isinstance(value, str):
                raise LocalevalError(f"{place}: {name} is {value!r}; expected text")
        if dataset is None and datasets > 1:
            raise LocalevalError(f'{place}: no dataset is named, and {datasets} are asked: add "dataset" to each row')
        if (dataset, sample_id) in self._rows:
            raise LocalevalError(f"{place}: a second reply to {sample_id}")
        continuations = row.get("continuations")
        try:
            found = None if continuations is None else log_probabilities(continuations)
        except (ValueError, OverflowError) as error:
            raise LocalevalError(f"{place}: {error}") from error
        self._rows[dataset, sample_id] = Completion(sample_id, text, finish_reason, continuations=found)

    def _find(self, request: Request) -> Completion | None:
        named = self._rows.get((request.dataset, request.sample_id))
        return named or self._rows.get((None, request.sample_id))

    def check(self, requests: Iterable[Request]) -> None:
        """Raises LocalevalError that names the first samples without a reply."""
        missing = [f"{request.dataset} {request.sample_id}" for request in requests if self._find(request) is None]
        if missing:
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            named = sorted({dataset for dataset, _ in self._rows if dataset})
            holds = f"; it holds replies to {', '.join(named)}" if named else ""
            raise LocalevalError(f"{self._path} has no reply to {', '.join(missing[:5])}{more}{holds}")

    def generate(self, requests: Iterable[Request]) -> Iterator[Completion]:
        for request in requests:
            found = self._find(request)
            if found is None:
                raise LocalevalError(f"{self._path} has no reply to {request.dataset} {request.sample_id}")
            yield replace(found, key=request.key)

    def forget_prompts(self) -> None:
        """Nothing is kept."""

    def settings(self) -> Mapping[str, Any]:
        return {"file": str(self._path)}

    def close(self) -> None:
        self._rows.clear()

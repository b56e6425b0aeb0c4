"""The run folder: predictions appended as they finish, kept over a kill, and read again. Knows nothing about scoring.

run.json  samples.jsonl.gz  predictions.jsonl  forced.jsonl  scores.jsonl  report.json  report.md  report.html

What a kill leaves is whole but for the last line of predictions.jsonl and forced.jsonl. What a power cut leaves, too:
files that are replaced are on the disk before they stand under their name, and replies before ``sync`` returns.
"""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from localeval.appending import Appended
from localeval.identity import forced_key
from localeval.locks import take
from localeval.schema import Completion, Invented, LocalevalError, RunFailed, Score, Tally, log_probabilities

PREDICTIONS = "predictions.jsonl"
FORCED = "forced.jsonl"
"""What unread replies have answered when they were asked once more: rows as those of predictions.jsonl."""
SCORES = "scores.jsonl"
SAMPLES = "samples.jsonl.gz"
_LEVEL = 3
"""Of compression: prompts repeat each other, and a higher one wins little."""
_LOST = "it holds NUL bytes, which stand where a file system has lost what was written, as in a power cut"


@dataclass(frozen=True, slots=True)
class Scored:
    """A row of scores.jsonl: the score, and what of the sample reports group by. groups: as ``Sample.meta``."""

    score: Score
    subset: str
    groups: Mapping[str, str]


class RunFolder:
    """One dataset's folder of one model, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[bytes] | None = None
        self._predictions = Appended(path / PREDICTIONS)
        self._forced = Appended(path / FORCED)

    def open(self, wanted: Set[str], forced: bool = False) -> set[str]:
        """Takes the folder, and gives back the wanted keys to which it holds a reply; ``rows`` reads those.

        forced: whether unread replies are asked once more; ``forced_rows`` then reads the answers that are there.

        A torn last line (a kill while it was written) is dropped. Rows of other keys (the data, the checkpoint or the
        settings have changed since) are moved to ``predictions.stale.jsonl``, forced answers to replies that are not
        here to ``forced.stale.jsonl``. Raises LocalevalError where another process holds the folder, or a line is
        broken that is not the last. Rows are read one by one, never all at once.
        """
        self.lock()
        kept = _keep(self.path / PREDICTIONS, wanted)
        self._predictions.open()
        if forced:
            if (self.path / FORCED).exists():
                _keep(self.path / FORCED, {forced_key(row) for row in self.rows()})
            self._forced.open()
        return kept

    def rows(self) -> Iterator[Completion]:
        """The replies in the folder, in the order in which they came."""
        return _rows(self.path / PREDICTIONS)

    def forced_rows(self) -> Iterator[Completion]:
        """The forced answers in the folder, in the order in which they came."""
        return _rows(self.path / FORCED)

    def lock(self) -> None:
        """Makes the folder, and takes it for this process alone. Raises LocalevalError where another has it."""
        self._lock = take(self.path)

    def append(self, completion: Completion) -> None:
        """Adds a reply; it is in the file, whole, when this returns."""
        self._predictions.append(_json(prediction_row(completion)))

    def append_forced(self, completion: Completion) -> None:
        """Adds a forced answer. Its row says that it is one, so that a file of both can be replayed."""
        self._forced.append(_json({**prediction_row(completion), "forced": True}))

    def sync(self) -> None:
        """When this returns, what was appended outlives a power cut, too."""
        self._predictions.sync()
        self._forced.sync()

    def close(self) -> None:
        """Lets the folder go; what was appended is on the disk by then."""
        try:
            self.sync()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self._predictions.close()
        self._forced.close()
        if self._lock is not None:
            self._lock.close()
        self._lock = None

    def write_scores(self, rows: Iterable[Scored]) -> None:
        """One row a sample, in the order of the samples."""
        self.write_rows(SCORES, map(_score_row, rows))

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Strict JSON: what is not a number is null, never NaN."""
        write_atomically(self.path / name, [_json(value, indent=2)])

    def write_rows(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """JSON Lines, whole or not at all; compressed where the name ends in ``.gz``."""
        write_atomically(self.path / name, map(_json, rows))

    def write_text(self, name: str, text: str) -> None:
        """A text file, whole or not at all."""
        write_atomically(self.path / name, [text])

    def read_json(self, name: str) -> dict[str, Any]:
        """Raises LocalevalError where the file is missing or broken."""
        path = self.path / name
        if path.exists() and not path.is_file():
            raise LocalevalError(f"{path}: is no plain file")  # a pipe would be waited for
        try:
            value = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
        except (OSError, ValueError, RecursionError) as error:
            raise LocalevalError(f"{path}: can't be read: {error}") from error
        if not isinstance(value, dict):
            raise LocalevalError(f"{path}: expected an object")
        return value


def _rows(file: Path) -> Iterator[Completion]:
    return read_predictions(file) if file.exists() else iter(())


def _keep(file: Path, wanted: Set[str]) -> set[str]:
    """Leaves one row of each of the wanted keys in a file, and moves those of other keys to another one.

    Gives back the keys that are there.
    """
    kept: set[str] = set()
    rows = stale = 0
    for row in _rows(file):
        rows += 1
        if row.key in wanted:
            kept.add(row.key)
        else:
            stale += 1
    mark = {"forced": True} if file.name == FORCED else {}
    if stale:
        others = (_json({**prediction_row(row), **mark}) for row in _rows(file) if row.key not in wanted)
        _append_whole(file.with_suffix(f".stale{file.suffix}"), others)
    if len(kept) < rows or _is_torn(file):
        write_atomically(file, (_json({**prediction_row(row), **mark}) for row in _once(_rows(file), kept)))
    return kept


def _once(rows: Iterable[Completion], keys: Set[str]) -> Iterator[Completion]:
    """The first row of each of the keys."""
    left = set(keys)
    for row in rows:
        if row.key in left:
            left.remove(row.key)
            yield row


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _json(value: Mapping[str, Any], indent: int | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair can only stand in a file as an escape
        text = json.dumps(value, indent=indent, allow_nan=False)
    return text + "\n"


def write_atomically(path: Path, lines: Iterable[str]) -> None:
    """Replaces a file by a whole new one; a kill leaves the old one. A name in ``.gz`` is compressed."""
    with replacing(path) as raw:
        packed = gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) if path.suffix == ".gz" else raw
        file = io.TextIOWrapper(packed, encoding="utf-8", errors="backslashreplace", newline="\n")
        file.writelines(lines)
        file.detach()
        if packed is not raw:
            packed.close()


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file, which takes the place of the old one when the context is left; what ends it otherwise leaves that.

    Raises RunFailed where it can't be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # else a power cut can leave the new name with nothing in it
        partial.replace(path)
    except OSError as error:
        raise RunFailed(f"{path}: {error}") from error
    finally:
        with suppress(OSError):  # of a file system that takes nothing any more: what went wrong first is said
            partial.unlink(missing_ok=True)


def _append_whole(path: Path, lines: Iterable[str]) -> None:
    """Adds lines to a file; where that fails, it is as it was."""
    try:
        torn = _is_torn(path)  # by a kill at this place
        before = path.stat().st_size if path.exists() else 0
        try:
            with path.open("a", encoding="utf-8") as file:
                file.writelines(["\n"] if torn else [])
                file.writelines(lines)
        except OSError:
            os.truncate(path, before)
            raise
    except OSError as error:
        raise RunFailed(f"{path}: {error}") from error


def prediction_row(completion: Completion) -> dict[str, Any]:
    """A reply as a row of predictions.jsonl. logprobs: for each new token, ``{token id: log probability}``.

    continuations: ``{what the prompt may go on with: log probability}``.
    """
    row: dict[str, Any] = {
        "sample_id": completion.sample_id,
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "prompt_tokens": completion.prompt_tokens,
        "cached_tokens": completion.cached_tokens,
        "output_tokens": completion.output_tokens,
        "key": completion.key,
    }
    if completion.logprobs is not None:
        row["token_ids"] = list(completion.token_ids)
        row["logprobs"] = [{str(token): value for token, value in step.items()} for step in completion.logprobs]
    if completion.continuations is not None:
        row["continuations"] = dict(completion.continuations)
    return row


def read_predictions(path: Path) -> Iterator[Completion]:
    """The rows of a predictions.jsonl, without a torn last line.

    Raises LocalevalError that names file and line for any other line that is no prediction.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return  # torn: a whole row ends its line
            yield completion_of(line, f"{path}, line {number}")


def completion_of(line: bytes, place: str) -> Completion:
    """A row of predictions.jsonl. place: as an error calls it. Raises LocalevalError for what is none."""
    try:
        row = json.loads(line)
        logprobs, continuations = row.get("logprobs"), row.get("continuations")
        found = Completion(
            sample_id=row["sample_id"],
            text=row["text"],
            finish_reason=row["finish_reason"],
            prompt_tokens=int(row.get("prompt_tokens", 0)),
            cached_tokens=int(row.get("cached_tokens", 0)),
            output_tokens=int(row.get("output_tokens", 0)),
            token_ids=tuple(row.get("token_ids", ())),
            logprobs=None if logprobs is None else tuple({int(t): v for t, v in step.items()} for step in logprobs),
            continuations=None if continuations is None else log_probabilities(continuations),
            key=row.get("key", ""),
        )
        words = (found.sample_id, found.text, found.finish_reason, found.key)
        if not all(isinstance(word, str) for word in words):
            raise ValueError("sample_id, text, finish_reason and key are text")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        why = _LOST if b"\0" in line else repr(error)
        raise LocalevalError(f"{place}: not a prediction ({why}); take the line out, and it is asked again") from error
    return found


def _score_row(row: Scored) -> dict[str, Any]:
    score = row.score
    return {
        "sample_id": score.sample_id,
        "subset": row.subset,
        **({"groups": dict(row.groups)} if row.groups else {}),
        "parsed": score.parsed,
        **({"unparsed_reason": score.unparsed_reason} if score.unparsed_reason else {}),
        "tallies": {name: [t.correct, t.predicted, t.gold] for name, t in score.tallies.items()},
        "notes": dict(score.notes),
        **({"logprobs": dict(score.logprobs)} if score.logprobs else {}),
        **({"probabilities": dict(score.probabilities)} if score.probabilities else {}),
        **({"invented": [list(each) for each in score.invented]} if score.invented else {}),
        **({"forced": score.forced, "forced_probability": score.forced_probability} if score.forced else {}),
    }


def read_scores(path: Path) -> Iterator[Scored]:
    """The rows of a scores.jsonl. Raises LocalevalError that names file and line for one that is none."""
    if not path.is_file():
        raise LocalevalError(f"{path}: there is no such file; localeval score RUN_DIR writes it")
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
                score = Score(
                    row["sample_id"],
                    row["parsed"],
                    {name: Tally(*counts) for name, counts in row["tallies"].items()},
                    row["notes"],
                    row.get("logprobs", {}),
                    row.get("probabilities", {}),
                    tuple(Invented(*each) for each in row.get("invented", ())),
                    forced=row.get("forced"),
                    forced_probability=row.get("forced_probability"),
                    unparsed_reason=row.get("unparsed_reason"),
                )
                yield Scored(score, row["subset"], row.get("groups", {}))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise LocalevalError(
                    f"{path}, line {number}: not a score of this version ({error!r}); localeval score RUN_DIR writes "
                    "the file anew"
                ) from error


def _is_torn(path: Path) -> bool:
    if not path.exists() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def find_predictions(folder: Path) -> list[Path]:
    """Every predictions.jsonl in a folder and below."""
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise LocalevalError(f"use_cache {folder}: there is no such folder")
    return sorted(folder.rglob(PREDICTIONS))

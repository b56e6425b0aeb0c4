"""What there is to see in some folders: finished runs, unfinished ones, several models of one command.

Reads files alone. Each has a key, a digest of its folder, by which it is asked for: no path comes from outside. Looked
at anew each time; what has not changed since is not read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from localeval.report.finished import Finished
from localeval.schema import LocalevalError
from localeval.scoring import find_finished
from localeval.series import ROWS, Outcome, read_outcomes
from localeval.store import SCORES, RunFolder


@dataclass(frozen=True, slots=True)
class Listed:
    """A run folder. run: None where it is not finished, or can't be read; ``reason`` then says which and why.

    model, dataset: as far as run.json tells. state: changes when the run does.
    """

    key: str
    folder: Path
    model: str
    dataset: str
    run: Finished | None
    reason: str
    state: tuple[tuple[int, int], ...]

    @property
    def finished(self) -> float:
        """When its report was written, in seconds since 1970; 0 where there is none."""
        return self.state[1][0] / 1e9


@dataclass(frozen=True, slots=True)
class Models:
    """The folder of several models of one command, and what became of each."""

    key: str
    folder: Path
    outcomes: tuple[Outcome, ...]
    reason: str
    finished: float


class Catalogue:
    """The runs in some folders."""

    def __init__(self, places: Sequence[str | Path]) -> None:
        """Raises LocalevalError for a place that is no folder."""
        self.places = [Path(place).resolve() for place in places]
        for place, said in zip(self.places, places, strict=True):
            if not place.is_dir():
                raise LocalevalError(f"{said}: there is no such folder; name run folders, or a work folder (runs)")
        self._known: dict[Path, Listed] = {}

    def runs(self) -> dict[str, Listed]:
        """By key, in the order of their folders."""
        found = dict.fromkeys(path.parent for place in self.places for path in _files(place, "run.json"))
        self._known = {folder: self._look(folder) for folder in found}
        return {listed.key: listed for listed in self._known.values()}

    def models(self) -> dict[str, Models]:
        """The folders of several models, by key."""
        found = dict.fromkeys(path.parent for place in self.places for path in _files(place, ROWS))
        return {models.key: models for models in map(_models, found)}

    def _look(self, folder: Path) -> Listed:
        state = tuple(_state(folder / name) for name in ("run.json", "report.json", SCORES))
        known = self._known.get(folder)
        return known if known is not None and known.state == state else _listed(folder, state)


def _files(place: Path, name: str) -> Iterator[Path]:
    """Files of a name in a folder and below it: in a run folder, its own."""
    own = place / name
    yield from [own] if own.is_file() else sorted(path for path in place.rglob(name) if path.is_file())


def _state(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def key_of(folder: Path) -> str:
    """The name under which a folder is asked for: 16 hex digits."""
    return sha256(str(folder).encode(errors="surrogateescape")).hexdigest()[:16]


def _listed(folder: Path, state: tuple[tuple[int, int], ...]) -> Listed:
    model, dataset, run, reason = folder.parent.name, folder.name, None, ""
    try:
        facts = RunFolder(folder).read_json("run.json")
        model, dataset = str(facts["model"]["name"]), str(facts["dataset"]["name"])
        if facts.get("complete") is True:
            (run,) = find_finished([folder])
        else:
            reason = "not finished: the same command goes on with it"
    except (LocalevalError, KeyError, TypeError) as error:
        reason = str(error) if isinstance(error, LocalevalError) else f"run.json is no record of a run ({error!r})"
    return Listed(key_of(folder), folder, model, dataset, run, reason, state)


def _models(folder: Path) -> Models:
    file, when = folder / ROWS, _state(folder / ROWS)[0] / 1e9
    try:
        return Models(key_of(folder), folder, tuple(read_outcomes(file)), "", when)
    except (LocalevalError, OSError, UnicodeDecodeError) as error:
        return Models(key_of(folder), folder, (), str(error), when)

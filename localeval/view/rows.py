"""All samples of a run, in a temporary SQLite database: filtered, searched and paged without holding them in memory.

The filters are those of samples.js, and give what it gives. The database has no name and no place in a folder: it is
gone with the process, however that ends. Knows nothing of servers.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os.path import commonprefix
from threading import Lock
from typing import Any

from localeval.report.chosen import Chosen, Counting
from localeval.report.rows import confused, row
from localeval.results import SampleResult
from localeval.schema import LocalevalError

LONGEST = 200_000
"""So many characters of a prompt, a reply or a question go to the browser; the run folder has all."""
MOST = 200
"""Rows of an answer, and characters of a search."""
_HEADS = 1000
"""The most beginnings of prompts that are kept; what begins otherwise is kept whole."""
_Condition = tuple[str, Sequence[Any]]
"""What SQL asks of a row of ``sought``, and the values in it."""
_TABLES = """
CREATE TABLE rows (n INTEGER PRIMARY KEY, id BLOB, head INTEGER, row BLOB);
CREATE TABLE sought (n INTEGER PRIMARY KEY, head INTEGER, text BLOB);
CREATE TABLE marks (mark INTEGER, n INTEGER);
CREATE TABLE confused (n INTEGER, gold BLOB, read BLOB, exact INTEGER);
"""
_INDEXES = """
CREATE INDEX by_id ON rows (id);
CREATE INDEX by_mark ON marks (mark, n);
CREATE INDEX by_confusion ON confused (gold, read, exact, n);
"""


@dataclass(frozen=True, slots=True)
class Found:
    """rows: those from offset on, as ``report.rows.row`` makes them. matched: how many they are, of how many."""

    matched: int
    of: int
    offset: int
    rows: Sequence[Mapping[str, Any]]


class Rows:
    """The samples of one run. One thread at a time; others wait."""

    def __init__(self, results: Iterable[SampleResult]) -> None:
        """Reads them all."""
        self._lock = Lock()
        self._closed = False
        # Without a name: a file in the system's temporary folder that is deleted while it is open.
        self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._database.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; {_TABLES}")
        self._heads: list[str] = [""]
        self._head_of: dict[str, int] = {}
        self._marks: dict[tuple[str, str], int] = {}
        self._last: tuple[Any, list[int]] = (None, [])
        self.counted = self._fill(results)
        self._database.executescript(_INDEXES)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._database.close()

    @contextmanager
    def _open(self) -> Iterator[None]:
        """Alone with the database. Raises LocalevalError where it is not kept any more."""
        with self._lock:
            if self._closed:
                raise LocalevalError("this run's samples are not kept any more; load the page again")
            yield

    # --- filling ---

    def _fill(self, results: Iterable[SampleResult]) -> Chosen:
        counting = Counting()
        self._database.execute("BEGIN")
        for result in results:
            found = counting.add(result)
            self._add(counting.n, result, found)
        self._database.execute("COMMIT")
        return counting.counted()

    def _add(self, n: int, result: SampleResult, found: Iterable[str]) -> None:
        content = row(result, LONGEST)
        head = self._head(result.subset, content["prompt"])
        begins = self._heads[head]
        sought = [result.sample_id, result.text, result.completion.text]
        # What a search finds across the end of what the prompt shares with others begins less than MOST before it.
        sought.append(result.prompt[max(0, len(begins) - MOST) :])
        rest = {**content, "prompt": content["prompt"][len(begins) :]}
        packed = zlib.compress(json.dumps(rest, separators=(",", ":")).encode(), 1)
        add = self._database.execute
        add("INSERT INTO rows VALUES (?, ?, ?, ?)", (n, _bytes(result.sample_id), head, packed))
        add("INSERT INTO sought VALUES (?, ?, ?)", (n, head, _bytes("\0".join(sought).lower())))
        pairs = confused(result)
        marks = {("subset", result.subset), *(("outcome", name) for name in found)}
        marks |= {(f"by.{name}", value) for name, value in result.groups.items()}
        marks |= {("type", name) for gold, read, _ in pairs for name in (gold, read) if name is not None}
        numbers = [self._marks.setdefault(mark, len(self._marks)) for mark in marks]
        many = self._database.executemany
        many("INSERT INTO marks VALUES (?, ?)", [(number, n) for number in numbers])
        many("INSERT INTO confused VALUES (?, ?, ?, ?)", [(n, _bytes(g), _bytes(r), exact) for g, r, exact in pairs])

    def _head(self, subset: str, prompt: str) -> int:
        """What the prompts of a subset begin with, by its number: it is kept once."""
        before = self._head_of.get(subset)
        if before is None or not prompt.startswith(self._heads[before]):
            alike = prompt if before is None else commonprefix([self._heads[before], prompt])  # noqa: RUF071 - of text
            if len(self._heads) == _HEADS:
                return 0
            before = self._head_of[subset] = len(self._heads)
            self._heads.append(alike)
        return before

    # --- asking ---

    def find(self, wanted: Mapping[str, str], offset: int, limit: int, around: str | None = None) -> Found:
        """Rows of a kind. wanted: name -> value, see samples.js; a name that is no filter's is not looked at.

        around: a sample's id: the rows of the page that it is on take offset's place, where it is among those found.
        Raises LocalevalError for a search or a page that is too long.
        """
        if not 0 < limit <= MOST or offset < 0:
            raise LocalevalError(f"limit {limit}, offset {offset}: expected up to {MOST} rows, from the first on")
        with self._open():
            matched = self._matched({name: value for name, value in wanted.items() if _is_filter(name)})
            if around is not None:
                places = self._numbers("SELECT n FROM rows WHERE id = ?", [_bytes(around)])
                at = matched.index(places[0]) if places and places[0] in matched else -1
                offset = offset if at < 0 else at - at % limit
            rows = [self._row(n) for n in matched[offset : offset + limit]]
        return Found(len(matched), self.counted.n, offset, rows)

    def row(self, sample_id: str) -> Mapping[str, Any] | None:
        """One sample; None where there is none of this id."""
        with self._open():
            places = self._numbers("SELECT n FROM rows WHERE id = ?", [_bytes(sample_id)])
            return self._row(places[0]) if places else None

    def _matched(self, wanted: Mapping[str, str]) -> Sequence[int]:
        """The numbers of the rows, in order; those of the last question are kept, for its next page."""
        if self._last[0] != wanted:
            conditions = [*self._with_marks(wanted), *_with_pairs(wanted), *_with_text(wanted, self._heads)]
            where = " AND ".join(sql for sql, _ in conditions) or "1"
            values = [value for _, each in conditions for value in each]
            self._last = dict(wanted), self._numbers(f"SELECT n FROM sought WHERE {where} ORDER BY n", values)
        return self._last[1]

    def _with_marks(self, wanted: Mapping[str, str]) -> Iterator[_Condition]:
        for name, value in wanted.items():
            if name in ("outcome", "subset", "type") or name.startswith("by."):
                yield "n IN (SELECT n FROM marks WHERE mark = ?)", [self._marks.get((name, value), -1)]

    def _numbers(self, sql: str, values: Sequence[Any]) -> list[int]:
        return [n for (n,) in self._database.execute(sql, values)]

    def _row(self, n: int) -> dict[str, Any]:
        ((head, packed),) = self._database.execute("SELECT head, row FROM rows WHERE n = ?", (n,))
        content: dict[str, Any] = json.loads(zlib.decompress(packed))
        return {**content, "prompt": self._heads[head] + content["prompt"]}


def _is_filter(name: str) -> bool:
    return name in ("q", "outcome", "subset", "type", "gold", "read", "ends") or name.startswith("by.")


def _with_pairs(wanted: Mapping[str, str]) -> Iterator[_Condition]:
    """One pair of gold and reading that has all that is asked of it."""
    asked: list[tuple[str, Any]] = [
        (f"{side} IS ?", _bytes(wanted[side] or None)) for side in ("gold", "read") if side in wanted
    ]
    if "ends" in wanted:
        asked.append(("gold NOT NULL AND read NOT NULL AND exact = ?", wanted["ends"] == "same"))
    if asked:
        sql = " AND ".join(sql for sql, _ in asked)
        yield f"n IN (SELECT n FROM confused WHERE {sql})", [value for _, value in asked]


def _with_text(wanted: Mapping[str, str], heads: Sequence[str]) -> Iterator[_Condition]:
    sought = wanted.get("q", "").lower()
    if len(sought) > MOST:
        raise LocalevalError(f"search for at most {MOST} characters; these are {len(sought):,}")
    if sought:
        everywhere = [number for number, head in enumerate(heads) if sought in head.lower()]
        marks = ", ".join("?" * len(everywhere))
        yield f"(instr(text, ?) > 0 OR head IN ({marks}))", [_bytes(sought), *everywhere]


def _bytes(text: str | None) -> bytes | None:
    """Text as it is compared, whatever a model has said: halves of surrogate pairs, too, which TEXT does not take."""
    return None if text is None else text.encode(errors="surrogatepass")

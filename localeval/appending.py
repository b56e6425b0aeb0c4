"""A file to which lines are added, one at a time: what a kill leaves is whole but for the last line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from localeval.schema import RunFailed


class Appended:
    """Such a file; it is made when it is opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._synced = True  # whether all that was appended is on the disk

    def open(self) -> None:
        """Raises RunFailed where it can't be written."""
        try:
            self._file = self._path.open("ab", buffering=0)  # nothing waits in this process
        except OSError as error:
            raise RunFailed(f"{self._path}: {error}") from error

    def append(self, line: str) -> None:
        """Adds a line; it is in the file, whole, when this returns. Raises RunFailed."""
        if self._file is None:
            raise RuntimeError("append before open")
        try:
            self._synced = False
            rest = memoryview(line.encode())
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise RunFailed(f"{self._path}: {error}; what was written before is kept") from error

    def sync(self) -> None:
        """When this returns, what was appended outlives a power cut, too. Raises RunFailed."""
        if self._file is not None and not self._synced:
            try:
                os.fsync(self._file.fileno())
                self._synced = True
            except OSError as error:  # some file systems tell only here that there was no room
                raise RunFailed(f"{self._path}: {error}; it may lack rows that were written") from error

    def close(self) -> None:
        """Lets the file go; it may be opened again."""
        if self._file is not None:
            self._file.close()
        self._file = None

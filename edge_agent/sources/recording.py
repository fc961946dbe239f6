"""A recorded drive as a source: CSV with one column per signal, at recorded speed or faster.

The first column is the event time (Unix epoch milliseconds), the others are headed by catalogue paths. An empty
cell is no reading. ``values="changed"`` gives each cell that differs from the last one above it, ``"all"`` each
non-empty cell. The cursor is the number of rows read; seeking reads the skipped rows again, so that ``changed``
knows the values above.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, TextIO, cast

from contracts.errors import Rejected
from contracts.signals import catalogue
from edge_agent.errors import RecordingError
from edge_agent.sources.base import Reading

Values = Literal["all", "changed"]


class CsvSource:
    """Rows of one file, due at ``first row + (wall time since the first read) * speed``."""

    can_wait = True

    def __init__(self, path: Path, speed: float = 1.0, values: Values = "all") -> None:
        self._path = path
        self._speed = speed
        self._values = values
        opener = gzip.open if path.suffix == ".gz" else open
        self._text = cast("TextIO", opener(path, "rt", encoding="utf-8", newline=""))
        self._rows = csv.reader(self._text)
        self._above: dict[int, str] = {}
        self._done_rows = 0
        try:
            self._signals = self._header()
            self._next = self._take_row()
        except RecordingError:
            self._text.close()
            raise
        self._started: tuple[int, int] | None = None

    @property
    def cursor(self) -> str | None:
        return str(self._done_rows)

    @property
    def finished(self) -> bool:
        return self._next is None

    def seek(self, cursor: str) -> None:
        while self._next is not None and self._done_rows < int(cursor):
            self._advance()

    def read(self, now_ms: int, limit: int) -> Sequence[Reading]:
        if self._next is None:
            return ()
        self._started = self._started or (now_ms, self._next[0])
        due_ms = self._started[1] + (now_ms - self._started[0]) * self._speed
        readings: list[Reading] = []
        while self._next is not None and self._next[0] <= due_ms and len(readings) < limit:
            readings += self._next[1]
            self._advance()
        return readings

    def close(self) -> None:
        self._text.close()

    def _advance(self) -> None:
        self._done_rows += 1
        self._next = self._take_row()

    def _header(self) -> list[int]:
        try:
            return [catalogue().by_path(name).number for name in next(self._rows)[1:]]
        except (StopIteration, Rejected) as error:
            raise RecordingError(
                "bad_recording", f"{self._path.name}, line 1: {error or 'the file is empty'}"
            ) from error

    def _take_row(self) -> tuple[int, list[Reading]] | None:
        row = next(self._rows, None)
        if row is None:
            return None
        try:
            at_ms = int(row[0])
            return at_ms, [Reading(signal, at_ms, float(cell)) for signal, cell in self._cells(row)]
        except (ValueError, IndexError) as error:
            raise RecordingError("bad_recording", f"{self._path.name}, line {self._rows.line_num}: {error}") from error

    def _cells(self, row: list[str]) -> Iterator[tuple[int, str]]:
        for signal, cell in zip(self._signals, row[1:], strict=False):
            if cell and (self._values == "all" or self._above.get(signal) != cell):
                yield signal, cell
            if cell:
                self._above[signal] = cell

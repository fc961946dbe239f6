"""The narrow door to SQLite: everything the spool asks of it, and nothing more.

A model of power cuts or of a full disk replaces this one class. ``synchronous=FULL`` is set and read back, since
distributions differ; checkpoints are made by the caller, so that bytes written to flash can be counted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from edge_agent.errors import SpoolCorruptError, SpoolFullError

PAGE_BYTES = 4096
WAL_FRAME_BYTES = PAGE_BYTES + 24
WAL_LIMIT_BYTES = 16 * 1024 * 1024
"""After a burst the log file shrinks back to this."""

_FULL_CODES = {
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_LOCKED,
}  # fmt: skip
Row = tuple[Any, ...]


class Database(Protocol):
    """Statements, one transaction at a time, checkpoints."""

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        """All rows. Raises SpoolFullError or SpoolCorruptError."""
        ...

    def execute_many(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        """The same statement for each row."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing; durable when it ends without an error."""
        ...

    def checkpoint(self) -> int:
        """Move the log into the file as far as possible; the log's length in pages before it."""
        ...

    def close(self) -> None:
        """Give the file back."""
        ...


class SqliteDatabase:
    """One connection of the standard library; used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        with _translated():
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
            for pragma in (
                f"page_size={PAGE_BYTES}", "journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=0",
                f"journal_size_limit={WAL_LIMIT_BYTES}", "cache_size=-2048", "temp_store=MEMORY",
            ):  # fmt: skip
                self._connection.execute(f"PRAGMA {pragma}")
            if self._connection.execute("PRAGMA synchronous").fetchone()[0] != 2:
                raise SpoolFullError("SQLite refused synchronous=FULL")

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        with _translated():
            return self._connection.execute(sql, parameters).fetchall()

    def execute_many(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        with _translated():
            self._connection.executemany(sql, rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with _translated():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def checkpoint(self) -> int:
        return max(0, int(self.execute("PRAGMA wal_checkpoint(PASSIVE)")[0][1]))

    def close(self) -> None:
        with _translated():
            self._connection.close()


@contextmanager
def _translated() -> Iterator[None]:
    """SQLite's errors as the room's two answers: the disk takes nothing now, or the file is damaged."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in _FULL_CODES:
            raise SpoolFullError(f"the disk took no more ({error}); free space, nothing accepted was lost") from error
        raise SpoolCorruptError(f"the spool file is damaged ({error})") from error

"""The archive's manifest: which files hold which offsets, written in the same transaction as the offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final
from uuid import UUID

import psycopg

from contracts.errors import TryLater
from stream_jobs.sinks.connection import Connection, connect

OFFSETS: Final = "SELECT topic_id, kafka_partition, next_offset FROM archive_offsets"
ADD_FILE: Final = """
INSERT INTO archive_files (path, topic_id, topic, kafka_partition, first_offset, last_offset, tenant_id, received_day,
    packets, size_bytes, sha256)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"""
FILES: Final = """
SELECT path, topic, topic_id, kafka_partition, first_offset, last_offset, received_day, packets, size_bytes, sha256,
    verified_at IS NOT NULL FROM archive_files ORDER BY topic_id, kafka_partition, first_offset"""
MOVE: Final = """
INSERT INTO archive_offsets AS a (topic_id, kafka_partition, topic, next_offset) VALUES (%s, %s, %s, %s)
ON CONFLICT (topic_id, kafka_partition) DO UPDATE SET next_offset = excluded.next_offset
WHERE a.next_offset = %s"""


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One finished file; ``path`` is relative to the archive's folder."""

    path: str
    first_offset: int
    last_offset: int
    tenant_id: int
    received_day: date
    records: int
    size_bytes: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Shelf:
    """Files that hold one partition's offsets from ``begin`` up to ``end``."""

    topic: str
    topic_id: UUID
    partition: int
    begin: int
    end: int
    files: Sequence[ArchivedFile]


@dataclass(frozen=True, slots=True)
class KeptFile:
    """One file as the manifest knows it; offsets inclusive."""

    path: str
    topic: str
    topic_id: UUID
    partition: int
    first_offset: int
    last_offset: int
    received_day: date
    records: int
    size_bytes: int
    sha256: bytes
    verified: bool


class Manifest:
    """A connection of its own. Every method raises TryLater when the database does not answer."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: Connection | None = None

    def offsets(self) -> dict[tuple[UUID, int], int]:
        """Where the archive goes on, per topic id and partition."""
        try:
            return {(topic_id, number): at for topic_id, number, at in self._open().execute(OFFSETS).fetchall()}
        except psycopg.OperationalError as error:
            raise self._away(error) from error

    def add(
        self, topic: str, topic_id: UUID, partition: int, begin: int, end: int, files: Sequence[ArchivedFile]
    ) -> bool:
        """Record files that hold the offsets from ``begin`` up to ``end``; False when another archiver was faster."""
        try:
            connection = self._open()
            with connection.transaction(), connection.cursor() as cursor:
                return _put(cursor, Shelf(topic, topic_id, partition, begin, end, files))
        except psycopg.OperationalError as error:
            raise self._away(error) from error

    def fill(self, shelves: Iterable[Shelf]) -> None:
        """Record every partition's files in one transaction: a manifest holds the whole archive or nothing of it.

        Raises TryLater when something else wrote a partition meanwhile too; nothing was recorded then.
        """
        try:
            connection = self._open()
            with connection.transaction(), connection.cursor() as cursor:
                for shelf in shelves:
                    if not _put(cursor, shelf):
                        raise TryLater(
                            f"another process writes the manifest of {shelf.topic} partition {shelf.partition}; "
                            "nothing was recorded: stop the archiver, then ask again"
                        )
        except psycopg.OperationalError as error:
            raise self._away(error) from error

    def files(self) -> list[KeptFile]:
        """Every file, by topic id, partition and offset."""
        try:
            return [KeptFile(*row) for row in self._open().execute(FILES).fetchall()]
        except psycopg.OperationalError as error:
            raise self._away(error) from error

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> Connection:
        if self._connection is None:
            self._connection = connect(self._dsn)
        return self._connection

    def _away(self, error: Exception) -> TryLater:
        self.disconnect()
        return TryLater(f"the store did not answer ({type(error).__name__}); the log still holds what is not archived")


def _put(cursor: psycopg.Cursor[Any], shelf: Shelf) -> bool:
    """Move the partition's offset and record its files; False when it does not stand at ``shelf.begin``."""
    at = (shelf.topic_id, shelf.partition, shelf.topic, shelf.end, shelf.begin)
    if cursor.execute(MOVE, at).rowcount != 1:
        return False
    rows = [
        (
            one.path, shelf.topic_id, shelf.topic, shelf.partition, one.first_offset, one.last_offset, one.tenant_id,
            one.received_day, one.records, one.size_bytes, one.sha256,
        )
        for one in shelf.files
    ]  # fmt: skip
    cursor.executemany(ADD_FILE, rows)
    return True

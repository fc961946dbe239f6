"""The table of latest values as its topic wants it: what changed since a position, and where the topic has come.

A position is the oldest transaction that ran when the table was last looked at (as in ``queries.changes``): every row
of it or a later one is told again, so nothing that commits out of order is missed. A table that was exchanged (a swap)
has another id and is told as a whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import psycopg
from psycopg.rows import class_row

from api.errors import StoreUnavailable
from contracts.latest import LatestValue

NAME: Final = "SELECT 'latest:' || 'latest_values'::regclass::oid"
POSITION: Final = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
HELD: Final = "SELECT position FROM projections WHERE name = %s"
MOVE: Final = """
INSERT INTO projections AS p (name, position) VALUES (%s, %s)
ON CONFLICT (name) DO UPDATE SET position = excluded.position, told_at = now()
"""
ROWS: Final = """
SELECT d.device, s.path AS signal, l.measured_ms, l.boot_epoch, l.seq, l.pos, l.val AS value, l.quality,
       (extract(epoch FROM l.received_at) * 1000)::bigint AS received_ms
FROM latest_values l JOIN devices d USING (device_key) JOIN signals s ON s.signal = l.signal
"""
CHANGED: Final = ROWS + "WHERE %(since)s = 0 OR age(l.xmin) <= age(%(since)s::text::xid8::xid)"
WRAP: Final = 2_000_000_000
"""Row versions carry 32 bits of their transaction's number: from an older position all is told again."""

FETCH: Final = 1_000


class LatestTable:
    """A connection of its own, role ``fleetstream_sink``; raises StoreUnavailable when the database cannot answer."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    @asynccontextmanager
    async def changes(self) -> AsyncIterator[tuple[AsyncIterator[list[LatestValue]], str, int]]:
        """(batches of changed rows, name of the projection, position to be written when they are told)."""
        try:
            connection = await psycopg.AsyncConnection.connect(
                self._dsn, application_name="fleetstream-latest", connect_timeout=5
            )
            async with connection:
                name = await _one(connection, NAME)
                position = await _one(connection, POSITION)
                held = await _one(connection, HELD, str(name)) or 0
                since = held if position - WRAP < held <= position else 0
                yield _batches(connection, since), str(name), int(position)
        except psycopg.Error as error:
            raise _unavailable(error) from error

    async def told(self, name: str, position: int) -> None:
        """All that ``changes`` gave is in the topic."""
        try:
            async with await psycopg.AsyncConnection.connect(self._dsn, connect_timeout=5) as connection:
                await connection.execute(MOVE, (name, position))
        except psycopg.Error as error:
            raise _unavailable(error) from error


async def _batches(connection: psycopg.AsyncConnection[Any], since: int) -> AsyncIterator[list[LatestValue]]:
    async with connection.cursor(name="latest", row_factory=class_row(LatestValue)) as cursor:
        await cursor.execute(CHANGED, {"since": since})
        while rows := await cursor.fetchmany(FETCH):
            yield rows


async def _one(connection: psycopg.AsyncConnection[Any], statement: str, *values: object) -> Any:
    row = await (await connection.execute(statement.encode(), values)).fetchone()
    return row[0] if row else None


def _unavailable(error: psycopg.Error) -> StoreUnavailable:
    return StoreUnavailable(f"PostgreSQL did not tell the latest values ({type(error).__name__}); they are told later")

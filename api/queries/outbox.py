"""The outbox as the relay sees it: rows that wait, marks, pruning, and the registry as a whole.

One connection of the role ``fleetstream_sink``. A session-level advisory lock lets one relay work at a time, which is
what keeps the order per key. ``outbox_id`` is given before commit, so it orders the rows of one key only because
writers of the same key exclude each other (they hold the device's row lock).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import class_row, tuple_row

from api.errors import StoreUnavailable
from api.queries.alone import Alone
from contracts.locks import RELAY_LOCK
from contracts.registry import Registration

WAITING = """
SELECT outbox_id, topic, kafka_key, kafka_value, stamp FROM outbox
WHERE published_at IS NULL AND topic = ANY(%(topics)s) AND NOT (topic || ':' || kafka_key = ANY(%(blocked)s))
ORDER BY outbox_id LIMIT %(limit)s
"""
MARK = "UPDATE outbox SET published_at = now() WHERE outbox_id = ANY(%s)"
PRUNE = """
DELETE FROM outbox WHERE outbox_id IN (
    SELECT outbox_id FROM outbox WHERE published_at < now() - %s * interval '1 hour' ORDER BY outbox_id LIMIT 10000)
"""
BACKLOG = """
SELECT count(*), coalesce(extract(epoch FROM now() - min(created_at)), 0)::double precision,
       count(*) FILTER (WHERE NOT topic = ANY(%s))
FROM outbox WHERE published_at IS NULL
"""
REGISTRY = """
SELECT d.device, d.device_key, t.name AS tenant, d.tenant_id, d.kind
FROM devices d JOIN tenants t USING (tenant_id) WHERE d.revoked_at IS NULL ORDER BY d.device_key
"""
BOOK = "SELECT kafka_key, kafka_value FROM registry_book"
EPOCHS = """
SELECT d.device, known_epochs(d.device_key) FROM devices d
WHERE EXISTS (SELECT FROM seen_ranges s WHERE s.device_key = d.device_key) ORDER BY d.device_key
"""
REVOKED = "SELECT device FROM devices WHERE revoked_at IS NOT NULL ORDER BY device_key"


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """One message that waits; ``kafka_value`` None: a tombstone, ``stamp``: a packet's header (``contracts.stamp``)."""

    outbox_id: int
    topic: str
    kafka_key: str
    kafka_value: bytes | None
    stamp: bytes | None = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits: rows, age of the oldest in seconds, rows whose topic this version does not know."""

    rows: int
    oldest_s: float
    unknown_topic: int


class Outbox(Alone):
    """The relay's connection; every method raises StoreUnavailable when the database cannot answer."""

    name = "relay"
    kept = "the outbox keeps its rows"
    lock = RELAY_LOCK

    async def waiting(self, topics: Sequence[str], blocked: Sequence[str], limit: int) -> list[OutboxRow]:
        """The oldest rows not yet published, without the keys in ``blocked`` ("topic:key")."""
        try:
            async with self._open().cursor(row_factory=class_row(OutboxRow)) as cursor:
                await cursor.execute(WAITING, {"topics": list(topics), "blocked": list(blocked), "limit": limit})
                return await cursor.fetchall()
        except psycopg.Error as error:
            raise self._unavailable(error) from error

    async def mark_published(self, outbox_ids: Sequence[int]) -> None:
        try:
            await self._open().execute(MARK, (list(outbox_ids),))
        except psycopg.Error as error:
            raise self._unavailable(error) from error

    async def prune(self, keep_h: float) -> int:
        """Delete some published rows older than ``keep_h`` hours; return how many."""
        try:
            return (await self._open().execute(PRUNE, (keep_h,))).rowcount
        except psycopg.Error as error:
            raise self._unavailable(error) from error

    async def backlog(self, topics: Sequence[str]) -> Backlog:
        try:
            async with self._open().cursor(row_factory=tuple_row) as cursor:
                row = await (await cursor.execute(BACKLOG, (list(topics),))).fetchone()
        except psycopg.Error as error:
            raise self._unavailable(error) from error
        return Backlog(*row) if row else Backlog(0, 0.0, 0)

    async def registry(self) -> tuple[list[Registration], list[str]]:
        """All devices as the gateway should know them: registered, revoked."""
        try:
            async with self._open().cursor(row_factory=class_row(Registration)) as cursor:
                registered = await (await cursor.execute(REGISTRY)).fetchall()
            async with self._open().cursor(row_factory=tuple_row) as names:
                revoked = [row[0] for row in await (await names.execute(REVOKED)).fetchall()]
        except psycopg.Error as error:
            raise self._unavailable(error) from error
        return registered, revoked

    async def book(self) -> list[tuple[str, bytes]]:
        """The registry as the pages of ``contracts.book``: key, value."""
        try:
            async with self._open().cursor(row_factory=tuple_row) as cursor:
                return [(key, bytes(page)) for key, page in await (await cursor.execute(BOOK)).fetchall()]
        except psycopg.Error as error:
            raise self._unavailable(error) from error

    async def epochs(self) -> list[tuple[str, bytes]]:
        """The boot epochs that the store knows, by device, as the gateways should know them."""
        try:
            async with self._open().cursor(row_factory=tuple_row) as cursor:
                return await (await cursor.execute(EPOCHS)).fetchall()
        except psycopg.Error as error:
            raise self._unavailable(error) from error

    def _open(self) -> psycopg.AsyncConnection[Any]:
        if self._connection is None:
            raise StoreUnavailable("the relay is not connected to PostgreSQL; what waits stays in the outbox")
        return self._connection

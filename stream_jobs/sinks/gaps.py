"""The store's side of the gap watch: read the ledger, write gaps, and say so through the outbox, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg.types.multirange import Int8Multirange
from psycopg.types.range import Int8Range

from contracts.errors import TryLater
from contracts.gap_event import CLOSED, EXPLAINED, MOST_RANGES, OPENED, GapEvent, encode_gap_event
from contracts.locks import OF_SCHEMA, WATCH_LOCK
from contracts.ranges import Range, count
from stream_jobs.gaps import Change, Gap, Ranges
from stream_jobs.sinks.connection import Connection, connect
from stream_jobs.sinks.writers import at

LOCK: Final = f"SELECT pg_try_advisory_xact_lock(%s, {OF_SCHEMA})"
MISSING: Final = """
SELECT d.device_key, l.boot_epoch, d.tenant_id, l.device, l.tenant, l.missing
FROM ledger l JOIN devices d ON d.device = l.device WHERE NOT isempty(l.missing)"""
STANDING: Final = """
SELECT g.device_key, g.boot_epoch, g.tenant_id, d.device, t.name, g.gap_id, g.numbers, g.missing,
       (extract(epoch FROM g.since) * 1000)::bigint, (extract(epoch FROM g.opened_at) * 1000)::bigint,
       coalesce(s.ranges, '{}') + coalesce(e.ranges, '{}')
FROM ledger_gaps g JOIN devices d ON d.device_key = g.device_key JOIN tenants t ON t.tenant_id = g.tenant_id
LEFT JOIN seen_ranges s ON (s.device_key, s.boot_epoch) = (g.device_key, g.boot_epoch)
LEFT JOIN evidence_ranges e ON (e.device_key, e.boot_epoch) = (g.device_key, g.boot_epoch)
WHERE g.ended_at IS NULL ORDER BY g.device_key, g.boot_epoch, g.gap_id"""
INSERT: Final = """
INSERT INTO ledger_gaps (device_key, boot_epoch, tenant_id, numbers, missing, since, opened_at)
VALUES (%s, %s, %s, %s, %s, %s, %s) RETURNING gap_id"""
UPDATE: Final = """
UPDATE ledger_gaps SET numbers = %s, missing = %s, opened_at = %s, ended_at = %s, outcome = %s WHERE gap_id = %s"""
DELETE: Final = "DELETE FROM ledger_gaps WHERE gap_id = %s"
TELL: Final = "INSERT INTO outbox (tenant_id, topic, kafka_key, kafka_value) VALUES (%s, 'events', %s, %s)"
OUTCOMES: Final = {CLOSED: "stored", EXPLAINED: "explained"}

Key = tuple[int, int]
"""(device key, boot epoch)"""


@dataclass(slots=True)
class EpochGaps:
    """One boot epoch with something missing or a gap that stands."""

    tenant_id: int
    device: str
    tenant: str
    missing: Ranges = ()
    stored: Ranges = ()
    standing: tuple[Gap, ...] = ()


Decide = Callable[[Mapping[Key, EpochGaps]], Mapping[Key, list[Change]]]


class GapStore:
    """A connection of its own, for one thread."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: Connection | None = None

    def look(self, decide: Decide, now_ms: int) -> dict[Key, EpochGaps] | None:
        """Read, decide, write, tell: one transaction; what was read, None while another watcher writes.

        Raises TryLater when the database does not answer; nothing was written then.
        """
        try:
            connection = self._open()
            with connection.transaction(), connection.cursor() as cursor:
                locked = cursor.execute(LOCK, (WATCH_LOCK,)).fetchone()
                if locked is None or not locked[0]:
                    return None
                epochs = _read(cursor)
                for key, changes in decide(epochs).items():
                    for change in changes:
                        _write(cursor, key, epochs[key], change, now_ms)
        except (psycopg.OperationalError, psycopg.errors.DeadlockDetected) as error:
            self.disconnect()
            raise TryLater(f"the store did not answer ({type(error).__name__}); no gap was forgotten") from error
        return epochs

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> Connection:
        if self._connection is None:
            self._connection = connect(self._dsn)
        return self._connection


def closed_ranges(multirange: Iterable[Any]) -> Ranges:
    """PostgreSQL gives ranges of bigint as [lower, upper)."""
    return tuple((int(one.lower), int(one.upper) - 1) for one in multirange)


def _read(cursor: psycopg.Cursor[tuple[Any, ...]]) -> dict[Key, EpochGaps]:
    epochs: dict[Key, EpochGaps] = {}
    for key, epoch, tenant_id, device, tenant, missing in cursor.execute(MISSING).fetchall():
        epochs[key, epoch] = EpochGaps(tenant_id, device, tenant, closed_ranges(missing))
    for row in cursor.execute(STANDING).fetchall():
        key, epoch, tenant_id, device, tenant, gap_id, numbers, missing, since_ms, opened_ms, stored = row
        entry = epochs.setdefault((key, epoch), EpochGaps(tenant_id, device, tenant))
        entry.stored = closed_ranges(stored)
        gap = Gap(gap_id, closed_ranges(numbers), closed_ranges(missing), since_ms, opened_ms)
        entry.standing = (*entry.standing, gap)
    return epochs


def _write(cursor: psycopg.Cursor[tuple[Any, ...]], key: Key, epoch: EpochGaps, change: Change, now_ms: int) -> None:
    gap = change.gap
    if change.gone:
        cursor.execute(DELETE, (gap.gap_id,))
        return
    opened = None if gap.opened_ms is None else at(gap.opened_ms)
    gap_id = gap.gap_id
    if not gap_id:
        values = (*key, epoch.tenant_id, _multirange(gap.numbers), _multirange(gap.missing), at(gap.since_ms), opened)
        row = cursor.execute(INSERT, values).fetchone()
        gap_id = int(row[0]) if row else 0
    else:
        ended = None if gap.missing else at(now_ms)
        outcome = OUTCOMES.get(change.event or "")
        cursor.execute(UPDATE, (_multirange(gap.numbers), _multirange(gap.missing), opened, ended, outcome, gap_id))
    if change.event is not None:
        value = encode_gap_event(_event(gap_id, gap, change.event, key[1], epoch, now_ms))
        cursor.execute(TELL, (epoch.tenant_id, epoch.device, value))


def _event(gap_id: int, gap: Gap, state: str, boot_epoch: int, epoch: EpochGaps, now_ms: int) -> GapEvent:
    told: tuple[Range, ...] = gap.missing if state == OPENED else gap.numbers
    return GapEvent(
        gap_id, state, epoch.device, epoch.tenant, boot_epoch, gap.numbers[0][0], gap.numbers[-1][1], count(told),
        gap.since_ms, now_ms, told[:MOST_RANGES],
    )  # fmt: skip


def _multirange(ranges: Ranges) -> Int8Multirange:
    return Int8Multirange([Int8Range(first, last + 1) for first, last in ranges])

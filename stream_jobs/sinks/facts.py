"""What the store says, for the reconciliation: read-only, in one snapshot, as the reader's role."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

import psycopg

from contracts.errors import TryLater
from contracts.ranges import Range, RangeSet
from stream_jobs.reconcile import Epoch, Ranges
from stream_jobs.sinks.gaps import closed_ranges

INGEST: Final = "SELECT topic_id, kafka_partition, next_offset FROM ingest_offsets"
EVIDENCE: Final = "SELECT topic_id, kafka_partition, next_offset FROM evidence_offsets"
ARCHIVE: Final = "SELECT topic_id, kafka_partition, next_offset FROM archive_offsets"
EPOCHS: Final = """
SELECT l.device, l.boot_epoch, l.missing, l.on_its_way, l.dropped, l.dropped_reported_packets,
       EXISTS (SELECT FROM agent_gaps g WHERE (g.device_key, g.boot_epoch) = (d.device_key, l.boot_epoch)
               AND g.reason = 3),
       coalesce(s.ranges, '{}'), coalesce(s.packets, 0), s.nonce, coalesce(e.ranges, '{}'),
       coalesce((SELECT range_agg(r) FROM ledger_gaps g CROSS JOIN LATERAL unnest(g.missing) AS r
                 WHERE (g.device_key, g.boot_epoch) = (d.device_key, l.boot_epoch) AND g.opened_at IS NOT NULL
                 AND g.ended_at IS NULL), '{}')
FROM ledger l JOIN devices d ON d.device = l.device
LEFT JOIN seen_ranges s ON (s.device_key, s.boot_epoch) = (d.device_key, l.boot_epoch)
LEFT JOIN expired_packets e ON (e.device_key, e.boot_epoch) = (d.device_key, l.boot_epoch)
WHERE %(device)s::text IS NULL OR l.device = %(device)s::text"""
ROWS: Final = """
SELECT device, boot_epoch, range_agg(int8range(seq, seq, '[]')),
       coalesce(range_agg(int8range(seq, seq, '[]')) FILTER (WHERE copies > 1), '{}')
FROM (SELECT device, boot_epoch, seq, count(*) AS copies FROM packets
      WHERE %(device)s::text IS NULL OR device = %(device)s::text GROUP BY 1, 2, 3) AS p
GROUP BY 1, 2"""
ASIDE: Final = "SELECT topic_id, kafka_partition, kafka_offset FROM quarantined"
LETTERS: Final = "SELECT topic_id, kafka_partition, kafka_offset FROM refused"
PARCELS: Final = """
SELECT d.device, e.boot_epoch, e.ranges FROM evidence_ranges e JOIN devices d ON d.device_key = e.device_key
WHERE %(device)s::text IS NULL OR d.device = %(device)s::text"""

EpochKey = tuple[str, int]
Place = tuple[UUID, int]
"""(topic id, partition)"""


@dataclass(frozen=True, slots=True)
class Facts:
    """One snapshot. ``taken``: by ingest and, of the priority topic, by the evidence consumer, whose numbers are
    ``parcels``. ``aside``: offsets that lie in the quarantine or among the refused, only read when asked for."""

    epochs: dict[EpochKey, Epoch]
    taken: dict[Place, int]
    archived: dict[Place, int]
    aside: dict[Place, RangeSet]
    parcels: dict[EpochKey, Ranges]


class FactReader:
    """A connection of its own; every method raises TryLater when the database does not answer."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def accounts(self, device: str | None) -> dict[EpochKey, Epoch]:
        """Only what the ledger says, without counting rows."""
        with self._snapshot() as cursor:
            return _epochs(cursor, device)

    def taken(self) -> dict[Place, int]:
        """How far ingest and the evidence consumer have come; they read different topics."""
        with self._snapshot() as cursor:
            return _taken(cursor)

    def facts(self, device: str | None, *, aside: bool) -> Facts:
        """Everything, every row counted."""
        with self._snapshot() as cursor:
            epochs = _epochs(cursor, device)
            for name, epoch, rows, doubled in cursor.execute(ROWS, {"device": device}).fetchall():
                known = epochs.get((name, epoch), Epoch(name, epoch))
                epochs[name, epoch] = replace(known, rows=closed_ranges(rows), doubled=closed_ranges(doubled))
            parcels = {
                (name, epoch): closed_ranges(ranges)
                for name, epoch, ranges in cursor.execute(PARCELS, {"device": device}).fetchall()
            }
            kept_aside = _aside(cursor) if aside else {}
            return Facts(epochs, _taken(cursor), _offsets(cursor, ARCHIVE), kept_aside, parcels)

    @contextmanager
    def _snapshot(self) -> Iterator[psycopg.Cursor[tuple[Any, ...]]]:
        try:
            with psycopg.connect(self._dsn, connect_timeout=5) as connection:
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                connection.read_only = True
                with connection.cursor() as cursor:
                    yield cursor
        except psycopg.OperationalError as error:
            raise TryLater(f"the store did not answer ({type(error).__name__}); nothing was changed") from error


def _epochs(cursor: psycopg.Cursor[tuple[Any, ...]], device: str | None) -> dict[EpochKey, Epoch]:
    found = {}
    for row in cursor.execute(EPOCHS, {"device": device}).fetchall():
        name, epoch, missing, on_its_way, dropped, reported, in_doubt, seen, packets, nonce, expired, overdue = row
        found[name, epoch] = Epoch(
            device=name,
            boot_epoch=epoch,
            missing=closed_ranges(missing),
            on_its_way=None if on_its_way is None else closed_ranges(on_its_way),
            overdue=closed_ranges(overdue),
            dropped=closed_ranges(dropped),
            dropped_reported=reported,
            in_doubt=in_doubt,
            seen=closed_ranges(seen),
            seen_packets=packets,
            nonce=nonce,
            expired=closed_ranges(expired),
        )
    return found


def _taken(cursor: psycopg.Cursor[tuple[Any, ...]]) -> dict[Place, int]:
    return _offsets(cursor, INGEST) | _offsets(cursor, EVIDENCE)


def _offsets(cursor: psycopg.Cursor[tuple[Any, ...]], question: str) -> dict[Place, int]:
    return {(topic_id, number): at for topic_id, number, at in cursor.execute(question.encode()).fetchall()}


def _aside(cursor: psycopg.Cursor[tuple[Any, ...]]) -> dict[Place, RangeSet]:
    offsets: dict[Place, list[Range]] = {}
    for question in (ASIDE, LETTERS):
        for topic_id, number, at in cursor.execute(question).fetchall():
            offsets.setdefault((topic_id, number), []).append((at, at))
    return {place: RangeSet(ranges) for place, ranges in offsets.items()}

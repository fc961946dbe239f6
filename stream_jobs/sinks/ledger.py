"""The store's side of two questions: where does reading start, and which windows may be called closed?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

import psycopg

from contracts.errors import TryLater
from contracts.limits import WINDOW_WIDTHS_S
from stream_jobs.scales import catalogue_scales
from stream_jobs.sinks.connection import Connection, connect

OFFSETS: Final = "SELECT topic_id, kafka_partition, next_offset, max_received_ms FROM ingest_offsets"

CLOSE: Final = """
WITH due AS (
    SELECT w.device_key, w.signal, w.width_s, w.starts_at
    FROM window_aggregates w JOIN signals s ON s.signal = w.signal
    WHERE w.state <> 1 AND w.width_s = %(width)s AND w.starts_at <= at_ms(%(latest_start)s)
        AND w.starts_at + (w.width_s + s.grace_s) * interval '1 s' <= at_ms(%(watermark)s)
    ORDER BY w.starts_at LIMIT %(rows)s FOR UPDATE OF w SKIP LOCKED
), closed AS (
    UPDATE window_aggregates w SET state = 1, published_revision = cardinality(w.late_minutes) FROM due
    WHERE (w.device_key, w.signal, w.width_s, w.starts_at)
        = (due.device_key, due.signal, due.width_s, due.starts_at)
    RETURNING w.*
), said AS (
    INSERT INTO window_publications (device_key, signal, width_s, starts_at, revision, tenant_id, n, sum_units,
        sumsq_units, min_units, max_units, last_units)
    SELECT device_key, signal, width_s, starts_at, published_revision, tenant_id, n, sum_units, sumsq_units,
        min_units, max_units, last_units FROM closed
    ON CONFLICT DO NOTHING
)
INSERT INTO outbox (tenant_id, topic, kafka_key, kafka_value)
SELECT c.tenant_id, 'windows', d.device, convert_to(json_build_object(
    'device', d.device, 'signal', s.path, 'width_s', c.width_s,
    'starts_at', to_char(c.starts_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
    'n', c.n, 'min', scaled(c.min_units, s.exponent), 'max', scaled(c.max_units, s.exponent),
    'mean', scaled(c.sum_units, s.exponent) / c.n, 'last', scaled(c.last_units, s.exponent),
    'revision', c.published_revision, 'final', false)::text, 'UTF8')
FROM closed c JOIN signals s ON s.signal = c.signal JOIN devices d ON d.device_key = c.device_key
ORDER BY c.starts_at, c.device_key, c.signal"""
"""Close, remember what was said, and say it: one statement, so one transaction. Locked rows are left for the next
round, so the closer never waits for an ingest task. A window that packets changed without being late (they came
through the backlog topic) is said again under the same revision; what was said first stays in the publications."""


@dataclass(frozen=True, slots=True)
class Taken:
    """How far the store has come in one partition."""

    next_offset: int
    max_received_ms: int


Progress = dict[tuple[UUID, int], Taken]


class StoreLedger:
    """A connection of its own, for one thread. Every method raises TryLater when the database does not answer."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: Connection | None = None
        self._least_grace_ms = int(catalogue_scales().grace_ms.min())

    def progress(self) -> Progress:
        """The ledger of offsets."""
        try:
            rows = self._open().execute(OFFSETS).fetchall()
        except psycopg.OperationalError as error:
            raise self._away(error) from error
        return {(topic_id, partition): Taken(offset, received) for topic_id, partition, offset, received in rows}

    def close_windows(self, watermark_ms: int, rows: int) -> int:
        """Close and publish up to ``rows`` windows of each width; how many it were."""
        try:
            return sum(self._close(width, watermark_ms, rows) for width in WINDOW_WIDTHS_S)
        except (psycopg.OperationalError, psycopg.errors.DeadlockDetected) as error:
            raise self._away(error) from error

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _close(self, width_s: int, watermark_ms: int, rows: int) -> int:
        latest_start = watermark_ms - width_s * 1000 - self._least_grace_ms
        found = self._open().execute(
            CLOSE, {"width": width_s, "latest_start": latest_start, "watermark": watermark_ms, "rows": rows}
        )
        return found.rowcount

    def _open(self) -> Connection:
        if self._connection is None:
            self._connection = connect(self._dsn)
        return self._connection

    def _away(self, error: Exception) -> TryLater:
        self.disconnect()
        return TryLater(f"the store did not answer ({type(error).__name__}); nothing was lost")

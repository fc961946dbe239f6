"""The store's side of three questions: where does reading start, which windows may be called closed, which final?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, LiteralString
from uuid import UUID

import psycopg

from contracts.errors import TryLater
from contracts.limits import ROLLUP_WIDTHS_S, WINDOW_WIDTHS_S
from contracts.locks import FINALITY_LOCK
from stream_jobs.scales import catalogue_scales
from stream_jobs.sinks.closing import CLOSE, HOLD, MOVE_FINALITY, ROLL_UP, ROLLUP_SOURCES
from stream_jobs.sinks.connection import Connection, connect

WIDER: Final = {source: width for width, source in ROLLUP_SOURCES.items()}
"""Width of a window to the width of the roll-up that is made of it."""

OFFSETS: Final = "SELECT topic_id, kafka_partition, next_offset, max_received_ms FROM ingest_offsets"


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
        """Close and publish up to ``rows`` windows and roll-ups of each width; how many it were."""
        try:
            closed = sum(self._close(CLOSE, width, watermark_ms, rows) for width in WINDOW_WIDTHS_S)
            return closed + sum(self._close(ROLL_UP, width, watermark_ms, rows) for width in ROLLUP_WIDTHS_S)
        except (psycopg.OperationalError, psycopg.errors.DeadlockDetected) as error:
            raise self._away(error) from error

    def move_finality(self, before_ms: int) -> bool:
        """Call final what can change no more; False when something older still waits to be published."""
        try:
            connection = self._open()
            with connection.transaction():
                connection.execute(HOLD, (FINALITY_LOCK,))
                return connection.execute(MOVE_FINALITY, {"before": before_ms}).rowcount == 1
        except psycopg.OperationalError as error:
            raise self._away(error) from error

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _close(self, statement: LiteralString, width_s: int, watermark_ms: int, rows: int) -> int:
        values = {
            "width": width_s, "source": ROLLUP_SOURCES.get(width_s, 0), "wider": WIDER.get(width_s, 0), "rows": rows,
            "latest_start": watermark_ms - width_s * 1000 - self._least_grace_ms, "watermark": watermark_ms,
        }  # fmt: skip
        found = self._open().execute(statement, values).fetchone()
        return int(found[0]) if found else 0

    def _open(self) -> Connection:
        if self._connection is None:
            self._connection = connect(self._dsn)
        return self._connection

    def _away(self, error: Exception) -> TryLater:
        self.disconnect()
        return TryLater(f"the store did not answer ({type(error).__name__}); nothing was lost")

"""The end of a day: when a UTC day is over, each tenant's log of that day gets one root, and the root leaves the store.

The log's head is locked while the day is ended, and entries take their time under the same lock, so that no entry can
join a day that has its root.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from itertools import groupby
from typing import Final

from contracts.edr.events import day_event
from contracts.edr.ledger import NOTHING_BEFORE, DayRoot, Entry, day_of, day_root
from stream_jobs.evidence import statements as sql
from stream_jobs.evidence.chain import Cursor, Outbox, last_entry
from stream_jobs.sinks.connection import Connection, repeated

DAY_MS: Final = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class RootMaker:
    """Ends days. ``grace_ms``: clocks of the database and of this process may differ by that much."""

    dsn: str
    grace_ms: int = 60_000

    def end_days(self, now_ms: int) -> int:
        """Root every day that is over; how many roots were made. Raises StoreBusy (TryLater)."""
        today_ms = (now_ms - self.grace_ms) // DAY_MS * DAY_MS
        return repeated(self.dsn, lambda connection: _end_days(connection, today_ms))[0]


def _end_days(connection: Connection, today_ms: int) -> int:
    with connection.cursor() as cursor:
        due = cursor.execute(sql.DAYS_TO_END).fetchall()
    made = 0
    for tenant_id, ledger, tenant in due:
        with connection.transaction(), connection.cursor() as cursor:
            made += len(_end(cursor, tenant_id, tenant, ledger, today_ms))
    return made


def _end(cursor: Cursor, tenant_id: int, tenant: str, ledger: str, today_ms: int) -> list[DayRoot]:
    last_entry(cursor, tenant_id, ledger)
    row = cursor.execute(sql.LAST_ROOT, (tenant_id, ledger)).fetchone()
    last_no, before = (0, NOTHING_BEFORE) if row is None else (row[0], row[1])
    rows = cursor.execute(sql.ENTRIES[ledger], (tenant_id, last_no, today_ms)).fetchall()
    entries = [Entry(number, at_ms, (), previous, digest) for number, at_ms, previous, digest in rows]
    roots = []
    for day, mine in groupby(entries, key=lambda entry: day_of(entry.at_ms)):
        root = day_root(ledger, tenant_id, day, list(mine), before)
        before = root.sha256
        roots.append(root)
        _write(cursor, tenant_id, tenant, ledger, root)
    return roots


def _write(cursor: Cursor, tenant_id: int, tenant: str, ledger: str, root: DayRoot) -> None:
    day: date = root.day
    cursor.execute(sql.ROOT, (tenant_id, ledger, day, root.first_no, root.last_no, root.previous_sha256, root.sha256))
    Outbox(cursor).event(tenant_id, tenant, day_event(tenant, ledger, root))

"""The evidence log inside of one transaction, and what the transaction says to others through the outbox."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg

from contracts.edr.ledger import EVIDENCE, Entry, content_digest, next_entry
from stream_jobs.evidence import statements as sql

Cursor = psycopg.Cursor[tuple[Any, ...]]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def at(ms: int) -> datetime:
    """Unix milliseconds as the store's time, exactly."""
    return _EPOCH + timedelta(milliseconds=ms)


def last_entry(cursor: Cursor, tenant_id: int, ledger: str) -> Entry | None:
    """A log's last entry, locked until the transaction ends; None before the first."""
    cursor.execute(sql.INSERT_HEAD, (tenant_id, ledger))
    row = cursor.execute(sql.LOCK_HEAD, (tenant_id, ledger)).fetchone()
    if row is None or row[0] == 0:
        return None
    return Entry(row[0], row[1], (), b"", row[2])


@dataclass(slots=True)
class Log:
    """Entries of the tenants of one batch; heads are locked in order before the first entry."""

    cursor: Cursor
    now_ms: int
    _last: dict[int, Entry | None] = field(default_factory=dict)

    def lock(self, tenant_ids: Iterable[int]) -> None:
        for tenant_id in sorted(set(tenant_ids)):
            self._last[tenant_id] = last_entry(self.cursor, tenant_id, EVIDENCE)

    def add(self, tenant_id: int, kind: str, subject: str, content: Mapping[str, Any]) -> int:
        """Write one entry about rows with this content; its number."""
        digest = content_digest(kind, content)
        entry = next_entry(EVIDENCE, tenant_id, self._last[tenant_id], self.now_ms, (kind, subject, digest.hex()))
        self.cursor.execute(
            sql.LOG,
            (tenant_id, entry.entry_no, entry.at_ms, kind, subject, digest, entry.previous_sha256, entry.sha256),
        )
        self.cursor.execute(sql.MOVE_HEAD, (entry.entry_no, entry.at_ms, entry.sha256, tenant_id))
        self._last[tenant_id] = entry
        return entry.entry_no

    def remember(self) -> dict[int, Entry | None]:
        """Where the logs stand, for ``forget`` after a savepoint was rolled back."""
        return dict(self._last)

    def forget(self, remembered: dict[int, Entry | None]) -> None:
        self._last = dict(remembered)


@dataclass(frozen=True, slots=True)
class Outbox:
    """Messages that leave with the commit."""

    cursor: Cursor

    def event(self, tenant_id: int, key: str, value: bytes) -> None:
        self.cursor.execute(sql.TELL, (tenant_id, "events", key, value))

    def command(self, tenant_id: int, device: str, value: bytes) -> None:
        self.cursor.execute(sql.TELL, (tenant_id, "commands", device, value))

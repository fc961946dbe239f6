"""The warden's side of the store: findings that wait, alerts that gather them, deadlines that are over.

One connection of the role ``fleetstream_sink``; one warden per schema. Alerts are locked in the order of their names,
as everybody locks them. Audit, message, deliveries and labels of each step are written by the table's own trigger.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg.rows import class_row, dict_row

from api.errors import StoreUnavailable
from api.queries.alone import Alone
from contracts.locks import WARDEN_LOCK

log = logging.getLogger(__name__)
_HELD: Final = """
r.alert_id, r.tenant_id, r.asset_id, r.device_key, r.cause, r.subject, r.state, r.resolution, r.severity,
r.told_severity, r.level, r.root_id, r.finding_id, r.detector, r.assignee, ms_of(r.since) AS since_ms,
ms_of(r.resolved_at) AS resolved_ms
"""
DUE: Final = """
SELECT finding_id FROM alert_due ORDER BY noted_at, finding_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
"""
FINDINGS: Final = """
SELECT q.finding_id, f.tenant_id, f.asset_id, f.device_key, f.deployment AS detector, f.cause, f.severity, f.score,
       ms_of(f.opened_at) AS since_ms, ms_of(f.last_at) AS last_seen_ms, f.closed_at IS NOT NULL AS closed,
       f.readings_lost AS lost, l.alert_id, f.retracted_at IS NOT NULL AS retracted,
       (SELECT c.reason FROM finding_corrections c WHERE c.finding_id = f.finding_id AND c.revision = f.revision) AS why
FROM unnest(%(ids)s::text[]) AS q (finding_id)
LEFT JOIN finding_rows f USING (finding_id)
LEFT JOIN alert_findings l USING (finding_id)
ORDER BY f.opened_at, q.finding_id
"""
NEWEST: Final = """
SELECT alert_id FROM alert_rows WHERE tenant_id = %(tenant)s AND subject = %(subject)s
ORDER BY state IN ('resolved', 'retracted'), opened_at DESC, alert_id LIMIT 1
"""
LOCK: Final = f"SELECT {_HELD} FROM alert_rows r WHERE r.alert_id = ANY(%(ids)s) ORDER BY r.alert_id FOR UPDATE"
LINK: Final = """
INSERT INTO alert_findings (finding_id, alert_id, tenant_id, detector, severity, since, last_seen_at, closed, lost,
    score)
VALUES (%(finding_id)s, %(alert_id)s, %(tenant_id)s, %(detector)s, %(severity)s, at_ms(%(since_ms)s),
        at_ms(%(last_seen_ms)s), %(closed)s, %(lost)s, %(score)s)
"""
RELINK: Final = """
UPDATE alert_findings SET severity = %(severity)s, since = at_ms(%(since_ms)s), last_seen_at = at_ms(%(last_seen_ms)s),
    closed = %(closed)s, lost = %(lost)s, score = %(score)s, holds = true, amendments = amendments + %(amended)s
WHERE finding_id = %(finding_id)s
"""
UNLINK: Final = "UPDATE alert_findings SET holds = false, amendments = amendments + 1 WHERE finding_id = %s AND holds"
HAND_OVER: Final = "UPDATE alert_findings SET alert_id = %(to)s WHERE alert_id = %(alert_id)s AND holds"
GROUND: Final = """
SELECT finding_id, detector, severity, ms_of(since) AS since_ms, ms_of(last_seen_at) AS last_seen_ms, closed, lost,
       holds, amendments
FROM alert_findings WHERE alert_id = %s ORDER BY finding_id
"""
STAKE: Final = "SELECT criticality, downtime_cost_per_day, visit_cost FROM asset_care WHERE asset_id = %s"
RECORD: Final = """
SELECT count(DISTINCT alert_id) FILTER (WHERE resolution = 'true') AS confirmed,
       count(DISTINCT alert_id) FILTER (WHERE resolution = 'false') AS wrong,
       count(DISTINCT alert_id) FILTER (WHERE resolution = 'unclear') AS unclear
FROM alert_labels WHERE tenant_id = %s AND detector = %s
"""
NEAR: Final = """
SELECT r.alert_id, coalesce('asset:' || r.asset_id, 'device:' || r.device_key) AS asset, r.cause,
       ms_of(r.since) AS since_ms, r.severity, r.root_id AS root, r.state IN ('new', 'reopened') AS untouched,
       EXISTS (SELECT FROM alert_rows c WHERE c.root_id = r.alert_id) AS heads
FROM alert_rows r
WHERE r.tenant_id = %(tenant)s AND r.state NOT IN ('resolved', 'retracted') AND r.alert_id <> %(alert_id)s
    AND r.since BETWEEN at_ms(%(since_ms)s - %(window_ms)s) AND at_ms(%(since_ms)s + %(window_ms)s)
    AND (r.cause = %(cause)s OR r.asset_id = %(asset_id)s OR r.device_key = %(device_key)s)
ORDER BY r.since, r.alert_id LIMIT %(limit)s
"""
OPEN: Final = """
INSERT INTO alert_rows (alert_id, tenant_id, asset_id, device_key, cause, subject, state, severity, told_severity,
    sureness, detector, finding_id, since, last_seen_at, running, findings, holding, escalate_at, opened_at, changed_at,
    changed_by, change_kind)
VALUES (%(alert_id)s, %(tenant_id)s, %(asset_id)s, %(device_key)s, %(cause)s, %(subject)s, 'new', %(severity)s,
    %(told)s, %(sureness)s, %(detector)s, %(finding_id)s, at_ms(%(since_ms)s), at_ms(%(last_seen_ms)s), %(running)s,
    1, 1, at_ms(%(escalate_ms)s), at_ms(%(now)s), at_ms(%(now)s), 'warden', 'opened')
"""
REGROUND: Final = """
UPDATE alert_rows SET told_severity = %(told)s, detector = %(detector)s, finding_id = %(finding_id)s,
    since = at_ms(%(since_ms)s), last_seen_at = at_ms(%(last_seen_ms)s), running = %(running)s, findings = %(findings)s,
    holding = %(holding)s, revision = %(revision)s
WHERE alert_id = %(alert_id)s
"""
STEP: Final = """
UPDATE alert_rows SET state = %(state)s, resolution = %(resolution)s, severity = %(severity)s, sureness = %(sureness)s,
    level = %(level)s, root_id = %(root_id)s, escalate_at = at_ms(%(escalate_ms)s),
    resolved_at = at_ms(%(resolved_ms)s), suppressed_until = NULL, assignee = %(assignee)s, event_no = event_no + 1,
    changed_at = at_ms(%(now)s), changed_by = 'warden', change_kind = %(kind)s, change_note = %(note)s
WHERE alert_id = %(alert_id)s
"""
CORRECT: Final = """
UPDATE alert_rows SET severity = %(severity)s, sureness = %(sureness)s, event_no = event_no + 1,
    changed_at = at_ms(%(now)s), changed_by = 'warden', change_kind = %(kind)s, change_note = %(note)s
WHERE alert_id = %(alert_id)s
"""
GROUP: Final = """
UPDATE alert_rows SET root_id = %(root)s, escalate_at = NULL, event_no = event_no + 1, changed_at = at_ms(%(now)s),
    changed_by = 'warden', change_kind = %(kind)s, change_note = %(note)s
WHERE alert_id = %(alert_id)s
"""
SILENCE: Final = "DELETE FROM alert_deliveries WHERE alert_id = %s AND state = 'waiting'"
"""What is grouped disturbs nobody, also not with what it was opened with."""

CHILDREN: Final = f"""
SELECT {_HELD} FROM alert_rows r WHERE r.root_id = %s AND r.state NOT IN ('resolved', 'retracted')
ORDER BY r.alert_id FOR UPDATE
"""
LATE: Final = f"""
SELECT {_HELD} FROM alert_rows r WHERE r.escalate_at <= at_ms(%(now)s)
ORDER BY r.escalate_at, r.alert_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
"""
WAKING: Final = f"""
SELECT {_HELD} FROM alert_rows r WHERE r.suppressed_until <= at_ms(%(now)s) AND r.state = 'suppressed'
ORDER BY r.suppressed_until, r.alert_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
"""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A finding that alerts have not taken as it is now; only its id is told when the store has it no more."""

    finding_id: str
    tenant_id: int | None
    asset_id: int | None
    device_key: int | None
    detector: str | None
    cause: str | None
    severity: int | None
    score: float | None
    since_ms: int | None
    last_seen_ms: int | None
    closed: bool
    lost: bool | None
    alert_id: str | None
    retracted: bool
    why: str | None

    @property
    def holds(self) -> bool:
        """Whether it is there and nothing contradicts it."""
        return self.tenant_id is not None and not self.retracted

    @property
    def subject(self) -> str:
        """What there is one alert of."""
        where = f"device:{self.device_key}" if self.asset_id is None else f"asset:{self.asset_id}"
        return f"{where}:{self.cause}"


@dataclass(frozen=True, slots=True)
class HeldAlert:
    """An alert that this transaction holds locked."""

    alert_id: str
    tenant_id: int
    asset_id: int | None
    device_key: int
    cause: str
    subject: str
    state: str
    resolution: str | None
    severity: int
    told_severity: int
    level: int
    root_id: str | None
    finding_id: str
    detector: str
    assignee: str | None
    since_ms: int
    resolved_ms: int | None


class WardenStore(Alone):
    """One transaction at a time; raises StoreUnavailable when the database cannot answer, and nothing happened then."""

    name = "warden"
    kept = "findings wait in their table"
    lock = WARDEN_LOCK

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Work]:
        if self._connection is None:
            raise StoreUnavailable("the warden is not connected to PostgreSQL; findings wait in their table")
        try:
            async with self._connection.transaction():
                yield Work(self._connection)
        except psycopg.Error as error:
            raise self._unavailable(error) from error


@dataclass(frozen=True, slots=True)
class Work:
    """What may be done inside of one transaction."""

    connection: psycopg.AsyncConnection[Any]

    async def due(self, limit: int) -> list[Waiting]:
        """Findings that wait, the oldest note first, in the order in which their excursions began."""
        rows = await self.rows(DUE, {"limit": limit})
        async with self.connection.cursor(row_factory=class_row(Waiting)) as cursor:
            await cursor.execute(FINDINGS, {"ids": [row["finding_id"] for row in rows]})
            return await cursor.fetchall()

    async def attempt(self, action: Awaitable[None], finding_id: str) -> bool:
        """Do something about one finding that fails alone: what the store refuses must not hold up all others."""
        try:
            async with self.connection.transaction():
                await action
        except (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded) as error:
            log.error("event=finding_refused finding=%s error=%s", finding_id, type(error).__name__)
            return False
        return True

    async def taken(self, finding_ids: list[str]) -> None:
        await self.connection.execute("DELETE FROM alert_due WHERE finding_id = ANY(%s)", (finding_ids,))

    async def newest(self, tenant_id: int, subject: str) -> str | None:
        """The open alert of a subject, else the one that was opened last."""
        rows = await self.rows(NEWEST, {"tenant": tenant_id, "subject": subject})
        return rows[0]["alert_id"] if rows else None

    async def hold(self, alert_ids: list[str]) -> dict[str, HeldAlert]:
        return {one.alert_id: one for one in await self.held(LOCK, {"ids": sorted(alert_ids)})}

    async def held(self, statement: str, values: Any) -> list[HeldAlert]:
        async with self.connection.cursor(row_factory=class_row(HeldAlert)) as cursor:
            await cursor.execute(statement.encode(), values)
            return await cursor.fetchall()

    async def rows(self, statement: str, values: Any) -> list[dict[str, Any]]:
        async with self.connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(statement.encode(), values)
            return await cursor.fetchall()

    async def write(self, statement: str, values: Any) -> int:
        """How many rows it changed."""
        return (await self.connection.execute(statement.encode(), values)).rowcount

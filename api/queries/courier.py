"""The courier's side of the store: deliveries that are due, and what became of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, time
from typing import Any, Final

import psycopg
from psycopg.rows import class_row, tuple_row

from api.errors import StoreUnavailable
from api.notices import Notice
from api.queries.alone import Alone
from api.queries.commands import SUBMIT, Request
from contracts.locks import COURIER_LOCK

DUE: Final = """
SELECT v.delivery_id, v.channel_id, v.attempts, v.severity, c.kind AS channel_kind, c.target, c.secret, c.quiet_begin,
       c.quiet_end, c.zone, c.quiet_through, t.name AS tenant, v.tenant_id, v.alert_id, v.event_no, e.kind,
       ms_of(e.at) AS at_ms, e.note, a.asset, a.device, a.cause, e.to_state AS state, a.level,
       ms_of(a.since) AS since_ms, a.detector, a.sureness, f.signal, f.unit, f.observed, f.expected_low,
       f.expected_high, f.advice
FROM alert_channels c
CROSS JOIN LATERAL (
    SELECT * FROM alert_deliveries d WHERE d.channel_id = c.channel_id AND d.state = 'waiting'
        AND d.next_attempt_at <= at_ms(%(now)s)
    ORDER BY d.delivery_id LIMIT %(each)s) v
JOIN tenants t ON t.tenant_id = v.tenant_id
JOIN alert_events e USING (alert_id, event_no)
JOIN alerts a USING (alert_id)
LEFT JOIN findings f USING (finding_id)
WHERE c.enabled
ORDER BY v.next_attempt_at, v.delivery_id LIMIT %(limit)s
"""
POSTPONED: Final = "UPDATE alert_deliveries SET next_attempt_at = at_ms(%(again)s) WHERE delivery_id = %(id)s"
SENT: Final = """
UPDATE alert_deliveries SET state = 'sent', attempts = attempts + 1, ended_at = at_ms(%(now)s), last_error = ''
WHERE delivery_id = %(id)s AND state = 'waiting'
"""
FAILED: Final = """
UPDATE alert_deliveries SET attempts = attempts + 1, next_attempt_at = at_ms(%(again)s), last_error = %(error)s,
    state = CASE WHEN %(dead)s THEN 'dead' ELSE state END,
    ended_at = CASE WHEN %(dead)s THEN at_ms(%(now)s) END
WHERE delivery_id = %(id)s AND state = 'waiting'
"""
REST: Final = """
UPDATE alert_deliveries SET next_attempt_at = at_ms(%(rest)s)
WHERE channel_id = %(channel)s AND state = 'waiting' AND next_attempt_at < at_ms(%(rest)s)
"""
PRUNE: Final = """
DELETE FROM alert_deliveries WHERE delivery_id IN (
    SELECT delivery_id FROM alert_deliveries WHERE ended_at < at_ms(%(before)s) ORDER BY ended_at LIMIT 10000)
"""
BACKLOG: Final = """
SELECT count(*) FILTER (WHERE state = 'waiting'),
       count(*) FILTER (WHERE state = 'dead' AND ended_at > at_ms(%(since)s))
FROM alert_deliveries WHERE state = 'waiting' OR ended_at > at_ms(%(since)s)
"""


@dataclass(frozen=True, slots=True)
class DueDelivery(Notice):
    """A message that may be sent now, and where to. ``secret`` and ``target`` never leave for a log."""

    channel_id: str
    attempts: int
    channel_kind: str
    target: str
    secret: str | None
    quiet_begin: time | None
    quiet_end: time | None
    zone: str
    quiet_through: int
    tenant_id: int


class CourierStore(Alone):
    """Every method is one transaction; raises StoreUnavailable when the database cannot answer."""

    name = "courier"
    kept = "messages wait in their table"
    lock = COURIER_LOCK

    async def due(self, now_ms: int, each: int, limit: int) -> list[DueDelivery]:
        """The oldest messages of each channel, so that one that does not answer holds up no other."""
        try:
            async with self._open().cursor(row_factory=class_row(DueDelivery)) as cursor:
                await cursor.execute(DUE, {"now": now_ms, "each": each, "limit": limit})
                return await cursor.fetchall()
        except psycopg.Error as error:
            raise self._unavailable(error) from error

    async def write(self, statement: str, values: Mapping[str, Any]) -> None:
        try:
            await self._open().execute(statement.encode(), values)
        except psycopg.Error as error:
            raise self._unavailable(error) from error

    async def hand_over(self, request: Request, sent: Mapping[str, Any]) -> str:
        """Accept a command for a machine and note its delivery, in one transaction; what ``submit_command`` said."""
        try:
            async with self._open().transaction():
                row = await (await self._open().execute(SUBMIT.encode(), request.parameters())).fetchone()
                said = str(row[0]) if row else ""
                if said in ("created", "repeated"):
                    await self._open().execute(SENT, sent)
                return said
        except psycopg.Error as error:
            raise self._unavailable(error) from error

    async def backlog(self, since_ms: int) -> tuple[int, int]:
        """(messages that wait, messages given up since)."""
        try:
            async with self._open().cursor(row_factory=tuple_row) as cursor:
                row = await (await cursor.execute(BACKLOG, {"since": since_ms})).fetchone()
        except psycopg.Error as error:
            raise self._unavailable(error) from error
        return (int(row[0]), int(row[1])) if row else (0, 0)

    def _open(self) -> psycopg.AsyncConnection[Any]:
        if self._connection is None:
            raise StoreUnavailable("the courier is not connected to PostgreSQL; messages wait in their table")
        return self._connection


def command_request(due: DueDelivery, arguments: Mapping[str, Any], nonce: int, expires_at: datetime) -> Request:
    """The command that carries a message to its machine; its names make a repeat the same command."""
    return Request(
        f"n-{due.delivery_id}", due.tenant_id, due.device, "notice", json.loads(json.dumps(arguments)), nonce,
        f"alert-delivery-{due.delivery_id}", "courier", expires_at,
    )  # fmt: skip

"""The clerk's side of the store: commands that are due, answers that came, gaps to ask about, the projection's place.

One connection of the role ``fleetstream_sink``; a session-level advisory lock lets one clerk work at a time. Every
method is one transaction: what leaves for Kafka is a row of the outbox in it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg.rows import class_row

from api.errors import StoreUnavailable
from api.queries.alone import Alone
from contracts.command_life import OPEN, State
from contracts.commands import Answer, Command, encode_command
from contracts.locks import CLERK_LOCK
from contracts.packet import DropReason

log = logging.getLogger(__name__)
_MS: Final = "(extract(epoch FROM {}) * 1000)::bigint"
DUE: Final = f"""
SELECT c.command_id, d.device, c.tenant_id, c.kind, c.arguments, c.nonce, c.state, c.attempts,
       {_MS.format("c.expires_at")} AS expires_ms, {_MS.format("c.sent_at")} AS sent_ms, c.sent_to_silence,
       {_MS.format("h.heard_at")} AS heard_ms, {_MS.format("c.created_at")} AS issued_ms
FROM device_commands c JOIN devices d USING (device_key)
LEFT JOIN LATERAL (SELECT max(received_at) AS heard_at FROM agent_status a WHERE a.device_key = c.device_key) h ON true
WHERE c.state = ANY(%(open)s) AND (c.next_attempt_at <= at_ms(%(now)s)
    OR (c.sent_to_silence AND h.heard_at > c.sent_at))
ORDER BY c.next_attempt_at, c.command_id LIMIT %(limit)s FOR UPDATE OF c SKIP LOCKED
"""
SENT: Final = """
UPDATE device_commands SET state = %(state)s, attempts = attempts + 1, sent_at = at_ms(%(now)s),
    sent_to_silence = %(silent)s, next_attempt_at = at_ms(%(again)s), changed_by = 'clerk', reason = ''
WHERE command_id = %(id)s
"""
ENDED: Final = """
UPDATE device_commands SET state = %(state)s, reason = %(reason)s, changed_by = 'clerk', sent_to_silence = false
WHERE command_id = %(id)s
"""
POSTPONED: Final = "UPDATE device_commands SET next_attempt_at = at_ms(%(again)s) WHERE command_id = %(id)s"
TELL: Final = "INSERT INTO outbox (tenant_id, topic, kafka_key, kafka_value) VALUES (%s, %s, %s, %s)"
ASKED: Final = """
SELECT c.state, d.device_key, d.tenant_id FROM device_commands c JOIN devices d USING (device_key)
WHERE c.command_id = %s AND c.nonce = %s AND d.device_key = %s AND d.device = %s FOR UPDATE OF c
"""
ANSWERED: Final = """
UPDATE device_commands SET state = %(state)s, reason = %(reason)s, detail = %(detail)s, answered_at = at_ms(%(at)s),
    changed_by = %(by)s, sent_to_silence = false
WHERE command_id = %(id)s
"""
FORGOTTEN: Final = """
INSERT INTO agent_gaps (device_key, boot_epoch, first_seq, last_seq, tenant_id, reason, retention, packets, samples,
    reported_seq, received_at)
SELECT %(device_key)s, e, f, l, %(tenant_id)s, %(reason)s, 1, l - f + 1, 0, 4611686018427387904, at_ms(%(at)s)
FROM unnest(%(epochs)s::bigint[], %(firsts)s::bigint[], %(lasts)s::bigint[]) AS u (e, f, l)
ON CONFLICT DO NOTHING
"""
"""``reported_seq`` above every real one: a report of the device's own packets has the last word."""

GAPS: Final = """
SELECT d.device, d.tenant_id, g.boot_epoch, lower(r) AS first_seq, upper(r) - 1 AS last_seq
FROM ledger_gaps g JOIN devices d USING (device_key) CROSS JOIN LATERAL unnest(g.missing) AS r
WHERE g.opened_at IS NOT NULL AND g.ended_at IS NULL AND d.revoked_at IS NULL
    AND EXISTS (SELECT FROM agent_status a WHERE a.device_key = g.device_key AND a.received_at > at_ms(%(heard_since)s))
    AND NOT EXISTS (SELECT FROM device_commands c WHERE c.device_key = g.device_key AND c.kind = 'resync'
                    AND (c.state = ANY(%(open)s) OR c.created_at > at_ms(%(asked_since)s)
                         OR (c.state = 'done' AND c.created_at > greatest(g.opened_at, at_ms(%(answered_since)s)))))
ORDER BY d.device, g.boot_epoch, r LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class Due:
    """An open command that wants looking at. ``heard_ms``: the device's newest heartbeat; times are Unix epoch ms."""

    command_id: str
    device: str
    tenant_id: int
    kind: str
    arguments: dict[str, Any]
    nonce: int
    state: str
    attempts: int
    expires_ms: int
    sent_ms: int | None
    sent_to_silence: bool
    heard_ms: int | None
    issued_ms: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """What to do with it: send (again), end it, or look again at ``again_ms``."""

    again_ms: int
    state: State | None = None
    send: bool = False
    silent: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Effect:
    """What an answer does: the new state of its command (None: no change), ranges nobody has, events to tell."""

    state: State | None = None
    forgotten: tuple[tuple[int, int, int], ...] = ()
    events: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """An answer with the identity that the gateway stamped on it."""

    answer: Answer
    device_key: int
    tenant_id: int
    received_ms: int


@dataclass(frozen=True, slots=True)
class MissingRange:
    """Numbers that the ledger misses for longer than its limit."""

    device: str
    tenant_id: int
    boot_epoch: int
    first_seq: int
    last_seq: int


class ClerkStore(Alone):
    """Every method raises StoreUnavailable when the database cannot answer; nothing of it happened then."""

    name = "clerk"
    kept = "commands keep their state"
    lock = CLERK_LOCK

    async def turn(self, decide: Callable[[Due], Step], now_ms: int, limit: int) -> int:
        """Decide about due commands and carry it out; how many there were."""
        async with self._transaction() as connection:
            async with connection.cursor(row_factory=class_row(Due)) as cursor:
                await cursor.execute(DUE, {"open": [*OPEN], "now": now_ms, "limit": limit})
                due = await cursor.fetchall()
            for row in due:
                await _carry_out(connection, row, decide(row), now_ms)
        return len(due)

    async def take_answers(self, told: Sequence[Told], judge: Callable[[Told, State | None], Effect]) -> int:
        """Apply answers in one transaction; how many changed something. A repeat changes nothing."""
        changed = 0
        async with self._transaction() as connection:
            for one in told:
                try:
                    async with connection.transaction():
                        changed += await _take(connection, one, judge)
                except (psycopg.DataError, psycopg.IntegrityError) as error:
                    # it stays in its topic; the command ends as unknown, and others are not held up
                    log.error("event=answer_refused command=%s error=%s", one.answer.command_id, type(error).__name__)
        return changed

    async def missing(
        self, heard_since_ms: int, asked_since_ms: int, answered_since_ms: int, limit: int
    ) -> list[MissingRange]:
        """Standing gaps of devices that are there and were neither asked lately nor have answered about them."""
        async with self._transaction() as connection, connection.cursor(row_factory=class_row(MissingRange)) as cursor:
            values = {
                "heard_since": heard_since_ms, "asked_since": asked_since_ms, "answered_since": answered_since_ms,
                "limit": limit, "open": [*OPEN],
            }  # fmt: skip
            await cursor.execute(GAPS, values)
            return await cursor.fetchall()

    async def submit(self, statement: str, values: Sequence[dict[str, Any]]) -> None:
        """Accept commands that a policy asks for."""
        async with self._transaction() as connection, connection.cursor() as cursor:
            await cursor.executemany(statement.encode(), values)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        if self._connection is None:
            raise StoreUnavailable("the clerk is not connected to PostgreSQL; commands wait in their table")
        try:
            async with self._connection.transaction():
                yield self._connection
        except psycopg.Error as error:
            raise self._unavailable(error) from error


async def _carry_out(connection: psycopg.AsyncConnection[Any], row: Due, step: Step, now_ms: int) -> None:
    values = {
        "id": row.command_id, "now": now_ms, "again": step.again_ms, "silent": step.silent, "reason": step.reason,
        "state": step.state,
    }  # fmt: skip
    if step.send:
        expires_ms, issued_ms = row.expires_ms, row.issued_ms
        command = Command(row.command_id, row.device, row.kind, row.nonce, expires_ms, row.arguments, issued_ms)
        await connection.execute(TELL, (row.tenant_id, "commands", row.device, encode_command(command)))
        await connection.execute(SENT, values)
    elif step.state is not None:
        await connection.execute(ENDED, values)
    else:
        await connection.execute(POSTPONED, values)


async def _take(
    connection: psycopg.AsyncConnection[Any], told: Told, judge: Callable[[Told, State | None], Effect]
) -> bool:
    answer = told.answer
    asked = (answer.command_id, answer.nonce, told.device_key, answer.device)
    row = await (await connection.execute(ASKED, asked)).fetchone()
    return await _apply(connection, told, judge(told, State(row[0]) if row else None))


async def _apply(connection: psycopg.AsyncConnection[Any], told: Told, effect: Effect) -> bool:
    answer = told.answer
    if effect.state is not None:
        values = {
            "id": answer.command_id, "state": effect.state, "reason": answer.reason, "at": told.received_ms,
            "detail": json.dumps(answer.detail), "by": f"device:{answer.device}",
        }  # fmt: skip
        await connection.execute(ANSWERED, values)
    if effect.forgotten:
        epochs, firsts, lasts = (list(column) for column in zip(*effect.forgotten, strict=True))
        values = {
            "device_key": told.device_key, "tenant_id": told.tenant_id, "reason": int(DropReason.FORGOTTEN),
            "epochs": epochs, "firsts": firsts, "lasts": lasts, "at": told.received_ms,
        }  # fmt: skip
        await connection.execute(FORGOTTEN, values)
    for event in effect.events:
        await connection.execute(TELL, (told.tenant_id, "events", answer.device, event))
    return effect.state is not None or bool(effect.events)

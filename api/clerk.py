"""The clerk sends commands and sends them again, takes devices' answers, and asks for what the ledger misses.

Beside the relay, one at a time per stack. What is decided is pure and stands in functions here; what is written goes
into one transaction with the outbox rows that tell it, so nothing is ever written to two systems. A device that is off
gets one copy (the broker's session keeps it) and the next when it is heard again: what waits is rows, never memory.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from api.command_requests import new_request
from api.errors import KafkaUnavailable, StoreUnavailable
from api.metrics import Metrics
from api.queries.clerk import Due, Effect, MissingRange, Step, Told
from api.queries.commands import SUBMIT
from contracts.command_life import (
    ANSWER_GRACE_MS,
    DEVICE_SILENT_MS,
    State,
    may_send,
    on_answer,
    on_send,
    on_time,
    pause_ms,
)
from contracts.command_menu import MAX_NUMBER, MAX_RANGES
from contracts.commands import IDENTITY_CHANGED

log = logging.getLogger(__name__)
BATCH: Final = 200
ANSWERS: Final = 500
GAPS_EVERY_S: Final = 15.0
ASK_AGAIN_MS: Final = 600_000
"""A device is asked for its gaps at most this often."""
BELIEVE_MS: Final = 24 * 3_600_000
"""An answer about a gap is asked for again after this long."""

MOST_GAPS: Final = 5_000
STAND_BY_S: Final = 2.0
MAX_BACKOFF_S: Final = 10.0
EVENT_FORMAT: Final = 1
POLICY: Final = "policy:gaps"


class Store(Protocol):
    """Where commands stand (``queries.clerk.ClerkStore``)."""

    async def open(self) -> bool: ...
    async def close(self) -> None: ...
    async def turn(self, decide: Callable[[Due], Step], now_ms: int, limit: int) -> int: ...
    async def take_answers(self, told: Sequence[Told], judge: Callable[[Told, State | None], Effect]) -> int: ...
    async def missing(
        self, heard_since_ms: int, asked_since_ms: int, answered_since_ms: int, limit: int
    ) -> list[MissingRange]: ...
    async def submit(self, statement: str, values: Sequence[dict[str, Any]]) -> None: ...


class Answers(Protocol):
    """Where answers come from (``answers.AnswerConsumer``)."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def take(self, limit: int, wait_s: float) -> list[Told]: ...
    async def commit(self) -> None: ...


class Chore(Protocol):
    """Other work for the one clerk of a stack (``projection.LatestProjection``)."""

    async def step(self) -> None: ...
    async def close(self) -> None: ...


def decide(due: Due, now_ms: int) -> Step:
    """What happens to an open command now."""
    state = State(due.state)
    ended = on_time(state, now_ms, due.expires_ms)
    if ended is not None:
        return Step(now_ms, ended, reason="no_answer" if ended is State.UNKNOWN else "not_sent_in_time")
    if not may_send(state, now_ms, due.expires_ms):
        return Step(due.expires_ms + ANSWER_GRACE_MS)
    silent = due.heard_ms is None or now_ms - due.heard_ms > DEVICE_SILENT_MS
    if silent and due.sent_to_silence:
        return Step(due.expires_ms)
    again_ms = due.expires_ms if silent else min(now_ms + pause_ms(due.attempts + 1), due.expires_ms)
    return Step(again_ms, on_send(state), send=True, silent=silent)


def judge(told: Told, state: State | None) -> Effect:
    """What an answer does; ``state`` is its command's, None when there is no such command."""
    answer = told.answer
    if state is None:
        changed = answer.reason == IDENTITY_CHANGED
        return Effect(events=(_event(IDENTITY_CHANGED, told, answer.detail),)) if changed else Effect()
    new = on_answer(state, answer.outcome)
    if new is None:
        return Effect()
    forgotten = _ranges(answer.detail, "forgotten")
    freed = _ranges(answer.detail, "freed")
    events = (_event("acknowledged_not_stored", told, {"ranges": freed}),) if freed else ()
    return Effect(new, tuple(forgotten), events)


def resync_requests(missing: Sequence[MissingRange], now: datetime) -> list[dict[str, Any]]:
    """One command per device, each with at most as many ranges as the menu allows."""
    asked: dict[tuple[str, int], list[list[int]]] = {}
    for one in missing:
        ranges = asked.setdefault((one.device, one.tenant_id), [])
        if len(ranges) < MAX_RANGES and one.last_seq < MAX_NUMBER:
            ranges.append([one.boot_epoch, one.first_seq, one.last_seq])
    requests = [
        (new_request(device, "resync", {"ranges": ranges}, POLICY, now, 3_600), tenant_id)
        for (device, tenant_id), ranges in asked.items()
        if ranges
    ]
    return [request.parameters() | {"tenant_id": tenant_id} for request, tenant_id in requests]


@dataclass
class Clerk:
    """Runs until cancelled; every fault is retried, since every command is a row."""

    store: Store
    answers: Answers
    now_ms: Callable[[], int]
    elapsed_s: Callable[[], float]
    metrics: Metrics
    chores: Sequence[Chore] = ()
    """Asked to work in every round; each keeps its own pace."""
    poll_s: float = 0.25
    asks_for_gaps: bool = True
    _backoff_s: float = 0.25
    _next_gaps_s: float = field(default=0.0)

    async def run(self) -> None:
        """Work for ever. Ends by cancellation only."""
        try:
            while True:
                pause_s = STAND_BY_S
                try:
                    await self._serve_once()
                except (StoreUnavailable, KafkaUnavailable) as error:
                    pause_s, self._backoff_s = self._backoff_s, min(self._backoff_s * 2, MAX_BACKOFF_S)
                    log.warning("event=clerk_waits reason=%s retry_s=%.1f", error, pause_s)
                await asyncio.sleep(pause_s)
        finally:
            for chore in self.chores:
                await chore.close()
            await self.answers.close()
            await self.store.close()

    async def _serve_once(self) -> None:
        if not await self.store.open():
            return
        await self.answers.open()
        log.info("event=clerk_works")
        while True:
            await self.round()
            self._backoff_s = self.poll_s

    async def round(self) -> None:
        """Answers first, so that what is answered is not sent again; waits for them up to ``poll_s``."""
        told = await self.answers.take(ANSWERS, self.poll_s)
        if told:
            self.metrics.command_answers.inc(await self.store.take_answers(told, judge))
            await self.answers.commit()
        now_ms = self.now_ms()
        self.metrics.commands_looked_at.inc(await self.store.turn(lambda due: decide(due, now_ms), now_ms, BATCH))
        if self.asks_for_gaps and self.elapsed_s() >= self._next_gaps_s:
            self._next_gaps_s = self.elapsed_s() + GAPS_EVERY_S
            await self.ask_for_gaps()
        for chore in self.chores:
            await chore.step()

    async def ask_for_gaps(self) -> None:
        """The policy: what is missing for longer than the ledger's limit is asked for while its device is there."""
        now_ms = self.now_ms()
        missing = await self.store.missing(
            now_ms - DEVICE_SILENT_MS, now_ms - ASK_AGAIN_MS, now_ms - BELIEVE_MS, MOST_GAPS
        )
        requests = resync_requests(missing, datetime.fromtimestamp(now_ms / 1000, UTC))
        if requests:
            await self.store.submit(SUBMIT, requests)
            log.info("event=resync_asked devices=%d", len(requests))


def _ranges(detail: dict[str, Any], reason: str) -> list[tuple[int, int, int]]:
    """Ranges of an answer to ``resync`` with one reason; what has another form is left out."""
    found = detail.get("not_held")
    rows = found if isinstance(found, list) else []
    return [
        (row[0], row[1], row[2])
        for row in rows
        if isinstance(row, list) and len(row) == 4 and row[3] == reason and _sound(row[:3])
    ]


def _sound(numbers: list[Any]) -> bool:
    if not all(type(number) is int for number in numbers):
        return False
    return bool(1 <= numbers[0] < MAX_NUMBER and 1 <= numbers[1] <= numbers[2] < MAX_NUMBER)


def _event(kind: str, told: Told, detail: dict[str, Any]) -> bytes:
    body = {"v": EVENT_FORMAT, "kind": kind, "device": told.answer.device, "command_id": told.answer.command_id}
    return json.dumps(body | {"at_ms": told.received_ms, **detail}, separators=(",", ":")).encode()

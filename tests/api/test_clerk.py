"""The clerk on real PostgreSQL and Kafka: sent, repeated, answered, asked for, and killed between the halves."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from aiokafka import AIOKafkaProducer

from api.answers import AnswerConsumer
from api.clerk import Clerk, decide
from api.command_requests import new_request
from api.metrics import Metrics
from api.queries.clerk import ClerkStore, Due, Step
from api.queries.commands import SUBMIT, Request
from contracts.command_life import ANSWER_GRACE_MS
from contracts.commands import Answer, Outcome, decode_command, encode_answer
from contracts.stamp import STAMP_HEADER, Stamp, encode_stamp
from contracts.topics import Topics
from tests.api.fix_api import Fleet

# -- on real services ------------------------------------------------------------------------------------------------


class Desk:
    """A clerk that is moved by hand, with a clock that the test sets."""

    def __init__(self, fleet: Fleet, bootstrap: str, prefix: str) -> None:
        self.fleet, self.bootstrap, self.topics = fleet, bootstrap, Topics(prefix)
        self.prefix = prefix
        self._ahead_ms = 0

    @property
    def now(self) -> int:
        """The clerk's clock: real time, ahead by as much as the test has let pass."""
        return int(time.time() * 1000) + self._ahead_ms

    def wait(self, ms: int) -> None:
        self._ahead_ms += ms

    def clerk(self, store: ClerkStore | None = None) -> Clerk:
        answers = AnswerConsumer(self.bootstrap, self.topics.answers.name, f"{self.prefix}.clerk")
        store = store or ClerkStore(self.fleet.sink_dsn)
        return Clerk(store, answers, lambda: self.now, time.monotonic, Metrics(), poll_s=0.05)

    def submit(self, device: str = "north-1", kind: str = "ping", life_s: int = 3_600, **arguments: Any) -> Request:
        now = datetime.fromtimestamp(self.now / 1000, UTC)
        request = new_request(device, kind, arguments, "key:k", now, life_s)
        with psycopg.connect(self.fleet.sink_dsn) as connection:
            row = connection.execute(SUBMIT.encode(), request.parameters()).fetchone()
        assert row == ("created", request.command_id)
        return request

    def heard(self, device: str = "north-1") -> None:
        at = datetime.fromtimestamp(self.now / 1000, UTC)
        self.fleet.execute(
            "INSERT INTO agent_status VALUES (%s, 1, 1, %s, 1, %s, %s, '{}') ON CONFLICT (device_key, boot_epoch)"
            " DO UPDATE SET received_at = excluded.received_at",
            self.fleet.devices[device], self.fleet.tenant_of(device), self.now, at,
        )  # fmt: skip

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.fleet.sink_dsn) as connection:
            return connection.execute(statement.encode()).fetchall()

    def states(self) -> list[tuple[Any, ...]]:
        return self.rows("SELECT state, attempts FROM device_commands ORDER BY created_at, command_id")

    def left(self) -> list[bytes]:
        found = self.rows("SELECT kafka_value FROM outbox WHERE topic = 'commands' ORDER BY outbox_id")
        return [row[0] for row in found]

    async def answer(self, request: Request, outcome: Outcome, detail: dict[str, Any] | None = None) -> None:
        device_key, tenant = self.fleet.devices[request.device], self.fleet.tenant_of(request.device)
        answer = Answer(request.command_id, request.device, request.nonce, outcome, "", self.now, detail or {})
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap)
        await producer.start()
        try:
            header = (STAMP_HEADER, encode_stamp(Stamp(self.now, device_key, tenant)))
            await producer.send_and_wait(
                self.topics.answers.name, encode_answer(answer), request.device.encode(), headers=[header]
            )
        finally:
            await producer.stop()


@pytest.fixture
def desk(fleet: Fleet, kafka_bootstrap: str, topic_prefix: str) -> Desk:
    return Desk(fleet, kafka_bootstrap, topic_prefix)


async def until(clerk: Clerk, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await clerk.round()


def working(desk: Desk, scenario: Callable[[Clerk], Awaitable[None]]) -> None:
    async def run() -> None:
        clerk = desk.clerk()
        assert await clerk.store.open()
        await clerk.answers.open()
        try:
            await scenario(clerk)
        finally:
            await clerk.answers.close()
            await clerk.store.close()

    asyncio.run(run())


def test_a_command_is_sent_repeated_and_answered(desk: Desk) -> None:
    desk.heard()
    request = desk.submit()

    async def scenario(clerk: Clerk) -> None:
        await clerk.round()
        assert desk.states() == [("sent", 1)]
        await clerk.round()
        assert desk.states() == [("sent", 1)]
        desk.wait(5_000)
        await clerk.round()
        assert desk.states() == [("sent", 2)]
        await desk.answer(request, Outcome.DONE, {"held_packets": 4})
        await until(clerk, lambda: desk.states() == [("done", 2)])
        await desk.answer(request, Outcome.REFUSED)
        desk.wait(600_000)
        for _ in range(5):
            await clerk.round()

    working(desk, scenario)
    assert desk.states() == [("done", 2)]
    sent = [*map(decode_command, desk.left())]
    assert [(one.command_id, one.nonce) for one in sent] == [(request.command_id, request.nonce)] * 2
    created = desk.rows("SELECT (extract(epoch FROM created_at) * 1000)::bigint FROM device_commands")
    assert [(one.issued_ms,) for one in sent] == created * 2
    changes = desk.rows("SELECT changed_by, to_state FROM device_command_changes ORDER BY change_no")
    assert changes == [("key:k", "queued"), ("clerk", "sent"), ("clerk", "sent"), ("device:north-1", "done")]


def test_a_device_that_is_off_is_asked_once_and_again_when_it_is_heard(desk: Desk) -> None:
    desk.submit(life_s=86_400)

    async def scenario(clerk: Clerk) -> None:
        for _ in range(20):
            await clerk.round()
            desk.wait(600_000)
        assert desk.states() == [("sent", 1)]
        desk.heard()
        await clerk.round()

    working(desk, scenario)
    assert desk.states() == [("sent", 2)]


def test_what_nobody_answers_ends_and_a_late_answer_settles_it(desk: Desk) -> None:
    request = desk.submit(life_s=10)

    async def scenario(clerk: Clerk) -> None:
        await clerk.round()
        desk.wait(10_000 + ANSWER_GRACE_MS)
        await clerk.round()
        assert desk.states() == [("unknown", 1)]
        await desk.answer(request, Outcome.DONE)
        await until(clerk, lambda: desk.states() == [("done", 1)])

    working(desk, scenario)


def test_standing_gaps_are_asked_for_and_what_is_forgotten_closes_them(desk: Desk) -> None:
    """The device lost its spool: the ledger names a reason instead of a hole, except for what it had freed."""
    desk.heard()
    key, tenant = desk.fleet.devices["north-1"], desk.fleet.tenant_of("north-1")
    desk.fleet.execute("INSERT INTO seen_ranges VALUES (%s, 1, 77, %s, '{[1,4),[9,10)}', 4, 40, 0)", key, tenant)
    desk.fleet.execute(
        "INSERT INTO ledger_gaps (device_key, boot_epoch, tenant_id, numbers, missing, since, opened_at)"
        " VALUES (%s, 1, %s, '{[4,9)}', '{[4,9)}', now(), now())", key, tenant,
    )  # fmt: skip

    async def scenario(clerk: Clerk) -> None:
        await clerk.round()
        await clerk.ask_for_gaps()
        await clerk.round()
        assert desk.states() == [("sent", 1)]
        asked = decode_command(desk.left()[0])
        assert (asked.kind, asked.arguments) == ("resync", {"ranges": [[1, 4, 8]]})
        request = new_request("north-1", "ping", {}, "x", datetime.now(UTC))
        answered = replace(request, command_id=asked.command_id, nonce=asked.nonce)
        detail = {"held": [], "not_held": [[1, 4, 6, "forgotten"], [1, 7, 8, "freed"]]}
        await desk.answer(answered, Outcome.DONE, detail)
        await until(clerk, lambda: desk.states() == [("done", 1)])
        desk.wait(3_600_000)
        desk.heard()
        await clerk.ask_for_gaps()
        assert len(desk.states()) == 1, "it has answered about this gap"
        desk.wait(24 * 3_600_000)
        desk.heard()
        await clerk.ask_for_gaps()
        assert len(desk.states()) == 2

    working(desk, scenario)
    assert desk.rows("SELECT missing::text FROM ledger WHERE device = 'north-1'") == [("{[7,9)}",)]
    told = desk.rows("SELECT first_seq, last_seq, reason, packets, samples FROM drops")
    assert told == [(4, 6, "forgotten", 3, None)]
    events = [json.loads(row[0]) for row in desk.rows("SELECT kafka_value FROM outbox WHERE topic = 'events'")]
    assert [(one["kind"], one["ranges"]) for one in events] == [("acknowledged_not_stored", [[1, 7, 8]])]


def test_one_clerk_works_at_a_time(desk: Desk) -> None:
    async def scenario(clerk: Clerk) -> None:
        other = ClerkStore(desk.fleet.sink_dsn)
        assert not await other.open()

    working(desk, scenario)


def test_a_clerk_killed_while_it_sends_sends_none_of_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two commands are due, the clerk dies at the second: state, audit and outbox all stand as before."""
    desk.heard()
    for _ in range(2):
        desk.submit()
    looked: list[Due] = []

    def dying(due: Due, now_ms: int) -> Step:
        looked.append(due)
        if len(looked) == 2:
            raise KeyError("killed")
        return decide(due, now_ms)

    async def scenario(clerk: Clerk) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("api.clerk.decide", dying)
            with pytest.raises(KeyError):
                await clerk.round()
        assert desk.states() == [("queued", 0)] * 2
        assert desk.left() == []
        await clerk.round()

    working(desk, scenario)
    assert desk.states() == [("sent", 1)] * 2
    assert len(desk.left()) == 2


@pytest.mark.parametrize("cut", ["before_the_commit", "after_the_commit"])
def test_a_clerk_killed_between_store_and_kafka_applies_an_answer_once(
    desk: Desk, cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two halves: the answer's transaction and the offset. Whatever was cut off, the next clerk ends the same."""
    desk.heard()
    request = desk.submit()
    detail = {"not_held": [[1, 1, 2, "freed"]]}

    class Killed(Exception):
        pass

    async def first() -> None:
        clerk = desk.clerk()
        assert await clerk.store.open()
        await clerk.answers.open()
        await clerk.round()
        await desk.answer(request, Outcome.DONE, detail)

        async def die(*_: Any) -> Any:
            raise Killed

        if cut == "before_the_commit":
            monkeypatch.setattr(clerk.store, "take_answers", die)
        else:
            monkeypatch.setattr(clerk.answers, "commit", die)
        with pytest.raises(Killed):
            await until(clerk, lambda: False)
        monkeypatch.undo()
        await clerk.answers.close()
        await clerk.store.close()

    asyncio.run(first())
    assert desk.states() == [("sent" if cut == "before_the_commit" else "done", 1)]

    async def scenario(clerk: Clerk) -> None:
        await until(clerk, lambda: desk.states() == [("done", 1)])
        for _ in range(5):
            await clerk.round()

    working(desk, scenario)
    assert len(desk.rows("SELECT 1 FROM outbox WHERE topic = 'events'")) == 1

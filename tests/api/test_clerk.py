"""The clerk on real PostgreSQL and Kafka, and what it decides as pure functions."""

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
from hypothesis import given
from hypothesis import strategies as st

from api.answers import AnswerConsumer
from api.clerk import Clerk, decide, judge, resync_requests
from api.command_requests import new_request
from api.metrics import Metrics
from api.queries.clerk import ClerkStore, Due, MissingRange, Step, Told
from api.queries.commands import SUBMIT, Request
from contracts.command_life import ANSWER_GRACE_MS, DEVICE_SILENT_MS, FINAL, OPEN, State, on_answer, on_send, on_time
from contracts.command_menu import MAX_RANGES
from contracts.commands import Answer, Outcome, decode_command, encode_answer
from contracts.errors import Rejected
from contracts.stamp import STAMP_HEADER, Stamp, encode_stamp
from contracts.topics import Topics
from tests.api.fix_api import Fleet

NOW = 1_790_000_000_000
DUE = Due("c1", "car", 1, "ping", {}, 7, "queued", 0, NOW + 3_600_000, None, False, NOW)


def test_one_that_is_heard_is_sent_at_once_and_again_ever_more_slowly() -> None:
    pauses = []
    for attempts in range(12):
        step = decide(replace(DUE, state="sent" if attempts else "queued", attempts=attempts), NOW)
        assert step.send and not step.silent and step.state is State.SENT
        pauses.append(step.again_ms - NOW)
    assert pauses[:4] == [5_000, 10_000, 20_000, 40_000]
    assert max(pauses) == 600_000


def test_one_that_is_off_gets_one_copy_and_the_next_when_it_is_heard() -> None:
    silent = replace(DUE, heard_ms=NOW - DEVICE_SILENT_MS - 1)
    first = decide(silent, NOW)
    assert first.send and first.silent and first.again_ms == DUE.expires_ms
    waiting = replace(silent, state="sent", attempts=1, sent_ms=NOW, sent_to_silence=True)
    assert not decide(waiting, NOW + 1_000_000).send
    heard = decide(replace(waiting, heard_ms=NOW + 1_000_000), NOW + 1_000_000)
    assert heard.send and not heard.silent


def test_time_ends_what_nobody_answered() -> None:
    late = decide(DUE, DUE.expires_ms)
    assert (late.state, late.reason, late.send) == (State.EXPIRED, "not_sent_in_time", False)
    sent = replace(DUE, state="sent", attempts=3)
    listening = decide(sent, DUE.expires_ms)
    assert (listening.state, listening.send) == (None, False)
    assert listening.again_ms == DUE.expires_ms + ANSWER_GRACE_MS
    ended = decide(sent, DUE.expires_ms + ANSWER_GRACE_MS)
    assert (ended.state, ended.reason) == (State.UNKNOWN, "no_answer")


@given(
    st.lists(
        st.one_of(
            st.integers(0, 400_000).map(lambda by: ("pass", by)),
            st.sampled_from(list(Outcome)).map(lambda outcome: ("answer", outcome)),
        ),
        max_size=60,
    )
)
def test_a_command_lives_by_the_rules(events: list[tuple[str, Any]]) -> None:
    """Never sent after its expiry nor after an end; a final state stays; an open one ends when its time is over."""
    now, expires, due = NOW, NOW + 1_000_000, replace(DUE, expires_ms=NOW + 1_000_000)
    history = [State.QUEUED]
    for kind, value in events:
        before = State(due.state)
        if kind == "answer":
            new = on_answer(before, value)
            assert (new is None) == (before in FINAL or State(value.value) is before)
            due = replace(due, state=new or before)
        else:
            now += value
            if before not in OPEN:
                continue
            step = decide(replace(due, heard_ms=now), now)
            assert not (step.send and now >= expires)
            assert step.send == (step.state is State.SENT)
            due = replace(due, state=step.state or before, attempts=due.attempts + step.send)
        after = State(due.state)
        assert before not in FINAL or after is before
        if after is not before:
            history.append(after)
    assert on_send(State(due.state)) is None or State(due.state) in OPEN
    end = expires + ANSWER_GRACE_MS
    assert on_time(State(due.state), end, expires) in (None, State.EXPIRED, State.UNKNOWN)
    if State(due.state) in OPEN:
        assert on_time(State(due.state), end, expires) is not None


def told(outcome: Outcome, detail: dict[str, Any] | None = None, reason: str = "") -> Told:
    return Told(Answer("c1", "car", 7, outcome, reason, NOW, detail or {}), 1, 1, NOW)


def test_an_answer_says_what_is_lost_and_where() -> None:
    detail = {"not_held": [[1, 1, 5, "forgotten"], [2, 3, 3, "freed"], [2, 9, 9, "dropped"], [1, 5, 1, "forgotten"], 7]}
    effect = judge(told(Outcome.DONE, detail), State.SENT)
    assert (effect.state, effect.forgotten) == (State.DONE, ((1, 1, 5),))
    assert [json.loads(event)["ranges"] for event in effect.events] == [[[2, 3, 3]]]
    assert judge(told(Outcome.DONE, detail), State.DONE).events == ()
    assert judge(told(Outcome.DONE), None).state is None
    changed = judge(told(Outcome.DONE, {"to_epoch": 9}, "identity_changed"), None)
    assert json.loads(changed.events[0])["to_epoch"] == 9


def test_gaps_become_one_request_per_device_of_bounded_size() -> None:
    missing = [MissingRange("a", 1, 1, n * 3 + 1, n * 3 + 2) for n in range(300)] + [MissingRange("b", 2, 4, 7, 7)]
    asked = resync_requests(missing, datetime.fromtimestamp(NOW / 1000, UTC))
    assert [(one["device"], one["tenant_id"], one["kind"]) for one in asked] == [("a", 1, "resync"), ("b", 2, "resync")]
    assert len(json.loads(asked[0]["arguments"])["ranges"]) == MAX_RANGES
    assert json.loads(asked[1]["arguments"]) == {"ranges": [[4, 7, 7]]}


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("dance", {}), ("ping", {"n": 1}), ("sampling", {}), ("sampling", {"profile": "interval"}),
        ("sampling", {"profile": "all", "min_interval_ms": 5}), ("resync", {"ranges": []}),
        ("resync", {"ranges": [[1, 5, 4]]}), ("resync", {"ranges": [[1, True, 4]]}), ("edr_receipt", {}),
    ],
)  # fmt: skip
def test_what_is_not_on_the_menu_is_refused(kind: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(Rejected):
        new_request("car", kind, arguments, "key:k", datetime.now(UTC))


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
    async with asyncio.timeout(60):
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

"""The relay on real PostgreSQL and Kafka: in order, repeated rather than lost, alone at work."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRecord
from hypothesis import given
from hypothesis import strategies as st

from api.errors import StoreUnavailable
from api.kafka import KafkaPublisher, Record
from api.metrics import Metrics
from api.queries.outbox import Outbox, OutboxRow
from api.relay import Clock, Relay, RelayPace, settle
from contracts.registry import BEAT_KEY, decode_beat, decode_registration
from contracts.topics import Topics
from infra.enrol import Enrolment, revoke
from tests.api.fix_api import Fleet

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120.0
Records = list["ConsumerRecord[bytes, bytes]"]


def make_relay(fleet: Fleet, bootstrap: str, prefix: str, store: Outbox | None = None, batch: int = 500) -> Relay:
    clock = Clock(lambda: time.time_ns() // 1_000_000, time.monotonic)
    pace = RelayPace(poll_s=0.02, batch=batch, beat_s=0.2)
    return Relay(
        store or Outbox(fleet.sink_dsn), KafkaPublisher(bootstrap), Topics(prefix), clock, Metrics(), pace
    )  # fmt: skip


@asynccontextmanager
async def relaying(relay: Relay) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(relay.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def reading(bootstrap: str, topic: str) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def take(consumer: AIOKafkaConsumer, count: int, without: bytes = BEAT_KEY.encode()) -> Records:
    """The next ``count`` records whose key is not ``without``."""
    records: Records = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(records) < count:
            record = await consumer.getone()
            if record.key != without:
                records.append(record)
    return records


async def published(fleet: Fleet, rows: int) -> None:
    """Wait until so many outbox rows are marked."""
    async with asyncio.timeout(TIMEOUT_S):
        async with await psycopg.AsyncConnection.connect(fleet.sink_dsn, autocommit=True) as connection:
            while True:
                cursor = await connection.execute("SELECT count(*) FROM outbox WHERE published_at IS NOT NULL")
                row = await cursor.fetchone()
                if row is not None and row[0] >= rows:
                    return


def outbox(fleet: Fleet, topic: str, *messages: tuple[str, bytes | None]) -> None:
    rows = [{"topic": topic, "kafka_key": key, "kafka_value": value} for key, value in messages]
    fleet.insert("outbox", *rows)


def devices_are_told(fleet: Fleet) -> None:
    """Mark what enrolment left in the outbox: devices go first, and these tests are about what follows."""
    with psycopg.connect(fleet.sink_dsn) as connection:
        connection.execute("UPDATE outbox SET published_at = now() WHERE topic = 'registry'")
        connection.execute("DELETE FROM outbox WHERE topic = 'book'")


def test_devices_go_before_a_flood_of_other_rows(fleet: Fleet, kafka_bootstrap: str, topic_prefix: str) -> None:
    """Their rows came last, behind more than a batch of others, and are marked first."""
    with psycopg.connect(fleet.sink_dsn) as connection:
        connection.execute("DELETE FROM outbox")
    outbox(fleet, "windows", *((f"w{n}", b"x") for n in range(20)))
    outbox(fleet, "registry", ("north-9", None))

    async def scenario() -> None:
        async with relaying(make_relay(fleet, kafka_bootstrap, topic_prefix, batch=5)):
            await published(fleet, 21)

    asyncio.run(scenario())
    with psycopg.connect(fleet.sink_dsn) as connection:
        order = connection.execute("SELECT topic FROM outbox ORDER BY published_at, outbox_id LIMIT 1").fetchone()
    assert order == ("registry",)


class Shelf(KafkaPublisher):
    """Keeps what is published, call by call; ``meanwhile`` happens in the middle of each call."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        super().__init__("127.0.0.1:1")
        self.calls: list[list[tuple[str, bytes]]] = []
        self._meanwhile = meanwhile

    async def publish(self, records: Sequence[Record]) -> list[bool]:
        self._meanwhile()
        self.calls.append([(one.topic, one.key) for one in records])
        return [True] * len(records)


def test_the_book_has_a_device_before_the_gateway_does(fleet: Fleet) -> None:
    """Else a store that is lost in between comes back without a device whose packets are in the log."""
    topics = Topics("t")
    outbox(fleet, "windows", *((f"w{n}", b"x") for n in range(20)))

    def enrol_one_more() -> None:
        if "late-1" not in fleet.devices:
            fleet.enrol(Enrolment("late-1", "north", "Late", "car"))

    async def scenario(shelf: Shelf, whole: bool) -> None:
        relay = replace(make_relay(fleet, "127.0.0.1:1", "t", batch=3), publisher=shelf)
        assert await relay.store.open()
        if whole:
            await relay._tell_registry()
        while await relay.pass_once():
            pass
        await relay.store.close()

    rows, everybody = Shelf(enrol_one_more), Shelf()
    asyncio.run(scenario(rows, whole=False))
    asyncio.run(scenario(everybody, whole=True))
    for shelf in (rows, everybody):
        called = {record: number for number, call in reversed([*enumerate(shelf.calls)]) for record in call}
        for device, key in fleet.devices.items():
            page = called[topics.book.name, f"devices/{key}".encode()]
            assert page < called[topics.registry.name, device.encode()], f"{device} was told before its page"


def test_devices_reach_the_registry_topic_and_leave_it(fleet: Fleet, kafka_bootstrap: str, topic_prefix: str) -> None:
    async def scenario() -> None:
        registry = Topics(topic_prefix).registry.name
        async with (
            reading(kafka_bootstrap, registry) as consumer,
            relaying(make_relay(fleet, kafka_bootstrap, topic_prefix)),
        ):
            # four by the whole registry at the start, four by their outbox rows
            records = await take(consumer, 8)
            told = {record.key.decode(): decode_registration(record.value) for record in records}
            assert told["south-1"].tenant == "south" and told["south-1"].device_key == fleet.devices["south-1"]
            assert set(told) == {"north-1", "north-2", "north-3", "south-1"}
            with psycopg.connect(fleet.dsn) as connection:
                revoke(connection, "north-2")
            (gone,) = await take(consumer, 1)
            assert (gone.key, gone.value) == (b"north-2", None)

    asyncio.run(scenario())


def test_the_beat_tells_the_relay_s_clock(fleet: Fleet, kafka_bootstrap: str, topic_prefix: str) -> None:
    async def scenario() -> None:
        before_ms = time.time_ns() // 1_000_000
        relay = make_relay(fleet, kafka_bootstrap, topic_prefix)
        async with reading(kafka_bootstrap, Topics(topic_prefix).registry.name) as consumer, relaying(relay):
            beats: list[int] = []
            async with asyncio.timeout(TIMEOUT_S):
                while len(beats) < 2:
                    record = await consumer.getone()
                    beats += [decode_beat(record.value)] if record.key == BEAT_KEY.encode() else []
        assert before_ms <= beats[0] < beats[1] <= time.time_ns() // 1_000_000
        assert relay.working(TIMEOUT_S)

    asyncio.run(scenario())


def test_order_per_key_is_kept_over_batches(fleet: Fleet, kafka_bootstrap: str, topic_prefix: str) -> None:
    sent = [(f"key-{number % 7}", str(number).encode()) for number in range(200)]
    outbox(fleet, "windows", *sent)

    async def scenario() -> Records:
        async with (
            reading(kafka_bootstrap, Topics(topic_prefix).windows.name) as consumer,
            relaying(make_relay(fleet, kafka_bootstrap, topic_prefix, batch=17)),
        ):
            return await take(consumer, len(sent))

    got: dict[str, list[bytes]] = {}
    for record in asyncio.run(scenario()):
        got.setdefault(record.key.decode(), []).append(record.value)
    assert got == {key: [value for name, value in sent if name == key] for key in {name for name, _ in sent}}


class NeverMarks(Outbox):
    """An outbox whose connection dies each time something is to be marked."""

    async def mark_published(self, outbox_ids: Sequence[int]) -> None:
        raise StoreUnavailable("the connection is gone")


def test_what_was_published_and_not_marked_is_repeated(fleet: Fleet, kafka_bootstrap: str, topic_prefix: str) -> None:
    devices_are_told(fleet)
    outbox(fleet, "events", ("a", b"1"), ("b", b"2"), ("a", None))
    want = [(b"a", b"1"), (b"b", b"2"), (b"a", None)]

    async def scenario() -> None:
        async with reading(kafka_bootstrap, Topics(topic_prefix).events.name) as consumer:
            dying = make_relay(fleet, kafka_bootstrap, topic_prefix, NeverMarks(fleet.sink_dsn))
            async with relaying(dying):
                first = await take(consumer, 3)
                again = await take(consumer, 3)
            assert [(record.key, record.value) for record in first] == want
            assert [(record.key, record.value) for record in again] == want
            async with relaying(make_relay(fleet, kafka_bootstrap, topic_prefix)):
                await published(fleet, 7)

    asyncio.run(scenario())


WAITING_MARK = "SELECT pid FROM pg_locks WHERE relation = 'outbox'::regclass AND NOT granted"


def relay_process(fleet: Fleet, bootstrap: str, prefix: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ, "FLEETSTREAM__API__DSN": fleet.api_dsn, "FLEETSTREAM__API__RELAY_DSN": fleet.sink_dsn,
        "FLEETSTREAM__API__KAFKA_BOOTSTRAP": bootstrap, "FLEETSTREAM__API__TOPIC_PREFIX": prefix,
    }  # fmt: skip
    return subprocess.Popen([sys.executable, "-m", "api", "relay"], cwd=ROOT, env=environment)


def kill_while_it_marks(process: subprocess.Popen[bytes], connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """SIGKILL when the mark waits for the lock, and end its statement as a lost connection would."""
    try:
        waiting = None
        while waiting is None and process.poll() is None:
            waiting = connection.execute(WAITING_MARK).fetchone()
        assert waiting is not None
        process.send_signal(signal.SIGKILL)
        connection.execute("SELECT pg_terminate_backend(%s, 10000)", waiting)
    finally:
        process.kill()
        process.wait(TIMEOUT_S)


def test_killed_between_publish_and_mark(fleet: Fleet, kafka_bootstrap: str, topic_prefix: str) -> None:
    """SIGKILL of the real process while its mark waits for a lock: the record is in Kafka, the row is not marked."""
    devices_are_told(fleet)
    outbox(fleet, "events", ("car", b"crash"))

    async def scenario() -> None:
        async with reading(kafka_bootstrap, Topics(topic_prefix).events.name) as consumer:
            with psycopg.connect(fleet.dsn) as connection:
                connection.execute("LOCK TABLE outbox IN SHARE MODE")  # reading yes, marking no
                kill_while_it_marks(relay_process(fleet, kafka_bootstrap, topic_prefix), connection)
            (first,) = await take(consumer, 1)
            with psycopg.connect(fleet.dsn) as connection:
                waiting = connection.execute("SELECT count(*) FROM outbox WHERE published_at IS NULL").fetchone()
            assert waiting == (1,)
            async with relaying(make_relay(fleet, kafka_bootstrap, topic_prefix)):
                (second,) = await take(consumer, 1)
                await published(fleet, 5)
            assert first.value == second.value == b"crash"

    asyncio.run(scenario())


def test_one_relay_works_and_another_stands_by(fleet: Fleet, kafka_bootstrap: str, topic_prefix: str) -> None:
    async def scenario() -> None:
        first, second = Outbox(fleet.sink_dsn), Outbox(fleet.sink_dsn)
        assert await first.open()
        assert not await second.open()
        await first.close()
        async with asyncio.timeout(TIMEOUT_S):
            while not await second.open():
                pass
        await second.close()

    asyncio.run(scenario())


def test_a_record_too_large_holds_up_its_own_key_only(fleet: Fleet, kafka_bootstrap: str, topic_prefix: str) -> None:
    devices_are_told(fleet)  # four rows: what is counted below are the others
    outbox(fleet, "events", ("big", os.urandom(2_000_000)), ("big", b"after"), ("small", b"1"))

    async def scenario() -> None:
        relay = make_relay(fleet, kafka_bootstrap, topic_prefix)
        async with reading(kafka_bootstrap, Topics(topic_prefix).events.name) as consumer, relaying(relay):
            await published(fleet, 5)
            outbox(fleet, "events", ("small", b"2"))
            await published(fleet, 6)
            records = await take(consumer, 2, without=b"big")
        assert [record.value for record in records] == [b"1", b"2"]
        with psycopg.connect(fleet.dsn) as connection:
            kept = connection.execute("SELECT kafka_key FROM outbox WHERE published_at IS NULL").fetchall()
        assert kept == [("big",), ("big",)]

    asyncio.run(scenario())


def test_rows_of_a_topic_that_nobody_knows_wait_and_are_counted(fleet: Fleet) -> None:
    outbox(fleet, "tomorrow", ("a", b"1"), ("b", b"2"))

    async def scenario() -> None:
        store = Outbox(fleet.sink_dsn)
        relay = make_relay(fleet, "127.0.0.1:1", "t", store)
        assert await store.open()
        await relay._care()
        await store.close()
        assert "fleetstream_api_outbox_unknown_topic 2.0" in relay.metrics.text().decode()

    asyncio.run(scenario())
    with psycopg.connect(fleet.sink_dsn) as connection:
        found = connection.execute("SELECT count(*) FROM outbox WHERE topic = 'tomorrow' AND published_at IS NULL")
        assert found.fetchone() == (2,)


def test_old_published_rows_are_pruned_and_waiting_ones_never(fleet: Fleet) -> None:
    fleet.execute("DELETE FROM outbox WHERE topic = 'book'")
    fleet.execute("UPDATE outbox SET published_at = now() - interval '2 hours' WHERE kafka_key = 'north-1'")
    fleet.execute("UPDATE outbox SET created_at = now() - interval '1 year'")

    async def scenario() -> None:
        store = Outbox(fleet.sink_dsn)
        assert await store.open()
        assert await store.prune(1.0) == 1
        backlog = await store.backlog(["registry"])
        assert backlog.rows == 3 and backlog.oldest_s > 86_400 and backlog.unknown_topic == 0
        assert (await store.backlog(["windows"])).unknown_topic == 3
        await store.close()

    asyncio.run(scenario())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30))
def test_nothing_of_a_key_counts_after_its_first_failure(outcomes: list[tuple[str, bool]]) -> None:
    rows = [OutboxRow(number, "events", key, b"") for number, (key, _) in enumerate(outcomes)]
    marked, troubled = settle(rows, [there for _, there in outcomes])
    for key in "abc":
        mine = [(number, there) for number, (name, there) in enumerate(outcomes) if name == key]
        good = []
        for number, there in mine:
            if not there:
                break
            good.append(number)
        assert [number for number in marked if outcomes[number][0] == key] == good
        assert (f"events:{key}" in troubled) == any(not there for _, there in mine)


def test_without_a_connection_it_says_so() -> None:
    async def scenario() -> None:
        with pytest.raises(StoreUnavailable, match="outbox keeps"):
            await Outbox("host=127.0.0.1 port=1 user=nobody").open()

    asyncio.run(scenario())

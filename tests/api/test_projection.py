"""Latest values as a table and as a topic: equal under traffic and kills, and either made from the other again."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kafka import KafkaPublisher
from api.metrics import Metrics
from api.projection import LatestProjection
from api.queries.latest import LatestTable
from api.queries.outbox import Outbox
from contracts.latest import LatestValue, decode_latest, encode_latest
from contracts.topics import Topics
from infra.errors import SetupError
from infra.latest import compare, read_table, read_topic, rebuild_table, rebuild_topic, verify
from tests.api.fix_api import RPM, SPEED, Fleet
from tests.api.test_relay import make_relay

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Bench:
    """A projection moved by hand, and both sides of it."""

    def __init__(self, fleet: Fleet, bootstrap: str, prefix: str) -> None:
        self.fleet, self.bootstrap, self.topic = fleet, bootstrap, Topics(prefix).latest
        self.prefix = prefix

    def projection(self, table: LatestTable | None = None) -> LatestProjection:
        table = table or LatestTable(self.fleet.sink_dsn)
        return LatestProjection(
            table, KafkaPublisher(self.bootstrap), self.topic.name, 5.0, time.monotonic, Metrics()
        )  # fmt: skip

    def tell(self, table: LatestTable | None = None) -> int:
        async def once() -> int:
            projection = self.projection(table)
            try:
                return await projection.tell()
            finally:
                await projection.close()

        return asyncio.run(once())

    def rows(self) -> dict[str, LatestValue]:
        with psycopg.connect(self.fleet.sink_dsn) as connection:
            return read_table(connection)

    def records(self) -> dict[str, LatestValue]:
        return read_topic(self.bootstrap, self.topic)

    def same(self) -> bool:
        rows, records = self.rows(), self.records()
        return compare(rows, records, rows).equal and len(rows) == len(records)

    def values(self, *, later_s: int = 0) -> None:
        for n, device in enumerate(("north-1", "north-2", "south-1")):
            for signal in (SPEED.number, RPM.number):
                self.fleet.latest(device, signal, NOW + timedelta(seconds=n + later_s), n * 1.1 + signal)


@pytest.fixture
def bench(fleet: Fleet, kafka_bootstrap: str, topic_prefix: str) -> Bench:
    return Bench(fleet, kafka_bootstrap, topic_prefix)


values = st.builds(
    LatestValue, st.sampled_from(["a", "b"]), st.sampled_from(["Vehicle.Speed", "x"]), st.integers(-(2**40), 2**45),
    st.integers(1, 2**40), st.integers(1, 2**40), st.integers(0, 9_000), st.floats(), st.integers(0, 66),
    st.integers(0, 2**45),
)  # fmt: skip


@given(values)
def test_a_value_survives_the_wire_exactly(value: LatestValue) -> None:
    again = decode_latest(encode_latest(value))
    assert again.same_as(value)
    assert again.place == value.place
    assert again.value == value.value or math.isnan(again.value) == math.isnan(value.value) is True


def test_only_what_changed_is_told_and_both_are_equal(bench: Bench) -> None:
    bench.values()
    assert bench.tell() == 6
    assert bench.same()
    assert bench.tell() == 0
    bench.fleet.latest("north-1", SPEED.number, NOW + timedelta(minutes=1), float("nan"), 65)
    assert bench.tell() == 1
    assert bench.same()


def test_what_commits_late_is_not_missed(bench: Bench) -> None:
    """A transaction that began before a look and commits after it: its row is older than the look, and is told."""
    bench.values()
    with psycopg.connect(bench.fleet.sink_dsn) as slow:
        slow.execute("UPDATE latest_values SET val = 77 WHERE signal = %s", (SPEED.number,))
        bench.tell()
        assert not any(one.value == 77 for one in bench.records().values())
        slow.commit()
        assert bench.tell() >= 3
    assert bench.same()


def test_killed_between_topic_and_position_it_is_told_again(bench: Bench) -> None:
    """The two halves: records in Kafka, the place written down. Cut between them, the next look repeats."""
    bench.values()

    class Killed(LatestTable):
        async def told(self, name: str, position: int) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.tell(Killed(bench.fleet.sink_dsn))
    assert bench.same(), "the topic has them"
    bench.values(later_s=60)
    assert bench.tell() == 6
    assert bench.same()


def test_the_table_is_made_from_the_topic(bench: Bench) -> None:
    bench.values()
    bench.tell()
    before = bench.rows()
    newer = NOW + timedelta(hours=1)
    with psycopg.connect(bench.fleet.dsn) as connection:
        connection.execute("DELETE FROM latest_values WHERE signal = %s", (SPEED.number,))
        connection.execute("UPDATE latest_values SET val = -1 WHERE signal = %s", (RPM.number,))
    bench.fleet.latest("south-1", SPEED.number, newer, 5.0)
    assert rebuild_table(bench.fleet.sink_dsn, bench.bootstrap, bench.topic) == (6, 5)
    after = bench.rows()
    kept = after.pop("south-1/Vehicle.Speed")
    assert kept.value == 5.0, "a newer row stays"
    del before["south-1/Vehicle.Speed"]
    assert after == before
    assert rebuild_table(bench.fleet.sink_dsn, bench.bootstrap, bench.topic)[1] == 0


def test_the_topic_is_made_from_the_table(bench: Bench) -> None:
    """A record of a signal that the table does not have goes; everything else is told again."""
    bench.values()
    bench.tell()
    with psycopg.connect(bench.fleet.dsn) as connection:
        connection.execute("DELETE FROM latest_values WHERE signal = %s", (RPM.number,))
        connection.execute("DELETE FROM outbox")
    assert rebuild_topic(bench.fleet.sink_dsn, bench.bootstrap, bench.topic) == (3, 3)

    async def relay() -> None:
        one = make_relay(bench.fleet, bench.bootstrap, bench.prefix, Outbox(bench.fleet.sink_dsn))
        assert await one.store.open()
        await one.publisher.open()
        await one.pass_once()
        await one.publisher.close()
        await one.store.close()

    asyncio.run(relay())
    assert bench.tell() == 3
    assert bench.same()


def test_verify_names_what_differs(bench: Bench) -> None:
    bench.values()
    stop = threading.Event()
    clerk = threading.Thread(target=lambda: [bench.tell() for _ in iter(stop.is_set, True)])
    clerk.start()
    try:
        assert verify(bench.fleet.sink_dsn, bench.bootstrap, bench.topic).equal, "it waits for the next look"
    finally:
        stop.set()
        clerk.join()
    rows, records = bench.rows(), bench.records()
    first, second, third, *_ = sorted(rows)
    bad = dict(records)
    del bad[first]
    bad[second] = decode_latest(encode_latest(bad[second]).replace(b'"quality":0', b'"quality":1'))
    bad[third] = decode_latest(encode_latest(bad[third]).replace(b'"seq":1', b'"seq":0'))
    bad["ghost/x"] = bad[third]
    found = compare(rows, bad, rows).as_json()
    assert json.loads(json.dumps(found)) == {
        "equal": False, "rows": 6, "records": 6, "missing": 1, "older": 1, "differing": 1, "strange": 1,
        "keys": [first, third, second, "ghost/x"],
    }  # fmt: skip
    bench.values(later_s=5)
    with pytest.raises(SetupError, match="did not come as far"):
        verify(bench.fleet.sink_dsn, bench.bootstrap, bench.topic, 0.3)

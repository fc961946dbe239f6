"""The ingest transaction on a real PostgreSQL, fed with records as Spark hands them over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from contracts.packet import Block, DoubleBlock, Gap
from contracts.status import AgentStatus, encode_status
from contracts.tables import ROLE_SINK
from stream_jobs.scales import catalogue_scales
from stream_jobs.sinks.assemble import assemble
from stream_jobs.sinks.base import Receipt
from stream_jobs.sinks.connection import connect, drop_all
from stream_jobs.sinks.tasks import store_partition
from stream_jobs.sinks.transaction import Batch
from tests.stream_jobs.build import (
    BACKLOG,
    LIVE,
    STATUS,
    T0,
    TOPICS,
    Device,
    Record,
    add_devices,
    in_log_order,
    speed,
    table,
    target,
)


class Store:
    """The sink's own way into a fresh schema, and eyes for the tests."""

    def __init__(self, dsn: str, devices: dict[str, Device]) -> None:
        self.dsn = dsn
        self.devices = devices

    def put(self, records: list[Record], chunk_bytes: int = 64 * 1024 * 1024) -> list[Receipt]:
        return store_partition(target(self.dsn, chunk_bytes), table(records).to_batches())

    def rows(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(statement.encode(), parameters).fetchall()


@pytest.fixture
def store(role_dsn: Callable[[str], str]) -> Iterator[Store]:
    dsn = role_dsn(ROLE_SINK)
    yield Store(dsn, add_devices(dsn, {"north": ["car1", "car2"], "south": ["wtg1"]}))
    drop_all()


def test_a_packet_becomes_readings_windows_and_latest(store: Store) -> None:
    car = store.devices["car1"]
    receipts = store.put(in_log_order([(car.packet(1, speed(100, 250, -50)), car.stamp(T0 + 400))]))
    assert (receipts[0].packets, receipts[0].samples, receipts[0].next_offset) == (1, 3, 1)
    assert store.rows("SELECT asset, signal, value, quality FROM readings ORDER BY measured_at") == [
        ("car1", "Vehicle.Speed", 1.0, 0), ("car1", "Vehicle.Speed", 2.5, 0), ("car1", "Vehicle.Speed", -0.5, 0),
    ]  # fmt: skip
    assert store.rows("SELECT width_s, n, min, max, mean, last, revision FROM windows ORDER BY width_s") == [
        (10, 3, -0.5, 2.5, 1.0, -0.5, 0), (60, 3, -0.5, 2.5, 1.0, -0.5, 0),
    ]  # fmt: skip
    assert store.rows("SELECT value FROM latest") == [(-0.5,)]
    assert store.rows("SELECT next_offset, packets, samples, max_received_ms FROM ingest_offsets") == [
        (1, 1, 3, T0 + 400)
    ]


def test_a_heartbeat_of_a_clock_that_runs_ahead_does_not_freeze_the_account(store: Store) -> None:
    """The clock is set a year ahead for one heartbeat; later ones still count, in whatever order they are read."""
    car, year_ms = store.devices["car1"], 365 * 86_400_000
    beats = [(T0, 10, T0), (T0 + year_ms, 10, T0 + 1_000), (T0 + 2_000, 500, T0 + 2_000), (T0 + 3_000, 500, T0 + 3_000)]
    records = [
        (
            encode_status(AgentStatus("car1", 1, 77, at_ms, seq, 9, 8, 0, 0, 0, 1, 9, 5, 0, 4, "1.0")),
            car.stamp(received),
        )
        for at_ms, seq, received in beats
    ]
    last = [(500, T0 + 3_000, (T0 + 3_000) // 1_000)]
    for first, order in enumerate((records, records[::-1])):
        store.put([Record(value, stamp, 4 * first + n, STATUS) for n, (value, stamp) in enumerate(order)])
        assert store.rows("SELECT next_seq, at_ms, extract(epoch FROM received_at)::bigint FROM agent_status") == last


def test_copies_are_counted_and_stored_once(store: Store) -> None:
    car = store.devices["car1"]
    first, second = car.packet(1, speed(100)), car.packet(2, speed(200))
    store.put(in_log_order([(first, car.stamp(T0)), (first, car.stamp(T0 + 9)), (second, car.stamp(T0))]))
    store.put(in_log_order([(first, car.stamp(T0)), (second, car.stamp(T0))], first=3))
    assert store.rows("SELECT stored_packets, stored_samples, duplicates_suppressed FROM ledger") == [(2, 2, 3)]
    assert store.rows("SELECT sum(n), sum(sum_units) FROM window_aggregates WHERE width_s = 10") == [(2, 300)]
    assert store.rows("SELECT ranges::text FROM seen_ranges") == [("{[1,3)}",)]


def test_records_below_the_next_offset_change_nothing(store: Store) -> None:
    car = store.devices["car1"]
    records = in_log_order([(car.packet(n, speed(n)), car.stamp(T0)) for n in (1, 2, 3)])
    store.put(records[:2])
    receipts = store.put(records)
    assert (receipts[0].replayed, receipts[0].packets) == (2, 1)
    assert store.rows("SELECT packets, duplicates FROM seen_ranges") == [(3, 0)]
    store.put(records[:1])
    assert store.rows("SELECT next_offset FROM ingest_offsets") == [(3,)]


def test_another_nonce_is_a_clone_not_a_duplicate(store: Store) -> None:
    car = store.devices["car1"]
    clone = car.packet(2, speed(7), nonce=-5)
    store.put(in_log_order([(car.packet(1, speed(1)), car.stamp(T0)), (clone, car.stamp(T0))]))
    store.put(in_log_order([(car.packet(1, speed(9), nonce=4), car.stamp(T0))], first=2))
    assert store.rows("SELECT reason, seq, bytes FROM quarantine ORDER BY kafka_offset") == [
        ("identity_conflict", 2, clone), ("identity_conflict", 1, car.packet(1, speed(9), nonce=4)),
    ]  # fmt: skip
    assert store.rows("SELECT packets, duplicates FROM seen_ranges") == [(1, 0)]


def test_every_kind_of_poison_is_set_aside_and_the_rest_flows(store: Store) -> None:
    car, other = store.devices["car1"], store.devices["wtg1"]
    good = car.packet(1, speed(100))
    flipped = bytearray(car.packet(2, speed(1)))
    flipped[20] ^= 1
    poison = [
        (None, car.stamp(T0), "not_a_packet"),
        (good[:40], car.stamp(T0), "bad_crc"),
        (bytes(flipped), car.stamp(T0), "bad_crc"),
        (car.packet(3, speed(1)), b"short", "bad_stamp"),
        (car.packet(3, speed(1)), None, "bad_stamp"),
        (car.packet(4, speed(1)), other.stamp(T0), "wrong_device"),
        (car.packet(4, speed(1)), Device("car1", car.key, "north", other.tenant_id).stamp(T0), "wrong_device"),
        (car.packet(4, speed(1)), Device("car1", 999, "north", 1).stamp(T0), "wrong_device"),
        (car.packet(5, Block(31_999, 0, 0, (0,), (1,))), car.stamp(T0), "unknown_signal"),
        (car.packet(6, speed(1), claimed=2), car.stamp(T0), "bad_body"),
        (car.packet(7, Block(1, 0, 0, (0, 1), (1,)), claimed=2), car.stamp(T0), "bad_body"),
        (car.packet(8, Block(1, 40, 0, (0,), (1,))), car.stamp(T0), "bad_body"),
        (car.packet(9, Block(1, 0, 0, (0,), (1,), (900,))), car.stamp(T0), "bad_body"),
        (car.packet(10, gaps=[Gap(5, 4, 1, 1, 1, 1)]), car.stamp(T0), "bad_body"),
        (car.packet(0, speed(1)), car.stamp(T0), "bad_header"),
    ]
    receipts = store.put(in_log_order([(value, stamp) for value, stamp, _ in poison] + [(good, car.stamp(T0))]))
    found = store.rows("SELECT kafka_offset, reason, bytes FROM quarantine ORDER BY kafka_offset")
    assert found == [(n, reason, value or b"") for n, (value, _, reason) in enumerate(poison)]
    assert (receipts[0].quarantined, receipts[0].packets, receipts[0].next_offset) == (15, 1, 16)
    assert store.rows("SELECT count(*) FROM readings") == [(1,)]


def test_values_that_cannot_be_are_kept_with_a_quality_and_never_aggregated(store: Store) -> None:
    car = store.devices["car1"]
    doubles = DoubleBlock(1, (0, 1, 2, 3), (float("nan"), float("-inf"), 12.344, 1e300))
    wild = Block(1, -2, 2**60, (4, 5, 6), (0, 2**61, -(2**60)))
    hot = Block(1, 0, 0, (7,), (501,))
    store.put(in_log_order([(car.packet(1, doubles, wild, hot), car.stamp(T0))]))
    found = store.rows("SELECT value, quality FROM readings ORDER BY measured_at")
    assert [quality for _, quality in found] == [65, 65, 0, 66, 66, 66, 66, 66]
    assert found[0][0] is None and found[2][0] == 12.34 and found[3][0] == 1e300 and found[7][0] == 501.0
    assert store.rows("SELECT n, sum_units FROM window_aggregates WHERE width_s = 60") == [(1, 1234)]


def test_single_samples_that_are_not_believed_are_set_aside(store: Store) -> None:
    car = store.devices["car1"]
    day = 24 * 3600 * 1000
    block = Block(1, -2, 0, (0, 11 * 60 * 1000, -24 * day), (1, 2, 3))
    old = Block(1, -2, 0, (-24 * day, -24 * day + 1), (4, 5))
    frames = [
        (car.packet(1, block, base_ms=T0), car.stamp(T0 + 7 * day)),
        (car.packet(2, block, base_ms=T0), car.stamp(T0)),
        (car.packet(3, old, base_ms=T0), car.stamp(T0 + 7 * day)),
        (car.packet(4, old, base_ms=T0), car.stamp(T0 + 7 * day, flags=1)),
        (car.packet(5, speed(9), base_ms=-(2**50)), car.stamp(T0, flags=1)),
    ]
    store.put(in_log_order(frames))
    assert store.rows("SELECT seq, reason, samples, detail FROM quarantine ORDER BY seq") == [
        (1, "too_late", 1, {"too_late": 1}), (2, "samples", 1, {"future": 1}), (3, "too_late", 2, {"too_late": 2}),
        (5, "too_late", 1, {"too_late": 1}),
    ]  # fmt: skip
    assert store.rows("SELECT seq, samples, cardinality(vals) FROM packet_rows ORDER BY seq") == [
        (1, 2, 2), (2, 2, 2), (3, 0, 0), (4, 2, 2), (5, 0, 0),
    ]  # fmt: skip
    assert store.rows("SELECT stored_packets, missing::text, quarantined_packets FROM ledger") == [(5, "{}", 0)]


def test_gap_reports_close_the_ledger(store: Store) -> None:
    car = store.devices["car1"]
    gaps = [Gap(2, 4, 1, 1, 3, 30)]
    frames = [(car.packet(1, speed(1)), car.stamp(T0)), (car.packet(5, gaps=gaps), car.stamp(T0))]
    store.put(in_log_order(frames + frames))
    assert store.rows("SELECT dropped_packets, dropped_samples, missing::text FROM ledger") == [(3, 30, "{}")]


def test_a_late_packet_corrects_its_window_with_a_revision_per_receive_minute(store: Store) -> None:
    car = store.devices["car1"]
    minute = T0 // 60_000
    on_time = (car.packet(1, speed(100)), car.stamp(T0 + 10_000 + 15_000))
    late = [(car.packet(n, speed(n)), car.stamp(T0 + 25_001 + (n // 4) * 60_000)) for n in (2, 3, 4)]
    store.put(in_log_order([on_time]))
    store.put(in_log_order(late[:1], first=1))
    store.put(in_log_order(late[1:], first=2))
    expected = sorted({(T0 + 25_001) // 60_000, (T0 + 85_001) // 60_000})
    assert expected[0] == minute + (T0 % 60_000 + 25_001) // 60_000
    assert store.rows("SELECT n, late_minutes FROM window_aggregates WHERE width_s = 10") == [(4, expected)]
    assert store.rows("SELECT revision FROM windows WHERE width_s = 10") == [(2,)]


def test_a_day_without_its_own_partition_is_stored_all_the_same(store: Store) -> None:
    car = store.devices["car1"]
    received = T0 - 300 * 24 * 3600 * 1000
    store.put(in_log_order([(car.packet(1, speed(1), base_ms=received), car.stamp(received))]))
    assert store.rows("SELECT tableoid::regclass::text, samples FROM packet_rows") == [("packet_rows_other", 1)]


def test_small_chunks_store_the_same(store: Store) -> None:
    car = store.devices["car1"]
    records = in_log_order([(car.packet(n, speed(n, n + 1)), car.stamp(T0)) for n in range(1, 30)])
    batches = [table(records[n : n + 3]).to_batches()[0] for n in range(0, len(records), 3)]
    receipts = store_partition(target(store.dsn, 1), batches)
    assert len(receipts) == 10 and receipts[-1].next_offset == 29
    assert store.rows("SELECT ranges::text, samples FROM seen_ranges") == [("{[1,30)}", 58)]
    assert LIVE in {receipt.topic for receipt in receipts}


def test_a_lost_connection_is_repeated_and_nothing_is_doubled(store: Store, schema_dsn: str) -> None:
    car = store.devices["car1"]
    store.put(in_log_order([(car.packet(1, speed(1)), car.stamp(T0))]))
    with psycopg.connect(schema_dsn, autocommit=True) as owner:
        ended = owner.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'fleetstream_sink'"
        ).fetchall()
    assert ended
    receipts = store.put(in_log_order([(car.packet(2, speed(2)), car.stamp(T0))], first=1))
    assert receipts[0].retries == 1 and receipts[0].packets == 1
    assert store.rows("SELECT ranges::text, packets, duplicates FROM seen_ranges") == [("{[1,3)}", 2, 0)]


def test_two_lanes_that_commit_at_once_lose_and_double_nothing(store: Store) -> None:
    """Both hold the same packets of the same devices, in opposite orders."""
    cars = list(store.devices.values())
    frames = [(car.packet(n, speed(n, -n), base_ms=T0 + n), car.stamp(T0 + n)) for n in range(1, 200) for car in cars]
    lanes = [in_log_order(frames, LIVE), in_log_order(frames[::-1], BACKLOG)]
    batches = [
        [Batch(assemble(table(lane[at : at + 30]), TOPICS), catalogue_scales()) for at in range(0, len(lane), 30)]
        for lane in lanes
    ]

    def commit_all(lane: int) -> None:
        with connect(store.dsn) as connection:
            for batch in batches[lane]:
                batch.commit(connection)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(commit_all, lane) for lane in (0, 1)]:
            done.result()
    assert store.rows("SELECT DISTINCT ranges::text, packets, duplicates FROM seen_ranges") == [("{[1,200)}", 199, 199)]
    assert store.rows("SELECT sum(n), sum(sum_units), max(max_units) FROM window_aggregates WHERE width_s = 60") == [
        (2 * len(frames), 0, 199)
    ]
    assert store.rows("SELECT count(*), sum(seq) FROM latest_values") == [(3, 597)]

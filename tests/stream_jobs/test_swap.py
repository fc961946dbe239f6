"""A swap under live traffic: readers see one version or the other, ingest goes on, nothing is lost or said wrongly."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from infra.backends import Backends
from infra.errors import RebuildRefused
from infra.swap import swap
from infra.versions import drop_version, find_version
from stream_jobs.jobs import ingest
from stream_jobs.log import LogReader, starting_offsets
from stream_jobs.sinks.base import Target
from stream_jobs.sinks.driver import DriverSink
from stream_jobs.sinks.ledger import StoreLedger
from stream_jobs.wiring import make_topics, topic_kinds
from tests.stream_jobs.build import T0, Device, Frame, speed
from tests.stream_jobs.fix_ingest import Line
from tests.stream_jobs.fix_rebuild import Versions, wait_until

SIDE = """
SELECT c.relnamespace::bigint, count(*) FROM {table} t JOIN pg_class c ON c.oid = t.tableoid GROUP BY 1"""


@pytest.fixture
def versions(heart: Line, stack: Backends, schema: str, tmp_path: Path) -> Iterator[Versions]:
    made = Versions(heart, stack, schema, tmp_path / "archive", slice_records=2_000)
    yield made
    for name in (f"{schema}_v2", f"{schema}_v3"):
        if find_version(made.stack.postgres.dsn(), name):
            drop_version(made.stack.postgres.dsn(), schema, name)


def packets(device: Device, first: int, last: int) -> list[Frame]:
    return [
        (device.packet(seq, speed(seq % 400), base_ms=T0 + seq * 1_000), device.stamp(T0 + seq * 1_000 + 300))
        for seq in range(first, last + 1)
    ]


class Traffic:
    """Packets of two devices, the streaming query that stores them, and a reader that asks twice per transaction."""

    def __init__(self, versions: Versions) -> None:
        self.versions, self.line = versions, versions.line
        self.sent = 0
        self.halves: list[Any] = []
        self.seen_schemas: set[int] = set()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=one) for one in (self._send, self._read)]
        log = LogReader(self.line.bootstrap, list(topic_kinds(self.line.prefix))).state()
        topics = make_topics(self.line.prefix, log)
        store = StoreLedger(self.line.dsn)
        known = {key: taken.next_offset for key, taken in store.progress().items()}
        store.disconnect()
        self.query = ingest.start(
            self.line.spark, DriverSink(Target(self.line.dsn, topics)), topics,
            ingest.kafka_options(self.line.bootstrap, topics, starting_offsets(log, known), 5_000),
            self.line.scratch / "checkpoint-live", {"processingTime": "50 milliseconds"}, lambda _: None,
        )  # fmt: skip

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self.query.stop()

    def stored(self) -> int:
        return int(self.line.rows("SELECT coalesce(sum(packets), 0) FROM seen_ranges WHERE boot_epoch = 1")[0][0])

    def _send(self) -> None:
        while not self._stop.is_set():
            for device in list(self.line.devices.values())[:2]:
                self.line.send_from(device, packets(device, self.sent + 1, self.sent + 10))
            self.sent += 10

    def _read(self) -> None:
        tables = ("seen_ranges", "packet_rows", "window_aggregates", "latest_values")
        with psycopg.connect(self.line.dsn, autocommit=True) as reader:
            while not self._stop.is_set():
                with reader.transaction():
                    sides = {row[0] for table in tables for row in reader.execute(SIDE.format(table=table).encode())}
                if len(sides) > 1:
                    self.halves.append(sides)
                self.seen_schemas |= sides


def close(line: Line, watermark_ms: int) -> None:
    ledger = StoreLedger(line.dsn)
    while ledger.close_windows(watermark_ms, 500):
        pass
    ledger.disconnect()


def test_a_swap_under_traffic_and_back(versions: Versions, heart: Line) -> None:
    name = f"{versions.schema}_v2"
    car, other = heart.devices["car1"], heart.devices["car2"]
    for device in (car, other):
        heart.send_from(device, packets(device, 1, 200))
    heart.drain()
    close(heart, T0 + 150_000)
    said = heart.rows("SELECT count(*), sum(publications) FROM window_aggregates WHERE state = 1")
    assert said[0][0] > 20
    versions.rebuilds.rebuild(name, "kafka")
    with psycopg.connect(versions.dsn(name, "postgres")) as mended:  # as a corrected transformation would have it
        mended.execute(
            "UPDATE window_aggregates SET max_units = 9999"
            " WHERE (device_key, width_s, starts_at) = (%s, 60, at_ms(%s))",
            (car.key, T0 // 60_000 * 60_000),
        )
    outbox = heart.rows("SELECT count(*), max(outbox_id) FROM outbox WHERE topic = 'windows'")
    assert outbox[0][0] == said[0][1]

    traffic = Traffic(versions)
    traffic.sent = 200
    with traffic:
        wait_until(lambda: traffic.stored() > 440)
        done = swap(versions.rebuilds, name)
        at_swap = traffic.stored()
        wait_until(lambda: traffic.stored() > at_swap + 40)
    assert done.windows_to_say_again == 1
    assert not traffic.halves and len(traffic.seen_schemas) == 2
    heart.drain()
    assert heart.rows("SELECT device_key, ranges::text, packets, duplicates FROM seen_ranges ORDER BY 1") == [
        (device.key, f"{{[1,{traffic.sent + 1})}}", traffic.sent, 0) for device in (car, other)
    ]
    assert heart.rows("SELECT count(*), count(DISTINCT (device_key, seq)) FROM packet_rows") == [
        (2 * traffic.sent, 2 * traffic.sent)
    ]

    # what was said stays said; what differs is said again, under the next number, and so is its roll-up
    close(heart, T0 + 150_000)
    news = heart.rows("SELECT publication, max_units FROM window_publications WHERE width_s = 60 AND device_key = %s"
                      " AND starts_at = at_ms(%s) ORDER BY 1", car.key, T0 // 60_000 * 60_000)  # fmt: skip
    assert [number for number, _ in news] == [1, 2] and news[1][1] == 9999
    assert heart.rows("SELECT count(*) FROM outbox WHERE topic = 'windows' AND outbox_id > %s", outbox[0][1]) == [(1,)]
    assert heart.rows("SELECT count(*), sum(publications) FROM window_aggregates WHERE state = 1") == [
        (said[0][0], said[0][1] + 1)
    ]

    # the old tables are one command away, and the log brings them to where the new ones are
    swap(versions.rebuilds, name)
    assert heart.rows("SELECT sum(packets) FROM seen_ranges") == [(2 * traffic.sent,)]
    assert heart.rows("SELECT count(*) FROM window_aggregates WHERE max_units = 9999") == [(0,)]
    assert heart.rows("SELECT what FROM rebuild_notes") == [("swapped_out",), ("swapped_in",)]


def test_swaps_that_are_refused_change_nothing(
    versions: Versions, heart: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{versions.schema}_v2"
    car = heart.devices["car1"]
    heart.send_from(car, packets(car, 1, 20))
    heart.drain()
    (since,) = heart.rows("SELECT min(received_at) + interval '5 s' FROM packet_rows")[0]
    versions.rebuilds.rebuild(name, "kafka", since)
    with pytest.raises(RebuildRefused, match="holds only what was received since"):
        swap(versions.rebuilds, name)
    drop_version(versions.stack.postgres.dsn(), versions.schema, name)
    versions.rebuilds.rebuild(name, "kafka")
    monkeypatch.setattr("infra.swap.PATIENCE_S", 0.2)
    monkeypatch.setattr("infra.swap.LOCK_TIMEOUT_MS", 100)
    with psycopg.connect(heart.dsn) as slow:
        slow.execute("SELECT count(*) FROM packet_rows")
        with pytest.raises(RebuildRefused, match="look for a query that runs for long"):
            swap(versions.rebuilds, name)
    assert heart.rows("SELECT what FROM rebuild_notes") == []
    heart.send_from(car, packets(car, 21, 30))
    heart.drain()
    assert heart.rows("SELECT sum(packets) FROM seen_ranges") == [(30,)]


def test_new_keys_go_on_after_those_of_before(versions: Versions, heart: Line, role_dsn: Callable[[str], str]) -> None:
    name = f"{versions.schema}_v2"
    car = heart.devices["car1"]
    heart.send_from(car, packets(car, 1, 5))
    heart.drain()
    versions.rebuilds.rebuild(name, "kafka")
    with psycopg.connect(heart.dsn) as enrolling:
        enrolling.execute("INSERT INTO devices (device, tenant_id) VALUES ('newcomer', %s)", (car.tenant_id,))
    before = heart.rows("SELECT device_key, device FROM devices ORDER BY 1")
    swap(versions.rebuilds, name)
    assert heart.rows("SELECT device_key, device FROM devices ORDER BY 1") == before
    with psycopg.connect(heart.dsn) as enrolling:
        row = enrolling.execute(
            "INSERT INTO devices (device, tenant_id) VALUES ('next', %s) RETURNING device_key", (car.tenant_id,)
        ).fetchone()
    assert row == (before[-1][0] + 1,)

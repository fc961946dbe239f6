"""What every sink on the menu must obey, on real Spark, Kafka and PostgreSQL."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, cast

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import Row

from stream_jobs.errors import PlanBroken
from stream_jobs.sinks import SINKS
from stream_jobs.sinks.base import RECEIPT_DDL, Receipt, Sink, Target
from stream_jobs.sinks.driver import store_table
from stream_jobs.sinks.tasks import store_partition
from tests.stream_jobs.build import BACKLOG, T0, in_log_order, speed, table, target
from tests.stream_jobs.fix_ingest import Line, heart

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["heart"]
menu = pytest.mark.parametrize("name", sorted(SINKS))
quiet = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
SNAPSHOT = """
SELECT (SELECT array_agg(r ORDER BY r) FROM (SELECT device, boot_epoch, seq, measured_at, signal, value, quality
            FROM readings) r)::text,
       (SELECT array_agg(w ORDER BY w) FROM (SELECT device_key, signal, width_s, starts_at, n, sum_units, sumsq_units,
            min_units, max_units, first_units, last_units, late_minutes FROM window_aggregates) w)::text,
       (SELECT array_agg(s ORDER BY s) FROM (SELECT device_key, boot_epoch, ranges, packets, samples, duplicates
            FROM seen_ranges) s)::text,
       (SELECT array_agg(o ORDER BY o) FROM (SELECT topic, kafka_partition, next_offset FROM ingest_offsets) o)::text"""


@menu
def test_a_sink_is_what_the_protocol_says(name: str) -> None:
    sink: Sink = SINKS[name](Target("", {}))
    assert callable(sink.attach) and callable(sink.store)


def test_a_target_does_not_show_its_password() -> None:
    assert "secret" not in repr(Target("password=secret", {}))


@menu
@quiet
def test_every_record_once_and_the_ledger_at_the_end(heart: Line, name: str) -> None:
    heart.sink = name
    cars = list(heart.devices.values())
    for car in cars:
        frames = [(car.packet(n, speed(n, n + 1)), car.stamp(T0 + n)) for n in range(1, 61)]
        heart.send_from(car, frames[:40] + frames[20:])
        heart.send_from(car, frames[:5], heart.topics.backlog.name)
    heart.drain(max_offsets=37)
    assert heart.rows("SELECT sum(packets), sum(samples), sum(duplicates) FROM seen_ranges") == [(180, 360, 75)]
    assert heart.rows("SELECT sum(next_offset) FROM ingest_offsets") == [(255,)]
    assert sum(one.records for one in heart.receipts) == 255 and sum(one.packets for one in heart.receipts) == 180
    before = heart.rows(SNAPSHOT)
    heart.drain()
    assert heart.rows(SNAPSHOT) == before


@menu
@quiet
def test_a_failed_transaction_leaves_nothing(heart: Line, name: str) -> None:
    heart.sink = name
    car = heart.devices["car1"]
    heart.send_from(car, [(car.packet(1, speed(1)), car.stamp(T0))])
    with psycopg.connect(heart.superuser_dsn, autocommit=True) as owner:
        owner.execute("ALTER TABLE window_aggregates RENAME TO elsewhere")
        with pytest.raises(Exception, match="window_aggregates"):
            heart.drain()
        assert heart.rows("SELECT count(*) FROM packet_rows") == [(0,)]
        assert heart.rows("SELECT count(*) FROM ingest_offsets") == [(0,)]
        owner.execute("ALTER TABLE elsewhere RENAME TO window_aggregates")
    heart.drain()
    assert heart.rows("SELECT packets, duplicates FROM seen_ranges") == [(1, 0)]


@quiet
def test_both_sinks_make_the_same_rows_of_the_same_records(heart: Line) -> None:
    car, wtg = heart.devices["car1"], heart.devices["wtg1"]
    live = in_log_order([(car.packet(n, speed(n)), car.stamp(T0 + n)) for n in range(1, 20)])
    late = in_log_order([(wtg.packet(n, speed(n)), wtg.stamp(T0 + 90_000)) for n in range(1, 9)], BACKLOG)
    with psycopg.connect(heart.superuser_dsn, autocommit=True) as owner:
        for records in (live, late):
            store_partition(target(heart.dsn), table(records).to_batches())
        by_tasks = heart.rows(SNAPSHOT)
        owner.execute("TRUNCATE packet_rows, window_aggregates, seen_ranges, ingest_offsets, latest_values")
        receipts = store_table(target(heart.dsn), table([*late, *live]))
    assert heart.rows(SNAPSHOT) == by_tasks
    found = sorted((one.topic, one.packets, one.next_offset) for one in receipts)
    assert found == [("t.backlog", 8, 8), ("t.live", 19, 19)]


class HugeBatch:
    """A batch that Spark refuses to collect, as far as a sink can see."""

    def __init__(self, complaint: str) -> None:
        self.complaint = complaint

    def toArrow(self) -> None:
        raise RuntimeError(self.complaint)

    def mapInArrow(self, _: object, ddl: str) -> HugeBatch:
        assert ddl == RECEIPT_DDL
        return self

    def collect(self) -> list[Row]:
        return [Row(**asdict(Receipt("t.live", 0, 5)))]


def test_a_batch_too_large_for_the_driver_goes_through_the_tasks() -> None:
    complaint = "Total size of serialized results is bigger than spark.driver.maxResultSize 256.0 MiB"
    batch = cast("DataFrame", HugeBatch(complaint))
    assert SINKS["driver"](target("")).store(batch) == [Receipt("t.live", 0, 5)]
    with pytest.raises(RuntimeError, match="something else"):
        SINKS["driver"](target("")).store(cast("DataFrame", HugeBatch("something else")))


@quiet
def test_small_chunks_of_a_driver_s_batch_store_the_same(heart: Line) -> None:
    car = heart.devices["car1"]
    records = in_log_order([(car.packet(n, speed(n)), car.stamp(T0)) for n in range(1, 20)])
    pieces = pa.concat_tables([table(records[n : n + 4]) for n in range(0, 19, 4)])
    receipts = store_table(target(heart.dsn, chunk_bytes=1), pieces)
    assert [one.next_offset for one in receipts] == [4, 8, 12, 16, 19]
    assert heart.rows("SELECT ranges::text, samples FROM seen_ranges") == [("{[1,20)}", 19)]


@quiet
def test_a_task_with_two_partitions_is_refused(heart: Line) -> None:
    car = heart.devices["car1"]
    frames = [(car.packet(1, speed(1)), car.stamp(T0))]
    both = table([*in_log_order(frames), *in_log_order(frames, BACKLOG)])
    with pytest.raises(PlanBroken):
        store_partition(target(heart.dsn), both.to_batches())
    assert heart.rows("SELECT count(*) FROM ingest_offsets") == [(0,)]

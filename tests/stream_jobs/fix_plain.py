"""A line without Spark: records go from Kafka and from the archive's files through the same transaction, decoded by
fastavro. For tests of what surrounds the transaction; Spark's own reading is tested where it matters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition

from contracts.tables import ROLE_SINK
from stream_jobs.log import LogReader
from stream_jobs.parquet import Place
from stream_jobs.service import patiently
from stream_jobs.sinks.base import Target
from stream_jobs.sinks.connection import drop_all
from stream_jobs.sinks.driver import store_table
from stream_jobs.sinks.ledger import StoreLedger
from stream_jobs.wiring import make_topics, topic_kinds
from tests.stream_jobs.build import Record, add_devices, table
from tests.stream_jobs.fix_ingest import Line

SLICE = 100


class PlainLine(Line):
    """``drain`` and ``fill`` read with a plain consumer; ``after_slice`` is called between two transactions."""

    def drain(self, max_offsets: int = SLICE, after_batch: Callable[[], object] = int) -> Any:
        """Store what the log holds, from where the store is."""
        log = patiently(LogReader(self.bootstrap, list(topic_kinds(self.prefix))).state, threading.Event())
        until = {
            Place(name, log.ids[name], number): extent.end
            for name, parts in log.extents.items()
            for number, extent in parts.items()
        }
        return self.store(self.dsn, until, None, max_offsets, after_batch)

    def store(
        self, dsn: str, until: Mapping[Place, int], archive: Path | None, size: int = SLICE,
        after_slice: Callable[[], object] = int,
    ) -> int:  # fmt: skip
        """Bring the tables behind ``dsn`` to positions; how many records were read."""
        ledger = StoreLedger(dsn)
        known = {key: taken.next_offset for key, taken in ledger.progress().items()}
        ledger.disconnect()
        at = {place: known.get((place.topic_id, place.partition), 0) for place in until}
        records = sorted(
            (*(from_files(archive, at, until) if archive else ()), *from_kafka(self.bootstrap, at, until)),
            key=lambda one: (one.topic, one.partition, one.offset),
        )
        log = LogReader(self.bootstrap, list(topic_kinds(self.prefix))).state()
        target = Target(dsn, make_topics(self.prefix, log))
        for start in range(0, len(records), size):
            self.receipts += store_table(target, table(records[start : start + size]))
            after_slice()
        drop_all()
        return len(records)

    def fill(
        self, dsn: str, until: Mapping[tuple[UUID, int], tuple[str, int]], archive: Path,
        after_slice: Callable[[], object] = int,
    ) -> int:  # fmt: skip
        places = {Place(topic, topic_id, number): at for (topic_id, number), (topic, at) in until.items()}
        return self.store(dsn, places, archive, SLICE, after_slice)


def from_files(folder: Path, at: Mapping[Place, int], until: Mapping[Place, int]) -> Iterator[Record]:
    """Every archived record from ``at`` on; ``at`` is moved behind what the files hold."""
    moved = cast("dict[Place, int]", at)
    found: dict[Place, dict[int, Record]] = {}
    for path in folder.glob("tenant=*/day=*/*.parquet"):
        for row in pq.read_table(path, partitioning=None).to_pylist():
            place = Place(row["topic"], UUID(row["topic_id"]), row["partition"])
            if place in until and at[place] <= row["offset"] < until[place]:
                record = Record(row["bytes"], row["stamp"], row["offset"], place.topic, place.partition)
                found.setdefault(place, {})[record.offset] = record
    for place, records in found.items():
        offset = at[place]
        while offset in records:
            yield records[offset]
            offset += 1
        moved[place] = offset


def from_kafka(bootstrap: str, at: Mapping[Place, int], until: Mapping[Place, int]) -> Iterator[Record]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "plain", "enable.auto.commit": False})
    behind = {place: end for place, end in until.items() if at[place] < end}
    consumer.assign([TopicPartition(place.topic, place.partition, at[place]) for place in behind])
    left = {(place.topic, place.partition): end for place, end in behind.items()}
    while left:
        for message in consumer.consume(500, 0.2):
            assert message.error() is None, message.error()
            key = (str(message.topic()), int(message.partition() or 0))
            offset = int(message.offset() or 0)
            headers = cast("list[tuple[str, bytes]]", message.headers() or [])
            if key in left and offset < left[key]:
                yield Record(message.value(), headers[0][1] if headers else None, offset, *key)
            if key in left and offset + 1 >= left[key]:
                del left[key]
    consumer.close()


@pytest.fixture
def plain(
    kafka_bootstrap: str, topic_prefix: str, role_dsn: Callable[[str], str], schema_dsn: str, tmp_path: Path
) -> Iterator[PlainLine]:
    """A line with three devices of two tenants."""
    dsn = role_dsn(ROLE_SINK)
    devices = add_devices(dsn, {"north": ["car1", "car2"], "south": ["wtg1"]})
    yield PlainLine(cast("Any", None), kafka_bootstrap, topic_prefix, dsn, schema_dsn, tmp_path, devices)
    drop_all()

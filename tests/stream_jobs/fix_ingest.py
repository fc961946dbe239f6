"""The ingest query on real Kafka, Spark and PostgreSQL, run until the log is drained."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from confluent_kafka import Producer

from contracts.stamp import DEAD_LETTER_HEADER, STAMP_HEADER
from contracts.tables import ROLE_SINK
from contracts.topics import Topics
from stream_jobs.jobs import ingest
from stream_jobs.log import LogReader, starting_offsets
from stream_jobs.service import patiently
from stream_jobs.sinks import SINKS
from stream_jobs.sinks.base import Receipt, Target
from stream_jobs.sinks.connection import drop_all
from stream_jobs.sinks.ledger import StoreLedger
from stream_jobs.wiring import make_topics, topic_kinds
from tests.stream_jobs.build import Device, Frame, add_devices

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAR_MS = 4_000_000_000_000
"""A watermark far behind everything that tests measure."""


def send(
    bootstrap: str, topic: str, frames: Sequence[tuple[str, bytes | None, bytes | None]], header: str = STAMP_HEADER
) -> None:
    """Produce (key, value, header value) durably."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "partitioner": "murmur2_random",
            "acks": "all",
            "linger.ms": 5,
            "enable.idempotence": True,  # in order, as the gateway writes
        }
    )
    for key, value, stamp in frames:
        headers: list[tuple[str, str | bytes | None]] = [] if stamp is None else [(header, stamp)]
        producer.produce(topic, value, key.encode(), headers=headers)
    assert producer.flush(180) == 0


@dataclass(slots=True)
class Line:
    """Kafka topics and a schema that belong together; ``drain`` brings everything in the log into the store."""

    spark: SparkSession
    bootstrap: str
    prefix: str
    dsn: str
    superuser_dsn: str
    scratch: Path
    devices: dict[str, Device]
    sink: str = "tasks"
    drains: int = 0
    receipts: list[Receipt] = field(default_factory=list)

    @property
    def topics(self) -> Topics:
        return Topics(self.prefix)

    def send(self, frames: Sequence[tuple[str, bytes | None, bytes | None]], topic: str = "", header: str = "") -> None:
        """Produce (key, value, header value); the key decides the partition as in production."""
        send(self.bootstrap, topic or self.topics.live.name, frames, header or STAMP_HEADER)

    def send_from(self, device: Device, frames: Sequence[Frame], topic: str = "") -> None:
        self.send([(device.name, value, stamp) for value, stamp in frames], topic)

    def send_letter(self, key: str, value: bytes, letter: bytes) -> None:
        self.send([(key, value, letter)], self.topics.dead_letters.name, DEAD_LETTER_HEADER)

    def drain(self, max_offsets: int = 20_000, after_batch: Callable[[], object] = int) -> Any:
        """Run the query as a fresh start would, until it has read what is there; the finished query."""

        def heard(receipts: list[Receipt]) -> None:
            self.receipts.extend(receipts)
            after_batch()

        log = patiently(LogReader(self.bootstrap, list(topic_kinds(self.prefix))).state, threading.Event())
        topics = make_topics(self.prefix, log)
        store = StoreLedger(self.dsn)
        ledger = {key: taken.next_offset for key, taken in store.progress().items()}
        store.disconnect()
        options = ingest.kafka_options(self.bootstrap, topics, starting_offsets(log, ledger), max_offsets)
        sink = SINKS[self.sink](Target(self.dsn, topics))
        self.drains += 1
        checkpoint = self.scratch / f"checkpoint-{self.drains}"
        query = ingest.start(self.spark, sink, topics, options, checkpoint, {"availableNow": True}, heard)
        assert query.awaitTermination(600)
        return query

    def close_windows(self) -> None:
        """Close, publish and roll up everything that is there, as if all grace were over."""
        store = StoreLedger(self.dsn)
        while store.close_windows(FAR_MS, 100_000):
            continue
        store.disconnect()

    def rows(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(statement.encode(), parameters).fetchall()


@pytest.fixture
def heart(
    spark: SparkSession,
    kafka_bootstrap: str,
    topic_prefix: str,
    role_dsn: Callable[[str], str],
    schema_dsn: str,
    tmp_path: Path,
) -> Iterator[Line]:
    """A line with three devices of two tenants."""
    dsn = role_dsn(ROLE_SINK)
    devices = add_devices(dsn, {"north": ["car1", "car2"], "south": ["wtg1"]})
    yield Line(spark, kafka_bootstrap, topic_prefix, dsn, schema_dsn, tmp_path, devices)
    drop_all()
    gc.collect()  # Py4J's sockets go now, under this test's filter

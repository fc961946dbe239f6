"""A store, the closer and a clock, with Kafka as the test says it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry

from contracts.errors import TryLater
from contracts.packet import Block
from contracts.signals import catalogue
from contracts.tables import ROLE_SINK
from stream_jobs.jobs.closer import Closer
from stream_jobs.log import Extent, LogState
from stream_jobs.metrics import IngestMetrics
from stream_jobs.sinks.base import Receipt
from stream_jobs.sinks.connection import drop_all
from stream_jobs.sinks.ledger import StoreLedger
from stream_jobs.sinks.tasks import store_partition
from tests.stream_jobs.build import BACKLOG, LIVE, SPEED, T0, TOPICS, Device, add_devices, in_log_order, table, target


class FixedLog:
    """Kafka, as the test says it is."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.backlog_end = 0
        self.away = False

    def state(self) -> LogState:
        if self.away:
            raise TryLater("away")
        extents = {LIVE: {0: Extent(0, self.end)}, BACKLOG: {0: Extent(0, self.backlog_end)}}
        return LogState({name: TOPICS[name].topic_id for name in extents}, extents)


class Scene:
    """A store, a log and a clock for the closer; live packets unless said otherwise."""

    def __init__(self, dsn: str) -> None:
        self.dsn, self.now_ms, self.log = dsn, T0, FixedLog(0)
        self.offsets, self.heard = {LIVE: 0, BACKLOG: 0}, 0
        self.car: Device = add_devices(dsn, {"north": ["car1"]})["car1"]
        self.ledger = StoreLedger(dsn)
        self.closer = Closer(
            lambda: self.log.state(), self.ledger, LIVE, BACKLOG, 100, 0.01, lambda: self.now_ms,
            IngestMetrics(CollectorRegistry()),
        )  # fmt: skip

    def put(
        self, seq: int, *values: int, received_ms: int, base_ms: int = T0, topic: str = LIVE, signal: int = SPEED,
        nonce: int = 77, flags: int = 0,
    ) -> Receipt:  # fmt: skip
        """Store one packet of one block, a value each 100 ms."""
        block = Block(
            signal, catalogue().by_number(signal).exponent, 0, tuple(n * 100 for n in range(len(values))), values
        )
        frame = self.car.packet(seq, block, base_ms=base_ms, nonce=nonce)
        records = in_log_order([(frame, self.car.stamp(received_ms, flags))], topic, self.offsets[topic])
        (receipt,) = store_partition(target(self.dsn), table(records).to_batches())
        self.offsets[topic] += 1
        self.log.end, self.log.backlog_end = self.offsets[LIVE], self.offsets[BACKLOG]
        return receipt

    def hear(self, received_ms: int) -> None:
        """A packet without readings comes, so that the log knows how late it is."""
        self.heard += 1
        frame = self.car.packet(self.heard, epoch=9)
        records = in_log_order([(frame, self.car.stamp(received_ms))], LIVE, self.offsets[LIVE])
        store_partition(target(self.dsn), table(records).to_batches())
        self.offsets[LIVE] += 1
        self.log.end = self.offsets[LIVE]

    def close_until_quiet(self, now_ms: int) -> None:
        """Let the clock stand at ``now_ms`` and the closer do all it can."""
        self.now_ms = now_ms
        while self.closer.once():
            continue

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute(statement.encode()).fetchall()

    def said(self, topic: str = "windows") -> list[dict[str, Any]]:
        rows = self.rows(f"SELECT kafka_value FROM outbox WHERE topic = '{topic}' ORDER BY outbox_id")
        return [json.loads(bytes(row[0])) for row in rows]


@pytest.fixture
def scene(role_dsn: Callable[[str], str]) -> Iterator[Scene]:
    made = Scene(role_dsn(ROLE_SINK))
    yield made
    made.ledger.disconnect()
    drop_all()

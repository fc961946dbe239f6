"""Reads the two witnesses: the store by SQL, the log from its first record to its last."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg
from confluent_kafka import Consumer, TopicPartition

from contracts.errors import Rejected
from contracts.packet import decode_header, decode_packet
from contracts.topics import Topics
from tests.torture.checker import NOTHING, Content, LedgerRow, LogRecord, SetAside, StoredRow
from tests.torture.history import Identity

POLL_S = 5.0
SCAN_RECORDS = 2_000
SEEN = """
SELECT d.device, s.boot_epoch, s.ranges FROM seen_ranges s JOIN devices d USING (device_key)
UNION ALL SELECT d.device, g.boot_epoch, range_agg(int8range(g.first_seq, g.last_seq, '[]'))
FROM agent_gaps g JOIN devices d USING (device_key) GROUP BY 1, 2
UNION ALL SELECT d.device, q.boot_epoch, range_agg(int8range(q.seq, q.seq, '[]'))
FROM quarantined q JOIN devices d USING (device_key) WHERE q.boot_epoch > 0 GROUP BY 1, 2
UNION ALL SELECT r.device, r.boot_epoch, range_agg(int8range(r.seq, r.seq, '[]'))
FROM refused r WHERE r.boot_epoch > 0 GROUP BY 1, 2
"""
WINDOWS_FROM_READINGS = """
WITH moving AS (
    SELECT DISTINCT d.device, s.path AS signal, whole.width_s,
           to_timestamp(floor(extract(epoch FROM part.starts_at) / whole.width_s) * whole.width_s) AS starts_at
    FROM (SELECT device_key, signal, width_s, starts_at FROM window_aggregates WHERE width_s = 60 AND state <> 1
          UNION ALL SELECT device_key, signal, width_s, starts_at FROM rollup_due) AS part
    JOIN devices d USING (device_key) JOIN signals s ON s.signal = part.signal
    JOIN (VALUES (3600), (86400)) AS whole (width_s) ON part.width_s <= whole.width_s
), said AS (
    SELECT device, signal, width_s,
           to_timestamp(floor(extract(epoch FROM measured_at) / width_s) * width_s) AS starts_at,
           count(*) AS n, sum(value) AS total, min(value) AS low, max(value) AS high
    FROM readings CROSS JOIN (VALUES (10), (60), (3600), (86400)) AS w (width_s)
    WHERE device = ANY(%(devices)s) AND quality < 64 GROUP BY 1, 2, 3, 4
), held AS (
    SELECT device, signal, width_s, starts_at, n, mean * n AS total, min AS low, max AS high
    FROM windows WHERE device = ANY(%(devices)s)
)
SELECT device, signal, width_s, starts_at, said.n, held.n
FROM said FULL JOIN held USING (device, signal, width_s, starts_at)
WHERE (said.n = held.n AND said.low = held.low AND said.high = held.high
       AND abs(said.total - held.total) < 1e-6 * greatest(1, abs(said.total))) IS NOT TRUE
    AND NOT EXISTS (SELECT FROM moving m WHERE (m.device, m.signal, m.width_s, m.starts_at)
        = (coalesce(said.device, held.device), coalesce(said.signal, held.signal),
           coalesce(said.width_s, held.width_s), coalesce(said.starts_at, held.starts_at)))
"""
"""Every width. An hour or a day is made by the closer from published parts, so it is compared when none of its parts is
to be published and none of its roll-ups is due; then it must be there, and right. That holds while packets still come,
too: the transaction that stores one takes its minute's publication back, and publishing the minute makes its hour due.
A closer that never comes leaves everything due, and that is not found here.
"""


STORED = """
SELECT p.device, p.boot_epoch, p.seq, p.tenant, p.sha256, coalesce(r.n, 0), coalesce(r.total, 0)
FROM packets p LEFT JOIN (SELECT device, boot_epoch, seq, count(*) AS n, sum(value) AS total FROM readings
                          GROUP BY 1, 2, 3) AS r USING (device, boot_epoch, seq)
"""
LATEST_FROM_READINGS = """
WITH said AS (SELECT device, signal, max(measured_at) AS newest FROM readings
              WHERE device = ANY(%(devices)s) AND quality < 64 GROUP BY 1, 2)
SELECT device, signal, said.newest, l.measured_at
FROM said FULL JOIN (SELECT device, signal, measured_at FROM latest WHERE device = ANY(%(devices)s)) AS l
    USING (device, signal)
WHERE said.newest IS DISTINCT FROM l.measured_at
"""


class StoreWitness:
    """One connection that is opened again when it breaks. Every method raises psycopg.Error."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: psycopg.Connection[Any] | None = None

    def explained(self, asked: Sequence[Identity]) -> list[Identity]:
        """Which of these the store accounts for: stored, dropped with a report, or set aside."""
        ranges: dict[tuple[str, int], list[Any]] = {}
        for device, epoch, multirange in self._rows(SEEN):
            ranges.setdefault((device, epoch), []).extend(multirange or ())
        return [one for one in asked if any(one[2] in part for part in ranges.get(one[:2], ()))]

    def stored(self) -> list[StoredRow]:
        """Packets, with what the view of readings shows of them."""
        rows = self._rows(STORED)
        return [StoredRow(tuple(row[:3]), row[3], row[4], Content(row[5], row[6])) for row in rows]

    def ledger(self) -> list[LedgerRow]:
        rows = self._rows("SELECT device, boot_epoch, stored_packets, missing FROM ledger")
        return [LedgerRow(row[0], row[1], row[2], tuple((one.lower, one.upper - 1) for one in row[3])) for row in rows]

    def latest_wrong(self, devices: Iterable[str]) -> list[str]:
        """Latest values that are not as new as the newest stored reading, or newer."""
        rows = self._rows(LATEST_FROM_READINGS, {"devices": list(devices)})
        return [f"{row[0]} {row[1]}: newest reading {row[2]}, latest {row[3]}" for row in rows]

    def gaps(self) -> list[tuple[str, int, int, int]]:
        return self._rows(
            "SELECT device, boot_epoch, first_seq, last_seq FROM agent_gaps JOIN devices USING (device_key)"
        )

    def taken(self) -> dict[tuple[str, int], int]:
        """Topic and partition to the first offset that the store has not taken yet."""
        rows = self._rows("SELECT topic, kafka_partition, next_offset FROM ingest_offsets")
        return {(topic, partition): offset for topic, partition, offset in rows}

    def aside(self) -> list[SetAside]:
        rows = self._rows(
            "SELECT coalesce(device, ''), reason, sha256, coalesce(samples, 0) FROM quarantine"
            " UNION ALL SELECT device, reason, sha256, 0 FROM dead_letters"
        )
        return [SetAside(*row) for row in rows]

    def aside_digests(self) -> set[str]:
        """For who waits until his poison is noticed."""
        return {one.sha256 for one in self.aside()}

    def windows_wrong(self, devices: Iterable[str]) -> list[str]:
        """Windows that are not what the stored readings add up to: a merge that was lost or done twice."""
        rows = self._rows(WINDOWS_FROM_READINGS, {"devices": list(devices)})
        return [f"{row[0]} {row[1]} {row[2]} s at {row[3]}: readings {row[4]}, window {row[5]}" for row in rows]

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _rows(self, query: str, parameters: Mapping[str, object] | None = None) -> list[Any]:
        if self._connection is None or self._connection.closed or self._connection.broken:
            self._connection = psycopg.connect(self._dsn, autocommit=True, connect_timeout=3)
        try:
            return self._connection.execute(query.encode(), parameters).fetchall()
        except psycopg.OperationalError:
            self.close()
            raise


def read_log(bootstrap: str, topics: Topics) -> tuple[list[LogRecord], set[str]]:
    """Every packet in the raw topics, and the hashes of all dead letters and answers. Raises KafkaException."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "torture", "enable.auto.commit": False})
    try:
        records: list[LogRecord] = []
        for name in (topics.live.name, topics.backlog.name, topics.priority.name):
            for place, offset, value in _everything(consumer, name):
                record = _record(place, offset, value)
                if record is not None:
                    records.append(record)
        others = (topics.dead_letters.name, topics.answers.name)
        letters = {hashlib.sha256(value).hexdigest() for name in others for _, _, value in _everything(consumer, name)}
        return records, letters
    finally:
        consumer.close()


def log_ends(bootstrap: str, topics: Topics) -> dict[tuple[str, int], int]:
    """Topic and partition to the log's end, of what the store reads packets from. Raises KafkaException."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "torture", "enable.auto.commit": False})
    try:
        ends = {}
        for topic in (topics.live, topics.backlog):
            consumer.list_topics(topic.name, timeout=POLL_S)  # offsets are refused of a topic not heard of yet
            for number in range(topic.partitions):
                partition = TopicPartition(topic.name, number)
                ends[topic.name, number] = consumer.get_watermark_offsets(partition, timeout=POLL_S)[1]
        return ends
    finally:
        consumer.close()


def _record(place: tuple[str, int], offset: int, value: bytes) -> LogRecord | None:
    try:
        head = decode_header(value)
    except Rejected:
        return None
    numbered = (head.device, head.boot_epoch, head.nonce, head.seq)
    return LogRecord(place, numbered, head.mono_ms, hashlib.sha256(value).hexdigest(), offset, _content(value))


def _content(value: bytes) -> Content:
    try:
        packet = decode_packet(value)
    except Rejected:
        return NOTHING
    whole = [(block.base + one) * 10.0**block.exponent for block in packet.blocks for one in block.values]
    doubles = [one for block in packet.doubles for one in block.values]
    return Content(len(whole) + len(doubles), math.fsum(one for one in (*whole, *doubles) if not math.isnan(one)))


def _everything(consumer: Consumer, topic: str) -> list[tuple[tuple[str, int], int, bytes]]:
    """All records of a topic up to its present end."""
    found: list[tuple[tuple[str, int], int, bytes]] = []
    partitions = consumer.list_topics(topic, timeout=POLL_S).topics[topic].partitions
    for number in partitions:
        begin, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=POLL_S)
        if begin == end:
            continue
        consumer.assign([TopicPartition(topic, number, begin)])
        at = begin
        while at < end:
            for message in consumer.consume(min(SCAN_RECORDS, end - at), timeout=POLL_S):
                if message.error() is None:
                    at = (message.offset() or 0) + 1
                    found.append(((topic, number), at - 1, message.value() or b""))
    return found

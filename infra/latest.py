"""The latest values twice, as a table and as a compacted topic: are they equal; either made from the other."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import psycopg
from confluent_kafka import Consumer, KafkaException, TopicPartition
from psycopg.rows import class_row

from api.queries.latest import NAME, ROWS
from contracts.errors import Rejected
from contracts.latest import LatestValue, decode_latest
from contracts.topics import KafkaTopic
from infra.errors import SetupError

PATIENCE_S: Final = 60.0
LOOK_S: Final = 0.2
MOST_SHOWN: Final = 20

UPSERT: Final = """
INSERT INTO latest_values AS l (device_key, signal, tenant_id, measured_ms, boot_epoch, seq, pos, val, quality,
    received_at)
SELECT d.device_key, s.signal, d.tenant_id, %(measured_ms)s, %(boot_epoch)s, %(seq)s, %(pos)s, %(value)s, %(quality)s,
       at_ms(%(received_ms)s)
FROM devices d, signals s WHERE d.device = %(device)s AND s.path = %(signal)s
ON CONFLICT (device_key, signal) DO UPDATE SET measured_ms = excluded.measured_ms, boot_epoch = excluded.boot_epoch,
    seq = excluded.seq, pos = excluded.pos, val = excluded.val, quality = excluded.quality,
    received_at = excluded.received_at
WHERE (excluded.measured_ms, excluded.boot_epoch, excluded.seq, excluded.pos)
        >= (l.measured_ms, l.boot_epoch, l.seq, l.pos)
    AND (excluded.measured_ms, excluded.boot_epoch, excluded.seq, excluded.pos, excluded.val, excluded.quality,
         excluded.received_at) IS DISTINCT FROM
        (l.measured_ms, l.boot_epoch, l.seq, l.pos, l.val, l.quality, l.received_at)
"""

Values = dict[str, LatestValue]


@dataclass(slots=True)
class Comparison:
    """Keys by what is wrong with them; ``rows`` of the table, ``records`` of the topic."""

    rows: int
    records: int
    missing: list[str] = field(default_factory=list)
    older: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return not (self.missing or self.older or self.differing or self.strange)

    def as_json(self) -> dict[str, Any]:
        told = asdict(self)
        counts = {name: len(keys) for name, keys in told.items() if isinstance(keys, list)}
        shown = [key for keys in told.values() if isinstance(keys, list) for key in keys][:MOST_SHOWN]
        return {"equal": self.equal, "rows": self.rows, "records": self.records, **counts, "keys": shown}


def compare(table: Mapping[str, LatestValue], topic: Mapping[str, LatestValue], now: Iterable[str]) -> Comparison:
    """The table as it was, the topic as it became since, the table's keys ``now``: a newer record is no difference."""
    found = Comparison(len(table), len(topic), strange=sorted(topic.keys() - set(now)))
    for key, row in sorted(table.items()):
        record = topic.get(key)
        if record is None:
            found.missing.append(key)
        elif record.place < row.place:
            found.older.append(key)
        elif record.place == row.place and not record.same_as(row):
            found.differing.append(key)
    return found


def verify(dsn: str, bootstrap: str, topic: KafkaTopic, patience_s: float = PATIENCE_S) -> Comparison:
    """Wait until the topic has come as far as the table is now, then compare. Raises SetupError."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            goal = _one(connection, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
            table = read_table(connection)
        deadline = time.monotonic() + patience_s
        while _position(connection) < goal:
            if time.monotonic() > deadline:
                raise SetupError(
                    f"The topic {topic.name} did not come as far as the table within {patience_s:.0f} s; is the API's "
                    "relay running? `fleetstream status` tells"
                )
            time.sleep(LOOK_S)
        records = read_topic(bootstrap, topic)
        return compare(table, records, read_table(connection))


def rebuild_table(dsn: str, bootstrap: str, topic: KafkaTopic) -> tuple[int, int]:
    """Bring every record into the table, unless the table's row is newer: (records, rows written)."""
    records = read_topic(bootstrap, topic)
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        order: dict[str, int] = dict(connection.execute("SELECT device, device_key FROM devices").fetchall())
        numbers: dict[str, int] = dict(connection.execute("SELECT path, signal FROM signals").fetchall())
        known = [one for one in records.values() if one.device in order and one.signal in numbers]
        known.sort(key=lambda one: (order[one.device], numbers[one.signal]))  # the order in which ingest locks rows
        cursor.executemany(UPSERT, [asdict(one) for one in known])
        return len(records), max(0, cursor.rowcount)


def rebuild_topic(dsn: str, bootstrap: str, topic: KafkaTopic) -> tuple[int, int]:
    """Have every row told again and what is not in the table removed: (rows to be told, records to be removed)."""
    records = read_topic(bootstrap, topic)
    with psycopg.connect(dsn) as connection:
        table = read_table(connection)
        gone = sorted(records.keys() - table.keys())
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO outbox (topic, kafka_key) VALUES ('latest', %s)", [(key,) for key in gone])
        connection.execute("UPDATE projections SET position = 0 WHERE name LIKE 'latest:%'")
        return len(table), len(gone)


def read_table(connection: psycopg.Connection[Any]) -> Values:
    with connection.cursor(row_factory=class_row(LatestValue)) as cursor:
        return {one.key: one for one in cursor.execute(ROWS.encode())}


def read_topic(bootstrap: str, topic: KafkaTopic) -> Values:
    """What the topic adds up to now. Raises SetupError when Kafka does not answer."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "fleetstream-latest", "log_level": 2})
    values: Values = {}
    try:
        places = [TopicPartition(topic.name, number, 0) for number in range(topic.partitions)]
        ends = {place.partition: consumer.get_watermark_offsets(place, timeout=10) for place in places}
        left = {number: end for number, (begin, end) in ends.items() if begin < end}
        consumer.assign([TopicPartition(topic.name, number, ends[number][0]) for number in left])
        deadline = time.monotonic() + PATIENCE_S
        while left:
            for message in consumer.consume(5_000, 0.5):
                deadline = time.monotonic() + PATIENCE_S
                _apply(values, (message.key() or b"").decode(), message.value())
            reached = {place.partition: place.offset for place in consumer.position(list(map(_place(topic), left)))}
            left = {number: end for number, end in left.items() if reached[number] < end}
            if time.monotonic() > deadline:
                raise SetupError(f"Kafka stopped answering while {topic.name} was read; nothing was changed")
    except KafkaException as error:
        raise SetupError(f"Kafka does not answer about {topic.name}; nothing was changed ({error})") from error
    finally:
        consumer.close()
    return values


def _place(topic: KafkaTopic) -> Any:
    return lambda number: TopicPartition(topic.name, number)


def _apply(values: Values, key: str, value: bytes | None) -> None:
    if value is None:
        values.pop(key, None)
        return
    try:
        values[key] = decode_latest(value)
    except Rejected:
        values.pop(key, None)


def _position(connection: psycopg.Connection[Any]) -> int:
    return int(_one(connection, f"SELECT coalesce(max(position), 0) FROM projections WHERE name = ({NAME})"))


def _one(connection: psycopg.Connection[Any], statement: str) -> int:
    row = connection.execute(statement.encode()).fetchone()
    return int(row[0]) if row else 0

"""Packets, records and a small registry for the tests of this room."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

import fastavro
import psycopg
import pyarrow as pa

from contracts.packet import (
    CRC_BYTES,
    PREFIX_BYTES,
    Block,
    DoubleBlock,
    Gap,
    Header,
    Packet,
    encode_packet,
    schema_text,
)
from contracts.stamp import Stamp, encode_stamp
from stream_jobs.records import Kind
from stream_jobs.sinks.base import Target, Topic

LIVE, BACKLOG, STATUS, DEAD = "t.live", "t.backlog", "t.status", "t.dead"
TOPICS: Mapping[str, Topic] = {
    LIVE: Topic(UUID(int=1), Kind.PACKETS),
    BACKLOG: Topic(UUID(int=2), Kind.PACKETS),
    STATUS: Topic(UUID(int=3), Kind.STATUS),
    DEAD: Topic(UUID(int=4), Kind.DEAD_LETTERS),
}
T0 = 1_790_000_000_000
"""A moment on a window's edge, Unix milliseconds."""

SPEED, RPM, LATITUDE, DISTANCE = 1, 20, 4, 2


@dataclass(frozen=True, slots=True)
class Device:
    """A registered device of the tests."""

    name: str
    key: int
    tenant: str
    tenant_id: int

    def stamp(self, received_ms: int, flags: int = 0) -> bytes:
        return encode_stamp(Stamp(received_ms, self.key, self.tenant_id, flags))

    def packet(
        self,
        seq: int,
        *blocks: Block | DoubleBlock,
        base_ms: int = T0,
        epoch: int = 1,
        nonce: int = 77,
        gaps: Sequence[Gap] = (),
        claimed: int | None = None,
    ) -> bytes:
        """An encoded packet; ``claimed`` overrides the header's count."""
        count = sum(len(block.offsets_ms) for block in blocks)
        header = Header(
            self.tenant, self.name, epoch, nonce, seq, 0, base_ms, 5, True, count if claimed is None else claimed
        )
        whole = tuple(block for block in blocks if isinstance(block, Block))
        doubles = tuple(block for block in blocks if isinstance(block, DoubleBlock))
        return encode_packet(Packet(header, whole, doubles, tuple(gaps)))


@dataclass(frozen=True, slots=True)
class Record:
    """One Kafka record."""

    value: bytes | None
    stamp: bytes | None
    offset: int = 0
    topic: str = LIVE
    partition: int = 0


def speed(*values: int, step_ms: int = 100, base: int = 0, exponent: int = -2) -> Block:
    """Speeds in units of ``exponent``, one every ``step_ms``."""
    return Block(SPEED, exponent, base, tuple(n * step_ms for n in range(len(values))), values)


def add_devices(dsn: str, names: Mapping[str, Sequence[str]]) -> dict[str, Device]:
    """Register tenants with their devices; by name."""
    made = {}
    with psycopg.connect(dsn) as connection:
        for tenant, devices in names.items():
            row = connection.execute("INSERT INTO tenants (name) VALUES (%s) RETURNING tenant_id", (tenant,)).fetchone()
            assert row is not None
            for name in devices:
                key = connection.execute(
                    "INSERT INTO devices (device, tenant_id) VALUES (%s, %s) RETURNING device_key", (name, row[0])
                ).fetchone()
                asset = connection.execute(
                    "INSERT INTO assets (tenant_id, name, kind) VALUES (%s, %s, 'car') RETURNING asset_id",
                    (row[0], name),
                ).fetchone()
                assert key is not None and asset is not None
                connection.execute(
                    "INSERT INTO bindings (device_key, asset_id, tenant_id) VALUES (%s, %s, %s)",
                    (key[0], asset[0], row[0]),
                )
                made[name] = Device(name, key[0], tenant, row[0])
    return made


def target(dsn: str, chunk_bytes: int = 64 * 1024 * 1024) -> Target:
    return Target(dsn, TOPICS, chunk_bytes)


def table(records: Sequence[Record]) -> pa.Table:
    """Records as the sink gets them from Spark."""
    packet_type = arrow_type(json.loads(schema_text()))
    return pa.table(
        {
            "topic": pa.array([one.topic for one in records], pa.string()),
            "partition": pa.array([one.partition for one in records], pa.int32()),
            "offset": pa.array([one.offset for one in records], pa.int64()),
            "value": pa.array([one.value for one in records], pa.binary()),
            "stamp": pa.array([one.stamp for one in records], pa.binary()),
            "packet": pa.array([_decoded(one.value, packet_type) for one in records], packet_type),
        }
    )


Frame = tuple[bytes | None, bytes | None]
"""A record's value and its stamp."""


def in_log_order(frames: Sequence[Frame], topic: str = LIVE, first: int = 0) -> list[Record]:
    """Records with consecutive offsets."""
    return [Record(value, stamp, first + n, topic) for n, (value, stamp) in enumerate(frames)]


def arrow_type(schema: Any) -> Any:
    """What Spark makes of an Avro schema."""
    if isinstance(schema, dict):
        if schema["type"] == "record":
            return pa.struct([(field["name"], arrow_type(field["type"])) for field in schema["fields"]])
        return pa.list_(arrow_type(schema["items"]))
    return {
        "string": pa.string(), "long": pa.int64(), "int": pa.int32(), "boolean": pa.bool_(), "double": pa.float64(),
    }[schema]  # fmt: skip


@cache
def _schema() -> Any:
    return fastavro.parse_schema(json.loads(schema_text()))


def _decoded(frame: bytes | None, packet_type: Any) -> dict[str, Any] | None:
    """The body as PERMISSIVE ``from_avro`` gives it: a row of NULLs where it does not decode."""
    blank = {field.name: None for field in packet_type}
    try:
        body = fastavro.schemaless_reader(io.BytesIO((frame or b"")[PREFIX_BYTES:-CRC_BYTES]), _schema(), None)
        pa.scalar(body, packet_type)
    except (EOFError, ValueError, IndexError, UnicodeDecodeError, OverflowError, MemoryError, pa.ArrowInvalid):
        return blank
    return body  # type: ignore[return-value]

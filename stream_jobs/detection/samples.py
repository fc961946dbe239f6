"""Decoded packets to the readings that detectors look at, one block of bytes per shard of devices.

A block crosses Spark as one value, so its cost is per shard and batch, not per reading. Readings keep the order of
the log: the watermark is a property of that order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anomaly.moments import SAMPLE
from anomaly.shard import Shard, split
from anomaly.types import Rows
from contracts.packet import FIRST_BAD_QUALITY
from stream_jobs.decode import decode
from stream_jobs.records import Decoded
from stream_jobs.scales import catalogue_scales
from stream_jobs.sinks.assemble import assemble, chunked
from stream_jobs.sinks.base import Topic

CHUNK_BYTES = 64 * 1024 * 1024
"""Arrow bytes that are decoded at once."""

LAST_MS = 2**42
"""Event times from here on (the year 2109) are no readings of ours."""

BLOCK_DDL = "shard int, readings binary"
_TYPES: dict[str, pa.DataType] = {"shard": pa.int32(), "readings": pa.binary()}
_BLOCK = pa.schema(_TYPES)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the query's tasks need to know; travels to Spark's Python workers. ``lanes``: topic name to lane."""

    shard: Shard
    shards: int
    topics: Mapping[str, Topic]
    lanes: Mapping[str, int]


def readings_of(plan: Plan, decoded: Decoded) -> Rows:
    """Believed, good, finite readings of signals that a detector looks at, in log order."""
    samples, packets = decoded.samples, decoded.packets
    number = catalogue_scales().numbers[samples.signal]
    good = (samples.belief == 0) & (samples.quality < FIRST_BAD_QUALITY) & np.isfinite(samples.value)
    good &= (samples.event_ms >= 0) & (samples.event_ms < LAST_MS) & np.isin(number, plan.shard.signals)
    of = samples.packet[good]
    rows = np.zeros(len(of), SAMPLE)
    lane = np.array([plan.lanes[source.topic] for source in decoded.records.sources], np.uint8)
    rows["device"], rows["lane"] = packets.device_key[of], lane[packets.source[of]]
    rows["signal"], rows["at_ms"], rows["value"] = number[good], samples.event_ms[good], samples.value[good]
    rows["epoch"], rows["seq"], rows["pos"] = packets.boot_epoch[of], packets.seq[of], samples.pos[good]
    return rows


def pack(plan: Plan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What Spark runs once per micro-batch: one row per shard that has readings. Never fails for what a record says."""
    held: dict[int, list[bytes]] = {}
    for table in chunked(batches, CHUNK_BYTES):
        for records in assemble(table, plan.topics):
            rows = readings_of(plan, decode(records, catalogue_scales()))
            for shard, part in split(rows, plan.shards):
                held.setdefault(shard, []).append(part.tobytes())
    blocks = [b"".join(held[shard]) for shard in sorted(held)]
    yield pa.RecordBatch.from_arrays([pa.array(sorted(held), pa.int32()), pa.array(blocks, pa.binary())], schema=_BLOCK)

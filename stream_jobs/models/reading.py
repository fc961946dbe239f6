"""The archive's packets to readings by device and day, read as a rebuild reads them and decoded as the stream does it.

A block is what one table of Arrow holds of one lane of one device and one day (event time, UTC), in log order. A day of
one device is the unit of work: it bounds memory however long the archive is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from anomaly.moments import SAMPLE
from anomaly.shard import Shard, together
from anomaly.types import Bools, Ints, Rows
from stream_jobs.decode import decode
from stream_jobs.detection.samples import CHUNK_BYTES, Plan, readings_of
from stream_jobs.jobs.ingest import decoded
from stream_jobs.parquet import Place
from stream_jobs.rebuild import ArchiveLog, FileRange, day_of, generations
from stream_jobs.records import Decoded, Kind
from stream_jobs.scales import catalogue_scales
from stream_jobs.sinks.assemble import assemble, chunked
from stream_jobs.sinks.base import Topic
from stream_jobs.sinks.manifest import KeptFile

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

DAY_MS = 86_400_000
BLOCK_DDL = (
    "device int, day int, lane int, generation int, offset long, records long, readings long, first_ms long,"
    " last_ms long, block binary"
)
_TYPES: dict[str, pa.DataType] = {
    "device": pa.int32(), "day": pa.int32(), "lane": pa.int32(), "generation": pa.int32(), "offset": pa.int64(),
    "records": pa.int64(), "readings": pa.int64(), "first_ms": pa.int64(), "last_ms": pa.int64(), "block": pa.binary(),
}  # fmt: skip
_SCHEMA = pa.schema(_TYPES)
Spans = Mapping[int, Ints]
"""Device key to spans (n x 2, milliseconds)."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of the archive is read: event times from ``from_ms`` on and before ``until_ms``, ``signals`` of devices
    while they were bound to an asset of the wanted kind."""

    signals: tuple[int, ...]
    bound: Spans
    from_ms: int
    until_ms: int

    def keeps(self, rows: Rows) -> Bools:
        """Which readings are wanted."""
        at, kept = rows["at_ms"], np.zeros(len(rows), np.bool_)
        for device in np.unique(rows["device"]).tolist():
            mine = rows["device"] == device
            for begin, end in self.bound.get(device, np.zeros((0, 2), np.int64)).tolist():
                kept |= mine & (at >= begin) & (at < end)
        return np.asarray(kept & (at >= self.from_ms) & (at < self.until_ms))


@dataclass(frozen=True, slots=True)
class Archive:
    """Files of the packet topics. ``lanes``: topic name to lane."""

    files: tuple[FileRange, ...]
    lanes: Mapping[str, int]
    digests: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path, kept: Sequence[KeptFile], lanes: Mapping[str, int], from_ms: int) -> Archive:
        """Files that may hold event times from ``from_ms`` on: nothing is received before it happened, by a day."""
        chosen = [
            one
            for one in kept
            if one.topic in lanes and (from_ms <= DAY_MS or one.received_day >= day_of(from_ms - DAY_MS))
        ]
        files = tuple(
            FileRange(
                folder / one.path, Place(one.topic, one.topic_id, one.partition), one.first_offset, one.last_offset
            )
            for one in chosen
        )
        return cls(files, lanes, tuple(sorted(one.sha256.hex() for one in chosen)))

    def blocks(self, session: SparkSession, wanted: Wanted) -> DataFrame:
        """One row per block; topics that were made again are read one after the other."""
        parts = []
        for number, ids in enumerate(generations(one.place for one in self.files)):
            ends: dict[Place, range] = {}
            for one in self.files:
                if ids.get(one.place.topic) == one.place.topic_id:
                    last = max(one.last_offset + 1, ends[one.place].stop if one.place in ends else 0)
                    ends[one.place] = range(last)
            topics = {name: Topic(topic_id, Kind.PACKETS) for name, topic_id in ids.items()}
            plan = Plan(Shard((), 1_000, wanted.signals), 1, topics, self.lanes)
            mine = tuple(one for one in self.files if one.place in ends)
            records = decoded(ArchiveLog(mine).read(session, ends), topics)
            parts.append(records.mapInArrow(partial(cut, plan, wanted, number), BLOCK_DDL))
        return reduce(lambda one, other: one.unionByName(other), parts)


def input_sha256(archive: Archive, wanted: Wanted, sick: Spans) -> str:
    """Names everything that is read: files, span, signals, who was what, what is left out."""
    spans = [
        {str(key): value.tolist() for key, value in sorted(one.items()) if len(value)} for one in (wanted.bound, sick)
    ]
    told = [archive.digests, wanted.signals, wanted.from_ms, wanted.until_ms, spans]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def cut(plan: Plan, wanted: Wanted, generation: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a Spark task runs: records in, blocks out. Never fails for what a record says."""
    for table in chunked(batches, CHUNK_BYTES):
        for records in assemble(table, plan.topics):
            found = decode(records, catalogue_scales())
            rows = readings_of(plan, found)
            rows = rows[wanted.keeps(rows)]
            if len(rows):
                yield _blocks(rows, found, generation)


def _blocks(rows: Rows, found: Decoded, generation: int) -> pa.RecordBatch:
    """One row per device, lane and day, in the order of the log within it."""
    packets = found.packets
    first = {
        device: (int(packets.offset[mine].min()), int(mine.sum()))
        for device in np.unique(rows["device"]).tolist()
        if (mine := packets.device_key == device).any()
    }
    day = rows["at_ms"] // DAY_MS
    order = np.lexsort((np.arange(len(rows)), day, rows["lane"], rows["device"]))
    ordered, day = rows[order], day[order]
    same = (ordered["device"][1:] == ordered["device"][:-1]) & (ordered["lane"][1:] == ordered["lane"][:-1])
    starts = np.flatnonzero(~same | (day[1:] != day[:-1])) + 1
    columns: list[list[object]] = [[] for _ in _TYPES]
    counted: set[int] = set()
    for part in np.split(ordered, starts):
        device = int(part["device"][0])
        offset, records = first[device]
        told = (
            device, int(part["at_ms"][0] // DAY_MS), int(part["lane"][0]), generation, offset,
            0 if device in counted else records, len(part), int(part["at_ms"].min()), int(part["at_ms"].max()),
            part.tobytes(),
        )  # fmt: skip
        counted.add(device)
        for column, value in zip(columns, told, strict=True):
            column.append(value)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, _TYPES.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def joined(frame: pd.DataFrame) -> Rows:
    """The readings of one device's day, each lane in log order."""
    ordered = frame.sort_values(["lane", "generation", "offset"], kind="stable")
    return together([bytes(block) for block in ordered["block"]]) if len(ordered) else np.zeros(0, SAMPLE)

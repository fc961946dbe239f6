"""The log once more, into other tables: the same decoding and the same transaction as ingest, read in bounded slices.

A rebuild reads either Kafka or the archive's files. It never reads past the positions it is given (where the live
tables stand), so that both sides can be compared row by row, and it goes on where its own ledger of offsets ends.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from pyspark.sql import functions as F

from contracts.stamp import STAMP_HEADER
from stream_jobs.errors import LogLost
from stream_jobs.jobs.ingest import decoded
from stream_jobs.parquet import Place
from stream_jobs.records import Kind
from stream_jobs.sinks.base import Receipt, Topic
from stream_jobs.sinks.slices import BatchTooLarge

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Positions = Mapping[Place, int]
Slice = Mapping[Place, range]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Step:
    """How far a rebuild has come: records read, and how many lie between its start and its end."""

    done: int
    total: int


class RawLog(Protocol):
    """Somewhere raw records can be read again, by offset."""

    def read(self, session: SparkSession, part: Slice) -> DataFrame:
        """Columns topic, partition, offset, value and headers, in offset order within each partition."""
        ...


def next_slice(at: Positions, until: Positions, limit: int) -> dict[Place, range]:
    """About ``limit`` records, evenly from every partition that is not at its end; empty when all are."""
    behind = sorted(
        (place for place, end in until.items() if at.get(place, 0) < end), key=lambda one: (one.topic, one.partition)
    )
    share = max(1, limit // max(1, len(behind)))
    return {place: range(at.get(place, 0), min(until[place], at.get(place, 0) + share)) for place in behind}


@dataclass(frozen=True, slots=True)
class KafkaLog:
    """Kafka itself; ``begins`` is the first offset that each partition still holds."""

    bootstrap: str
    begins: Positions

    def read(self, session: SparkSession, part: Slice) -> DataFrame:
        """Raises LogLost when the log begins behind the slice."""
        for place, offsets in part.items():
            check_begin(place, offsets.start, self.begins.get(place, 0))
        options = {
            "kafka.bootstrap.servers": self.bootstrap,
            "assign": _by_topic(dict.fromkeys(part)),
            "startingOffsets": _by_topic({place: offsets.start for place, offsets in part.items()}),
            "endingOffsets": _by_topic({place: offsets.stop for place, offsets in part.items()}),
            "includeHeaders": "true",
            "failOnDataLoss": "true",
        }
        return session.read.format("kafka").options(**options).load()


@dataclass(frozen=True, slots=True)
class FileRange:
    """One file of the archive and the offsets it lies between, both inclusive."""

    path: Path
    place: Place
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class ArchiveLog:
    """The archive's Parquet files, presented as Kafka would present their records."""

    files: tuple[FileRange, ...]

    def read(self, session: SparkSession, part: Slice) -> DataFrame:
        paths = [
            str(one.path)
            for one in self.files
            if (wanted := part.get(one.place)) and one.first_offset < wanted.stop and one.last_offset >= wanted.start
        ]
        columns = "topic string, partition int, offset long, stamp binary, bytes binary"
        files = session.read.schema(columns).parquet(*paths) if paths else session.createDataFrame([], columns)
        header = F.struct(F.lit(STAMP_HEADER).alias("key"), F.col("stamp").alias("value"))
        return (
            files.where(_within(part))
            .dropDuplicates(["topic", "partition", "offset"])
            .orderBy("topic", "partition", "offset")
            .select("topic", "partition", "offset", F.col("bytes").alias("value"), F.array(header).alias("headers"))
        )


def check_begin(place: Place, wanted: int, begin: int) -> None:
    """Raises LogLost when the log no longer holds ``wanted``."""
    if begin > wanted:
        raise LogLost(
            f"{place.topic} partition {place.partition}: Kafka holds offsets from {begin} on, {wanted} is wanted; "
            "nothing was lost, the archive holds what was trimmed: use --from archive"
        )


@dataclass(slots=True)
class Rebuilder:
    """Stores slice after slice. A slice too large for the driver is halved and read again."""

    session: SparkSession
    topics: Mapping[str, Topic]
    store: Callable[[DataFrame], list[Receipt]]
    slice_records: int
    since_ms: int | None = None
    """Only records received at or after this are stored; what has no receive time is left out then."""

    def run(
        self, source: RawLog, at: dict[Place, int], until: Positions, tell: Callable[[Step], None] = lambda _: None
    ) -> int:
        """Bring ``at`` to ``until``; how many records were read. Raises LogLost, StoreBusy."""
        total = sum(max(0, end - at.get(place, 0)) for place, end in until.items())
        done, limit = 0, self.slice_records
        while part := next_slice(at, until, limit):
            batch = self._chosen(decoded(source.read(self.session, part), self.topics))
            try:
                self.store(batch)
            except BatchTooLarge:
                if limit <= len(part):
                    raise
                limit //= 2
                log.warning("event=slice_halved records=%d", limit)
                continue
            done += sum(len(offsets) for offsets in part.values())
            at.update({place: offsets.stop for place, offsets in part.items()})
            tell(Step(done, total))
        return done

    def _chosen(self, records: DataFrame) -> DataFrame:
        if self.since_ms is None:
            return records
        return records.where(received_ms(self.topics) >= F.lit(self.since_ms))


def received_ms(topics: Mapping[str, Topic]) -> Column:
    """The gateway's receive time from the record's header, NULL where there is none."""
    letters = [name for name, topic in topics.items() if topic.kind is Kind.DEAD_LETTERS]
    stamped = F.conv(F.hex(F.substring(F.col("stamp"), 3, 8)), 16, 10).cast("long")
    told = F.get_json_object(F.col("stamp").cast("string"), "$.received_ms").cast("long")
    return F.when(F.col("topic").isin(letters), told).otherwise(stamped)


def day_of(ms: int) -> date:
    """The UTC day of Unix milliseconds."""
    return datetime.fromtimestamp(ms / 1000, UTC).date()


def generations(places: Iterable[Place]) -> list[dict[str, UUID]]:
    """Topic ids by name, in as many groups as a name has ids."""
    groups: list[dict[str, UUID]] = []
    for place in sorted(set(places), key=lambda one: (one.topic, one.topic_id, one.partition)):
        group = next((one for one in groups if one.get(place.topic, place.topic_id) == place.topic_id), None)
        if group is None:
            groups.append(group := {})
        group[place.topic] = place.topic_id
    return groups


def _within(part: Slice) -> Column:
    condition = F.lit(False)
    for place, offsets in part.items():
        mine = (F.col("topic") == place.topic) & (F.col("partition") == place.partition)
        condition |= mine & (F.col("offset") >= offsets.start) & (F.col("offset") < offsets.stop)
    return condition


def _by_topic(places: Mapping[Place, int | None]) -> str:
    """Spark's JSON: partitions by topic, with their offsets where there are some."""
    offsets: dict[str, dict[str, int]] = {}
    for place, offset in places.items():
        offsets.setdefault(place.topic, {})[str(place.partition)] = offset or 0
    if any(offset is not None for offset in places.values()):
        return json.dumps(offsets)
    return json.dumps({topic: sorted(map(int, numbers)) for topic, numbers in offsets.items()})

"""The archive: every raw record into Parquet, exactly once, by a plain Kafka consumer; who was in a crash is left out.

Offsets live in the store's manifest, not in Kafka. Records wait in memory until they are enough bytes or old
enough, then one partition's records become files and one transaction. What a crash interrupts is read again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from contracts.errors import Fatal, TryLater
from contracts.stamp import DEAD_LETTER_HEADER, STAMP_HEADER
from stream_jobs.errors import LogLost
from stream_jobs.log import plain_consumer
from stream_jobs.metrics import ArchiveMetrics
from stream_jobs.parquet import Place, RawRecord, remove_strays, write_files
from stream_jobs.sinks.manifest import Manifest
from stream_jobs.withheld import for_archive

POLL_RECORDS = 1_000
POLL_S = 0.25
CLIENT_QUEUE_KB = 16 * 1024
"""What the Kafka client may hold ahead of us."""

log = logging.getLogger(__name__)


def consumer_options(bootstrap: str) -> dict[str, object]:
    """Of a consumer that reads much at a time."""
    return plain_consumer(bootstrap, "archive", CLIENT_QUEUE_KB) | {"fetch.message.max.bytes": 4 * 1024 * 1024}


@dataclass(slots=True)
class Held:
    """Records of one partition that are in no file yet; ``begin`` is the first offset that is not archived."""

    place: Place
    begin: int
    records: list[RawRecord] = field(default_factory=list)
    size_bytes: int = 0
    since_s: float = 0.0

    def add(self, record: RawRecord, now_s: float) -> None:
        if not self.records:
            self.since_s = now_s
        self.records.append(record)
        self.size_bytes += record.size_bytes


@dataclass(frozen=True, slots=True)
class Guarded:
    """Topics that may hold crash records: their linkages stay out, their files are for their owner alone."""

    priority: str
    dead_letters: str


@dataclass(slots=True)
class Archiver:
    """Polls, holds, rolls. Memory is bounded by ``file_bytes`` over all partitions together."""

    consumer: Consumer
    manifest: Manifest
    folder: Path
    file_bytes: int
    roll_s: float
    clock_s: Callable[[], float]
    metrics: ArchiveMetrics
    guarded: Guarded
    _held: dict[tuple[str, int], Held] = field(default_factory=dict)

    def assign(self, places: Iterable[Place], begins: Mapping[Place, int] | None = None) -> None:
        """Go on where the manifest ends; ``begins`` is where the log does. Raises LogLost, TryLater."""
        offsets = self.manifest.offsets()
        partitions = []
        for place in places:
            known = offsets.get((place.topic_id, place.partition))
            if known is None and (begins or {}).get(place, 0) > 0:
                raise LogLost(
                    f"{place.topic} partition {place.partition}: the log was trimmed and the manifest knows no file of "
                    "it: the store was lost; no file was touched: run `fleetstream restore`"
                )
            remove_strays(self.folder, place, known or 0)
            self._held[place.topic, place.partition] = Held(place, known or 0)
            start = OFFSET_BEGINNING if known is None else known
            partitions.append(TopicPartition(place.topic, place.partition, start))
        self.consumer.assign(partitions)

    def run(self, stop: threading.Event) -> None:
        """Until ``stop``; then what is held is written. Raises Fatal, LogLost or TryLater."""
        while not stop.is_set():
            self.step()
        for held in self._held.values():
            self._roll(held)
        self.consumer.close()
        self.manifest.disconnect()

    def step(self) -> None:
        """One poll, and whatever is due to be written."""
        now_s = self.clock_s()
        for message in self.consumer.consume(POLL_RECORDS, POLL_S):
            _check(message)
            held = self._held[str(message.topic()), int(message.partition() or 0)]
            held.add(_record(message, self.guarded), now_s)
        for held in self._held.values():
            if held.records and now_s - held.since_s >= self.roll_s:
                self._roll(held)
        while sum(held.size_bytes for held in self._held.values()) >= self.file_bytes:
            self._roll(max(self._held.values(), key=lambda held: held.size_bytes))
        self.metrics.held(sum(len(held.records) for held in self._held.values()))

    def _roll(self, held: Held) -> None:
        """Files first, then the manifest: a file without a manifest row is a stray, never the other way round."""
        if not held.records:
            return
        place, end = held.place, held.records[-1].offset + 1
        private = place.topic in (self.guarded.priority, self.guarded.dead_letters)
        files = write_files(self.folder, place, held.records, private=private)
        if not self.manifest.add(place.topic, place.topic_id, place.partition, held.begin, end, files):
            raise Fatal(f"another archiver works on {place.topic} partition {place.partition}; stop one of them")
        size_bytes = sum(one.size_bytes for one in files)
        log.info(
            "event=archived topic=%s partition=%d records=%d files=%d bytes=%d",
            place.topic, place.partition, len(held.records), len(files), size_bytes,
        )  # fmt: skip
        self.metrics.wrote(len(files), len(held.records), size_bytes)
        held.begin, held.records, held.size_bytes = end, [], 0


def _check(message: Message) -> None:
    error = message.error()
    if error is None:
        return
    if error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
        raise LogLost(
            f"{message.topic()} partition {message.partition()}: the log no longer holds the next offset to archive; "
            "nothing was skipped: find out what removed it, then move next_offset in archive_offsets"
        )
    raise TryLater(f"Kafka: {error.str()}; nothing was lost")


def _record(message: Message, guarded: Guarded) -> RawRecord:
    headers = cast("list[tuple[str, bytes]]", message.headers() or [])
    stamp = next((value for name, value in headers if name in (STAMP_HEADER, DEAD_LETTER_HEADER)), None)
    value, letters = message.value(), message.topic() == guarded.dead_letters
    if letters or message.topic() == guarded.priority:
        value = for_archive(value, stamp, letters)
    return RawRecord(int(message.offset() or 0), message.key(), stamp, value)

"""The loop: read the priority topic, store each partition's records in one transaction, end days that are over.

Offsets live in the store, not in Kafka. Memory is bounded by ``BATCH`` records of one message each. Nothing here
decides what is believed.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, cast
from uuid import UUID

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from contracts.errors import TryLater
from contracts.stamp import STAMP_HEADER
from stream_jobs.errors import LogLost
from stream_jobs.evidence.intake import Place, Raw
from stream_jobs.evidence.metrics import EvidenceMetrics
from stream_jobs.evidence.roots import RootMaker
from stream_jobs.evidence.store import EvidenceStore
from stream_jobs.evidence.waiting import Sweeper
from stream_jobs.log import plain_consumer

BATCH: Final = 50
"""Records of one transaction: at most 6 MiB, and a notice never waits behind many capsules."""

POLL_S: Final = 0.05
QUEUE_KB: Final = 8 * 1024
ROOTS_EVERY_S: Final = 60.0
log = logging.getLogger(__name__)


def consumer_options(bootstrap: str) -> dict[str, object]:
    """Of a consumer that answers at once."""
    return plain_consumer(bootstrap, "evidence", QUEUE_KB) | {
        "fetch.wait.max.ms": 50, "reconnect.backoff.max.ms": 2_000, "log_level": 3,
    }  # fmt: skip


@dataclass(slots=True)
class EvidenceConsumer:
    """Polls and stores; a crash of the process at any moment loses and doubles nothing."""

    consumer: Consumer
    store: EvidenceStore
    roots: RootMaker
    sweeper: Sweeper
    metrics: EvidenceMetrics
    clock_ms: Callable[[], int]
    elapsed_s: Callable[[], float]
    _ids: dict[str, UUID] = field(default_factory=dict)
    _next_roots_s: float = 0.0

    def assign(self, topic: str, topic_id: UUID, partitions: Iterable[int]) -> None:
        """Go on where the store ends. Raises TryLater."""
        offsets = self.store.offsets()
        self._ids[topic] = topic_id
        self.consumer.assign(
            [TopicPartition(topic, one, offsets.get((topic_id, one), OFFSET_BEGINNING)) for one in partitions]
        )

    def run(self, stop: threading.Event) -> None:
        """Until ``stop``. Raises LogLost or TryLater; the supervisor starts the process again."""
        try:
            while not stop.is_set():
                self.step()
        finally:
            self.consumer.close()

    def step(self) -> None:
        """One poll and what it brought; now and then the end of a day, and data that waited too long."""
        by_partition: dict[tuple[str, int], list[Raw]] = defaultdict(list)
        for message in self.consumer.consume(BATCH, POLL_S):
            _check(message)
            topic, partition = str(message.topic()), int(message.partition() or 0)
            by_partition[topic, partition].append(self._raw(message, topic, partition))
        for (topic, _), batch in by_partition.items():
            outcome = self.store.take(topic, batch, self.clock_ms())
            self.metrics.took(outcome)
            log.info(
                "event=evidence_taken topic=%s next_offset=%d stored=%d repeated=%d refused=%d", topic,
                outcome.next_offset, *(outcome.counts[name] for name in ("stored", "repeated", "refused")),
            )  # fmt: skip
        if self.elapsed_s() >= self._next_roots_s:
            self._next_roots_s = self.elapsed_s() + ROOTS_EVERY_S
            made = self.roots.end_days(self.clock_ms())
            self.metrics.ended(made)
            self.metrics.removed(self.sweeper.sweep(self.clock_ms()))

    def _raw(self, message: Message, topic: str, partition: int) -> Raw:
        headers = cast("list[tuple[str, bytes]]", message.headers() or [])
        stamp = next((value for name, value in headers if name == STAMP_HEADER), None)
        place = Place(self._ids[topic], partition, int(message.offset() or 0))
        return Raw(place, stamp, message.value() or b"")


def _check(message: Message) -> None:
    error = message.error()
    if error is None:
        return
    if error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
        raise LogLost(
            f"{message.topic()} partition {message.partition()}: the log no longer holds the next offset of the "
            "evidence consumer; nothing was skipped: find out what removed it, then move evidence_offsets.next_offset"
        )
    raise TryLater(f"Kafka: {error.str()}; nothing was lost")

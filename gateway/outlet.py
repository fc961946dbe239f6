"""Records into Kafka, each told back once the log has it; nothing is given up.

The producer is idempotent and retries for ever by itself. What it reports as failed nevertheless (a topic that
is missing, a broker that refuses) is produced again after a pause. After a fatal error a producer never works
again: it is replaced, and everything unconfirmed is produced anew. Repeats in the log are allowed: the packet's
identity makes them one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException

from gateway.counts import Counts
from gateway.window import AckWindow, Entry

log = logging.getLogger(__name__)
RETRY_PAUSE_S = 0.5
QUIET_S = 10.0
"""At most one log line about the same trouble in this time."""

Delivered = Callable[[KafkaError | None, object], None]
ErrorReport = Callable[[KafkaError], None]


class Producer(Protocol):
    """The part of confluent_kafka.Producer used here."""

    def produce(
        self, topic: str, value: bytes, key: bytes, on_delivery: Delivered, headers: list[tuple[str, bytes]]
    ) -> None: ...
    def poll(self, timeout: float) -> int: ...
    def purge(self, in_queue: bool, in_flight: bool, blocking: bool) -> Any: ...


MakeProducer = Callable[[ErrorReport], Producer]


class Outlet:
    """Single-threaded: delivery reports arrive inside ``poll``."""

    def __init__(self, make: MakeProducer, window: AckWindow, counts: Counts) -> None:
        self._make = make
        self._window = window
        self._counts = counts
        self._again: deque[Entry] = deque()
        self._again_at_s = 0.0
        self._fatal = False
        self._generation = 0
        self._quiet_until_s = 0.0
        self._producer = make(self._on_error)

    def send(self, entry: Entry) -> None:
        """Hand one entry to the producer; ``entry.finished`` turns true when Kafka has it."""
        record = entry.record
        assert record is not None
        try:
            self._producer.produce(
                record.topic, record.value, record.key,
                on_delivery=partial(self._delivered, entry, self._generation), headers=[record.header],
            )  # fmt: skip
        except BufferError:
            self._again.append(entry)
        except KafkaException as error:
            self._failed(entry, error.args[0])

    def poll(self, now_s: float) -> None:
        """Take delivery reports, send again what failed, replace a dead producer."""
        self._producer.poll(0)
        if self._fatal:
            self._replace()
        elif self._again and now_s >= self._again_at_s:
            self._again_at_s = now_s + RETRY_PAUSE_S
            waiting, self._again = self._again, deque()
            if now_s >= self._quiet_until_s:
                self._quiet_until_s = now_s + QUIET_S
                log.warning("event=produce_again records=%d", len(waiting))
            for entry in waiting:
                self.send(entry)

    def _delivered(self, entry: Entry, generation: int, error: KafkaError | None, _message: object) -> None:
        if error is None:
            if not entry.finished:
                entry.finished = True
                self._counts.produced += 1
        elif generation == self._generation:
            self._failed(entry, error)

    def _failed(self, entry: Entry, error: KafkaError) -> None:
        self._counts.kafka_errors[error.name()] += 1
        self._fatal = self._fatal or error.fatal()
        if not self._fatal:
            self._again.append(entry)

    def _on_error(self, error: KafkaError) -> None:
        """Errors that belong to no record: a broker that is away (retried by the library), or a fatal one."""
        self._counts.kafka_errors[error.name()] += 1
        self._fatal = self._fatal or error.fatal() or error.code() == KafkaError._FATAL

    def _replace(self) -> None:
        """Reports of the old producer count when they are good and are ignored when they are not."""
        log.error("event=producer_replaced unconfirmed=%d", sum(1 for _ in self._window.unfinished()))
        self._counts.producers_replaced += 1
        old, self._fatal = self._producer, False
        self._generation += 1
        self._again.clear()
        self._producer = self._make(self._on_error)
        for entry in self._window.unfinished():
            self.send(entry)
        old.purge(in_queue=True, in_flight=True, blocking=False)
        old.poll(0)

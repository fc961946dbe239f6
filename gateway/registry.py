"""Who may speak, and as which run: registry and epochs read to their ends before anything else, then followed.

Each view is rebuilt at every start. When the topic cannot be read the view stays as it is and its age, told by
the relay's heartbeat, is the alarm.
"""

from __future__ import annotations

import logging
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from contracts.errors import Rejected
from contracts.identity import HIGHEST_TOLD, LOWEST_TOLD, KnownEpochs, decode_known
from contracts.registry import BEAT_KEY, Registration, decode_beat, decode_registration

log = logging.getLogger(__name__)
BATCH = 1_000
OFFSET_BEGINNING = -2


class RegistryView:
    """Registrations by device name; pure."""

    def __init__(self) -> None:
        self.devices: dict[str, Registration] = {}
        self.beat_ms: int | None = None
        self.refused = 0

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """One record of the topic. What cannot be read is counted and changes nothing."""
        name = (key or b"").decode("utf-8", "replace")
        try:
            if name == BEAT_KEY:
                self.beat_ms = decode_beat(value or b"")
            elif not value:
                self.devices.pop(name, None)
            else:
                self._register(name, decode_registration(value))
        except Rejected as error:
            self.refused += 1
            log.warning("event=registry_record_refused device=%s reason=%s", name[:64], error.reason)

    def _register(self, name: str, registration: Registration) -> None:
        if registration.device != name:
            raise Rejected("bad_registration", "key and device differ")
        self.devices[name] = registration

    def age_ms(self, now_ms: int) -> int | None:
        """Time since the relay's last heartbeat; None when there was none yet."""
        return None if self.beat_ms is None else max(0, now_ms - self.beat_ms)


class EpochView:
    """The epochs that the store knows, by device; pure. A record never takes back what an earlier one told."""

    def __init__(self) -> None:
        self.devices: dict[str, KnownEpochs] = {}
        self.refused = 0

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """One record of the topic; an empty one forgets the device."""
        name = (key or b"").decode("utf-8", "replace")
        if not value:
            self.devices.pop(name, None)
            return
        try:
            told = decode_known(value)
        except Rejected as error:
            self.refused += 1
            log.warning("event=epochs_record_refused device=%s reason=%s", name[:64], error.reason)
            return
        before = self.devices.get(name)
        self.devices[name] = told if before is None else joined(before, told)


def joined(one: KnownEpochs, other: KnownEpochs) -> KnownEpochs:
    """Both together, cut to what is told of one device; of one epoch the later word holds."""
    nonces = one.nonces | other.nonces
    order = sorted(nonces)
    kept = {*order[:LOWEST_TOLD], *order[-HIGHEST_TOLD:]}
    return KnownEpochs(max(one.highest, other.highest), {epoch: nonces[epoch] for epoch in order if epoch in kept})


class View(Protocol):
    """What a feed fills."""

    def apply(self, key: bytes | None, value: bytes | None) -> None: ...


class RegistryConsumer(Protocol):
    """The part of confluent_kafka.Consumer that following needs (its own stubs are partial)."""

    def assign(self, partitions: list[TopicPartition]) -> None: ...
    def consume(self, num_messages: int, timeout: float) -> list[Message]: ...
    def close(self) -> None: ...


class RegistryFeed:
    """Moves records from a compacted topic into a view; called from the gateway's one loop."""

    def __init__(self, consumer: RegistryConsumer, topic: str, view: View, name: str = "registry") -> None:
        self._consumer = consumer
        self._view = view
        self._name = name
        self.complete = False
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def step(self, timeout_s: float = 0.0) -> None:
        """Take what has come. ``complete`` once the end of the topic was seen."""
        try:
            messages = self._consumer.consume(BATCH, timeout_s)
        except KafkaException as error:
            log.warning("event=%s_read_failed error=%s", self._name, error)
            return
        for message in messages:
            problem = message.error()
            if problem is None:
                self._view.apply(message.key(), message.value())
            elif problem.code() == KafkaError._PARTITION_EOF:
                self._reached_end()
            else:
                log.warning("event=%s_read_failed code=%s", self._name, problem.name())

    def close(self) -> None:
        self._consumer.close()

    def _reached_end(self) -> None:
        if not self.complete:
            log.info("event=%s_complete", self._name)
        self.complete = True

"""Count what reaches Kafka: a plain consumer that reads packet headers from now on, identity by identity."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Collection

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from contracts.errors import Rejected
from contracts.packet import decode_header
from contracts.ranges import RangeSet
from contracts.topics import Topics

POLL_S = 0.2
BATCH = 500


class LogWatch:
    """Distinct packets and samples of some devices in the telemetry topics since ``start``; memory grows with gaps."""

    def __init__(self, bootstrap: str, topics: Topics, devices: Collection[str]) -> None:
        self._devices = frozenset(name.encode() for name in devices)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"watch-{uuid.uuid4().hex}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        self._topics = (topics.live, topics.backlog, topics.priority)
        self._seen: dict[tuple[str, int], RangeSet] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-watch", daemon=True)
        self.packets = 0
        self.samples = 0
        self.repeats = 0

    def start(self) -> None:
        """Begin at the present end of every partition."""
        places = []
        for topic in self._topics:
            for number in range(topic.partitions):
                place = TopicPartition(topic.name, number)
                _, end = self._consumer.get_watermark_offsets(place, timeout=30)
                places.append(TopicPartition(topic.name, number, end))
        self._consumer.assign(places)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                for message in self._consumer.consume(BATCH, POLL_S):
                    self._take(message)
            except KafkaException:
                self._stop.wait(POLL_S)

    def _take(self, message: Message) -> None:
        value = message.value()
        if message.error() is not None or value is None or message.key() not in self._devices:
            return
        try:
            header = decode_header(bytes(value))
        except Rejected:
            return
        if self._seen.setdefault((header.device, header.boot_epoch), RangeSet()).add(header.seq):
            self.packets += 1
            self.samples += header.samples
        else:
            self.repeats += 1

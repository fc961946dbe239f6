"""The judge reads whatever a PUBACK can stand for: packets, dead letters, and the answers of devices."""

from __future__ import annotations

import contextlib
import hashlib

from confluent_kafka import KafkaException, Producer

from contracts.topics import Topics
from tests.torture.checker import LogRecord
from tests.torture.evidence import read_log
from tests.torture.fleet import wait_until


def test_what_devices_answered_counts_as_kept(kafka_bootstrap: str, topic_prefix: str) -> None:
    topics, values = Topics(topic_prefix), (b"an answer", b"a dead letter")
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    for topic, value in zip((topics.answers, topics.dead_letters), values, strict=True):
        producer.produce(topic.name, value)
    assert producer.flush(180) == 0
    wanted: tuple[list[LogRecord], set[str]] = ([], {hashlib.sha256(value).hexdigest() for value in values})

    def read() -> bool:
        with contextlib.suppress(KafkaException):  # topics this young have no leader everywhere yet
            return read_log(kafka_bootstrap, topics) == wanted
        return False

    assert wait_until(read, 30)

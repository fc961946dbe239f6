"""Read the log itself, record by record, for the deep reconciliation: which identities lie at which offsets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from contracts.errors import Rejected, TryLater
from contracts.packet import decode_header
from stream_jobs.log import Extent

POLL_RECORDS = 2_000
POLL_S = 0.5
PATIENCE_S = 30.0
"""Without a record for so long the log counts as away."""


@dataclass(frozen=True, slots=True)
class LoggedPacket:
    """Where a record lies and whose it says it is; ``identity`` None: its header cannot be read."""

    topic: str
    partition: int
    offset: int
    device: str
    identity: tuple[str, int, int] | None
    """(device, boot epoch, sequence number)"""
    nonce: int = 0


def read_log(
    bootstrap: str, extents: Mapping[tuple[str, int], Extent], device: str | None = None
) -> Iterator[LoggedPacket]:
    """Every record between the extents' begin and end, of one device or of all. Raises TryLater."""
    wanted = {place: extent for place, extent in extents.items() if extent.end > extent.begin}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "fleetstream-reconcile", "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "enable.partition.eof": True,
        }
    )  # fmt: skip
    try:
        consumer.assign([TopicPartition(topic, number, one.begin) for (topic, number), one in wanted.items()])
        yield from _records(consumer, wanted, device)
    except KafkaException as error:
        raise TryLater(f"Kafka did not tell what its topics hold ({error}); nothing was changed") from error
    finally:
        consumer.close()


def _records(
    consumer: Consumer, wanted: Mapping[tuple[str, int], Extent], device: str | None
) -> Iterator[LoggedPacket]:
    left = set(wanted)
    heard_s = time.monotonic()
    while left:
        for message in consumer.consume(POLL_RECORDS, POLL_S):
            heard_s = time.monotonic()
            place = str(message.topic()), int(message.partition() or 0)
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                left.discard(place)
                continue
            if error is not None:
                raise TryLater(f"Kafka: {error.str()}; nothing was changed")
            offset = int(message.offset() or 0)
            if offset >= wanted[place].end - 1:
                left.discard(place)
            key = (message.key() or b"").decode("utf-8", "replace")
            if offset < wanted[place].end and device in (None, key):
                yield _packet(*place, offset, key, message.value())
        if time.monotonic() - heard_s > PATIENCE_S:
            raise TryLater(f"Kafka told nothing for {PATIENCE_S:.0f} s; nothing was changed")


def _packet(topic: str, partition: int, offset: int, key: str, value: bytes | None) -> LoggedPacket:
    try:
        header = decode_header(value or b"")
    except Rejected:
        return LoggedPacket(topic, partition, offset, key, None)
    identity = header.device, header.boot_epoch, header.seq
    return LoggedPacket(topic, partition, offset, key, identity, header.nonce)

"""What the log holds and where to start reading it: Kafka's topic ids and offsets against the store's ledger."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from contracts.errors import TryLater
from stream_jobs.errors import LogLost

ASK_TIMEOUT_S = 20
EARLIEST = -2
"""What Spark's Kafka source calls the beginning of a partition."""


@dataclass(frozen=True, slots=True)
class Extent:
    """First offset that a partition holds, and the one after its last."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class LogState:
    """Topics by name: id, and the extent of each partition."""

    ids: Mapping[str, UUID]
    extents: Mapping[str, Mapping[int, Extent]]


_ENDS = (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]

Ledger = Mapping[tuple[UUID, int], int]
"""(topic id, partition) to the next offset that the store wants."""


class LogReader:
    """Asks Kafka about topics; keeps one admin connection."""

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        self._topics = tuple(topics)

    def state(self) -> LogState:
        """Raises TryLater when Kafka does not answer or a topic is missing."""
        try:
            found = self._admin.describe_topics(TopicCollection(list(self._topics)), request_timeout=ASK_TIMEOUT_S)
            described = {name: answer.result(ASK_TIMEOUT_S) for name, answer in found.items()}
            partitions = [TopicPartition(name, one.id) for name, topic in described.items() for one in topic.partitions]
            begin, end = (self._offsets(partitions, spec) for spec in _ENDS)
        except (KafkaException, TimeoutError) as error:
            raise TryLater(f"Kafka did not say what its topics hold ({error}); nothing was lost") from error
        extents: dict[str, dict[int, Extent]] = {name: {} for name in self._topics}
        for (name, partition), first in begin.items():
            extents[name][partition] = Extent(first, end[name, partition])
        return LogState({name: _uuid(topic.topic_id) for name, topic in described.items()}, extents)

    def since(self, moment_ms: int) -> dict[tuple[str, int], int]:
        """The first offset of each partition that the broker appended at or after a moment, else the end."""
        state = self.state()
        places = [TopicPartition(name, number) for name, parts in state.extents.items() for number in parts]
        try:
            asked = self._admin.list_offsets(
                dict.fromkeys(places, OffsetSpec.for_timestamp(moment_ms)), request_timeout=ASK_TIMEOUT_S
            )
            found = {
                (one.topic, one.partition): int(answer.result(ASK_TIMEOUT_S).offset) for one, answer in asked.items()
            }
        except (KafkaException, TimeoutError) as error:
            raise TryLater(f"Kafka did not say when its records came ({error}); nothing was lost") from error
        return {
            (name, number): at if at >= 0 else state.extents[name][number].end for (name, number), at in found.items()
        }

    def delete_before(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Let Kafka remove what lies below; raises TryLater when it did not."""
        places = [TopicPartition(name, number, at) for (name, number), at in offsets.items()]
        try:
            for answer in self._admin.delete_records(places, request_timeout=ASK_TIMEOUT_S).values():
                answer.result(ASK_TIMEOUT_S)
        except (KafkaException, TimeoutError) as error:
            raise TryLater(f"Kafka did not trim ({error}); what it still holds is trimmed later") from error

    def _offsets(self, partitions: Sequence[TopicPartition], spec: OffsetSpec) -> dict[tuple[str, int], int]:
        asked = self._admin.list_offsets(dict.fromkeys(partitions, spec), request_timeout=ASK_TIMEOUT_S)
        return {(one.topic, one.partition): int(answer.result(ASK_TIMEOUT_S).offset) for one, answer in asked.items()}


def plain_consumer(bootstrap: str, name: str, queue_kb: int) -> dict[str, object]:
    """Options of a consumer beside Spark, without a group: it is told where to read and commits nothing to Kafka.

    ``queue_kb``: what the client may hold ahead of it.
    """
    return {
        "bootstrap.servers": bootstrap,
        "group.id": f"fleetstream-{name}",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "queued.max.messages.kbytes": queue_kb,
    }


def starting_offsets(log: LogState, ledger: Ledger) -> str:
    """Spark's ``startingOffsets``. Raises LogLost when the log no longer reaches back to the ledger."""
    return json.dumps(
        {
            topic: {
                str(partition): _start(topic, partition, extent, ledger.get((log.ids[topic], partition)))
                for partition, extent in partitions.items()
            }
            for topic, partitions in log.extents.items()
        }
    )


def refuse_lost_store(log: LogState, ledger: Ledger) -> None:
    """Raises LogLost when a log that was trimmed meets a store that never saw it: it would begin in the middle."""
    for topic, partitions in log.extents.items():
        for partition, extent in partitions.items():
            if extent.begin > 0 and (log.ids[topic], partition) not in ledger:
                raise LogLost(
                    f"{topic} partition {partition}: the log was trimmed up to {extent.begin}, the store knows nothing "
                    "of it: the store was lost or is another one; nothing was read: run `fleetstream restore`"
                )


def lag(log: LogState, ledger: Ledger) -> dict[str, int]:
    """Records per topic that the store has not taken yet."""
    return {
        topic: sum(
            max(0, extent.end - max(extent.begin, ledger.get((log.ids[topic], partition), 0)))
            for partition, extent in partitions.items()
        )
        for topic, partitions in log.extents.items()
    }


def _start(topic: str, partition: int, extent: Extent, wanted: int | None) -> int:
    if wanted is None:
        return EARLIEST
    if extent.begin > wanted:
        raise LogLost(
            f"{topic} partition {partition}: the store wants offset {wanted}, the log begins at {extent.begin}; "
            f"records {wanted} to {extent.begin - 1} are gone from Kafka; their "
            "bytes may be in the archive; to go on without them move next_offset in ingest_offsets"
        )
    if extent.end < wanted:
        raise LogLost(
            f"{topic} partition {partition}: the store has taken offsets up to {wanted - 1}, the log ends before "
            f"{extent.end}: Kafka lost its newest records or an older copy was restored; nothing was changed"
        )
    return wanted


def _uuid(kafka_id: object) -> UUID:
    high, low = kafka_id.get_most_significant_bits(), kafka_id.get_least_significant_bits()  # type: ignore[attr-defined]
    return UUID(int=((high & (2**64 - 1)) << 64) | (low & (2**64 - 1)))

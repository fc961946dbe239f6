"""Stand-ins for the outside of the loop, for faults that a real broker or a real Kafka does not show on demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException

from gateway.outlet import Delivered, ErrorReport

Sent = tuple[str, bytes, bytes, list[tuple[str, bytes]]]


class FakeProducer:
    """Keeps what it is given until the test says how it ended."""

    def __init__(self, report: ErrorReport) -> None:
        self.report = report
        self.open: list[tuple[Sent, Delivered]] = []
        self.results: list[tuple[Delivered, KafkaError | None]] = []
        self.full = False
        self.refuse: KafkaError | None = None

    def produce(
        self, topic: str, value: bytes, key: bytes, on_delivery: Delivered, headers: list[tuple[str, bytes]]
    ) -> None:
        if self.full:
            raise BufferError("queue full")
        if self.refuse is not None:
            raise KafkaException(self.refuse)
        self.open.append(((topic, key, value, headers), on_delivery))

    def end(self, at: int, error: KafkaError | None = None) -> None:
        """The record at this place is confirmed, or has failed; told by the next poll."""
        self.results.append((self.open.pop(at)[1], error))

    def end_all(self, error: KafkaError | None = None) -> None:
        while self.open:
            self.end(0, error)

    def poll(self, timeout: float) -> int:
        results, self.results = self.results, []
        for delivered, error in results:
            delivered(error, object())
        return len(results)

    def purge(self, in_queue: bool, in_flight: bool, blocking: bool) -> None:
        self.end_all(KafkaError(KafkaError._PURGE_QUEUE))


@dataclass(slots=True)
class FakeLink:
    """An MQTT connection that does what it is told."""

    connection: int = 1
    connected: bool = True
    subscribed: bool = True
    refusal: str = ""
    can_publish: bool = True
    incoming: list[tuple[str, bytes, int, bool, bool]] = field(default_factory=list)
    receive: Callable[[str, bytes, int, bool, bool], None] | None = None
    pubacks: list[tuple[int, int]] = field(default_factory=list)
    published: list[tuple[str, bytes, int | None]] = field(default_factory=list)
    confirmed: set[int] = field(default_factory=set)
    closed: bool = False

    @property
    def publishing(self) -> int:
        return 0

    def step(self, now_s: float, wait_s: float, room: int) -> None:
        taken, self.incoming = self.incoming[:room], self.incoming[room:]
        assert self.receive
        for message in taken:
            self.receive(*message)

    def puback(self, packet_ids: list[int]) -> None:
        self.pubacks += [(self.connection, packet_id) for packet_id in packet_ids]

    def publish(self, topic: str, payload: bytes, expiry_s: int | None = None) -> int:
        self.published.append((topic, payload, expiry_s))
        return len(self.published)

    def take_confirmed(self) -> set[int]:
        confirmed, self.confirmed = self.confirmed, set()
        return confirmed

    def close(self) -> None:
        self.closed = True


@dataclass(slots=True)
class FakeMessage:
    """The part of a consumed Kafka message that the feeds read."""

    k: bytes | None
    v: bytes | None
    place: int = 0
    problem: KafkaError | None = None

    def key(self) -> bytes | None:
        return self.k

    def value(self) -> bytes | None:
        return self.v

    def error(self) -> KafkaError | None:
        return self.problem

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.place


class FakeConsumer:
    """Hands out batches; raises when the next one is an error."""

    def __init__(self, *batches: list[FakeMessage] | KafkaError) -> None:
        self.batches = list(batches)
        self.commits: list[int] = []
        self.assigned: list[object] = []
        self.closed = False

    def assign(self, partitions: list[object]) -> None:
        self.assigned = partitions

    def consume(self, num_messages: int, timeout: float) -> list[FakeMessage]:
        if not self.batches:
            return []
        batch = self.batches.pop(0)
        if isinstance(batch, KafkaError):
            raise KafkaException(batch)
        return batch

    def commit(self, *, offsets: list[object]) -> None:
        self.commits += [place.offset for place in offsets]  # type: ignore[attr-defined]

    def close(self) -> None:
        self.closed = True

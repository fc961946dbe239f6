"""The relay's way into Kafka: idempotent, ``acks=all``, the same partition for a key as every other client's."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from api.errors import KafkaUnavailable

REQUEST_TIMEOUT_MS = 10_000
"""One produce request; the relay tries again by itself, so it need not be long."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record to write; a value of None removes the key from a compacted topic."""

    topic: str
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class KafkaPublisher:
    """Writes batches in order and says for each record whether Kafka has it."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producer: AIOKafkaProducer | None = None

    async def open(self) -> None:
        """Connect. Raises KafkaUnavailable."""
        await self.close()
        # aiokafka's default partitioner is Java's murmur2, so keys lie where confluent's murmur2_random puts them
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, client_id="fleetstream-relay", acks="all", enable_idempotence=True,
            compression_type="zstd", linger_ms=5, request_timeout_ms=REQUEST_TIMEOUT_MS,
        )  # fmt: skip
        try:
            await producer.start()
        except (KafkaError, OSError) as error:
            await producer.stop()
            raise _unavailable(error) from error
        except asyncio.CancelledError:  # told to end while it connects
            await producer.stop()
            raise
        self._producer = producer

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    async def publish(self, records: Sequence[Record]) -> list[bool]:
        """Whether each record is durably in Kafka; False: too large for ever. Raises KafkaUnavailable (send again)."""
        if self._producer is None:
            raise KafkaUnavailable("the relay is not connected to Kafka; what waits stays in the outbox")
        try:
            # send() returns when the record is queued: awaiting it in turn keeps the order of equal keys
            pending = [await self._queue(self._producer, record) for record in records]
        except (KafkaError, OSError) as error:
            raise _unavailable(error) from error
        outcomes = await asyncio.gather(*(one for one in pending if one is not None), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, MessageSizeTooLargeError):
                raise _unavailable(outcome) from outcome
        answers = iter(outcomes)
        return [one is not None and not isinstance(next(answers), BaseException) for one in pending]

    async def _queue(self, producer: AIOKafkaProducer, record: Record) -> asyncio.Future[object] | None:
        """None when this one record can never be sent (too large); others are not held up by it."""
        try:
            queued: asyncio.Future[object] = await producer.send(
                record.topic, record.value, record.key, headers=list(record.headers)
            )
        except MessageSizeTooLargeError:
            return None
        return queued


def _unavailable(error: BaseException) -> KafkaUnavailable:
    return KafkaUnavailable(f"Kafka did not answer ({type(error).__name__}); what waits stays in the outbox")

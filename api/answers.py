"""Devices' answers from their topic. Offsets are committed after the store has them: a repeat changes nothing."""

from __future__ import annotations

import asyncio
import logging

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord

from api.errors import KafkaUnavailable
from api.queries.clerk import Told
from contracts.commands import decode_answer
from contracts.errors import Rejected
from contracts.stamp import STAMP_HEADER, decode_stamp

log = logging.getLogger(__name__)


class AnswerConsumer:
    """Reads on from where this stack's clerks left off."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._bootstrap, self._topic, self._group = bootstrap, topic, group
        self._consumer: AIOKafkaConsumer | None = None

    async def open(self) -> None:
        """Connect. Raises KafkaUnavailable."""
        await self.close()
        consumer = AIOKafkaConsumer(
            self._topic, bootstrap_servers=self._bootstrap, group_id=self._group, client_id="fleetstream-clerk",
            enable_auto_commit=False, auto_offset_reset="earliest",
        )  # fmt: skip
        try:
            await consumer.start()
        except (KafkaError, OSError) as error:
            await consumer.stop()
            raise _unavailable(error) from error
        except asyncio.CancelledError:  # told to end while it connects
            await consumer.stop()
            raise
        self._consumer = consumer

    async def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()

    async def take(self, limit: int, wait_s: float) -> list[Told]:
        """What has come, at most ``limit``; waits up to ``wait_s`` for the first. Raises KafkaUnavailable."""
        try:
            batches = await self._open().getmany(timeout_ms=round(wait_s * 1000), max_records=limit)
        except (KafkaError, OSError) as error:
            raise _unavailable(error) from error
        found = [read(record) for records in batches.values() for record in records]
        return [one for one in found if one is not None]

    async def commit(self) -> None:
        """What was taken is in the store. Raises KafkaUnavailable (it is taken again)."""
        try:
            await self._open().commit()
        except (KafkaError, OSError) as error:
            raise _unavailable(error) from error

    def _open(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            raise KafkaUnavailable("the clerk is not connected to Kafka; answers wait in their topic")
        return self._consumer


def read(record: ConsumerRecord[bytes, bytes]) -> Told | None:
    """One answer with its stamp; None for what nobody can read (the gateway lets none in)."""
    try:
        stamp = decode_stamp(dict(record.headers).get(STAMP_HEADER, b""))
        answer = decode_answer(record.value or b"")
    except Rejected as error:
        log.warning("event=answer_unreadable offset=%d reason=%s", record.offset, error.reason)
        return None
    return Told(answer, stamp.device_key, stamp.tenant_id, stamp.received_ms)


def _unavailable(error: BaseException) -> KafkaUnavailable:
    return KafkaUnavailable(f"Kafka did not answer the clerk ({type(error).__name__}); nothing was lost")

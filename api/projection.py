"""The latest values as a compacted topic: what changed in the table is told, then how far it was told is written down.

The table itself is the outbox: nothing but its rows decides what is told, and a kill between the two halves tells some
of it again under the same keys, which compaction makes one. Values that change several times between two looks are told
once. A look costs at most a twentieth of the time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from api.errors import KafkaUnavailable
from api.kafka import Record
from api.metrics import Metrics
from contracts.latest import encode_latest

log = logging.getLogger(__name__)
LEAST_PAUSES: Final = 20


class Table(Protocol):
    """What changed (``queries.latest.LatestTable``)."""

    def changes(self) -> AbstractAsyncContextManager[tuple[Any, str, int]]: ...
    async def told(self, name: str, position: int) -> None: ...


class Publisher(Protocol):
    """Where it goes (``kafka.KafkaPublisher``)."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def publish(self, records: list[Record]) -> list[bool]: ...


@dataclass
class LatestProjection:
    """A chore of the clerk, so that one per stack is at work."""

    table: Table
    publisher: Publisher
    topic: str
    every_s: float
    elapsed_s: Callable[[], float]
    metrics: Metrics
    _next_s: float = 0.0
    _is_open: bool = False

    async def step(self) -> None:
        """Tell what changed, when it is time. Raises KafkaUnavailable, StoreUnavailable: told again next time."""
        began_s = self.elapsed_s()
        if began_s < self._next_s:
            return
        try:
            told = await self.tell()
        except KafkaUnavailable:
            await self.close()
            raise
        spent_s = self.elapsed_s() - began_s
        self._next_s = began_s + max(self.every_s, LEAST_PAUSES * spent_s)
        self.metrics.latest_told.inc(told)

    async def tell(self) -> int:
        """One look; how many values were told."""
        if not self._is_open:
            await self.publisher.open()
            self._is_open = True
        told = 0
        async with self.table.changes() as (batches, name, position):
            async for batch in batches:
                records = [Record(self.topic, one.key.encode(), encode_latest(one)) for one in batch]
                if not all(await self.publisher.publish(records)):
                    raise KafkaUnavailable("Kafka did not take all of the latest values; they are told again")
                told += len(records)
        await self.table.told(name, position)
        return told

    async def close(self) -> None:
        self._is_open = False
        await self.publisher.close()

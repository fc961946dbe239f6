"""The outbox relay: rows committed with the results they tell of, written to their topics.

A row is marked after Kafka has it, so a kill in between repeats it and never loses it; readers go by key. Order per key
is kept: one relay works at a time, a batch is sent in order, and after a record that Kafka did not take nothing of its
key counts as delivered. When it becomes the relay it writes the whole device registry once, so that a Kafka that lost
its topics learns it again. Devices reach the gateway only through here: the beat on the registry topic says that the
outbox was read, at what time. The book goes before the registry: a device that may send is one that a restore knows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from api.errors import KafkaUnavailable, StoreUnavailable
from api.kafka import Record
from api.metrics import Metrics
from api.queries.outbox import Backlog, OutboxRow
from contracts.registry import BEAT_KEY, Registration, encode_beat, encode_registration
from contracts.stamp import STAMP_HEADER
from contracts.topics import KafkaTopic, Topics

REGISTRY = "registry"
EPOCHS = "epochs"
BOOK = "book"
PACKETS = ("live", "backlog", "priority")
"""Lanes, for packets that were set aside and are sent again."""
OTHERS = (EPOCHS, BOOK, "windows", "commands", "events", "latest", *PACKETS, "findings", "alerts")
OUTBOX_TOPICS = (REGISTRY, *OTHERS)
"""Values of ``outbox.topic``: names of properties of ``contracts.topics.Topics``."""

UNBLOCK_S = 60.0
"""How long a key rests whose record Kafka refused for good (too large)."""
HOUSEKEEPING_S = 15.0
MAX_BACKOFF_S = 10.0
STAND_BY_S = 2.0
"""How soon a relay that stands by looks whether the other one is gone."""

log = logging.getLogger(__name__)


class OutboxStore(Protocol):
    """Where rows wait (``queries.outbox.Outbox``)."""

    async def open(self) -> bool: ...
    async def close(self) -> None: ...
    async def waiting(self, topics: Sequence[str], blocked: Sequence[str], limit: int) -> list[OutboxRow]: ...
    async def mark_published(self, outbox_ids: Sequence[int]) -> None: ...
    async def prune(self, keep_h: float) -> int: ...
    async def backlog(self, topics: Sequence[str]) -> Backlog: ...
    async def registry(self) -> tuple[list[Registration], list[str]]: ...
    async def epochs(self) -> list[tuple[str, bytes]]: ...
    async def book(self) -> list[tuple[str, bytes]]: ...


class Publisher(Protocol):
    """Where they go (``kafka.KafkaPublisher``)."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def publish(self, records: Sequence[Record]) -> list[bool]: ...


@dataclass(frozen=True, slots=True)
class Clock:
    """Both clocks of a loop: ``now_ms`` is told to others (Unix epoch), ``elapsed_s`` measures."""

    now_ms: Callable[[], int]
    elapsed_s: Callable[[], float]


@dataclass(frozen=True, slots=True)
class RelayPace:
    """How often and how much."""

    poll_s: float = 0.2
    batch: int = 500
    beat_s: float = 5.0
    keep_h: float = 24.0


def settle(rows: Sequence[OutboxRow], delivered: Sequence[bool]) -> tuple[list[int], set[str]]:
    """(ids to mark, keys in trouble): of one key, only what precedes its first undelivered row counts."""
    troubled: set[str] = set()
    marked: list[int] = []
    for row, there in zip(rows, delivered, strict=True):
        key = f"{row.topic}:{row.kafka_key}"
        if not there:
            troubled.add(key)
        elif key not in troubled:
            marked.append(row.outbox_id)
    return marked, troubled


@dataclass
class Relay:
    """Runs until cancelled; every fault is retried, since every row is still in the outbox."""

    store: OutboxStore
    publisher: Publisher
    topics: Topics
    clock: Clock
    metrics: Metrics
    pace: RelayPace = RelayPace()
    _blocked: dict[str, float] = field(default_factory=dict)
    _backoff_s: float = 0.2
    _next_beat_s: float = 0.0
    _next_care_s: float = 0.0
    last_beat_s: float | None = None
    """``clock.elapsed_s`` of the last beat that Kafka has; None before the first."""
    stands_by: bool = False
    """Another relay of this stack is at work."""

    def working(self, within_s: float) -> bool:
        """Whether the outbox is being carried: by this relay not long ago, or by another one."""
        beat_s = self.last_beat_s
        return self.stands_by or (beat_s is not None and self.clock.elapsed_s() - beat_s <= within_s)

    async def run(self) -> None:
        """Relay for ever. Ends by cancellation only."""
        try:
            while True:
                pause_s = STAND_BY_S
                try:
                    await self._serve_once()
                except (StoreUnavailable, KafkaUnavailable) as error:
                    pause_s, self._backoff_s = self._backoff_s, min(self._backoff_s * 2, MAX_BACKOFF_S)
                    log.warning("event=relay_waits reason=%s retry_s=%.1f", error, pause_s)
                    self.metrics.relay_faults.inc()
                await asyncio.sleep(pause_s)
        finally:
            await self.publisher.close()
            await self.store.close()

    async def _serve_once(self) -> None:
        """One stay as the relay: returns when another relay is at work, raises when something fails."""
        stood_by, self.stands_by = self.stands_by, not await self.store.open()
        if self.stands_by:
            if not stood_by:
                log.info("event=relay_stands_by reason=another_relay_works")
            return
        await self.publisher.open()
        await self._tell_registry()
        self._backoff_s = self.pace.poll_s  # it worked: the next hiccup is a new one
        log.info("event=relay_works")
        while True:
            if not await self.pass_once():
                await asyncio.sleep(self.pace.poll_s)

    async def pass_once(self) -> bool:
        """Publish what waits; True when more may wait."""
        now_s = self.clock.elapsed_s()
        self._blocked = {key: until for key, until in self._blocked.items() if until > now_s}
        registry = await self.store.waiting((REGISTRY,), tuple(self._blocked), self.pace.batch)
        if registry:
            await self._publish_book()
        # asked for without the registry: a device enrolled since then would go along with its book, not after it
        rows = registry or await self.store.waiting(OTHERS, tuple(self._blocked), self.pace.batch)
        if rows:
            await self._publish(rows)
        told = not registry and not any(key.startswith(f"{REGISTRY}:") for key in self._blocked)
        if told and now_s >= self._next_beat_s:
            await self._beat(now_s)
        if now_s >= self._next_care_s:
            self._next_care_s = now_s + HOUSEKEEPING_S
            await self._care()
        return bool(registry) or len(rows) == self.pace.batch

    async def _publish_book(self) -> None:
        """All of the book that waits; asked after the registry's rows, so it has what was committed with them."""
        while book := await self.store.waiting((BOOK,), tuple(self._blocked), self.pace.batch):
            await self._publish(book)

    async def _publish(self, rows: Sequence[OutboxRow]) -> None:
        records = [
            Record(self._topic(row.topic).name, row.kafka_key.encode(), row.kafka_value, _headers(row)) for row in rows
        ]
        marked, troubled = settle(rows, await self.publisher.publish(records))
        if marked:
            await self.store.mark_published(marked)
            self.metrics.relay_published.inc(len(marked))
        until_s = self.clock.elapsed_s() + UNBLOCK_S
        for key in troubled:
            log.error("event=relay_key_blocked topic=%s retry_s=%.0f", key.split(":", 1)[0], UNBLOCK_S)
            self._blocked[key] = until_s

    async def _beat(self, now_s: float) -> None:
        beat = Record(self.topics.registry.name, BEAT_KEY.encode(), encode_beat(self.clock.now_ms()))
        if all(await self.publisher.publish([beat])):
            self._next_beat_s = now_s + self.pace.beat_s
            self.last_beat_s = now_s

    async def _care(self) -> None:
        pruned = await self.store.prune(self.pace.keep_h)
        backlog = await self.store.backlog(OUTBOX_TOPICS)
        self.metrics.outbox_waiting.set(backlog.rows)
        self.metrics.outbox_oldest.set(backlog.oldest_s)
        self.metrics.outbox_unknown.set(backlog.unknown_topic)
        if backlog.unknown_topic:
            log.error(
                "event=outbox_unknown_topic rows=%d fix=run_the_version_that_wrote_them kept=true",
                backlog.unknown_topic,
            )
        if pruned:
            log.info("event=outbox_pruned rows=%d", pruned)

    async def _tell_registry(self) -> None:
        """Every device and its known epochs once; the outbox rows that follow have the last word."""
        registered, revoked = await self.store.registry()
        book = [Record(self.topics.book.name, key.encode(), page) for key, page in await self.store.book()]
        topic = self.topics.registry.name
        records = [Record(topic, one.device.encode(), encode_registration(one)) for one in registered]
        records += [Record(topic, device.encode(), None) for device in revoked]
        records += [Record(self.topics.epochs.name, key.encode(), known) for key, known in await self.store.epochs()]
        await self._publish_whole(book)
        await self._publish_whole(records)
        log.info("event=registry_told devices=%d revoked=%d", len(registered), len(revoked))

    async def _publish_whole(self, records: Sequence[Record]) -> None:
        for start in range(0, len(records), self.pace.batch):
            if not all(await self.publisher.publish(records[start : start + self.pace.batch])):
                raise KafkaUnavailable("Kafka did not take the whole registry; it is sent again")

    def _topic(self, name: str) -> KafkaTopic:
        topic: KafkaTopic = getattr(self.topics, name)
        return topic


def _headers(row: OutboxRow) -> tuple[tuple[str, bytes], ...]:
    return () if row.stamp is None else ((STAMP_HEADER, row.stamp),)

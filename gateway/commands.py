"""What the cloud asks of devices: from the commands topic to ``v1/{device}/down/cmd``.

The workers of a stack share one consumer group. An offset is committed when the broker has the publish, so a
command may be delivered twice (its nonce lets the agent notice) and is not lost. Commands past their expiry
are counted and not sent.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Protocol

from confluent_kafka import KafkaException, Message, TopicPartition

from contracts.commands import decode_command
from contracts.errors import Rejected
from contracts.names import check_name
from contracts.topics import DOWN_COMMAND, down_topic
from gateway.counts import Counts

log = logging.getLogger(__name__)
BATCH = 50
MAX_WAITING = 200


class CommandConsumer(Protocol):
    """The part of confluent_kafka.Consumer used here."""

    def consume(self, num_messages: int, timeout: float) -> list[Message]: ...
    def commit(self, *, offsets: list[TopicPartition]) -> None: ...
    def close(self) -> None: ...


class Down(Protocol):
    """Where commands leave."""

    @property
    def can_publish(self) -> bool: ...
    def publish(self, topic: str, payload: bytes, expiry_s: int | None = None) -> int: ...


class CommandFeed:
    """Moves commands; called from the gateway's one loop."""

    def __init__(self, consumer: CommandConsumer, down: Down, counts: Counts) -> None:
        self._consumer = consumer
        self._down = down
        self._counts = counts
        self._waiting: deque[tuple[TopicPartition, int | None]] = deque()
        self._confirmed: set[int] = set()

    def step(self, now_ms: int, confirmed: set[int]) -> None:
        """Send what has come, commit what the broker has."""
        self._confirmed |= confirmed & {packet_id for _, packet_id in self._waiting if packet_id is not None}
        self._commit()
        if not self._down.can_publish or len(self._waiting) >= MAX_WAITING:
            return
        try:
            messages = self._consumer.consume(BATCH, 0)
        except KafkaException as error:
            log.warning("event=commands_read_failed error=%s", error)
            return
        for message in messages:
            if (problem := message.error()) is not None:
                log.warning("event=commands_read_failed code=%s", problem.name())
                continue
            place = TopicPartition(message.topic() or "", message.partition() or 0, (message.offset() or 0) + 1)
            self._waiting.append((place, self._send(message.value() or b"", now_ms)))

    def close(self) -> None:
        self._commit()
        self._consumer.close()

    def _send(self, payload: bytes, now_ms: int) -> int | None:
        """The packet id to wait for; None when there is nothing to send."""
        try:
            command = decode_command(payload)
            check_name("device", command.device)
        except Rejected as error:
            self._counts.commands["refused"] += 1
            log.warning("event=command_refused reason=%s", error.reason)
            return None
        left_ms = command.expires_ms - now_ms
        if left_ms <= 0:
            self._counts.commands["expired"] += 1
            return None
        self._counts.commands["sent"] += 1
        return self._down.publish(down_topic(command.device, DOWN_COMMAND), payload, -(-left_ms // 1000))

    def _commit(self) -> None:
        place = None
        while self._waiting and (self._waiting[0][1] is None or self._waiting[0][1] in self._confirmed):
            place, packet_id = self._waiting.popleft()
            if packet_id is not None:
                self._confirmed.discard(packet_id)
        if place is None:
            return
        try:
            self._consumer.commit(offsets=[place])
        except KafkaException as error:
            log.warning("event=commands_commit_failed error=%s", error)

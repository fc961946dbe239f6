"""MQTT topic and Kafka topic names, keys, partition counts and retention.

MQTT: ``v1/{device}/up/{live|backlog|priority|status|answer}`` and ``v1/{device}/down/{ack|cmd|identity}``. The level
after ``v1`` is the authenticated certificate name, so that one broker pattern (``%u``) binds topic to identity.
Kafka: key = device name everywhere, partitioner murmur2_random. Partition counts are fixed for ever, since the
partition of a device is part of how duplicates meet. A prefix isolates tests and parallel stacks.
"""

from __future__ import annotations

from dataclasses import dataclass

from contracts.errors import Rejected
from contracts.names import NAME_PATTERN
from contracts.packet import Lane

UP_LIVE, UP_BACKLOG, UP_PRIORITY, UP_STATUS = "live", "backlog", "priority", "status"
UP_ANSWER = "answer"
DOWN_ACK, DOWN_COMMAND, DOWN_IDENTITY = "ack", "cmd", "identity"
DOWN_CHANNELS = (DOWN_ACK, DOWN_COMMAND, DOWN_IDENTITY)
UP_MESSAGES = (UP_STATUS, UP_ANSWER)
"""Channels that carry JSON instead of packets."""
GATEWAY_FILTER = "v1/+/up/#"
SHARE_GROUP = "gateway"
ACK_PROPERTY = ("ack", "1")
"""MQTT 5 user property on a publish that asks for an end-to-end acknowledgement at once."""

LANE_CHANNELS = {Lane.LIVE: UP_LIVE, Lane.BACKLOG: UP_BACKLOG, Lane.PRIORITY: UP_PRIORITY}
CHANNEL_LANES = {channel: lane for lane, channel in LANE_CHANNELS.items()}


def up_topic(device: str, channel: str) -> str:
    return f"v1/{device}/up/{channel}"


def down_topic(device: str, channel: str) -> str:
    return f"v1/{device}/down/{channel}"


def parse_up_topic(topic: str) -> tuple[str, str]:
    """(device, channel). Raises Rejected('bad_topic')."""
    parts = topic.split("/")
    if len(parts) != 4 or parts[0] != "v1" or parts[2] != "up" or not NAME_PATTERN.fullmatch(parts[1]):
        raise Rejected("bad_topic", topic[:120])
    if parts[3] not in CHANNEL_LANES and parts[3] not in UP_MESSAGES:
        raise Rejected("bad_topic", topic[:120])
    return parts[1], parts[3]


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """One named, keyed, persistent stream. ``retention_ms`` -1: trimmed by the archiver, never by time."""

    name: str
    partitions: int
    retention_ms: int = -1
    compacted: bool = False


@dataclass(frozen=True, slots=True)
class Topics:
    """Every Kafka topic of one stack, under one prefix."""

    prefix: str = "fleet"

    @property
    def live(self) -> KafkaTopic:
        return KafkaTopic(f"{self.prefix}.telemetry.live.v1", 4)

    @property
    def backlog(self) -> KafkaTopic:
        return KafkaTopic(f"{self.prefix}.telemetry.backlog.v1", 2)

    @property
    def priority(self) -> KafkaTopic:
        """Crash records and their notices; read by the evidence consumer, not by Spark."""
        return KafkaTopic(f"{self.prefix}.priority.v1", 1)

    @property
    def status(self) -> KafkaTopic:
        """Agents' own accounts (``contracts.status``)."""
        return KafkaTopic(f"{self.prefix}.status.v1", 1)

    @property
    def dead_letters(self) -> KafkaTopic:
        return KafkaTopic(f"{self.prefix}.deadletters.v1", 1)

    @property
    def registry(self) -> KafkaTopic:
        """Device name to its registration (``contracts.registry``); compacted."""
        return KafkaTopic(f"{self.prefix}.registry.v1", 1, compacted=True)

    @property
    def book(self) -> KafkaTopic:
        """The registry as rows (``contracts.book``), from which a lost store is restored; compacted, not by device."""
        return KafkaTopic(f"{self.prefix}.book.v1", 1, compacted=True)

    @property
    def windows(self) -> KafkaTopic:
        """Closed and corrected windows, by the outbox."""
        return KafkaTopic(f"{self.prefix}.windows.v1", 4)

    @property
    def findings(self) -> KafkaTopic:
        """What detectors in the stream found (``contracts.finding``), by the outbox."""
        return KafkaTopic(f"{self.prefix}.findings.v1", 1)

    @property
    def commands(self) -> KafkaTopic:
        """What the cloud asks of a device (``contracts.commands``), by the outbox."""
        return KafkaTopic(f"{self.prefix}.commands.v1", 1)

    @property
    def events(self) -> KafkaTopic:
        """Things that happened and that people or other systems may want to know, by the outbox."""
        return KafkaTopic(f"{self.prefix}.events.v1", 1)

    @property
    def answers(self) -> KafkaTopic:
        """What devices answered to commands (``contracts.commands``)."""
        return KafkaTopic(f"{self.prefix}.answers.v1", 1)

    @property
    def epochs(self) -> KafkaTopic:
        """Device name to the boot epochs that the store knows (``contracts.identity``); compacted."""
        return KafkaTopic(f"{self.prefix}.epochs.v1", 1, compacted=True)

    @property
    def latest(self) -> KafkaTopic:
        """Device and signal to the newest value (``contracts.latest``); compacted."""
        return KafkaTopic(f"{self.prefix}.latest.v1", 4, compacted=True)

    @property
    def alerts(self) -> KafkaTopic:
        """Every step of every alert (``contracts.alert``), by the outbox; key: device of its first finding."""
        return KafkaTopic(f"{self.prefix}.alerts.v1", 1)

    def lane(self, lane: int) -> KafkaTopic:
        """Where the gateway writes packets of a lane."""
        return (self.live, self.backlog, self.priority)[lane]

    def all(self) -> tuple[KafkaTopic, ...]:
        """The menu: what the embedded stack creates and ``doctor`` checks."""
        return (
            self.live, self.backlog, self.priority, self.status, self.dead_letters,
            self.registry, self.book, self.windows, self.commands, self.events, self.answers, self.epochs, self.latest,
            self.findings, self.alerts,
        )  # fmt: skip

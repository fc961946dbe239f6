"""Apache Kafka, one node in KRaft mode, from its published jars; and the topics of the contract.

Records carry the broker's append time: with the device's event time as timestamp, retention would delete
late data at once. Event time lives in the payload only.
"""

from __future__ import annotations

import base64
import subprocess
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from contracts.topics import KafkaTopic
from infra.errors import ServiceFailed, SetupError
from infra.java import Java
from infra.processes import Command

FORMAT_TIMEOUT_S = 180
ADMIN_TIMEOUT_S = 120
LEADER_TIMEOUT_S = 60
ASK_TIMEOUT_S = 5
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "message.timestamp.type": "LogAppendTime",
    "log.message.timestamp.type": "LogAppendTime",
    "log.retention.ms": "-1",
    "log.segment.bytes": str(64 * 1024 * 1024),
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    "num.network.threads": "2",
    "num.io.threads": "4",
}
HEAP_OPTIONS = ("-Xms192m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError")


@dataclass(frozen=True, slots=True)
class Kafka:
    """One broker below ``home`` on two loopback ports (clients, controller)."""

    home: Path
    port: int
    controller_port: int
    log_file: Path
    java: Java
    jars: Sequence[Path]

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def _properties_file(self) -> Path:
        return self.home / "server.properties"

    def prepare(self) -> None:
        """Write the settings and format the log folder when it is new. Raises SetupError."""
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._properties_file.write_text("".join(f"{key}={value}\n" for key, value in self._properties().items()))
        if (self.home / "data" / "meta.properties").exists():
            return
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A", 1)
        command = self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._properties_file))
        made = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, check=False)
        if made.returncode:
            raise SetupError(f"Kafka's folder could not be formatted: {(made.stderr or made.stdout).strip()[-300:]}")

    def command(self) -> Command:
        return Command(
            name="kafka",
            arguments=self._java("kafka.Kafka", str(self._properties_file), options=HEAP_OPTIONS),
            log_file=self.log_file,
            stop_timeout_s=30,
            folder=self.home,
        )

    def ready(self) -> bool:
        """Whether the broker answers a metadata request."""
        try:
            return bool(_admin(self.bootstrap).list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    def _properties(self) -> dict[str, str]:
        return {
            **PROPERTIES,
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.home / "data"),
        }

    def _java(self, main: str, *arguments: str, options: Sequence[str] = ("-Xmx128m",)) -> list[str]:
        return [
            str(self.java.launcher), *options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss",
            "-cp", ":".join(map(str, self.jars)), main, *arguments,
        ]  # fmt: skip


def create_topics(bootstrap: str, topics: Sequence[KafkaTopic]) -> None:
    """Create what is missing; refuse a topic whose partition count differs from the contract's."""
    admin = _admin(bootstrap)
    there = admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics
    for topic in topics:
        count = len(there[topic.name].partitions) if topic.name in there else topic.partitions
        if count != topic.partitions:
            raise ServiceFailed(
                f"Topic {topic.name} has {count} partitions, the contract says {topic.partitions}; a device's records "
                "would meet in two partitions, so nothing was started: use another prefix or the old version"
            )
    missing = [_new_topic(topic) for topic in topics if topic.name not in there]
    if missing:
        for made in admin.create_topics(missing, operation_timeout=ADMIN_TIMEOUT_S).values():
            made.result()
        _until_led(bootstrap, [topic for topic in topics if topic.name not in there])


def _until_led(bootstrap: str, topics: Sequence[KafkaTopic]) -> None:
    """Wait until every partition answers: a topic is told as made before its leaders have heard of it, and clients that
    ask meanwhile are told that nobody leads. Raises ServiceFailed."""
    left = {TopicPartition(topic.name, number) for topic in topics for number in range(topic.partitions)}
    newest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    deadline_s, reason = time.monotonic() + LEADER_TIMEOUT_S, ""
    while left:
        admin = _admin(bootstrap)  # a new one each time: a client may keep for good what it heard too early
        for place, answer in admin.list_offsets(dict.fromkeys(left, newest), request_timeout=ASK_TIMEOUT_S).items():
            try:
                answer.result()
                left.discard(place)
            except KafkaException as error:
                reason = str(error)
        if left and time.monotonic() > deadline_s:
            raise ServiceFailed(
                f"Kafka made topic {next(iter(left)).topic} but nobody leads it after {LEADER_TIMEOUT_S} s ({reason}); "
                "nothing is lost: look into its log and start again"
            )
        if left:
            time.sleep(0.05)


def _new_topic(topic: KafkaTopic) -> NewTopic:
    settings = {"message.timestamp.type": "LogAppendTime", "retention.ms": str(topic.retention_ms)}
    if topic.compacted:
        settings |= {"cleanup.policy": "compact", "segment.ms": "3600000", "min.cleanable.dirty.ratio": "0.1"}
    return NewTopic(topic.name, num_partitions=topic.partitions, replication_factor=1, config=settings)


def _admin(bootstrap: str) -> AdminClient:
    quiet: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap,
        "log_level": 2,
        "socket.connection.setup.timeout.ms": 2_000,
    }
    return AdminClient(quiet)

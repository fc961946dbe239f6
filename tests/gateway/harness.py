"""A worker in a process of its own, a device that speaks MQTT, and a reader of what Kafka holds."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import paho.mqtt.client as mqtt
from confluent_kafka import Consumer, Producer, TopicPartition
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from contracts.acks import Ack, decode_ack
from contracts.ranges import RangeSet
from contracts.registry import BEAT_KEY, Registration, encode_beat, encode_registration
from contracts.stamp import DEAD_LETTER_HEADER, DeadLetter, decode_dead_letter
from contracts.topics import ACK_PROPERTY, DOWN_ACK, DOWN_COMMAND, KafkaTopic, Topics, down_topic, up_topic
from infra.guard import Guard
from infra.processes import free_port
from tests.fix_stack import MqttBroker

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120.0


def wait_for(what: str, condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Ask again every 20 ms; fail with ``what`` when it never comes true."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {patience_s} s for: {what}"
        time.sleep(0.02)


@dataclass(slots=True)
class Worker:
    """``python -m gateway`` as the stack runs it."""

    broker: MqttBroker
    bootstrap: str
    prefix: str
    settings: dict[str, str] = field(default_factory=dict)
    number: int = 0
    port: int = 0
    log: Path | None = None
    process: subprocess.Popen[bytes] | None = None
    guard: Guard | None = None

    def start(self, *, until_ready: bool = True) -> None:
        credentials = self.broker.issue(f"gateway-{self.number}")
        self.port = free_port()
        values = {
            "MQTT_HOST": self.broker.host, "MQTT_PORT": self.broker.port, "CA_FILE": credentials.ca,
            "CERTIFICATE_FILE": credentials.certificate, "KEY_FILE": credentials.key, "WORKER": self.number,
            "SHARE_GROUP": self.prefix, "KAFKA_BOOTSTRAP": self.bootstrap, "TOPIC_PREFIX": self.prefix,
            "METRICS_PORT": self.port, **self.settings,
        }  # fmt: skip
        environment = {f"FLEETSTREAM__GATEWAY__{key}": str(value) for key, value in values.items()}
        command = [sys.executable, "-m", "gateway"]
        with (self.log or Path(os.devnull)).open("ab") as output:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, **environment}, stderr=output, start_new_session=True
            )
        self.guard = self.guard or Guard()
        self.guard.watch(self.process.pid)
        if until_ready:
            wait_for("the worker to be ready", lambda: self.page("/readyz")[0] == 200)

    def page(self, path: str) -> tuple[int, str]:
        """(status, body); status 0 when nothing answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str) -> float:
        """One sample by its full name, labels included; 0 when it is not there."""
        for line in self.page("/metrics")[1].splitlines():
            head, _, value = line.rpartition(" ")
            if head == f"fleetstream_gateway_{name}":
                return float(value)
        return 0.0

    def kill(self) -> None:
        assert self.process and self.guard
        self.process.kill()
        self.process.wait()
        self.guard.forget(self.process.pid)

    def leave(self) -> None:
        """End it and its guard."""
        self.kill()
        assert self.guard
        self.guard.close()
        self.guard = None

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process
        self.process.terminate()
        return self.process.wait(PATIENCE_S)


def forget_session(broker: MqttBroker, number: int = 0) -> None:
    """End the session that an earlier test's worker left: its subscription would go on collecting."""
    name, ended = f"gateway-{number}", []
    client = tls_client(broker, name)
    client.on_connect = lambda client, *_: client.disconnect()
    client.on_disconnect = lambda *_: ended.append(True)
    client.connect(broker.host, broker.port, clean_start=True)
    client.loop_forever(retry_first_connection=False)
    assert ended


def tls_client(broker: MqttBroker, name: str) -> mqtt.Client:
    credentials = broker.issue(name)
    client = mqtt.Client(CallbackAPIVersion.VERSION2, name, protocol=mqtt.MQTTv5)
    client.tls_set(
        str(credentials.ca), str(credentials.certificate), str(credentials.key), tls_version=ssl.PROTOCOL_TLS_CLIENT
    )
    return client


@contextmanager
def running(worker: Worker) -> Iterator[Worker]:
    forget_session(worker.broker, worker.number)
    try:
        worker.start()
        yield worker
    finally:
        worker.leave()


class Device:
    """A client with its own certificate that publishes at QoS 1 and keeps what comes down."""

    def __init__(self, broker: MqttBroker, name: str) -> None:
        self.name = name
        self.acks: list[Ack] = []
        self.commands: list[bytes] = []
        self.confirmed = RangeSet()
        self.rejected = RangeSet()
        self.connects = 0
        self._ready = False
        self._client = tls_client(broker, name)
        self._client.max_inflight_messages = 200
        self._client.on_connect = self._connected
        self._client.on_subscribe = self._subscribed
        self._client.on_message = self._message
        self._client.connect(broker.host, broker.port)
        self._client.loop_start()
        wait_for("the device to be subscribed", lambda: self._ready)

    def publish(
        self, channel: str, payload: bytes, *, ask: bool = False, topic: str = "", retain: bool = False
    ) -> None:
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        if ask:
            properties.UserProperty = ACK_PROPERTY
        self._client.publish(topic or up_topic(self.name, channel), payload, 1, retain, properties)

    def settled(self) -> bool:
        """Whether the broker has taken everything."""
        return not self._client._out_messages

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _connected(self, client: mqtt.Client, *_: object) -> None:
        client.subscribe([(down_topic(self.name, DOWN_ACK), 1), (down_topic(self.name, DOWN_COMMAND), 1)])

    def _subscribed(self, *_: object) -> None:
        self.connects += 1
        self._ready = True

    def _message(self, _client: mqtt.Client, _data: object, message: mqtt.MQTTMessage) -> None:
        if message.topic.endswith(DOWN_COMMAND):
            self.commands.append(bytes(message.payload))
            return
        ack = decode_ack(bytes(message.payload))
        self.acks.append(ack)
        for target, ranges in ((self.confirmed, ack.confirmed), (self.rejected, ack.rejected)):
            for first, last in ranges:
                for number in range(first, last + 1):
                    target.add(number)


@dataclass(frozen=True, slots=True)
class Got:
    """One Kafka record."""

    key: bytes
    value: bytes
    headers: dict[str, bytes]

    @property
    def letter(self) -> DeadLetter:
        return decode_dead_letter(self.headers[DEAD_LETTER_HEADER])


class Log:
    """Reads and writes the topics of one prefix."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.topics = Topics(prefix)
        self._bootstrap = bootstrap
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
        self._watcher = Consumer({"bootstrap.servers": bootstrap, "group.id": "watcher", "log_level": 2})

    def end(self, topic: KafkaTopic) -> int:
        """How many records the topic has been given (nothing trims or compacts it in a test)."""
        places = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
        return sum(self._watcher.get_watermark_offsets(place, timeout=PATIENCE_S)[1] for place in places)

    def read(self, topic: KafkaTopic) -> list[Got]:
        """Everything that the topic holds now."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "test", "log_level": 2})
        got: list[Got] = []
        try:
            places = [TopicPartition(topic.name, number, 0) for number in range(topic.partitions)]
            left = {p.partition: consumer.get_watermark_offsets(p, timeout=PATIENCE_S)[1] for p in places}
            consumer.assign(places)
            while any(
                place.offset < left[place.partition] for place in consumer.position(places) if left[place.partition]
            ):
                for message in consumer.consume(1000, 0.2):
                    assert message.error() is None
                    headers = dict(message.headers() or [])
                    got.append(Got(message.key() or b"", message.value() or b"", headers))  # type: ignore[arg-type]
        finally:
            consumer.close()
        return got

    def write(self, topic: KafkaTopic, key: str, value: bytes | None) -> None:
        self._producer.produce(topic.name, value, key.encode())
        assert self._producer.flush(PATIENCE_S) == 0

    def register(self, *registrations: Registration) -> None:
        for one in registrations:
            self._producer.produce(self.topics.registry.name, encode_registration(one), one.device.encode())
        self.write(self.topics.registry, BEAT_KEY, encode_beat(int(time.time() * 1000)))

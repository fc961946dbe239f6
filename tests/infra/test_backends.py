"""The three servers as services rely on them: rights, time stamps, identities, certificates."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, Producer
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from contracts.packet import MAX_FRAME_BYTES
from contracts.tables import ROLE_READER, ROLE_SINK, VIEWS
from contracts.topics import Topics
from infra.mosquitto import PACKET_ROOM_BYTES
from tests.fix_stack import MqttBroker

PATIENCE_S = 120.0


def test_every_stable_view_has_its_columns_for_the_reader(role_dsn: Callable[[str], str]) -> None:
    with psycopg.connect(role_dsn(ROLE_READER)) as connection:
        for view, columns in VIEWS.items():
            found = [column.name for column in connection.execute(f"SELECT * FROM {view}").description or ()]
            assert set(columns) <= set(found), view


def test_the_reader_cannot_write_and_the_sink_can(role_dsn: Callable[[str], str]) -> None:
    statement = "INSERT INTO tenants (name) VALUES ('north')"
    with psycopg.connect(role_dsn(ROLE_READER)) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement)
    with psycopg.connect(role_dsn(ROLE_SINK)) as connection:
        assert connection.execute(statement).rowcount == 1


def test_an_old_event_time_does_not_become_the_record_time(kafka_bootstrap: str, topic_prefix: str) -> None:
    topic = Topics(topic_prefix).live.name
    producer = Producer({"bootstrap.servers": kafka_bootstrap, "acks": "all", "enable.idempotence": True})
    producer.produce(topic, b"x", key=b"car", timestamp=1_000)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({"bootstrap.servers": kafka_bootstrap, "group.id": "t", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    record = consumer.poll(PATIENCE_S)
    consumer.close()
    assert record is not None and record.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME


def test_topics_have_the_contract_s_partitions(kafka_bootstrap: str, topic_prefix: str) -> None:
    from confluent_kafka.admin import AdminClient

    there = AdminClient({"bootstrap.servers": kafka_bootstrap}).list_topics(timeout=PATIENCE_S).topics
    for topic in Topics(topic_prefix).all():
        assert len(there[topic.name].partitions) == topic.partitions


@contextmanager
def connected(broker: MqttBroker, name: str, client_id: str | None = None) -> Iterator[Client]:
    """A paho client with the certificate of ``name``, its network loop running."""
    credentials = broker.issue(name)
    client = Client(CallbackAPIVersion.VERSION2, client_id=client_id or name, protocol=MQTTv5)
    client.tls_set(
        str(credentials.ca), str(credentials.certificate), str(credentials.key), tls_version=ssl.PROTOCOL_TLS_CLIENT
    )
    up = threading.Event()
    client.on_connect = lambda *_: up.set()
    client.connect(broker.host, broker.port)
    client.loop_start()
    try:
        assert up.wait(PATIENCE_S)
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


def publish(client: Client, topic: str, payload: bytes = b"x") -> int:
    """Publish at QoS 1 and return the reason code of the PUBACK."""
    answers: dict[int, int] = {}
    arrived = threading.Event()

    def on_publish(_client: Client, _data: Any, mid: int, reason: Any, _properties: Any) -> None:
        answers[mid] = reason.value
        arrived.set()

    client.on_publish = on_publish
    sent = client.publish(topic, payload, qos=1)
    assert arrived.wait(PATIENCE_S)
    return answers[sent.mid]


class Inbox:
    """Messages a client has received, and a way to wait for the next."""

    def __init__(self, client: Client, *filters: str) -> None:
        self.topics: list[str] = []
        self._changed = threading.Condition()
        ready = threading.Event()
        client.on_subscribe = lambda *_: ready.set()
        client.on_message = self._arrive
        client.subscribe([(one, 1) for one in filters])
        assert ready.wait(PATIENCE_S)

    def _arrive(self, _client: Client, _data: Any, message: Any) -> None:
        with self._changed:
            self.topics.append(message.topic)
            self._changed.notify_all()

    def wait_for(self, count: int) -> list[str]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.topics) >= count, timeout=PATIENCE_S), self.topics
            return list(self.topics)


def test_a_device_speaks_only_under_its_own_name(mqtt_broker: MqttBroker) -> None:
    with connected(mqtt_broker, "car-1") as car:
        assert publish(car, "v1/car-1/up/live") in (0, 16)
        assert publish(car, "v1/car-2/up/live") == 0x87
        assert publish(car, "v1/car-1/down/ack") == 0x87


def test_a_packet_over_the_limit_ends_its_connection_and_no_other(mqtt_broker: MqttBroker) -> None:
    with connected(mqtt_broker, "car-5") as other, connected(mqtt_broker, "car-4") as car:
        gone = threading.Event()
        car.on_disconnect = lambda *_: gone.set()
        assert publish(car, "v1/car-4/up/live", bytes(MAX_FRAME_BYTES)) in (0, 16), "the largest frame passes"
        car.publish("v1/car-4/up/live", bytes(MAX_FRAME_BYTES + PACKET_ROOM_BYTES), qos=1)
        assert gone.wait(PATIENCE_S)
        assert publish(other, "v1/car-5/up/live") in (0, 16)


def test_the_client_id_is_the_certificate_s_name(mqtt_broker: MqttBroker) -> None:
    with connected(mqtt_broker, "car-1") as victim, connected(mqtt_broker, "car-2", client_id="car-1"):
        assert publish(victim, "v1/car-1/up/live") in (0, 16)


def test_shared_gateway_worker_gets_all_devices_and_answers_them(mqtt_broker: MqttBroker) -> None:
    with connected(mqtt_broker, "gateway-0") as gateway, connected(mqtt_broker, "car-3") as car:
        inbox = Inbox(gateway, "$share/gateway/v1/+/up/#")
        answers = Inbox(car, "v1/car-3/down/#")
        publish(car, "v1/car-3/up/live")
        assert inbox.wait_for(1) == ["v1/car-3/up/live"]
        publish(gateway, "v1/car-3/down/ack")
        assert answers.wait_for(1) == ["v1/car-3/down/ack"]


def test_a_device_that_subscribes_to_others_takes_nothing_away(mqtt_broker: MqttBroker) -> None:
    """Mosquitto grants every SUBSCRIBE and would drop a share's part, so the group's name is a secret of the stack."""
    with connected(mqtt_broker, "gateway-0") as gateway, connected(mqtt_broker, "thief") as thief:
        inbox = Inbox(gateway, "$share/f3b9c1d7/v1/+/up/#")
        stolen = Inbox(thief, "$share/gateway/v1/+/up/#", "v1/+/up/#", "#")
        with connected(mqtt_broker, "car-4") as car:
            for number in range(20):
                publish(car, "v1/car-4/up/live", str(number).encode())
        assert len(inbox.wait_for(20)) == 20
        assert stolen.topics == []


def test_no_certificate_no_connection(mqtt_broker: MqttBroker) -> None:
    context = ssl.create_default_context(cafile=str(mqtt_broker.ca))
    refused = pytest.raises((ssl.SSLError, ConnectionError))
    with socket.create_connection((mqtt_broker.host, mqtt_broker.port), timeout=PATIENCE_S) as plain, refused:
        speak_without_certificate(context, plain)


def speak_without_certificate(context: ssl.SSLContext, plain: socket.socket) -> None:
    """Raises when the broker refuses; TLS 1.3 tells a client so with its first bytes."""
    with context.wrap_socket(plain, server_hostname="localhost") as secure:
        secure.sendall(b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x01x")
        if not secure.recv(4):
            raise ConnectionError("closed by the broker")

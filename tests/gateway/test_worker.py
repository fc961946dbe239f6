"""One worker on a real broker and a real Kafka: what goes in comes out, and what is refused says why."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.commands import Command, decode_command, encode_command
from contracts.stamp import STAMP_HEADER, decode_stamp
from contracts.status import encode_status
from tests.fix_stack import MqttBroker
from tests.gateway.harness import Device, Log, Worker, running, wait_for
from tests.gateway.samples import frame, registration, status


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.fixture
def log(kafka_bootstrap: str, topic_prefix: str) -> Log:
    return Log(kafka_bootstrap, topic_prefix)


@pytest.fixture
def name(topic_prefix: str) -> str:
    """A device of this test alone."""
    return f"car-{topic_prefix}"


@pytest.fixture
def worker(
    mqtt_broker: MqttBroker, kafka_bootstrap: str, topic_prefix: str, log: Log, name: str, tmp_path: Path
) -> Iterator[Worker]:
    log.register(registration(name))
    one = Worker(mqtt_broker, kafka_bootstrap, topic_prefix, {"ACK_AFTER_MS": "200"}, log=tmp_path / "gateway.log")
    with running(one):
        yield one


@pytest.fixture
def device(mqtt_broker: MqttBroker, name: str) -> Iterator[Device]:
    one = Device(mqtt_broker, name)
    yield one
    one.close()


def test_a_packet_reaches_kafka_untouched_and_is_confirmed(worker: Worker, device: Device, log: Log) -> None:
    frames = [frame(device.name, seq, base_ms=now_ms()) for seq in range(1, 101)]
    for one in frames:
        device.publish("live", one)
    wait_for("100 confirmations", lambda: device.confirmed.as_tuple() == ((1, 100),))
    got = log.read(log.topics.live)
    assert [one.value for one in got] == frames
    assert {one.key for one in got} == {device.name.encode()}
    stamps = [decode_stamp(one.headers[STAMP_HEADER]) for one in got]
    assert {(stamp.device_key, stamp.tenant_id, stamp.flags) for stamp in stamps} == {(7, 3, 0)}
    assert all(abs(stamp.received_ms - now_ms()) < 60_000 for stamp in stamps)
    assert len(device.acks) < 100, "one for several, however slowly they came"
    wait_for("100 PUBACKs", lambda: worker.metric("pubacks_total") == 100)


def test_lanes_and_status_have_their_topics(worker: Worker, device: Device, log: Log) -> None:
    device.publish("backlog", frame(device.name, 1, lane=1, base_ms=now_ms()), ask=True)
    device.publish("priority", frame(device.name, 2, lane=2, base_ms=now_ms()))
    device.publish("status", encode_status(status(device.name)))
    wait_for("two confirmations", lambda: device.confirmed.as_tuple() == ((1, 2),))
    wait_for("the status", lambda: len(log.read(log.topics.status)) == 1)
    assert len(log.read(log.topics.backlog)) == len(log.read(log.topics.priority)) == 1


def test_a_command_reaches_its_device(worker: Worker, device: Device, log: Log) -> None:
    command = Command("c1", device.name, "ping", 99, now_ms() + 60_000)
    stale = Command("c0", device.name, "ping", 98, now_ms() - 1)
    for one in (stale, command):
        log.write(log.topics.commands, device.name, encode_command(one))
    wait_for("the command", lambda: len(device.commands) == 1)
    assert decode_command(device.commands[0]) == command
    wait_for("the stale one", lambda: worker.metric('commands_total{outcome="expired"}') == 1)

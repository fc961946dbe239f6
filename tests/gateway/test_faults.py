"""Kills and outages on a real broker and a real Kafka: what was ever taken is in Kafka in the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.packet import decode_header
from infra.backends import Backends
from tests.fix_stack import MqttBroker
from tests.gateway.harness import Device, Log, Worker, running, wait_for
from tests.gateway.samples import frame, registration

PACKETS = 6_000
KILLS = 5


@pytest.fixture
def log(kafka_bootstrap: str, topic_prefix: str) -> Log:
    return Log(kafka_bootstrap, topic_prefix)


@pytest.fixture
def worker(mqtt_broker: MqttBroker, kafka_bootstrap: str, topic_prefix: str, tmp_path: Path) -> Worker:
    settings = {"ACK_AFTER_MS": "200", "DEVICE_BURST_PACKETS": "1000000", "STALLED_AFTER_MS": "1000"}
    settings["DRAIN_TIMEOUT_S"] = "100"
    return Worker(mqtt_broker, kafka_bootstrap, topic_prefix, settings, log=tmp_path / "gateway.log")


@pytest.fixture
def device(mqtt_broker: MqttBroker, topic_prefix: str, log: Log) -> Iterator[Device]:
    one = Device(mqtt_broker, f"car-{topic_prefix}")
    log.register(registration(one.name))
    yield one
    one.close()


def publish(device: Device, first: int, last: int) -> None:
    for seq in range(first, last + 1):
        device.publish("live", frame(device.name, seq, base_ms=int(time.time() * 1000)))


def in_kafka(log: Log) -> list[int]:
    return [decode_header(one.value).seq for one in log.read(log.topics.live)]


def test_sigkill_under_load_loses_nothing(worker: Worker, device: Device, log: Log) -> None:
    with running(worker):
        for round_number in range(KILLS):
            first = round_number * PACKETS // KILLS + 1
            publish(device, first, first + PACKETS // KILLS - 1)
            wait_for("some of them", lambda: worker.metric("received_total") > 100)
            worker.kill()
            worker.start()
        wait_for("everything in Kafka", lambda: len(set(in_kafka(log))) == PACKETS)
        wait_for("PUBACKs", lambda: device.settled() and worker.metric("outstanding") == 0)
        publish(device, 1, PACKETS)
        wait_for("a resend is confirmed", lambda: device.confirmed.as_tuple() == ((1, PACKETS),))


def test_sigterm_answers_what_was_taken_and_leaves_the_rest(worker: Worker, device: Device, log: Log) -> None:
    with running(worker):
        publish(device, 1, PACKETS)
        wait_for("some of them", lambda: worker.metric("received_total") > 100)
        assert worker.stop() == 0
        seen = in_kafka(log)
        assert 0 < len(seen) == len(set(seen))
        wait_for("its confirmations", lambda: len(device.confirmed) == len(seen))
        worker.start()
        wait_for("everything", lambda: device.confirmed.as_tuple() == ((1, PACKETS),))
        assert len(in_kafka(log)) == PACKETS


def test_kafka_down_stops_acknowledging_and_loses_nothing(
    worker: Worker, device: Device, log: Log, stack: Backends
) -> None:
    with running(worker):
        publish(device, 1, 500)
        wait_for("the first", lambda: device.confirmed.as_tuple() == ((1, 500),))
        stack.kill("kafka")
        try:
            pubacks = worker.metric("pubacks_total")
            publish(device, 501, PACKETS)
            wait_for("a full broker window", lambda: worker.metric("outstanding") == 2_000)
            wait_for("the alarm", lambda: "Kafka has not confirmed" in worker.page("/readyz")[1])
            assert worker.page("/livez")[0] == 200
            assert worker.metric("pubacks_total") == pubacks
            assert device.confirmed.as_tuple() == ((1, 500),)
        finally:
            stack.revive("kafka")
        wait_for("all confirmed", lambda: device.confirmed.as_tuple() == ((1, PACKETS),), 240)
        wait_for("ready again", lambda: worker.page("/readyz")[0] == 200)
        assert set(in_kafka(log)) == set(range(1, PACKETS + 1))
        assert worker.metric("mqtt_connects_total") == 1


def test_a_broker_restart_is_survived(worker: Worker, device: Device, log: Log, stack: Backends) -> None:
    with running(worker):
        publish(device, 1, 1_000)
        wait_for("the first", lambda: device.confirmed.as_tuple() == ((1, 1_000),))
        stack.kill("mosquitto")
        stack.revive("mosquitto")
        wait_for("a new connection", lambda: worker.metric("mqtt_connects_total") == 2)
        wait_for("subscribed", lambda: worker.page("/readyz")[0] == 200)
        wait_for("the device back", lambda: device.connects >= 2)
        publish(device, 1_001, 2_000)
        wait_for("the rest", lambda: device.confirmed.as_tuple() == ((1, 2_000),))
        assert set(in_kafka(log)) == set(range(1, 2_001))


def test_two_workers_share_one_device(
    worker: Worker, device: Device, log: Log, mqtt_broker: MqttBroker, tmp_path: Path
) -> None:
    second = Worker(
        mqtt_broker, worker.bootstrap, worker.prefix, worker.settings, number=1, log=tmp_path / "gateway-1.log"
    )
    with running(worker), running(second):
        publish(device, 1, 2_000)
        wait_for("all confirmed", lambda: device.confirmed.as_tuple() == ((1, 2_000),))
        wait_for("all PUBACKs", lambda: sum(one.metric("pubacks_total") for one in (worker, second)) >= 2_000)
        assert min(one.metric("pubacks_total") for one in (worker, second)) > 100

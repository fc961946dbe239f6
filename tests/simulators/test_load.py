"""The load generator skips nothing: real packets, and account is kept of every acknowledgement."""

from __future__ import annotations

import resource
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from contracts.acks import Ack
from contracts.packet import Header, Packet, decode_header, decode_packet
from contracts.ranges import ranges_of
from contracts.registry import Registration
from contracts.signals import catalogue
from contracts.stamp import STAMP_HEADER, decode_stamp
from contracts.topics import Topics
from simulators.errors import PlanError
from simulators.kafka_load import KafkaLoad, stamped_packets
from simulators.load import Load, LoadSettings
from simulators.load_device import Counts, Held, LoadDevice
from simulators.plan import Broker, FleetPlan, PlannedDevice
from simulators.tape import SIGNALS, Shape, record
from tests.fix_stack import MqttBroker
from tests.simulators.answering import AnsweringGateway

NOWHERE = Path("nowhere.pem")
EPOCH, NONCE = 5, 99


def planned(name: str = "load-1") -> PlannedDevice:
    return PlannedDevice(device=name, tenant="load", machine="car", seed=1, certificate=NOWHERE, key=NOWHERE)


@pytest.mark.parametrize(("packet_ms", "rate_hz"), [(1_000, 5), (250, 4), (200, 10), (5_000, 1)])
def test_a_tape_gives_real_packets(packet_ms: int, rate_hz: int) -> None:
    if rate_hz == 4:
        with pytest.raises(ValueError, match="does not divide"):
            Shape(packet_ms, rate_hz)
        return
    shape = Shape(packet_ms, rate_hz)
    tape = record(3, shape, 6)
    header = Header("load", "load-1", EPOCH, NONCE, 7, 0, 1_790_000_000_000, 0, True, 0)
    packets: list[Packet] = [decode_packet(tape.packet(header, turn)) for turn in range(7)]
    assert {packet.header.samples for packet in packets} == {shape.samples}
    assert packets[0].blocks == packets[6].blocks != packets[1].blocks
    assert [block.signal for block in packets[0].blocks] == list(SIGNALS)
    for block in packets[0].blocks:
        signal = catalogue().by_number(block.signal)
        values = [signal.from_units(block.base + value) for value in block.values]
        assert block.exponent == signal.exponent and all(signal.minimum <= v <= signal.maximum for v in values)


@given(st.sets(st.integers(1, 60)), st.sets(st.integers(1, 60)), st.booleans())
def test_acknowledgements_free_exactly_what_they_name(confirmed: set[int], rejected: set[int], mine: bool) -> None:
    rejected -= confirmed
    counts = Counts()
    device = LoadDevice(planned(), EPOCH, NONCE, record(1, Shape(), 1), 0, counts)
    device.held = {seq: Held(b"", 1.0, 1.0) for seq in range(1, 51)}
    ack = Ack(EPOCH, NONCE if mine else NONCE + 1, ranges_of(confirmed), ranges_of(rejected))
    device.take_ack(ack, 2.5)
    freed = {seq for seq in confirmed | rejected if seq <= 50} if mine else set()
    assert set(device.held) == set(range(1, 51)) - freed
    assert counts.acked == len(freed & confirmed) and counts.rejected == len(freed & rejected)
    assert counts.latencies.total() == len(freed)
    assert counts.ack_latency_ms(0.5) == (1_500 if freed else None)


def test_a_load_run_is_acknowledged_to_the_last_packet(mqtt_broker: MqttBroker) -> None:
    """30 devices over real TLS sessions; a third of the acknowledgements are withheld until packets come again."""
    devices = []
    for number in range(30):
        files = mqtt_broker.issue(f"load-{number:03}")
        devices.append(
            planned(f"load-{number:03}").model_copy(update={"certificate": files.certificate, "key": files.key})
        )
    broker = Broker(host=mqtt_broker.host, port=mqtt_broker.port, ca=mqtt_broker.ca)
    plan = FleetPlan(folder=NOWHERE, broker=broker, devices=tuple(devices))
    sent: dict[tuple[str, int], str] = {}
    settings = LoadSettings(Shape(200, 10), ask_s=0.3, resend_s=1.0)
    load = Load(
        plan, settings, EPOCH, lambda device, _epoch, seq, sha256, _n, _lane: sent.update({(device, seq): sha256})
    )
    with AnsweringGateway(mqtt_broker, plan, withhold_every=3) as gateway:
        load.connect()
        load.run(3.0, threading.Event())
        assert load.drain(240.0)
        report = load.report()
        load.close()
    assert report.connected == 30 and report.unacked_packets == report.rejected_packets == 0
    assert report.sent_packets == report.acked_packets == len(sent) > 30
    assert report.sent_samples == report.sent_packets * settings.shape.samples
    assert report.resent_packets > 0 and gateway.repeats > 0
    assert gateway.hashes == sent


def test_more_devices_than_files_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (100, 200))
    plan = FleetPlan(folder=NOWHERE, broker=Broker(host="127.0.0.1", port=1, ca=NOWHERE), devices=(planned(),))
    with pytest.raises(PlanError, match="need 201 open files, this machine allows 200"):
        Load(plan, LoadSettings(), EPOCH)


def test_kafka_gets_what_the_gateway_would_write(kafka_bootstrap: str, topic_prefix: str) -> None:
    devices = [Registration(f"load-{n}", 100 + n, "load", 7, "simulated") for n in range(20)]
    topics, start_ms = Topics(topic_prefix), time.time_ns() // 1_000_000 - 60_000
    load = KafkaLoad(kafka_bootstrap, topics)
    load.write(stamped_packets(devices, Shape(), EPOCH, start_ms, rounds=5))
    assert (load.packets, load.samples) == (100, 5_000)
    seen: list[tuple[str, int]] = []
    consumer = Consumer({"bootstrap.servers": kafka_bootstrap, "group.id": topic_prefix, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topics.live.name, n, 0) for n in range(topics.live.partitions)])
    while len(seen) < 100:
        for message in consumer.consume(100, 10.0):
            headers, value = message.headers(), message.value()
            assert isinstance(headers, list) and value is not None and len(headers) == 1
            name, stamp_bytes = headers[0]
            assert isinstance(stamp_bytes, bytes)
            stamp, header = decode_stamp(stamp_bytes), decode_header(bytes(value))
            assert name == STAMP_HEADER and message.key() == header.device.encode()
            assert stamp.device_key == 100 + int(header.device[5:]) and stamp.received_ms == header.base_ms + 1_000
            seen.append((header.device, header.seq))
    consumer.close()
    assert sorted(seen) == sorted((device.device, seq) for device in devices for seq in range(1, 6))

"""Every kind of poison through the real line: it ends in the dead letters with its reason, and the rest flows on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.limits import MAX_FUTURE_MS
from contracts.packet import CRC_BYTES, MARKER, MAX_FRAME_BYTES, seal
from tests.fix_stack import MqttBroker
from tests.gateway.harness import Device, Got, Log, Worker, forget_session, running, wait_for
from tests.gateway.samples import frame, registration

HUGE_COUNT = bytes([0xFE, 0xFF, 0xFF, 0xFF, 0x0F])
"""Zig-zag varint of 2**31 - 1."""


@pytest.fixture
def log(kafka_bootstrap: str, topic_prefix: str) -> Log:
    return Log(kafka_bootstrap, topic_prefix)


@pytest.fixture
def worker(mqtt_broker: MqttBroker, kafka_bootstrap: str, topic_prefix: str, tmp_path: Path) -> Worker:
    settings = {"ACK_AFTER_MS": "200"}
    return Worker(mqtt_broker, kafka_bootstrap, topic_prefix, settings, log=tmp_path / "gateway.log")


@pytest.fixture
def device(mqtt_broker: MqttBroker, topic_prefix: str) -> Iterator[Device]:
    one = Device(mqtt_broker, f"car-{topic_prefix}")
    yield one
    one.close()


@pytest.fixture
def stranger(mqtt_broker: MqttBroker, topic_prefix: str) -> Iterator[Device]:
    one = Device(mqtt_broker, f"stranger-{topic_prefix}")
    yield one
    one.close()


def poison(name: str, now_ms: int) -> list[tuple[str, bytes]]:
    """(reason, bytes) of what a registered device must not get through; sequence numbers from 101 on."""
    good = frame(name, 100, base_ms=now_ms)
    flipped = good[:40] + bytes([good[40] ^ 1]) + good[41:]
    return [
        ("not_a_packet", b"these bytes are not a packet"),
        ("not_a_packet", b""),
        ("bad_crc", good[:-10]),
        ("bad_crc", flipped),
        ("too_large", MARKER + bytes(MAX_FRAME_BYTES)),
        ("unknown_fingerprint", seal(MARKER + bytes(8) + good[10:-4])),
        ("bad_header", seal(good[:20])),
        ("device_mismatch", frame("somebody-else", 101, base_ms=now_ms)),
        ("tenant_mismatch", frame(name, 102, base_ms=now_ms, tenant="rival")),
        ("lane_mismatch", frame(name, 103, base_ms=now_ms, lane=1)),
        ("future", frame(name, 104, base_ms=now_ms + 2 * MAX_FUTURE_MS)),
        ("far_past", frame(name, 105, base_ms=0)),
    ]


def test_each_poison_ends_in_the_dead_letters_while_the_rest_flows(
    worker: Worker, device: Device, stranger: Device, log: Log
) -> None:
    log.register(registration(device.name))
    cases = poison(device.name, int(time.time() * 1000))
    forged = seal(frame(device.name, 50, base_ms=int(time.time() * 1000), samples=0)[: -CRC_BYTES - 8] + HUGE_COUNT)
    with running(worker):
        for at, (_, payload) in enumerate(cases, start=1):
            device.publish("live", payload)
            device.publish("live", frame(device.name, at, base_ms=int(time.time() * 1000)))
        device.publish("live", forged)
        device.publish("live", frame(device.name, 60), retain=True)
        device.publish("live", frame(device.name, 61), topic=f"v1/{device.name}/up/live/more")
        stranger.publish("live", frame(stranger.name, 1, base_ms=int(time.time() * 1000)), ask=True)
        wait_for("the good and the forged one", lambda: set(device.confirmed) == {(1, len(cases)), (50, 50)})
        wait_for("the rejected", lambda: set(device.rejected) == {(60, 60), (101, 105)})
        wait_for("the dead letters", lambda: len(log.read(log.topics.dead_letters)) == len(cases) + 3)
        letters = log.read(log.topics.dead_letters)
        expected = [*cases, ("retained", frame(device.name, 60)), ("bad_topic", frame(device.name, 61))]
        expected.append(("unregistered", stranger_bytes(letters)))
        assert Counter((one.letter.reason, one.value) for one in letters) == Counter(expected)
        for reason, count in Counter(reason for reason, _ in expected).items():
            wait_for("it is counted", lambda r=reason, n=count: worker.metric(f'refused_total{{reason="{r}"}}') == n)  # type: ignore[misc]
        wait_for("all PUBACKs", lambda: worker.metric("pubacks_total") == 2 * len(cases) + 4)
    assert stranger.acks == []
    assert log.read(log.topics.live)[-1].value == forged


def stranger_bytes(letters: list[Got]) -> bytes:
    """The unregistered device's frame; its time is only known from the letter itself."""
    (found,) = [one.value for one in letters if one.letter.reason == "unregistered"]
    return found


def test_whole_verification_refuses_the_forged_count(worker: Worker, device: Device, log: Log) -> None:
    log.register(registration(device.name))
    worker.settings["VERIFY"] = "whole"
    forged = seal(frame(device.name, 1, base_ms=int(time.time() * 1000), samples=0)[: -CRC_BYTES - 8] + HUGE_COUNT)
    with running(worker):
        device.publish("live", forged)
        device.publish("live", frame(device.name, 2, base_ms=int(time.time() * 1000)))
        wait_for("the good one", lambda: device.confirmed.as_tuple() == ((2, 2),))
        wait_for("the forged one", lambda: device.rejected.as_tuple() == ((1, 1),))
    (letter,) = log.read(log.topics.dead_letters)
    assert (letter.letter.reason, letter.letter.seq, letter.value) == ("bad_body", 1, forged)


def test_nothing_is_judged_before_the_registry_is_complete(
    worker: Worker, device: Device, log: Log, mqtt_broker: MqttBroker
) -> None:
    """Without Kafka the registry cannot be read: the worker is alive, not ready, and has taken nothing."""
    bootstrap, worker.bootstrap = worker.bootstrap, "127.0.0.1:1"
    forget_session(mqtt_broker)
    worker.start(until_ready=False)
    try:
        wait_for("the health page", lambda: worker.page("/livez")[0] == 200)
        status, reasons = worker.page("/readyz")
        assert (status, "registry" in reasons) == (503, True)
        assert worker.metric("mqtt_connects_total") == 0
    finally:
        worker.leave()
    worker.bootstrap = bootstrap
    log.register(*(registration(f"filler-{number}") for number in range(3_000)), registration(device.name))
    with running(worker):
        assert worker.metric("registered_devices") == 3_001
        device.publish("live", frame(device.name, 1, base_ms=int(time.time() * 1000)))
        wait_for("the confirmation", lambda: len(device.confirmed) == 1)
        late = registration("late-one")
        log.register(late)
        wait_for("the new device", lambda: worker.metric("registered_devices") == 3_002)
    assert log.read(log.topics.dead_letters) == []

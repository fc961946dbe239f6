"""The agent against a real broker over TLS: killed, cut off, frozen out, refused. Nothing accepted is lost."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from contracts.packet import decode_packet
from edge_agent.clock import SystemClock
from edge_agent.settings import AgentSettings
from edge_agent.sources import Reading, ScriptedSource
from edge_agent.wiring import Agent, FileJournal, build_agent, read_journal
from infra.backends import Backends
from tests.edge_agent.doubles import agent_settings
from tests.edge_agent.gateway_double import GatewayDouble
from tests.fix_stack import MqttBroker

ROOT = Path(__file__).parents[2]
PATIENCE_S = 180.0
"""For whatever only takes time: the machine may be busy with other things."""


@pytest.fixture
def cloud(mqtt_broker: MqttBroker) -> Iterator[GatewayDouble]:
    gateway = GatewayDouble(mqtt_broker.host, mqtt_broker.port, mqtt_broker.issue("gateway-7"))
    yield gateway
    gateway.stop()


def live_settings(folder: Path, broker: MqttBroker, device: str, **parts: Any) -> AgentSettings:
    own = broker.issue(device)
    mqtt = {
        "host": broker.host, "port": broker.port, "ca": own.ca, "cert": own.certificate, "key": own.key,
        "backoff_min_ms": 50, "backoff_max_ms": 500, **parts.pop("mqtt", {}),
    }  # fmt: skip
    base = agent_settings(folder, mqtt=mqtt, **parts)
    return base.model_copy(update={"device": device})


def eventually(what: Callable[[], bool], timeout_s: float = PATIENCE_S) -> bool:
    """Poll a condition that no callback announces."""
    deadline_s = time.monotonic() + timeout_s
    while not what() and time.monotonic() < deadline_s:
        threading.Event().wait(0.02)
    return what()


class Runner:
    """An agent ticking in a thread."""

    def __init__(self, agent: Agent, drain_ms: int = 120_000) -> None:
        self.agent = agent
        self._stop = threading.Event()
        self._thread = threading.Thread(target=agent.run, args=(self._stop, drain_ms))
        self._thread.start()

    def join(self, timeout_s: float = PATIENCE_S) -> None:
        self._thread.join(timeout_s)
        assert not self._thread.is_alive()

    def stop(self) -> None:
        self._stop.set()
        self.agent.wake.set()
        self.join()


class Ticker:
    """One reading per 20 ms of real time, until told to end."""

    can_wait = False
    cursor: str | None = None

    def __init__(self) -> None:
        self.finished = False
        self.told = 0
        self._start_ms = SystemClock().now_ms()

    def seek(self, cursor: str) -> None:
        """Has no past."""

    def read(self, now_ms: int, limit: int) -> list[Reading]:
        wanted = (now_ms - self._start_ms) // 20
        readings = [Reading(1, self._start_ms + n * 20, n % 100) for n in range(self.told, wanted)]
        self.told += len(readings)
        return readings

    def close(self) -> None:
        """Nothing to give back."""


def compare(journal: Path, cloud: GatewayDouble, device: str) -> int:
    """Everything accepted arrived, byte for byte; returns the samples."""
    history = read_journal(journal)
    arrived = {key: frame for key, frame in cloud.frames.items() if key[0] == device}
    assert history.keys() == arrived.keys()
    for key, entry in history.items():
        assert hashlib.sha256(arrived[key]).hexdigest() == entry.sha256
    assert cloud.differing == 0
    return sum(entry.samples for entry in history.values())


def test_readings_reach_the_gateway_and_free_the_spool(
    tmp_path: Path, mqtt_broker: MqttBroker, cloud: GatewayDouble
) -> None:
    settings = live_settings(tmp_path, mqtt_broker, "edge-1", sampling={"thin": False})
    start_ms = SystemClock().now_ms()
    source = ScriptedSource([Reading(1, start_ms + n, n % 50) for n in range(2_000)])
    journal = FileJournal(tmp_path / "journal")
    Runner(build_agent(settings, source, journal=journal)).join()
    journal.close()
    assert compare(tmp_path / "journal", cloud, "edge-1") == 2_000
    assert cloud.statuses[-1].spooled_packets == 0
    assert cloud.statuses[-1].acked_packets == cloud.statuses[-1].next_seq - 1


def test_sigkill_of_the_agent_loses_and_doubles_nothing(
    tmp_path: Path, mqtt_broker: MqttBroker, cloud: GatewayDouble
) -> None:
    rows = 6_000
    recording = tmp_path / "drive.csv"
    lines = [f"{1_790_000_000_000 + n * 10},{n % 130}.5,{900 + n % 77}" for n in range(rows)]
    header = "time,Vehicle.Speed,Vehicle.Powertrain.CombustionEngine.Speed"
    recording.write_text("\n".join([header, *lines]) + "\n")
    settings = live_settings(tmp_path, mqtt_broker, "edge-2", packing={"packet_ms": 50})
    environment = os.environ | as_environment(settings) | {"PYTHONPATH": str(ROOT)}
    journal = tmp_path / "journal"
    command = [sys.executable, "-m", "edge_agent", "run", "--csv", str(recording), "--drain-s", "120"]
    for _ in range(5):  # slowly, so that it is not over however late this test comes to kill it
        before = journal.stat().st_size if journal.exists() else 0
        with started([*command, "--speed", "2"], journal, environment) as process:
            assert eventually(lambda: journal.exists() and journal.stat().st_size > before + 1_000)  # noqa: B023
            assert process.poll() is None, "killed in the middle"
    with started([*command, "--speed", "60"], journal, environment) as process:
        assert process.wait(PATIENCE_S) == 0
    assert compare(journal, cloud, "edge-2") == 2 * rows
    stamps = [
        packet.header.base_ms + offset
        for packet in (decode_packet(frame) for key, frame in cloud.frames.items() if key[0] == "edge-2")
        for block in packet.blocks if block.signal == 1
        for offset in block.offsets_ms
    ]  # fmt: skip
    assert sorted(stamps) == [1_790_000_000_000 + n * 10 for n in range(rows)]


@contextmanager
def started(command: list[str], journal: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A real agent process, killed with SIGKILL at the end unless it ended before."""
    with (journal.parent / "log").open("ab") as log:
        process = subprocess.Popen([*command, "--journal", str(journal)], env=environment, stderr=log, cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def as_environment(settings: AgentSettings) -> dict[str, str]:
    """The same settings as environment variables."""
    prefix = "FLEETSTREAM__EDGE_AGENT"
    flat = {"DEVICE": settings.device, "TENANT": settings.tenant, "SAMPLING__THIN": "false"}
    for part in ("mqtt", "spool", "packing"):
        values = json.loads(getattr(settings, part).model_dump_json())
        flat |= {f"{part}__{key}".upper(): str(value) for key, value in values.items()}
    return {f"{prefix}__{key}": value for key, value in flat.items()}


def test_a_killed_broker_costs_nothing(
    tmp_path: Path, stack: Backends, mqtt_broker: MqttBroker, cloud: GatewayDouble
) -> None:
    settings = live_settings(tmp_path, mqtt_broker, "edge-3", packing={"packet_ms": 50}, uplink={"resend_ms": 2_000})
    journal = FileJournal(tmp_path / "journal")
    source = Ticker()
    runner = Runner(build_agent(settings, source, journal=journal))
    try:
        assert cloud.wait_for(10, PATIENCE_S)
        stack.kill("mosquitto")
        assert eventually(lambda: not runner.agent.connected)
        held = source.told
        assert eventually(lambda: source.told > held + 20), "acquisition goes on"
        stack.revive("mosquitto")
        seen = len(cloud.frames)
        assert cloud.wait_for(seen + 20, PATIENCE_S)
    finally:
        source.finished = True
        runner.join()
        journal.close()
    assert compare(tmp_path / "journal", cloud, "edge-3") == source.told
    assert cloud.channels["backlog"] > 0


def test_a_frozen_broker_is_noticed_by_its_silence(
    tmp_path: Path, stack: Backends, mqtt_broker: MqttBroker, cloud: GatewayDouble
) -> None:
    """Nothing comes that would say so; the client gives up after two keepalives: 60 s by default, 90 are promised."""
    settings = live_settings(tmp_path, mqtt_broker, "edge-4", mqtt={"keepalive_s": 5})
    source = Ticker()
    runner = Runner(build_agent(settings, source))
    pid = stack.children["mosquitto"].pid
    try:
        assert cloud.wait_for(1, PATIENCE_S)
        assert eventually(lambda: runner.agent.connected)
        os.kill(pid, signal.SIGSTOP)
        frozen_s = time.monotonic()
        assert eventually(lambda: not runner.agent.connected)
        assert time.monotonic() - frozen_s > 1
        os.kill(pid, signal.SIGCONT)
        assert eventually(lambda: runner.agent.connected)
    finally:
        os.kill(pid, signal.SIGCONT)
        source.finished = True
        runner.join()
    assert runner.agent.spool is None


def holds_packets(agent: Agent) -> bool:
    """The heartbeat may be refused before the first reading is accepted: a test of packets waits for a packet."""
    return agent.spool is not None and agent.spool.index.total.packets > 0


def test_a_device_may_not_speak_for_another(tmp_path: Path, mqtt_broker: MqttBroker, cloud: GatewayDouble) -> None:
    """Its certificate names edge-6, its settings say edge-5: every publish is refused, counted and kept."""
    settings = live_settings(tmp_path, mqtt_broker, "edge-6").model_copy(update={"device": "edge-5"})
    runner = Runner(build_agent(settings, Ticker()), drain_ms=0)
    assert eventually(lambda: runner.agent.refused_publishes > 0 and holds_packets(runner.agent))
    runner.stop()
    assert not [key for key in cloud.frames if key[0] == "edge-5"]
    held = build_agent(settings, Ticker())
    held._open_spool()
    assert held.spool is not None
    assert held.spool.index.total.packets > 0
    held.spool.close()


def test_half_the_window_of_living_data_while_a_backlog_drains(
    tmp_path: Path, mqtt_broker: MqttBroker, cloud: GatewayDouble
) -> None:
    """3,000 packets wait; while they drain, a living packet is not far behind."""
    away = live_settings(tmp_path, mqtt_broker, "edge-7", mqtt={"port": 1}, packing={"packet_ms": 10, "max_samples": 5})
    old = build_agent(away, ScriptedSource([Reading(1, 1_790_000_000_000 + n, 1.0) for n in range(15_000)]))
    old._open_spool()
    assert eventually(lambda: bool(old.tick()) and old.packed and not old.waiting)
    assert old.spool is not None
    assert old.spool.index.total.packets == 3_000
    old.spool.close()
    settings = live_settings(
        tmp_path, mqtt_broker, "edge-7", uplink={"backlog_packets_per_s": 400}, packing={"packet_ms": 100}
    )
    source = Ticker()
    agent = build_agent(settings, source)
    delays_ms: list[int] = []
    begun_ms = SystemClock().now_ms()
    take = cloud._take_packet

    def timed(client: Any, device: str, channel: str, frame: bytes) -> None:
        if channel == "live":
            delays_ms.append(SystemClock().now_ms() - decode_packet(frame).header.base_ms)
        take(client, device, channel, frame)

    cloud._take_packet = timed  # type: ignore[method-assign]
    runner = Runner(agent)
    try:
        assert cloud.wait_for(3_000, PATIENCE_S)
    finally:
        source.finished = True
        runner.join()
    assert len(delays_ms) > 20
    drained_ms = SystemClock().now_ms() - begun_ms
    assert sorted(delays_ms)[len(delays_ms) // 2] < drained_ms / 3, "they did not wait for the backlog"
    assert cloud.channels["backlog"] >= 3_000

"""The broker's queue for an absent gateway overflows: what falls out of it is still in a spool, and comes again."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_agent.journal import FileJournal
from edge_agent.sources import Reading, ScriptedSource
from edge_agent.wiring import SystemClock, build_agent
from infra.backends import make_mosquitto
from infra.ca import DevelopmentCa
from infra.paths import default_cache
from infra.processes import Child, free_ports, wait_ready
from tests.edge_agent.gateway_double import GatewayDouble
from tests.edge_agent.test_live import PATIENCE_S, Runner, compare, eventually, live_settings
from tests.fix_stack import MqttBroker

QUEUE = 20
READINGS = 4_000


def test_what_falls_out_of_the_broker_s_queue_is_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.mosquitto.QUEUE_MESSAGES", QUEUE)
    monkeypatch.setattr("infra.mosquitto.WINDOW", QUEUE)
    authority, (port,) = DevelopmentCa(tmp_path / "ca"), free_ports(1)
    (tmp_path / "logs").mkdir()
    server = make_mosquitto(tmp_path, default_cache(), port, authority)
    server.prepare()
    child = Child(server.command())
    try:
        wait_ready(child, server.ready, PATIENCE_S)
        broker = MqttBroker("127.0.0.1", port, authority.ca_file, authority.client)
        away = GatewayDouble(broker.host, port, broker.issue("gateway-7"), lasting=True)
        assert away.subscribed.wait(PATIENCE_S)
        away.stop()
        uplink = {"resend_ms": 1_000, "resend_max_ms": 2_000}
        settings = live_settings(
            tmp_path, broker, "edge-9", packing={"packet_ms": 20, "max_samples": 50}, uplink=uplink
        )
        start_ms = SystemClock().now_ms()
        source = ScriptedSource([Reading(1, start_ms + n, n % 50) for n in range(READINGS)])
        journal = FileJournal(tmp_path / "journal")
        runner = Runner(build_agent(settings, source, journal=journal))
        log = tmp_path / "logs" / "mosquitto.log"
        assert eventually(lambda: "messages are being dropped" in log.read_text()), "the queue overflows"
        cloud = GatewayDouble(broker.host, port, broker.issue("gateway-7"), lasting=True)
        runner.join(600)
        journal.close()
        assert compare(tmp_path / "journal", cloud, "edge-9") == READINGS
        assert len(cloud.frames) > 2 * QUEUE
        cloud.stop()
    finally:
        child.stop()

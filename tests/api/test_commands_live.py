"""Commands and identities through real processes: API with relay and clerk, Kafka, gateway, broker, a real agent.

Only ingest is missing; what it would write of an epoch is written by hand.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from contracts.packet import decode_header
from edge_agent.agent import Agent
from edge_agent.settings import AgentSettings
from edge_agent.sources import Reading
from edge_agent.wiring import build_agent
from tests.api.fix_api import Fleet, Server, api_settings, running
from tests.fix_stack import MqttBroker
from tests.gateway.harness import Log, Worker, wait_for
from tests.gateway.harness import running as gateway_running

DEVICE = "north-1"


class Ticks:
    """One reading every 50 ms by wall time."""

    can_wait, finished, cursor = False, False, None

    def __init__(self) -> None:
        self._next_ms = int(time.time() * 1000)

    def seek(self, cursor: str) -> None:
        raise AssertionError(f"a live source has no past, asked for {cursor}")

    def read(self, now_ms: int, limit: int) -> Sequence[Reading]:
        first, self._next_ms = self._next_ms, max(self._next_ms, now_ms + 1)
        return [Reading(1, at_ms, 50.0) for at_ms in range(first - first % -50, now_ms + 1, 50)]

    def close(self) -> None:
        """Holds nothing open."""


@pytest.fixture
def cloud(
    fleet: Fleet, mqtt_broker: MqttBroker, kafka_bootstrap: str, topic_prefix: str
) -> Iterator[tuple[Server, Worker, Log]]:
    settings = api_settings(
        fleet, relay_dsn=fleet.sink_dsn, kafka_bootstrap=kafka_bootstrap, topic_prefix=topic_prefix, latest_every_s=1.0
    )
    worker = Worker(mqtt_broker, kafka_bootstrap, topic_prefix)
    with running(settings, with_relay=True) as server, gateway_running(worker):
        yield server, worker, Log(kafka_bootstrap, topic_prefix)


@contextmanager
def device(broker: MqttBroker, folder: Path) -> Iterator[Agent]:
    credentials = broker.issue(DEVICE)
    settings = AgentSettings.model_validate(
        {
            "device": DEVICE, "tenant": "north", "spool": {"path": folder / "spool.db"},
            "mqtt": {"host": broker.host, "port": broker.port, "ca": credentials.ca, "cert": credentials.certificate,
                     "key": credentials.key, "backoff_min_ms": 100, "backoff_max_ms": 500},
            "packing": {"packet_ms": 250}, "uplink": {"ack_ms": 500, "resend_ms": 2_000, "status_ms": 1_000},
        }
    )  # fmt: skip
    agent, stop = build_agent(settings, Ticks()), threading.Event()
    thread = threading.Thread(target=agent.run, args=(stop, 120_000))
    thread.start()
    try:
        yield agent
    finally:
        stop.set()
        thread.join(180)
        assert not thread.is_alive()


def state_of(client: httpx.Client, command: str) -> Callable[[], str]:
    return lambda: str(client.get(f"/api/v1/commands/{command}").json()["state"])


def changes_told(log: Log) -> list[int]:
    """Epochs that a device told it had moved to."""
    events = [json.loads(one.value) for one in log.read(log.topics.events)]
    return [one["to_epoch"] for one in events if one["kind"] == "identity_changed"]


def ask(client: httpx.Client, kind: str, **arguments: Any) -> str:
    answer = client.post(f"/api/v1/devices/{DEVICE}/commands", json={"kind": kind, "arguments": arguments})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["command_id"])


def test_asked_carried_out_answered_and_a_lost_identity_told(
    cloud: tuple[Server, Worker, Log], fleet: Fleet, mqtt_broker: MqttBroker, tmp_path: Path
) -> None:
    server, worker, log = cloud
    with server.client(fleet.key("north")) as client:
        before_it_was_on = ask(client, "sampling", profile="interval", min_interval_ms=500)
        with device(mqtt_broker, tmp_path) as agent:
            wait_for("the first packets", lambda: log.end(log.topics.live) >= 3)
            again = ask(client, "sampling", profile="interval", min_interval_ms=500)
            ping = ask(client, "ping")
            for command in (again, ping):
                wait_for("the answer", lambda command=command: state_of(client, command)() == "done")  # type: ignore[misc]
            assert agent.spool is not None
            nonce = agent.spool.epoch.nonce
        told = client.get(f"/api/v1/commands/{ping}").json()
        assert told["detail"]["boot_epoch"] == 1
        changes = [(one["changed_by"], one["to_state"]) for one in told["changes"]]
        assert changes[1] == ("clerk", "sent") and changes[-1] == (f"device:{DEVICE}", "done")
        assert set(changes[1:-1]) == {("clerk", "sent")}, "it may have been sent again before the answer came"
        # what ingest does when it stores an epoch's first packet: the row, and with it what gateways are told
        fleet.execute("INSERT INTO seen_ranges VALUES (%s, 1, %s, %s, '{[1,4)}', 3, 30, 0)",
                      fleet.devices[DEVICE], nonce, fleet.tenants["north"])  # fmt: skip
        wait_for("the fact in its topic", lambda: log.end(log.topics.epochs) >= 1)
        for path in tmp_path.glob("spool.*"):
            path.unlink()
        first_run = log.end(log.topics.live)
        with device(mqtt_broker, tmp_path) as agent:
            wait_for(
                "it to go on above its past", lambda: agent.spool is not None and agent.spool.epoch.boot_epoch == 2
            )
            wait_for("its packets in the log", lambda: log.end(log.topics.live) >= first_run + 5)
        assert worker.metric('refused_total{reason="identity_conflict"}') >= 1
        headers = [decode_header(one.value) for one in (*log.read(log.topics.live), *log.read(log.topics.backlog))]
        assert {header.boot_epoch for header in headers} == {1, 2}
        assert {header.nonce for header in headers if header.boot_epoch == 1} == {nonce}, "nothing under a taken epoch"
        later = sorted({header.seq for header in headers if header.boot_epoch == 2})
        assert later == [*range(1, len(later) + 1)], "all that was accepted came (a repeat is one packet)"
        wait_for("the change is told", lambda: bool(changes_told(log)))
        assert changes_told(log) == [2]
        wait_for("the copy that waited in the broker", lambda: state_of(client, before_it_was_on)() in ("done", "sent"))

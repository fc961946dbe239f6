"""A fleet as a process over a real broker: everything accepted is in the history and arrives, also after a SIGKILL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge_agent.wiring import read_journal
from simulators.errors import PlanError
from simulators.plan import Broker, FleetPlan, PlannedDevice, fleet_names, read_plan, write_plan
from tests.fix_stack import MqttBroker
from tests.simulators.answering import AnsweringGateway

ROOT = Path(__file__).parents[2]
LIMIT_S = 180.0


def until(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {LIMIT_S:.0f} s: {what}"
        time.sleep(0.05)


class Process:
    """``python -m simulators fleet`` with its reports."""

    def __init__(self, plan_file: Path, *more: str) -> None:
        command = [sys.executable, "-m", "simulators", "fleet", "--plan", str(plan_file), *more]
        self.reports = plan_file.with_suffix(f".{time.monotonic_ns()}.out")
        with self.reports.open("wb") as out:
            patient = {**os.environ, "FLEETSTREAM__SIMULATORS__DRAIN_S": str(LIMIT_S - 30)}
            self.child = subprocess.Popen(command, stdout=out, cwd=ROOT, env=patient)

    def newest(self) -> dict[str, Any]:
        *whole, _ = self.reports.read_text(encoding="utf-8").split("\n")  # the last line may be written just now
        return dict(json.loads(whole[-1])) if whole else {}


@pytest.fixture
def plan(mqtt_broker: MqttBroker, tmp_path: Path) -> FleetPlan:
    devices = []
    for device, tenant, machine, seed in fleet_names(cars=4, turbines=2):
        files = mqtt_broker.issue(device)
        devices.append(
            PlannedDevice(
                device=device,
                tenant=tenant,
                machine=machine,
                seed=seed,
                certificate=files.certificate,
                key=files.key,
                rough=device == "car-002",
                drift_ppm=50.0 * (device == "car-003"),
            )
        )
    broker = Broker(host=mqtt_broker.host, port=mqtt_broker.port, ca=mqtt_broker.ca)
    made = FleetPlan(folder=tmp_path / "fleet", broker=broker, devices=tuple(devices))
    write_plan(tmp_path / "plan.json", made)
    return made


def test_a_killed_fleet_goes_on_and_its_history_is_what_arrives(
    plan: FleetPlan, tmp_path: Path, mqtt_broker: MqttBroker
) -> None:
    plan_file = tmp_path / "plan.json"
    assert read_plan(plan_file) == plan
    first = Process(plan_file)
    until("packets are accepted", lambda: first.newest().get("accepted_packets", 0) >= 12)
    first.child.send_signal(signal.SIGKILL)
    first.child.wait()
    accepted_before = read_journal(plan.history)
    with AnsweringGateway(mqtt_broker, plan, unasked=True) as gateway:
        second = Process(plan_file)
        until("the second run accepts, too", lambda: len(read_journal(plan.history)) > len(accepted_before) + 12)
        second.child.send_signal(signal.SIGTERM)
        assert second.child.wait(LIMIT_S) == 0
    last = second.newest()
    assert last["ended"] and last["undrained"] == 0 and last["running"] == 0
    history = read_journal(plan.history)
    assert {device for device, _, _ in history} == {device.device for device in plan.devices}
    assert {epoch for _, epoch, _ in history} == {1, 2}
    assert accepted_before.items() <= history.items()
    assert gateway.frames == {entry.sha256 for entry in history.values()}


def test_without_a_cloud_it_ends_in_bounded_time_and_says_what_is_left(plan: FleetPlan, tmp_path: Path) -> None:
    environment_limit_s = "1"
    command = [sys.executable, "-m", "simulators", "fleet", "--plan", str(tmp_path / "plan.json"), "--seconds", "2"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, timeout=LIMIT_S, check=False,
        env={"FLEETSTREAM__SIMULATORS__DRAIN_S": environment_limit_s, "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    report = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 4 and report["undrained"] == len(plan.devices) and report["ended"]


def test_a_plan_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"folder": "x"}', encoding="utf-8")
    with pytest.raises(PlanError, match="not a plan"):
        read_plan(tmp_path / "plan.json")

"""Fleets on a running stack: enrol devices, wait until the gateway knows them, run them as a process of their own."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psycopg

from contracts.tables import ROLE_SINK
from infra.enrol import Enrolment, enrol
from infra.errors import ServiceFailed
from infra.guard import Guard
from infra.rooms import Stack
from simulators.plan import Broker, FleetPlan, PlannedDevice, fleet_names, write_plan

REGISTRY_S = 60.0
NO_FAULTS: Mapping[str, str] = MappingProxyType({})
RIDGE = (49.03, 8.47)
"""South-west corner of the simulated wind farm (latitude, longitude); its turbines stand some 600 m apart."""
_GAUGE = re.compile(r"^fleetstream_gateway_registered_devices (\S+)$", re.MULTILINE)
_POLL_S = 0.1
log = logging.getLogger(__name__)


def enrol_devices(stack: Stack, enrolments: Sequence[Enrolment], given_up: Callable[[], bool]) -> None:
    """Enrol all and return when the gateway knows them. Raises ServiceFailed after REGISTRY_S."""
    with psycopg.connect(stack.dsn(ROLE_SINK)) as connection:
        enrol(connection, enrolments)
    deadline_s = time.monotonic() + REGISTRY_S
    while not given_up() and not _gateway_knows_all(stack):
        if time.monotonic() > deadline_s:
            raise ServiceFailed(
                f"The gateway has not learnt of the new devices within {REGISTRY_S:.0f} s; they are enrolled and "
                "nothing is lost; `fleetstream logs gateway` and `fleetstream logs api` tell why"
            )
        time.sleep(_POLL_S)


def _gateway_knows_all(stack: Stack) -> bool:
    with psycopg.connect(stack.dsn(ROLE_SINK)) as connection:
        row = connection.execute(
            "SELECT (SELECT count(*) FROM outbox WHERE topic = 'registry' AND published_at IS NULL),"
            " (SELECT count(*) FROM devices WHERE revoked_at IS NULL)"
        ).fetchone()
    waiting, devices = row or (1, 0)
    try:
        address = f"http://127.0.0.1:{stack.ports['gateway_metrics']}/metrics"
        with urllib.request.urlopen(address, timeout=2.0) as answer:
            found = _GAUGE.search(answer.read().decode())
    except (urllib.error.URLError, OSError):
        return False
    return waiting == 0 and found is not None and float(found[1]) >= devices


def plan_fleet(
    stack: Stack, folder: Path, cars: int, turbines: int, faults: Mapping[str, str] = NO_FAULTS
) -> FleetPlan:
    """A mixed fleet over two tenants; ``faults``: device to its fault. Certificates are made where they are missing."""
    devices = []
    for device, tenant, machine, seed in fleet_names(cars, turbines):
        files = stack.authority.client(device)
        devices.append(
            PlannedDevice(
                device=device,
                tenant=tenant,
                machine=machine,
                seed=seed,
                fault=faults.get(device, ""),
                certificate=files.certificate,
                key=files.key,
            )
        )
    return FleetPlan(folder=folder, broker=broker_of(stack), devices=tuple(devices))


def enrolments_of(plan: FleetPlan) -> list[Enrolment]:
    """One asset per device, named like it; turbines stand in a row on a ridge beside the cars' roads."""
    return [
        Enrolment(one.device, one.tenant, one.device, one.machine, "simulated", place=_place(one))
        for one in plan.devices
    ]


def _place(planned: PlannedDevice) -> tuple[float, float] | None:
    if planned.machine != "turbine":
        return None
    return RIDGE[0] + planned.seed % 4 * 0.006, RIDGE[1] + planned.seed // 4 * 0.009


def broker_of(stack: Stack) -> Broker:
    """Where devices connect."""
    return Broker(host="127.0.0.1", port=stack.ports["mqtt"], ca=stack.authority.ca_file)


class FleetProcess:
    """``python -m simulators fleet`` with its newest report; ended with its parent even when that is killed."""

    def __init__(self, plan: FleetPlan, log_file: Path) -> None:
        plan.folder.mkdir(parents=True, exist_ok=True)
        log_file.parent.mkdir(parents=True, exist_ok=True)
        plan_file = plan.folder / "plan.json"
        write_plan(plan_file, plan)
        self.log_file = log_file
        self.report: dict[str, Any] = {}
        self._guard = Guard()
        with log_file.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "simulators", "fleet", "--plan", str(plan_file)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                cwd=Path(__file__).parents[1],
            )
        self._guard.watch(self._process.pid)
        self._reader = threading.Thread(target=self._read, name="fleet-reports", daemon=True)
        self._reader.start()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def finish(self, timeout_s: float) -> bool:
        """Switch the machines off and wait; whether the process ended by itself with everything acknowledged."""
        self._process.terminate()
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
            log.error("event=fleet_killed after_s=%.0f", timeout_s)
        self._reader.join()
        if self._process.stdout:
            self._process.stdout.close()
        self._guard.forget(self._process.pid)
        self._guard.close()
        return code == 0

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.report = json.loads(line)

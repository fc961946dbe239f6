"""The whole line, device packet to committed row, on one machine: the rate it holds, and how soon a row is there.

The load generator is a process of its own with one TLS session per device; it skips neither codec nor
acknowledgements, and its CPU is part of the bill, since it shares the cores with the line.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

from contracts.tables import ROLE_SINK
from infra.fleets import enrol_devices, enrolments_of, plan_fleet
from infra.paths import default_cache
from infra.rooms import reader_dsn
from infra.session import Session, running_stack
from infra.settings import InfraSettings, PortSettings
from infra.watch_store import StoreWatch
from simulators.plan import FleetPlan, write_plan
from tests.bench.figures import Figure, Report

SECONDS = 30
DRAIN_S = 240
DEVICES = 1_500
FULL, TENTH = 150_000, 15_000
"""Samples a second that the design asks for, and the load at which latency is read."""


def run() -> Report:
    report = Report("The whole line")
    home = Path(tempfile.mkdtemp(prefix="fleetstream-bench-"))
    ports = PortSettings(**dict.fromkeys(PortSettings.model_fields, 0))
    settings = InfraSettings(home=home, cache=default_cache(), ports=ports, detection=False)
    try:
        with running_stack(settings) as session:
            _measure(session, report)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return report


def _measure(session: Session, report: Report) -> None:
    plan = plan_fleet(session.stack, session.stack.settings.home / "bench", DEVICES, 0)
    plan.folder.mkdir(parents=True, exist_ok=True)
    enrol_devices(session.stack, enrolments_of(plan), lambda: False)
    _run(session, plan, devices=TENTH // 100)  # warms the JVMs, the caches and the Python workers
    quick = _run(session, plan, devices=TENTH // 100)
    middle, high = quick["e2e"]
    at = (
        f"{quick['offered']:,.0f} samples/s offered, {TENTH // 100} devices, 10 signals at 10 Hz, packets of one second"
    )
    report.figures += [
        Figure("event time to row queryable, p50", "ms", (middle,), 2_000, False, at),
        Figure("event time to row queryable, p95", "ms", (high,), 3_000, False, at),
    ]
    full = [_run(session, plan) for _ in range(2)]
    conditions = f"{DEVICES} devices, 10 signals at 10 Hz, packets of one second, {SECONDS} s, then drained"
    report.figures += [
        Figure("offered", "samples/s", tuple(r["offered"] for r in full), None, True, conditions),
        Figure(
            "held: stored over the time until all was stored",
            "samples/s",
            tuple(r["held"] for r in full),
            FULL,
            True,
            conditions,
        ),
        Figure("lost or doubled packets", "packets", tuple(r["wrong"] for r in full), 0, False, conditions),
        Figure(
            "generator's CPU", "CPU-s per 100k packets", tuple(r["generator"] for r in full), None, False, conditions
        ),
    ]
    report.notes.append(
        "Generator, broker, Kafka, Spark and PostgreSQL share the cores: what is offered stays below the target, too, "
        "since the generator needs the CPU told above."
    )


def _run(session: Session, plan: FleetPlan, devices: int | None = None) -> dict[str, Any]:
    """One load run; waits until everything sent is stored."""
    part = plan.model_copy(update={"devices": plan.devices[: devices or len(plan.devices)]})
    file = plan.folder / "plan.json"
    write_plan(file, part)
    watch = StoreWatch(reader_dsn(session.stack), [one.device for one in part.devices])
    watch.start()
    before, began_s = _stored(session), time.monotonic()
    report = _load(file)
    goal, deadline_s = before[0] + report["sent_packets"], time.monotonic() + DRAIN_S
    while (now := _stored(session))[0] < goal and time.monotonic() < deadline_s:
        time.sleep(0.2)
    took_s = time.monotonic() - began_s
    watch.stop()
    return {
        "offered": report["sent_samples"] / report["seconds"],
        "held": (now[1] - before[1]) / took_s,
        "wrong": abs(now[0] - goal),
        "generator": report["cpu_s"] / max(1, report["sent_packets"]) * 100_000,
        "e2e": (watch.all.percentile(0.5) or 0, watch.all.percentile(0.95) or 0),
    }


def _load(plan: Path) -> dict[str, Any]:
    told = {"LOAD_PACKET_MS": 1_000, "LOAD_RATE_HZ": 10, "DRAIN_S": DRAIN_S}
    environment = {f"FLEETSTREAM__SIMULATORS__{key}": str(value) for key, value in told.items()}
    command = [sys.executable, "-m", "simulators", "load", "--plan", str(plan), "--seconds", str(SECONDS)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=False, timeout=900
    )
    lines = done.stdout.strip().splitlines()
    if not lines:
        raise RuntimeError(f"the load run ended with code {done.returncode} and said nothing")
    return dict(json.loads(lines[-1]))


def _stored(session: Session) -> tuple[int, int]:
    """(packets, samples) that the store holds."""
    with psycopg.connect(session.stack.dsn(ROLE_SINK)) as connection:
        row = connection.execute(
            "SELECT coalesce(sum(packets), 0), coalesce(sum(samples), 0) FROM seen_ranges"
        ).fetchone()
    return (int(row[0]), int(row[1])) if row else (0, 0)

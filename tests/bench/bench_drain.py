"""A device that was away drains its spool while it goes on measuring: how long fifteen days would take, and how late
its living readings are meanwhile. The real agent over TLS into the whole stack; the backlog lies in its spool.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import psycopg

from contracts.packet import Lane
from contracts.tables import ROLE_SINK
from edge_agent.agent import Agent
from edge_agent.settings import AgentSettings, SpoolSettings
from edge_agent.sources.base import Reading
from edge_agent.spool_open import open_spool
from edge_agent.wiring import build_agent
from infra.enrol import Enrolment
from infra.fleets import enrol_devices
from infra.paths import default_cache
from infra.session import Session, running_stack
from infra.settings import InfraSettings, PortSettings
from tests.bench.bench_agent import PROFILE, drafts
from tests.bench.figures import Figure, Report

DEVICE, TENANT = "drain-1", "bench"
PACKETS, PER_SIGNAL = 36_000, 5
"""Ten hours of packets of one second, 100 samples each."""
DAYS, DAY_S, HOURS = 15, 86_400, 2.0
ALONE_S = 30.0
WARM_S = 20.0
PATIENCE_S = 600.0
LATENESS = """
SELECT extract(epoch FROM stored_at - last_at) * 1000 FROM packet_rows JOIN devices USING (device_key)
WHERE device = %s AND last_at >= to_timestamp(%s / 1000.0) AND last_at < to_timestamp(%s / 1000.0)"""


class Sensors:
    """100 samples a second on the wall's clock."""

    can_wait, cursor, finished = False, None, False

    def __init__(self) -> None:
        self._due_ms = 0

    def seek(self, cursor: str) -> None:
        raise ValueError("sensors know no past")

    def read(self, now_ms: int, limit: int) -> Sequence[Reading]:
        step_ms = 1_000 // PER_SIGNAL
        self._due_ms = max(self._due_ms, now_ms - 2_000)
        found: list[Reading] = []
        while self._due_ms + step_ms <= now_ms and len(found) < limit:
            self._due_ms += step_ms
            found += [Reading(one.number, self._due_ms, (one.minimum + one.maximum) / 2) for one in PROFILE]
        return found

    def close(self) -> None:
        """Nothing to give back."""


def run() -> Report:
    home = Path(tempfile.mkdtemp(prefix="fleetstream-bench-"))
    ports = PortSettings(**dict.fromkeys(PortSettings.model_fields, 0))
    try:
        with running_stack(InfraSettings(home=home, cache=default_cache(), ports=ports, detection=False)) as session:
            return measure(session, home / "bench")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def measure(session: Session, folder: Path) -> Report:
    report = Report("A device that was away")
    enrol_devices(session.stack, [Enrolment(DEVICE, TENANT, "Drain 1", "car", "simulated")], lambda: False)
    settings = settings_of(session, folder)
    fill(settings.spool)
    agent, stop = build_agent(settings, Sensors()), threading.Event()
    worker = threading.Thread(target=agent.run, args=(stop,), daemon=True)
    began_s, began_ms = time.monotonic(), _now_ms()
    worker.start()
    try:
        drained(agent, session, PACKETS)
        took_s, drained_ms = time.monotonic() - began_s, _now_ms()
        time.sleep(ALONE_S)
    finally:
        stop.set()
        worker.join(60)
    during = lateness(session, began_ms + int(WARM_S * 1_000), drained_ms)
    alone = lateness(session, drained_ms, drained_ms + int(ALONE_S * 1_000))
    hours = DAYS * DAY_S / (PACKETS / took_s) / 3_600
    text = (
        f"backlog of {PACKETS:,} packets of one second, {PER_SIGNAL * len(PROFILE)} samples each, until all is stored"
    )
    live = "living packets of one second, their last sample's time to the row, the rows' own clock"
    report.figures += [
        Figure("drained", "packets/s", (PACKETS / took_s,), None, True, text),
        Figure("15 days at that rate", "h", (hours,), HOURS, False, "extrapolated"),
        *(
            Figure(f"{name}, {which}", "ms", (value,), target, False, f"{live}; {len(found)} packets")
            for name, found, targets in (
                ("living readings while it drains", during, (2_000.0, 3_000.0)),
                ("living readings afterwards", alone, (None, None)),
            )
            for which, value, target in zip(("p50", "p95"), (rank(found, 0.5), rank(found, 0.95)), targets, strict=True)
        ),
    ]
    report.notes.append("The first seconds are left out of the latency: Spark's workers are starting.")
    return report


def settings_of(session: Session, folder: Path) -> AgentSettings:
    folder.mkdir(parents=True, exist_ok=True)
    files = session.stack.authority.client(DEVICE)
    mqtt = {"port": session.stack.ports["mqtt"], "ca": files.ca, "cert": files.certificate, "key": files.key}
    values = {"device": DEVICE, "tenant": TENANT, "spool": {"path": folder / "spool.db"}, "mqtt": mqtt}
    return AgentSettings(**values)  # type: ignore[arg-type]


def fill(settings: SpoolSettings) -> None:
    """The past ten hours, as the agent would have kept them."""
    past = drafts(PACKETS, PER_SIGNAL, _now_ms() - PACKETS * 1_000 - 60_000)
    spool = open_spool(settings, DEVICE, TENANT, _now_ms())
    for at in range(0, len(past), 100):
        spool.accept(past[at : at + 100], Lane.BACKLOG, _now_ms())
    spool.close()


def drained(agent: Agent, session: Session, packets: int) -> None:
    """Wait until the store holds the backlog. Raises RuntimeError when it never does."""
    deadline_s = time.monotonic() + PATIENCE_S
    with psycopg.connect(session.stack.dsn(ROLE_SINK), autocommit=True) as connection:
        while time.monotonic() < deadline_s:
            row = connection.execute(
                "SELECT coalesce(sum(packets), 0) FROM seen_ranges JOIN devices USING (device_key) WHERE device = %s "
                "AND boot_epoch = (SELECT min(boot_epoch) FROM seen_ranges JOIN devices USING (device_key) "
                "WHERE device = %s)", (DEVICE, DEVICE),
            ).fetchone()  # fmt: skip
            if row and row[0] >= packets:
                return
            time.sleep(0.25)
    raise RuntimeError("the backlog was not stored in time")


def lateness(session: Session, start_ms: int, end_ms: int) -> list[float]:
    """Milliseconds, ascending."""
    with psycopg.connect(session.stack.dsn(ROLE_SINK)) as connection:
        return sorted(float(row[0]) for row in connection.execute(LATENESS, (DEVICE, start_ms, end_ms)))


def rank(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

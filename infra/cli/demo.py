"""``fleetstream demo``: the whole line with a simulated fleet on it, and the proof that nothing was lost."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any

import psycopg
import typer

from contracts.tables import ROLE_SINK
from contracts.topics import Topics
from edge_agent.wiring import read_journal
from infra.cli.common import load_settings
from infra.cli.key import make_key
from infra.cli.up import report as report_start
from infra.errors import ServiceFailed
from infra.fleets import FleetProcess, enrol_devices, enrolments_of, plan_fleet
from infra.proof import Proof, prove
from infra.rooms import Stack, reader_dsn
from infra.selfwatch import self_watched
from infra.session import open_session
from infra.settings import InfraSettings
from infra.state import read_state
from infra.watch_log import LogWatch
from infra.watch_store import StoreWatch
from infra.wiring import DailyMaintenance, build_stack
from simulators.plan import TENANTS, FleetPlan

DRAIN_S = 60.0
EXIT_INTERRUPTED = 130
FLEET_END_S = 55.0
"""How long the fleet may take to end; its own drain is shorter (simulators.settings)."""
FAULTS = {"car-001": "charging", "turbine-001": "bearing"}
"""Machines of the demo that fall ill within half a minute (simulators.faults); detectors find them."""
KEY_LIFETIME = timedelta(days=7)
LINE_S = 1.0

app = typer.Typer()


@app.command(epilog="Example: fleetstream demo --seconds 60")
def demo(
    seconds: float | None = typer.Option(None, min=1, help="Stop the fleet after this time, drain, prove, end."),
    cars: int = typer.Option(50, min=0, help="Simulated cars."),
    turbines: int = typer.Option(20, min=0, help="Simulated wind turbines."),
) -> None:
    """Start everything with a simulated fleet; with --seconds the last line is one JSON object with the proof."""
    settings = load_settings()
    stop = threading.Event()
    with _stack(settings, stop) as stack:
        if stop.is_set():
            raise typer.Exit(EXIT_INTERRUPTED)
        plan = plan_fleet(stack, settings.home / "demo", cars, turbines, FAULTS)
        summary = _run(stack, plan, seconds, stop)
    if summary is None:
        raise typer.Exit(0 if seconds is None else EXIT_INTERRUPTED)
    typer.echo(json.dumps(summary))
    faults = (summary[name] for name in ("lost_packets", "doubled_packets", "altered", "foreign"))
    if any(faults) or not summary["accepted_packets"]:  # a fleet that said nothing proves nothing
        raise typer.Exit(1)


@contextlib.contextmanager
def _stack(settings: InfraSettings, stop: threading.Event) -> Iterator[Stack]:
    """The stack that is up already, left up; else one that is started here and stopped on the way out."""
    state = read_state(settings.home)
    if state is not None:
        _obey(stop)
        yield build_stack(settings, state.ports)
        return
    begun = time.monotonic()
    with open_session(settings) as session:
        _obey(stop, session.supervisor.request_stop)
        _say("starting the stack (the first time fetches about 60 MB)")
        try:
            session.supervisor.start()
        except ServiceFailed:
            if not stop.is_set():
                raise
            raise typer.Exit(EXIT_INTERRUPTED) from None
        report_start(session.supervisor, time.monotonic() - begun)
        _obey(stop)
        upkeep = DailyMaintenance(session.stack)
        watcher = threading.Thread(target=session.supervisor.run, args=(upkeep,), name="supervisor")
        watcher.start()
        try:
            with self_watched(session):
                yield session.stack
        finally:
            _say("stopping everything")
            session.supervisor.request_stop()
            watcher.join()


def _run(stack: Stack, plan: FleetPlan, seconds: float | None, stop: threading.Event) -> dict[str, Any] | None:
    """Enrol, run, watch; with ``seconds`` also drain and prove. None without a proof."""
    devices = [one.device for one in plan.devices]
    enrol_devices(stack, enrolments_of(plan), stop.is_set)
    plan.history.unlink(missing_ok=True)
    log_watch = LogWatch(stack.bootstrap, Topics(stack.settings.topic_prefix), devices)
    store_watch = StoreWatch(reader_dsn(stack), devices)
    log_watch.start()
    store_watch.start()
    _tell_address(stack)
    fleet = FleetProcess(plan, stack.settings.home / "logs" / "fleet.log")
    watch = _Watch(fleet, log_watch, store_watch)
    try:
        ran_s = _live(watch, seconds, stop)
        if seconds is None or stop.is_set():
            return None
        _say("\nmachines are off; waiting until everything is stored")
        drained = fleet.finish(FLEET_END_S)
        proof = _drain(plan, stack, watch, drained, stop)
    finally:
        if fleet.alive:
            fleet.finish(FLEET_END_S if seconds else 10.0)
        store_watch.stop()
        log_watch.stop()
    return _summary(proof, watch, ran_s, _windows(stack, devices))


@dataclass(frozen=True, slots=True)
class _Watch:
    """The three places where a reading is seen."""

    fleet: FleetProcess
    log: LogWatch
    store: StoreWatch


def _live(watch: _Watch, seconds: float | None, stop: threading.Event) -> float:
    """The progress line, until the time is over, someone stops it, or the fleet died; seconds that passed."""
    begun_s = time.monotonic()
    deadline_s = begun_s + seconds if seconds is not None else float("inf")
    while not stop.wait(LINE_S) and time.monotonic() < deadline_s:
        if not watch.fleet.alive:
            raise ServiceFailed(
                f"The fleet ended by itself; what it accepted is in its spools; {watch.fleet.log_file} says why"
            )
        _progress(watch, time.monotonic() - begun_s)
    return time.monotonic() - begun_s


def _progress(watch: _Watch, after_s: float) -> None:
    report, store, log = watch.fleet.report, watch.store, watch.log
    accepted = int(report.get("accepted_samples", 0))
    lag = max(0, int(report.get("accepted_packets", 0)) - store.packets)
    latency = store.recent.percentile(0.5)
    line = (
        f"{after_s:5.0f} s  accepted {accepted:>9,}  in Kafka {log.samples:>9,}  stored {store.samples:>9,} samples"
        f"  lag {lag:>5,} packets  latency {'-' if latency is None else latency:>5} ms"
    )
    _say(f"\r{line}" if sys.stderr.isatty() else line, end="" if sys.stderr.isatty() else "\n")


def _drain(plan: FleetPlan, stack: Stack, watch: _Watch, acknowledged: bool, stop: threading.Event) -> Proof:
    """Ask until everything accepted is stored, at most DRAIN_S."""
    history = read_journal(plan.history) if plan.history.exists() else {}
    deadline_s = time.monotonic() + DRAIN_S
    while watch.store.packets < len(history) and time.monotonic() < deadline_s and not stop.wait(0.2):
        _progress(watch, DRAIN_S - (deadline_s - time.monotonic()))
    proof = prove(history, reader_dsn(stack))
    while not proof.complete and time.monotonic() < deadline_s and not stop.wait(2.0):
        proof = prove(history, reader_dsn(stack))
    if not acknowledged:
        _say("not every packet was acknowledged before the fleet ended; the rest waits in its spools")
    return proof


def _windows(stack: Stack, devices: list[str]) -> int:
    with psycopg.connect(reader_dsn(stack)) as connection:
        row = connection.execute("SELECT count(*) FROM windows WHERE device = ANY(%s)", (devices,)).fetchone()
    return int(row[0]) if row else 0


def _summary(proof: Proof, watch: _Watch, ran_s: float, windows: int) -> dict[str, Any]:
    """Counts are samples; ``*_packets`` are packets; latencies in milliseconds from event time to a returned row."""
    return {
        "accepted": proof.accepted_samples,
        "in_kafka": watch.log.samples,
        "stored": proof.stored_samples,
        "lost": proof.lost_samples,
        "doubled": proof.doubled_samples,
        "duplicates_suppressed": watch.store.duplicates,
        "windows": windows,
        "e2e_ms_p50": watch.store.all.percentile(0.5),
        "e2e_ms_p95": watch.store.all.percentile(0.95),
        "samples_per_s": round(proof.accepted_samples / ran_s, 1) if ran_s else 0.0,
        "accepted_packets": proof.accepted_packets,
        "in_kafka_packets": watch.log.packets,
        "stored_packets": proof.stored_packets,
        "lost_packets": len(proof.lost),
        "doubled_packets": len(proof.doubled),
        "altered": len(proof.altered),
        "foreign": len(proof.foreign),
        "seconds": round(ran_s, 1),
    }


def _tell_address(stack: Stack) -> None:
    with psycopg.connect(stack.dsn(ROLE_SINK)) as connection:
        until = datetime.now(UTC) + KEY_LIFETIME
        keys = {tenant: make_key(connection, tenant, "operator", "demo", until).text for tenant in TENANTS}
    for tenant, key in keys.items():
        _say(f"page of tenant {tenant}: http://127.0.0.1:{stack.ports['api']}/#key={key}")


def _obey(stop: threading.Event, also: Any = None) -> None:
    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        if also is not None:
            also()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)

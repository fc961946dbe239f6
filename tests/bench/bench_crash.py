"""A crash on the device: how soon its notice is on the live stream; its record stored and receipted after an outage.

Real agents with real recorders on the whole stack; the line carries a tenth of its load from another process. Time zero
of a notice is the beginning of the pulse on the device's clock, so that detection is part of the figure. The outage of
ten minutes is modelled by the device's clocks jumping ahead while nothing listens at its broker's address.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psycopg

from contracts.tables import ROLE_EVIDENCE, ROLE_SINK
from edge_agent.clock import SystemClock
from edge_agent.recorder.settings import RecorderSettings
from edge_agent.settings import AgentSettings
from edge_agent.wiring import build_agent
from infra.cli.key import make_key
from infra.enrol import Enrolment
from infra.fleets import enrol_devices, enrolments_of, plan_fleet
from infra.paths import default_cache
from infra.processes import free_port
from infra.session import Session, running_stack
from infra.settings import InfraSettings, PortSettings
from simulators.crashes.play import BUMPER
from simulators.crashes.scenarios import SCENARIOS
from simulators.crashes.source import CrashDrive
from simulators.plan import write_plan
from tests.bench.figures import Figure, Report

CRASHES, OUTAGES = 60, 3
EVERY_S = 2.0
LOAD_DEVICES = 150
SKIP_S = 20.0
"""The drive begins three seconds before the impact."""

OUTAGE_MS = 600_000
PATIENCE_S = 300.0
NOTICE_PATIENCE_S = 20.0
PULSES = ("haversine", "triangle", "square", "side")


class LaterClock(SystemClock):
    """The machine's clocks, set ahead by what was modelled to have passed."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms

    def mono_ms(self) -> int:
        return super().mono_ms() + self.ahead_ms


class Receipts(logging.Handler):
    """Hears from agents' own logs when a device has a receipt for everything that it held."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.settled_s: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg.startswith("event=crash_receipt") and record.getMessage().endswith("waiting=0"):
            self.settled_s.append(time.monotonic())


def run() -> Report:
    report = Report("A crash, from the device to the people")
    home = Path(tempfile.mkdtemp(prefix="fleetstream-bench-"))
    ports = PortSettings(**dict.fromkeys(PortSettings.model_fields, 0))
    try:
        settings = InfraSettings(home=home, cache=default_cache(), ports=ports, detection=False)
        with running_stack(settings) as session:
            _measure(session, home / "bench", report)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return report


def _measure(session: Session, folder: Path, report: Report) -> None:
    plan = plan_fleet(session.stack, folder, LOAD_DEVICES, 0)
    plan.folder.mkdir(parents=True, exist_ok=True)
    crashers = [
        Enrolment(f"crash-{n:02d}", "bench", f"Crash {n}", "car", "simulated") for n in range(CRASHES + OUTAGES)
    ]
    enrol_devices(session.stack, [*enrolments_of(plan), *crashers], lambda: False)
    names = [one.device for one in crashers]
    write_plan(folder / "plan.json", plan)
    with _load(folder / "plan.json", seconds=int(CRASHES * EVERY_S) + 45):
        delays = _notices(session, folder, names[:CRASHES])
    waits = [outage(session, folder, name) for name in names[CRASHES:]]
    delays.sort()
    at = (
        f"{len(delays)} of {CRASHES} crashes, one every {EVERY_S:.0f} s, {LOAD_DEVICES} devices with 10 signals at "
        "10 Hz beside them; from the beginning of the pulse"
    )
    offline = "crash while offline, clocks 10 min ahead, then the broker's address answers; real everything else"
    report.figures += [
        Figure("crash to notice on the live stream, p50", "ms", (_rank(delays, 0.5),), None, False, at),
        Figure("crash to notice on the live stream, p95", "ms", (_rank(delays, 0.95),), 2_000, False, at),
        Figure("notices missing", "notices", (float(CRASHES - len(delays)),), 0, False, at),
        Figure("connected again to record stored", "ms", tuple(one for one, _ in waits), None, False, offline),
        Figure(
            "connected again to all receipts on the device", "ms", tuple(one for _, one in waits), None, False, offline
        ),
    ]
    report.notes.append("The record is complete 5 s after the crash; what is offline waits in the recorder's own file.")


def _notices(session: Session, folder: Path, names: list[str]) -> list[float]:
    """Milliseconds from pulse to stream, one per notice that came."""
    with psycopg.connect(session.stack.dsn(ROLE_SINK)) as connection:
        key = make_key(connection, "bench", "operator", "bench", None).text
    heard: dict[str, float] = {}
    begun: dict[str, float] = {}
    stop = threading.Event()
    listener = threading.Thread(target=_listen, args=(session, key, heard, stop), daemon=True)
    listener.start()
    drivers = []
    for name in names:
        drivers.append(threading.Thread(target=_drive, args=(session, folder, name, begun), daemon=True))
        drivers[-1].start()
        time.sleep(EVERY_S)
    for driver in drivers:
        driver.join(PATIENCE_S)
    with suppress(RuntimeError):  # what never came is a figure of its own
        _until(lambda: set(heard) >= set(names), NOTICE_PATIENCE_S)
    stop.set()
    return [(heard[name] - begun[name]) * 1_000 for name in names if name in heard]


def _listen(session: Session, key: str, heard: dict[str, float], stop: threading.Event) -> None:
    address = f"http://127.0.0.1:{session.stack.ports['api']}/api/v1/stream"
    headers = {"Authorization": f"Bearer {key}"}
    with (
        httpx.Client(timeout=60, trust_env=False, headers=headers) as client,
        client.stream("GET", address, params={"signal": "Vehicle.Speed"}) as stream,
    ):
        kind = ""
        for line in stream.iter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: ") and kind == "notice":
                heard.setdefault(json.loads(line.removeprefix("data: "))["notice"]["device"], time.monotonic())
            if stop.is_set():
                return


def _settings(session: Session, folder: Path, name: str, port: int) -> AgentSettings:
    files, signer = session.stack.authority.client(name), session.stack.authority.signer(name)
    home = folder / name
    home.mkdir(parents=True, exist_ok=True)
    recorder = RecorderSettings(
        path=home / "recorder.fsr", source="simulated", vin="BENCH", driver="bench", key=signer.key,
        chain=signer.certificate,
    )  # fmt: skip
    mqtt = {"port": port, "ca": files.ca, "cert": files.certificate, "key": files.key, "backoff_max_ms": 2_000}
    spool = {"path": home / "spool.db", "reserve_bytes": 65_536}
    values = {"device": name, "tenant": "bench", "spool": spool, "mqtt": mqtt, "recorder": recorder}
    return AgentSettings(**values)  # type: ignore[arg-type]


def _drive(session: Session, folder: Path, name: str, begun: dict[str, float]) -> None:
    """One agent from its start to some seconds after its crash."""
    clock = SystemClock()
    settings = _settings(session, folder, name, session.stack.ports["mqtt"])
    pulse = PULSES[int(name.rsplit("-", 1)[1]) % len(PULSES)]
    drive = CrashDrive(SCENARIOS[pulse], BUMPER, 1, clock.mono_ms(), clock.now_ms(), SKIP_S)
    begun[name] = drive.impact_ms / 1_000
    agent = build_agent(settings, drive, clock, crash_source=drive)
    stop = threading.Event()
    worker = threading.Thread(target=agent.run, args=(stop,), daemon=True)
    worker.start()
    _until(lambda: _is_over(drive, clock), PATIENCE_S)
    stop.set()
    worker.join(PATIENCE_S)


def _is_over(drive: CrashDrive, clock: SystemClock) -> bool:
    """Seven seconds after the impact, and nothing left to take; asked repeatedly, since between two samples the drive,
    which its agent's thread reads, looks as if it were over."""
    if clock.mono_ms() < drive.impact_ms + 7_000:
        return False
    for _ in range(10):
        if not drive.over:
            return False
        time.sleep(0.02)
    return True


def outage(session: Session, folder: Path, name: str) -> tuple[float, float]:
    """(ms until stored, ms until receipted), from the moment the broker's address answers."""
    clock, port = LaterClock(), free_port()
    drive = CrashDrive(SCENARIOS["haversine"], BUMPER, 1, clock.mono_ms(), clock.now_ms(), SKIP_S)
    agent = build_agent(_settings(session, folder, name, port), drive, clock, crash_source=drive)
    receipts = Receipts()
    logger = logging.getLogger("edge_agent.recorder.post")
    logger.addHandler(receipts)
    logger.setLevel(logging.INFO)
    stop = threading.Event()
    worker = threading.Thread(target=agent.run, args=(stop,), daemon=True)
    worker.start()
    _until(lambda: _is_over(drive, clock), PATIENCE_S)
    clock.ahead_ms = OUTAGE_MS
    with _forwarding(port, session.stack.ports["mqtt"]):
        began_s = time.monotonic()
        stored_s = _until(lambda: _stored(session, name), PATIENCE_S)
        settled_s = _until(lambda: bool(receipts.settled_s), PATIENCE_S)
        stop.set()
        worker.join(PATIENCE_S)
    logger.removeHandler(receipts)
    return (stored_s - began_s) * 1_000, (settled_s - began_s) * 1_000


def _stored(session: Session, name: str) -> bool:
    with psycopg.connect(session.stack.dsn(ROLE_EVIDENCE)) as connection:
        row = connection.execute(
            "SELECT count(*) FROM evidence_records r JOIN devices d USING (device_key)"
            " WHERE d.device = %s AND r.complete",
            (name,),
        ).fetchone()
    return bool(row and row[0])


@contextmanager
def _forwarding(port: int, broker: int) -> Iterator[None]:
    """From now on the address answers: connections are passed on to the broker as they are."""
    server = socket.create_server(("127.0.0.1", port))

    def accept() -> None:
        while True:
            try:
                ours, _ = server.accept()
            except OSError:
                return
            theirs = socket.create_connection(("127.0.0.1", broker))
            for source, sink in ((ours, theirs), (theirs, ours)):
                threading.Thread(target=_pass_on, args=(source, sink), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield
    finally:
        server.close()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            sink.sendall(data)
    except OSError:
        pass
    finally:
        sink.close()


@contextmanager
def _load(plan: Path, seconds: int) -> Iterator[None]:
    """A tenth of the line's load, from a process of its own."""
    told = {"LOAD_PACKET_MS": 1_000, "LOAD_RATE_HZ": 10, "DRAIN_S": 60}
    environment = {f"FLEETSTREAM__SIMULATORS__{key}": str(value) for key, value in told.items()}
    command = [sys.executable, "-m", "simulators", "load", "--plan", str(plan), "--seconds", str(seconds)]
    with subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


def _until(holds: Callable[[], bool], patience_s: float) -> float:
    """When it first held (monotonic seconds). Raises RuntimeError when it never did."""
    deadline_s = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline_s:
            raise RuntimeError("what was waited for did not happen")
        time.sleep(0.01)
    return time.monotonic()


def _rank(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, round(share * (len(values) - 1)))] if values else float("inf")

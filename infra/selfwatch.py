"""The stack watches itself by its own means: every process is an asset, and a real agent ships what it costs.

One thread measures, a handful of agents (certificate, spool and TLS session each, like any device's) carry it into the
store, where SQL, windows, API and boards find it under the tenant ``platform``. Nothing needs it: what goes wrong here
is logged, and the stack goes on.
"""

from __future__ import annotations

import logging
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import psutil
import psycopg
from prometheus_client.parser import text_string_to_metric_families

from contracts.errors import FleetstreamError
from edge_agent.settings import AgentSettings
from edge_agent.sources import Reading
from edge_agent.wiring import build_agent
from infra.enrol import Enrolment
from infra.fleets import enrol_devices
from infra.session import Session
from infra.state import ServiceState
from simulators.runner import AgentRunner

TENANT: Final = "platform"
INTERVAL_S: Final = 10.0
PROBE_TIMEOUT_S: Final = 2.0
MOST_WAITING: Final = 1_000
"""Readings of a process that its agent has not taken; the oldest go first."""
CPU, MEMORY, RESTARTS, BACKLOG, OLDEST = 9001, 9002, 9003, 9004, 9005
"""Numbers of the signals ``Process.*`` in the catalogue."""
GAUGES: Final[Mapping[str, tuple[str, Mapping[str, int]]]] = {
    "gateway": (
        "gateway_metrics",
        {
            "fleetstream_gateway_outstanding": BACKLOG,
            "fleetstream_gateway_oldest_outstanding_seconds": OLDEST,
        },
    ),
    "ingest": ("ingest_metrics", {"fleetstream_ingest_lag_records": BACKLOG}),
    "api": (
        "api",
        {"fleetstream_api_outbox_waiting": BACKLOG, "fleetstream_api_outbox_oldest_seconds": OLDEST},
    ),
}
"""Service to its port's name, and which of its gauges become which signal; labelled samples are added up."""
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Pushed:
    """A source that is given readings by another thread; bounded."""

    can_wait = False
    cursor: str | None = None
    finished: bool = False
    waiting: deque[Reading] = field(default_factory=lambda: deque(maxlen=MOST_WAITING))

    def seek(self, cursor: str) -> None:
        """Has no past."""

    def read(self, now_ms: int, limit: int) -> Sequence[Reading]:
        return [self.waiting.popleft() for _ in range(min(limit, len(self.waiting)))]

    def close(self) -> None:
        """Holds nothing open."""


def gauges(text: str, wanted: Mapping[str, int]) -> dict[int, float]:
    """Signal number to value of the wanted gauges of a Prometheus page. Raises ValueError for other text."""
    found: dict[int, float] = {}
    for family in text_string_to_metric_families(text):
        number = wanted.get(family.name)
        if number is not None:
            found[number] = sum(sample.value for sample in family.samples)
    return found


def costs(pid: int) -> dict[int, float]:
    """CPU seconds and resident bytes of a process and all below it; empty when it has just gone."""
    try:
        parent = psutil.Process(pid)
        family = [parent, *parent.children(recursive=True)]
        spent = parent.cpu_times()
        seconds = spent.children_user + spent.children_system  # of those that have ended
        resident = 0
        for one in family:
            times = one.cpu_times()
            seconds += times.user + times.system
            resident += one.memory_info().rss
    except psutil.Error:
        return {}
    return {CPU: seconds, MEMORY: float(resident)}


def measure(name: str, service: ServiceState, ports: Mapping[str, int]) -> dict[int, float]:
    """All that is known of one service now."""
    values = {RESTARTS: float(service.restarts), **(costs(service.pid) if service.pid is not None else {})}
    if name in GAUGES and service.state == "ready":
        port, wanted = GAUGES[name]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{ports[port]}/metrics", timeout=PROBE_TIMEOUT_S) as answer:
                values |= gauges(answer.read().decode(), wanted)
        except (urllib.error.URLError, OSError, ValueError) as error:
            log.info("event=not_measured service=%s error=%s", name, type(error).__name__)
    return values


class SelfWatch:
    """Enrols a device per service, then measures and ships until stopped."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="self-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Return when the agents have said goodbye; what they could not ship stays in their spools."""
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            self._watch()
        except (FleetstreamError, psycopg.Error, OSError, ValueError) as error:
            log.warning("event=self_watch_ended reason=%s; the stack goes on without", error)

    def _watch(self) -> None:
        stack, names = self._session.stack, list(self._session.supervisor.state().services)
        enrol_devices(stack, [Enrolment(device(name), TENANT, name, "process") for name in names], self._stop.is_set)
        sources = {name: Pushed() for name in names}
        runner = AgentRunner([build_agent(self._settings(name), source) for name, source in sources.items()], 1)
        runner.start()
        try:
            while not self._stop.is_set():
                self.round(sources, int(time.time() * 1000))
                self._stop.wait(INTERVAL_S)
        finally:
            runner.leave()

    def round(self, sources: Mapping[str, Pushed], now_ms: int) -> None:
        """Measure every service once."""
        for name, service in self._session.supervisor.state().services.items():
            values = measure(name, service, self._session.stack.ports)
            sources[name].waiting.extend(Reading(number, now_ms, value) for number, value in values.items())

    def _settings(self, name: str) -> AgentSettings:
        stack = self._session.stack
        files, folder = stack.authority.client(device(name)), stack.settings.home / "self"
        folder.mkdir(exist_ok=True)
        mqtt = {
            "host": "127.0.0.1", "port": stack.ports["mqtt"], "ca": files.ca, "cert": files.certificate,
            "key": files.key,
        }  # fmt: skip
        return AgentSettings.model_validate(
            {
                "device": device(name), "tenant": TENANT, "mqtt": mqtt, "sampling": {"thin": False},
                "spool": {"path": folder / f"{name}.db", "max_bytes": 10_000_000, "reserve_bytes": 65_536},
                "packing": {"packet_ms": int(INTERVAL_S * 1_000)},
            }
        )  # fmt: skip


def device(service: str) -> str:
    """Name of the device that tells of a service."""
    return f"platform-{service}"


@contextmanager
def self_watched(session: Session) -> Iterator[None]:
    """The stack's own figures are stored while the block lasts, unless the settings say otherwise."""
    watch = SelfWatch(session) if session.stack.settings.self_watch and session.stack.settings.services else None
    if watch is not None:
        watch.start()
    try:
        yield
    finally:
        if watch is not None:
            watch.stop()

"""The running system with the harness between its parts: stack, fleets, proxies, taps, poison, witnesses."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import psutil
import psycopg
from confluent_kafka import KafkaException
from psycopg.conninfo import make_conninfo

from contracts.tables import ROLE_SINK
from contracts.topics import Topics
from infra.enrol import Enrolment, enrol
from infra.guard import Guard
from infra.processes import Command, free_ports
from infra.rooms import Stack, answers, gateway_environment
from infra.session import Session, running_stack
from infra.settings import InfraSettings
from infra.supervisor import Service
from tests.torture import poison
from tests.torture.device import OneDevice
from tests.torture.evidence import StoreWitness, log_ends
from tests.torture.fleet import Fleet, can_mount, unmount
from tests.torture.history import History
from tests.torture.plan import FLEETS
from tests.torture.proxy import Proxy, ProxyThread
from tests.torture.tap import Tap

TENANTS = ("acme", "globex")
GATEWAYS = ("gateway", "gateway-1")
SPOOL_BYTES = {"fleet-1": 65_536}
"""fleet-1 has spools that fill within a minute of silence, so that drops are reported and checked."""
ROOMY_BYTES = 50_000_000
SMALL_DISK = "fleet-2"
SMALL_DISK_SIZE = "24m"
DEVICES_PER_FLEET = {"fleet-0": 2, "fleet-1": 2, "fleet-2": 2, "noisy": 1, "twin": 1}
NOISY_EVERY_MS, EVERY_MS = 500, 100
NOISY_SAMPLES = 4
"""Samples in a packet of the noisy device: its thousandfold rate must be a thousandfold rate of packets."""
KEEPALIVE_S = 5
QUICK_JAVA = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""A job that is killed every minute never earns back what the optimising compiler costs at its start."""
POLL_S = 0.25
START_S = 600.0
"""A busy machine may take long to start all of this; that is not what is examined here."""
FRESH_S = 4.0
"""Lag is 0 when nothing accepted longer ago than this waits for the store: the line itself takes about a second."""
CALIBRATION_S = 6.0
SLACK = 2.0
"""On a machine too busy for that: when nothing waits this many times longer than the undisturbed line's p95."""
Replacements = Mapping[str, list[str]]
"""Service name to the module and arguments that are started in its place."""
log = logging.getLogger(__name__)


class Arena:
    """Made by ``arena``. Threads of several faults use it at a time."""

    def __init__(self, home: Path, replacements: Replacements) -> None:
        self.home = home
        self.history = History()
        self.fleets: dict[str, Fleet] = {}
        self.images: list[Fleet] = []
        self.proxies: dict[str, Proxy] = {}
        self.taps = {name: Tap() for name in GATEWAYS}
        self.session: Session
        self.poison: poison.PoisonSender
        self._began = False
        self.kills = 0
        self.skipped_kills = 0
        self.troubles: list[str] = []
        """What went wrong in the harness itself; a run with any is not ok."""
        self.stop = threading.Event()
        self.fresh_s = FRESH_S
        self.noisy_spans: list[tuple[float, float]] = []
        """When the noisy device was noisy, on the monotonic clock."""
        self._replacements = replacements
        self._threads = ProxyThread()
        self._guard = Guard()
        self._kill_lock = threading.Lock()
        self._poll: threading.Thread | None = None

    @property
    def stack(self) -> Stack:
        return self.session.stack

    @property
    def judge_dsn(self) -> str:
        """Sees everything, and gets a connection when nobody else does."""
        return make_conninfo(self.stack.superuser_dsn, options=f"-csearch_path={self.stack.settings.schema_name}")

    @property
    def tenants(self) -> dict[str, str]:
        """Every device of ours with its tenant."""
        names = [f"{fleet}-{number}" for fleet in FLEETS for number in range(DEVICES_PER_FLEET[fleet])]
        return {name: TENANTS[at % 2] for at, name in enumerate(names)} | {poison.DEVICE: poison.TENANT}

    def shape(self, stack: Stack, services: list[Service]) -> list[Service]:
        """Proxies between the parts, a second gateway worker, mutants in place of what they mutate."""
        kafka_inside = free_ports(1, set(stack.ports.values()))[0]
        self.proxies["kafka"] = self._threads.proxy(kafka_inside)
        self.proxies["store"] = self._threads.proxy(stack.ports["postgres"])
        for name in FLEETS:
            self.proxies[name] = self._threads.proxy(stack.ports["mqtt"])
        for worker, name in enumerate(GATEWAYS):
            self.proxies[name] = self._tapped(stack, worker, self.taps[name])
        shaped = []
        for service in services:
            if service.name == "kafka":
                shaped.append(_second_listener(stack, service, kafka_inside, self.proxies["kafka"].port))
            elif service.name == "gateway":
                shaped += [self._gateway(stack, service, worker) for worker in range(len(GATEWAYS))]
            elif service.name == "ingest":
                dsn = make_conninfo(stack.dsn(ROLE_SINK), port=self.proxies["store"].port)
                shaped.append(self._changed(service, {"FLEETSTREAM__STREAM_JOBS__DSN": dsn, **QUICK_JAVA}))
            else:
                shaped.append(service)
        return [replace(service, timeout_s=START_S) for service in shaped]

    def _gateway(self, stack: Stack, service: Service, worker: int) -> Service:
        """A worker behind its tap, with short keepalive, that reaches Kafka through a proxy."""
        name = GATEWAYS[worker]
        port = stack.ports["gateway_metrics"] if worker == 0 else free_ports(1, set(stack.ports.values()))[0]
        more = gateway_environment(stack, worker) | {
            "FLEETSTREAM__GATEWAY__MQTT_PORT": str(self.proxies[name].port),
            "FLEETSTREAM__GATEWAY__KAFKA_BOOTSTRAP": f"127.0.0.1:{self.proxies['kafka'].port}",
            "FLEETSTREAM__GATEWAY__METRICS_PORT": str(port),
            "FLEETSTREAM__GATEWAY__KEEPALIVE_S": str(KEEPALIVE_S),
            "FLEETSTREAM__GATEWAY__ACK_AFTER_MS": "500",
        }
        return self._changed(replace(service, name=name, ready=lambda: answers(port, "/readyz")), more)

    def _changed(self, service: Service, environment: Mapping[str, str]) -> Service:
        instead = self._replacements.get(service.name)
        prepare = service.prepare

        def changed() -> Command:
            command = prepare()
            arguments = [*command.arguments[:2], *instead] if instead else command.arguments
            log_file = command.log_file.with_name(f"{service.name}.log")
            told = {**command.environment, **environment}
            return replace(command, name=service.name, arguments=arguments, environment=told, log_file=log_file)

        return replace(service, prepare=changed)

    def _tapped(self, stack: Stack, worker: int, tap: Tap) -> Proxy:
        broker, own = stack.authority.broker(), stack.authority.client(f"gateway-{worker}")
        near = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(broker.ca))
        near.load_cert_chain(broker.certificate, broker.key)
        far = ssl.create_default_context(cafile=str(own.ca))
        far.load_cert_chain(own.certificate, own.key)
        return self._threads.proxy(stack.ports["mqtt"], near_tls=near, far_tls=far, ear=tap)

    def begin(self) -> None:
        """Enrol, start the fleets, the poison sender and the poll of the store."""
        with psycopg.connect(self.stack.dsn(ROLE_SINK)) as connection:
            enrol(
                connection, [Enrolment(name, owner, name, "car", "simulated") for name, owner in self.tenants.items()]
            )
        files = self.stack.authority.client(poison.DEVICE)
        self.poison = poison.PoisonSender(
            self.stack.ports["mqtt"], files.ca, files.certificate, files.key, self._noticed
        )
        self.poison.start()
        self._began = True
        for name in FLEETS:
            self.fleets[name] = self._make_fleet(name)
            self.fleets[name].start()
        self._poll = threading.Thread(target=self._watch, name="poll")
        self._poll.start()

    def _make_fleet(self, name: str) -> Fleet:
        folder = self.home / "spools" / name
        folder.mkdir(parents=True, exist_ok=True)
        if name == SMALL_DISK:
            can_mount(folder, SMALL_DISK_SIZE)
        devices = []
        for number in range(DEVICES_PER_FLEET[name]):
            device = f"{name}-{number}"
            files = self.stack.authority.client(device)
            noisy = name == "noisy"
            devices.append(
                OneDevice(
                    device=device, tenant=self.tenants[device], cert=str(files.certificate), key=str(files.key),
                    spool=str(folder / f"{device}.db"), every_ms=NOISY_EVERY_MS if noisy else EVERY_MS,
                    signals=1 if noisy else 2, max_samples=NOISY_SAMPLES if noisy else 2_000,
                )
            )  # fmt: skip
        spool_bytes = SPOOL_BYTES.get(name, ROOMY_BYTES)
        told = {
            "port": self.proxies[name].port, "ca": str(self.stack.authority.ca_file), "spool_bytes": spool_bytes,
            "devices": devices,
        }  # fmt: skip
        return Fleet(name, told, folder, self.history, self._guard)  # type: ignore[arg-type]

    def _noticed(self) -> set[str]:
        witness = StoreWitness(self.judge_dsn)
        try:
            return witness.aside_digests()
        except psycopg.Error:
            return set()
        finally:
            witness.close()

    def _watch(self) -> None:
        """Ask the store what it explains of what waits; restart fleets that ended by themselves."""
        witness = StoreWitness(self.judge_dsn)
        while not self.stop.wait(POLL_S):
            with self.history.lock:
                waiting = list(self.history.waiting)
            with contextlib.suppress(psycopg.Error):
                self.history.explained(witness.explained(waiting))
            for fleet in (*self.fleets.values(), *self.images):
                fleet.look_after()
        witness.close()

    def caught_up(self) -> bool:
        """Lag is 0: all services are ready and nothing but the freshest packets is still on its way."""
        alive = all(fleet.pid is not None for fleet in self.fleets.values())
        return alive and self.session.supervisor.state().ready and self.history.oldest_wait_s() < self.fresh_s

    def calibrate(self) -> None:
        """Learn what lag 0 means here, from some seconds without any fault."""
        self.stop.wait(CALIBRATION_S)
        waits = sorted(waited for _, _, waited in self.history.latencies_since(time.monotonic() - CALIBRATION_S))
        if waits:
            self.fresh_s = max(FRESH_S, SLACK * waits[int(0.95 * (len(waits) - 1))])

    def log_taken(self, slack: int) -> bool:
        """All services are ready and the store has come within ``slack`` records of the log's end."""
        if not self.session.supervisor.state().ready:
            return False
        witness = StoreWitness(self.judge_dsn)
        try:
            ends = log_ends(self.stack.bootstrap, Topics(self.stack.settings.topic_prefix))
            taken = witness.taken()
        except (psycopg.Error, KafkaException):
            return False
        finally:
            witness.close()
        return sum(max(0, end - taken.get(place, 0)) for place, end in ends.items()) <= slack

    def pid(self, target: str) -> int | None:
        """Of a service's or fleet's process; ``jvm`` is Spark's Java below ingest."""
        if target in self.fleets:
            return self.fleets[target].pid
        if target == "jvm":
            parent = self.pid("ingest")
            return next((child.pid for child in _family(parent) if "java" in _name(child)), None) if parent else None
        return self.session.supervisor.state().services[target].pid

    def signal(self, target: str, number: signal.Signals) -> list[int]:
        """Send a signal to a target and all below it; the processes that got it."""
        parent = self.pid(target)
        members = _family(parent) if parent is not None else []
        return [one.pid for one in members if _send(one.pid, number)]

    def terminate(self, target: str) -> bool:
        """Ask one service to end as the supervisor would; False when it does not run."""
        parent = self.pid(target)
        return parent is not None and _send(parent, signal.SIGINT if target == "postgres" else signal.SIGTERM)

    def kill(self, target: str, patience_s: float = 120.0) -> bool:
        """SIGKILL a target with everything below it, waiting for it to run; counted. Fleets start again at once.

        False, and counted as skipped, when it did not run in all that time: it was still down from another fault.
        """
        deadline_s = time.monotonic() + patience_s
        while not self.stop.is_set() and time.monotonic() < deadline_s:
            with self._kill_lock:
                fleet = self.fleets.get(target)
                done = fleet.kill() if fleet is not None else bool(self.signal(target, signal.SIGKILL))
                if fleet is not None and done:
                    fleet.start()
            if done:
                self.kills += 1
                return True
            time.sleep(0.1)
        self.skipped_kills += 1
        return False

    def end(self) -> None:
        """Stop what ``begin`` started and close the proxies; the stack ends with its session."""
        self.stop.set()
        for fleet in (*self.images, *self.fleets.values()):
            fleet.kill()
        if self._poll is not None:
            self._poll.join()
        if self._began:
            self.poison.stop()
        unmount(self.home / "spools" / SMALL_DISK)

    def close(self) -> None:
        self._threads.close()
        self._guard.close()


@contextlib.contextmanager
def arena(settings: InfraSettings, replacements: Replacements | None = None) -> Iterator[Arena]:
    """Everything up and the fleets running; all of it down again on the way out, whatever happened."""
    made = Arena(settings.home, replacements or {})
    try:
        with running_stack(settings, made.shape) as session:
            made.session = session
            try:
                made.begin()
                yield made
            finally:
                made.end()
    finally:
        made.close()


def _second_listener(stack: Stack, service: Service, inside: int, outside: int) -> Service:
    """Kafka listens once more, and tells who comes that way to come back through the proxy."""
    prepare, file = service.prepare, stack.settings.home / "kafka" / "server.properties"

    def changed() -> Command:
        command = prepare()
        lines = []
        for line in file.read_text().splitlines():
            key, _, value = line.partition("=")
            more = {
                "listeners": f",PROXIED://127.0.0.1:{inside}",
                "advertised.listeners": f",PROXIED://127.0.0.1:{outside}",
                "listener.security.protocol.map": ",PROXIED:PLAINTEXT",
            }.get(key, "")
            lines.append(f"{key}={value}{more}")
        file.write_text("\n".join([*lines, "inter.broker.listener.name=PLAINTEXT", ""]))
        return command

    return replace(service, prepare=changed)


def _family(pid: int) -> list[psutil.Process]:
    """A process and everything below it, whatever sessions its children made."""
    try:
        parent = psutil.Process(pid)
        return [*parent.children(recursive=True), parent]
    except psutil.NoSuchProcess:
        return []


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return ""


def _send(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True

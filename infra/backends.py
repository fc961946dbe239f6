"""PostgreSQL, Kafka and Mosquitto as one thing that can be prepared, started together and stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from infra.ca import DevelopmentCa
from infra.guard import Guard
from infra.jars import resolve
from infra.java import find_java
from infra.kafka import Kafka
from infra.mosquitto import Mosquitto, find_mosquitto
from infra.postgres import Postgres
from infra.processes import Child, Command, wait_ready

READY_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Ports:
    """Loopback ports of the three servers (Kafka needs a second one for its controller)."""

    postgres: int
    kafka: int
    kafka_controller: int
    mqtt: int


def make_postgres(home: Path, port: int, settings: Mapping[str, str] | None = None) -> Postgres:
    return Postgres(home / "postgres", port, home / "logs" / "postgres.log", settings or {})


def make_kafka(home: Path, cache: Path, port: int, controller_port: int) -> Kafka:
    jars = resolve("broker", cache)
    return Kafka(home / "kafka", port, controller_port, home / "logs" / "kafka.log", find_java(cache), jars)


def make_mosquitto(home: Path, cache: Path, port: int, authority: DevelopmentCa) -> Mosquitto:
    return Mosquitto(
        home / "mosquitto", port, home / "logs" / "mosquitto.log", find_mosquitto(cache), authority.broker()
    )


@dataclass(slots=True)
class Backends:
    """The three servers without the services above them; what tests run on."""

    home: Path
    cache: Path
    ports: Ports
    postgres_settings: Mapping[str, str] = field(default_factory=dict)
    children: dict[str, Child] = field(default_factory=dict)
    _guard: Guard | None = None

    @property
    def authority(self) -> DevelopmentCa:
        return DevelopmentCa(self.home / "ca")

    @property
    def postgres(self) -> Postgres:
        return make_postgres(self.home, self.ports.postgres, self.postgres_settings)

    def start(self) -> None:
        """Start all three at once; on a failure stop what runs and raise."""
        self.home.mkdir(parents=True, exist_ok=True)
        self._guard = Guard()
        try:
            with ThreadPoolExecutor(3) as pool:
                for started in [pool.submit(one) for one in (self._postgres, self._kafka, self._mosquitto)]:
                    started.result()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the three; nothing is left running."""
        for child in reversed(list(self.children.values())):
            child.stop()
        self.children.clear()
        if self._guard:
            self._guard.close()
            self._guard = None

    def kill(self, name: str) -> None:
        """SIGKILL one server, as a power cut would."""
        self.children[name].kill()

    def revive(self, name: str) -> None:
        """Start a killed server again on the same data."""
        {"postgres": self._postgres, "kafka": self._kafka, "mosquitto": self._mosquitto}[name]()

    def _postgres(self) -> None:
        server = self.postgres
        server.prepare()
        self._run(server.command(), server.ready)
        server.create_database()

    def _kafka(self) -> None:
        server = make_kafka(self.home, self.cache, self.ports.kafka, self.ports.kafka_controller)
        server.prepare()
        self._run(server.command(), server.ready)

    def _mosquitto(self) -> None:
        server = make_mosquitto(self.home, self.cache, self.ports.mqtt, self.authority)
        server.prepare()
        self._run(server.command(), server.ready)

    def _run(self, command: Command, ready: Callable[[], bool]) -> None:
        child = Child(command)
        self.children[command.name] = child
        if self._guard:
            self._guard.watch(child.pid)
        wait_ready(child, ready, READY_TIMEOUT_S)

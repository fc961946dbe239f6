"""Put the stack together from settings: which services there are, what each needs, when each is ready."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache

import psycopg

from contracts.errors import TryLater
from contracts.topics import Topics
from infra.backends import READY_TIMEOUT_S, make_kafka, make_mosquitto, make_postgres
from infra.ca import DevelopmentCa
from infra.errors import SetupError
from infra.history import keep_history
from infra.kafka import create_topics
from infra.migrate import create_roles, maintain, migrate
from infra.processes import Command, free_ports, port_in_use
from infra.rooms import Stack, room_services
from infra.settings import InfraSettings
from infra.supervisor import Service, Supervisor

DAY_S = 24 * 3600
HISTORY_S = 600
GIGABYTE = 1024**3
Shape = Callable[[Stack, list[Service]], list[Service]]
"""Changes the menu of services before the supervisor gets it: how a fault harness puts itself between them."""

log = logging.getLogger(__name__)


def pick_ports(settings: InfraSettings) -> dict[str, int]:
    """Every port by name, 0 replaced by a free one. Raises SetupError when one is taken."""
    wanted: dict[str, int] = settings.ports.model_dump()
    for name, port in wanted.items():
        if port and port_in_use(port):
            raise SetupError(
                f"Port {port} ({name}) is in use; set FLEETSTREAM__INFRA__PORTS__{name.upper()} to another one, or to 0"
            )
    free = iter(free_ports(list(wanted.values()).count(0), set(wanted.values())))
    return {name: port or next(free) for name, port in wanted.items()}


def check_disk(settings: InfraSettings) -> None:
    """Raises SetupError when the runtime directory's disk is nearly full."""
    settings.home.mkdir(mode=0o711, parents=True, exist_ok=True)
    free = shutil.disk_usage(settings.home).free
    if free < settings.least_free_bytes:
        raise SetupError(
            f"Only {free / GIGABYTE:.1f} GB are free where {settings.home} lies, and "
            f"{settings.least_free_bytes / GIGABYTE:.1f} GB are needed; "
            "free some space or set FLEETSTREAM_HOME to another disk"
        )


def build_stack(settings: InfraSettings, ports: dict[str, int]) -> Stack:
    """Everything that services are told about each other."""
    authority = DevelopmentCa(settings.home / "ca")
    postgres = make_postgres(settings.home, ports["postgres"])
    own = settings.postgres_dsn.get_secret_value() if settings.postgres_dsn else None
    return Stack(settings, ports, authority, postgres, own)


def build_supervisor(settings: InfraSettings, ports: dict[str, int], shape: Shape | None = None) -> Supervisor:
    """The whole menu: servers, then our services; ``shape`` may change it."""
    stack = build_stack(settings, ports)
    if stack.own_dsn is None:
        stack.postgres.make_passwords()
    services = [*_postgres(stack), _kafka(stack), _mosquitto(stack)]
    if settings.services:
        services += room_services(stack)
    services = shape(stack, services) if shape else services
    return Supervisor(settings.home, services, ports, settings.longest_pause_s)


@dataclass(slots=True)
class DailyMaintenance:
    """Calls partition keeping at once and every day, and looks after history every ten minutes, in a thread, so that
    it never delays the watch."""

    stack: Stack
    next_s: float = 0.0
    next_history_s: float = field(default_factory=lambda: time.monotonic() + HISTORY_S)

    def __call__(self) -> None:
        if time.monotonic() >= self.next_s:
            self.next_s = time.monotonic() + DAY_S
            threading.Thread(target=self._run, name="maintenance", daemon=True).start()
        if time.monotonic() >= self.next_history_s:
            self.next_history_s = time.monotonic() + HISTORY_S
            threading.Thread(target=self._keep_history, name="history", daemon=True).start()

    def _keep_history(self) -> None:
        try:
            done = keep_history(self.stack, datetime.now(UTC))
        except (psycopg.Error, TryLater, SetupError) as error:
            log.error('event=history_failed error=%s detail="%s"', type(error).__name__, error)
            return
        made, gone = done.blocks, done.expired_blocks
        log.info("event=history packets=%d blocks=%d expired=%d", done.compacted_packets, made, gone)

    def _run(self) -> None:
        settings = self.stack.settings
        try:
            done = maintain(self.stack.superuser_dsn, settings.schema_name, datetime.now(UTC), settings.retention_days)
            log.info("event=maintained created=%d dropped=%d", len(done.created), len(done.dropped))
        except psycopg.Error as error:
            log.error("event=maintenance_failed error=%s", type(error).__name__)
            self.next_s = time.monotonic() + 60


def _postgres(stack: Stack) -> list[Service]:
    if stack.own_dsn is not None:
        prepare_store(stack)
        return []

    def prepare() -> Command:
        stack.postgres.prepare()
        return stack.postgres.command()

    def after() -> None:
        stack.postgres.create_database()
        prepare_store(stack)

    return [Service("postgres", (), prepare, stack.postgres.ready, after, READY_TIMEOUT_S)]


def prepare_store(stack: Stack) -> None:
    """Roles, migrations, partitions; safe to repeat."""
    settings, dsn = stack.settings, stack.superuser_dsn
    create_roles(dsn, stack.passwords)
    migrate(dsn, settings.schema_name)
    maintain(dsn, settings.schema_name, retention_days=settings.retention_days)


def _kafka(stack: Stack) -> Service:
    settings = stack.settings
    made = cache(
        lambda: make_kafka(settings.home, settings.cache, stack.ports["kafka"], stack.ports["kafka_controller"])
    )

    def prepare() -> Command:
        made().prepare()
        return made().command()

    def after() -> None:
        create_topics(made().bootstrap, Topics(settings.topic_prefix).all())

    return Service("kafka", (), prepare, lambda: made().ready(), after, READY_TIMEOUT_S)


def _mosquitto(stack: Stack) -> Service:
    settings = stack.settings
    made = cache(lambda: make_mosquitto(settings.home, settings.cache, stack.ports["mqtt"], stack.authority))

    def prepare() -> Command:
        made().prepare()
        return made().command()

    return Service("mosquitto", (), prepare, lambda: made().ready(), timeout_s=READY_TIMEOUT_S)

"""The services of the other rooms: their commands, what they are told by the environment, when they are ready.

The only place that knows other rooms' settings keys; a test loads each room's settings with what stands here.
"""

from __future__ import annotations

import json
import secrets
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from psycopg.conninfo import make_conninfo

from contracts.tables import ROLE_API, ROLE_EVIDENCE, ROLE_READER, ROLE_SINK, ROLES
from infra.ca import DevelopmentCa
from infra.paths import write_private
from infra.postgres import Postgres
from infra.processes import Command
from infra.settings import InfraSettings
from infra.spark import spark_environment, spark_jars
from infra.supervisor import Service

PROBE_TIMEOUT_S = 2.0
DRAIN_TIMEOUT_S = 40.0


@dataclass(frozen=True)
class Stack:
    """What services need to find each other. ``own_dsn`` is a user's PostgreSQL in place of the embedded one."""

    settings: InfraSettings
    ports: dict[str, int]
    authority: DevelopmentCa
    postgres: Postgres
    own_dsn: str | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.ports['kafka']}"

    @property
    def superuser_dsn(self) -> str:
        return self.own_dsn or self.postgres.dsn()

    @property
    def passwords(self) -> Mapping[str, str]:
        """Passwords of our roles, made at the first start."""
        return self._own_passwords if self.own_dsn else self.postgres.passwords()

    @cached_property
    def _own_passwords(self) -> dict[str, str]:
        file = self.settings.home / "roles.json"
        made: dict[str, str] = json.loads(file.read_bytes()) if file.exists() else {}
        missing = {role: secrets.token_urlsafe(24) for role in ROLES if role not in made}
        if missing:
            write_private(file, json.dumps({**made, **missing}).encode())
        return {**made, **missing}

    @cached_property
    def share_group(self) -> str:
        """Name of the gateways' shared subscription: a secret, or any device could join it and swallow its part."""
        file = self.settings.home / "share_group"
        if not file.exists():
            write_private(file, secrets.token_hex(8).encode())
        return file.read_text()

    def dsn(self, role: str) -> str:
        """Connection string of one of our roles, schema included; keep it out of logs."""
        path = f"-csearch_path={self.settings.schema_name}"
        if self.own_dsn:
            return make_conninfo(self.own_dsn, user=role, password=self.passwords[role], options=path)
        return make_conninfo(self.postgres.dsn(role), options=path)


def room_services(stack: Stack) -> list[Service]:
    """Gateway, the stream jobs and the API, in the order in which data passes them.

    The API's process carries the relay, which fills the registry that the gateway waits for.
    """
    detect = [_detect(stack)] if stack.settings.detection else []
    return [_gateway(stack), _ingest(stack), _archive(stack), *detect, _watch(stack), _evidence(stack), _api(stack)]


def gateway_environment(stack: Stack, worker: int = 0) -> dict[str, str]:
    """Settings of one gateway worker; its certificate's name is its MQTT client id."""
    credentials = stack.authority.client(f"gateway-{worker}")
    return _keys(
        "GATEWAY",
        MQTT_HOST="127.0.0.1",
        MQTT_PORT=stack.ports["mqtt"],
        CA_FILE=credentials.ca,
        CERTIFICATE_FILE=credentials.certificate,
        KEY_FILE=credentials.key,
        WORKER=worker,
        SHARE_GROUP=stack.share_group,
        KAFKA_BOOTSTRAP=stack.bootstrap,
        TOPIC_PREFIX=stack.settings.topic_prefix,
        METRICS_PORT=stack.ports["gateway_metrics"],
    )


def stream_environment(stack: Stack, metrics_port: int) -> dict[str, str]:
    """Settings of the Spark job and of the archive consumer."""
    home = stack.settings.home
    return _keys(
        "STREAM_JOBS",
        KAFKA_BOOTSTRAP=stack.bootstrap,
        TOPIC_PREFIX=stack.settings.topic_prefix,
        DSN=stack.dsn(ROLE_SINK),
        CHECKPOINT_FOLDER=home / "checkpoints",
        ARCHIVE_FOLDER=home / "archive",
        MODEL_FOLDER=home / "models",
        LOG_FOLDER=home / "kafka" / "data",
        METRICS_PORT=metrics_port,
    )


def detect_environment(stack: Stack) -> dict[str, str]:
    """Settings of detection: one core and a small heap, since it runs beside ingest."""
    small = _keys("STREAM_JOBS", DETECT_FOLDER=stack.settings.home / "detection", CORES=1, DRIVER_MEMORY_MB=512)
    return {**stream_environment(stack, stack.ports["detect_metrics"]), **small}


def evidence_environment(stack: Stack) -> dict[str, str]:
    """Settings of the evidence consumer: a role of its own, and the root that crash records must end in."""
    return _keys(
        "STREAM_JOBS",
        KAFKA_BOOTSTRAP=stack.bootstrap,
        TOPIC_PREFIX=stack.settings.topic_prefix,
        DSN=stack.dsn(ROLE_EVIDENCE),
        EVIDENCE_ROOTS=stack.authority.ca_file,
        METRICS_PORT=stack.ports["evidence_metrics"],
    )


def api_environment(stack: Stack) -> dict[str, str]:
    """Settings of the API, its page and its outbox relay."""
    export = stack.authority.signer("evidence-export")
    return _keys(
        "API",
        HOST="127.0.0.1",
        PORT=stack.ports["api"],
        DSN=stack.dsn(ROLE_API),
        PAGES=Path(__file__).parents[1] / "dashboards" / "console",
        RELAY_DSN=stack.dsn(ROLE_SINK),
        EDR_KEY=export.key,
        EDR_CHAIN=export.certificate,
        ARCHIVE_FOLDER=stack.settings.home / "archive",
        KAFKA_BOOTSTRAP=stack.bootstrap,
        TOPIC_PREFIX=stack.settings.topic_prefix,
    )


def reader_dsn(stack: Stack) -> str:
    """What ``fleetstream sql`` connects with."""
    return stack.dsn(ROLE_READER)


def answers(port: int, path: str) -> bool:
    """Whether a loopback HTTP server answers with 200."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PROBE_TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _keys(room: str, **values: object) -> dict[str, str]:
    return {f"FLEETSTREAM__{room}__{key}": str(value) for key, value in values.items()}


def _command(
    stack: Stack, name: str, arguments: list[str], environment: Callable[[], dict[str, str]]
) -> Callable[[], Command]:
    log_file = stack.settings.home / "logs" / f"{name}.log"
    folder = stack.settings.home / "work" / name

    def prepare() -> Command:
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(exist_ok=True)
        path = {"PYTHONPATH": str(Path(__file__).parents[1]), "PYTHONUNBUFFERED": "1"}
        return Command(
            name=name,
            arguments=[sys.executable, "-m", *arguments],
            log_file=log_file,
            environment={**path, **environment()},
            stop_timeout_s=DRAIN_TIMEOUT_S,
            folder=folder,
        )

    return prepare


def _gateway(stack: Stack) -> Service:
    port = stack.ports["gateway_metrics"]
    prepare = _command(stack, "gateway", ["gateway"], lambda: gateway_environment(stack))
    return Service("gateway", ("kafka", "mosquitto", "api"), prepare, lambda: answers(port, "/readyz"))


def _store(stack: Stack) -> tuple[str, ...]:
    return () if stack.own_dsn else ("postgres",)


def _ingest(stack: Stack) -> Service:
    port = stack.ports["ingest_metrics"]
    return _spark_job(stack, "ingest", port, lambda: stream_environment(stack, port))


def _detect(stack: Stack) -> Service:
    return _spark_job(stack, "detect", stack.ports["detect_metrics"], lambda: detect_environment(stack))


def _spark_job(stack: Stack, name: str, port: int, own: Callable[[], dict[str, str]]) -> Service:
    cache = stack.settings.cache

    def environment() -> dict[str, str]:
        jars = _keys("STREAM_JOBS", JARS=",".join(map(str, spark_jars(cache))))
        return {**own(), **jars, **spark_environment(cache)}

    prepare = _command(stack, name, ["stream_jobs", name], environment)
    return Service(name, (*_store(stack), "kafka"), prepare, lambda: answers(port, "/readyz"))


def _archive(stack: Stack) -> Service:
    port = stack.ports["archive_metrics"]
    prepare = _command(stack, "archive", ["stream_jobs", "archive"], lambda: stream_environment(stack, port))
    return Service("archive", (*_store(stack), "kafka"), prepare, lambda: answers(port, "/readyz"))


def _watch(stack: Stack) -> Service:
    port = stack.ports["watch_metrics"]
    prepare = _command(stack, "watch", ["stream_jobs", "watch"], lambda: stream_environment(stack, port))
    return Service("watch", _store(stack), prepare, lambda: answers(port, "/readyz"))


def _evidence(stack: Stack) -> Service:
    port = stack.ports["evidence_metrics"]
    prepare = _command(stack, "evidence", ["stream_jobs", "evidence"], lambda: evidence_environment(stack))
    return Service("evidence", (*_store(stack), "kafka"), prepare, lambda: answers(port, "/readyz"))


def _api(stack: Stack) -> Service:
    port = stack.ports["api"]
    prepare = _command(stack, "api", ["api"], lambda: api_environment(stack))
    return Service("api", (*_store(stack), "kafka"), prepare, lambda: answers(port, "/readyz"))

"""Real PostgreSQL, Kafka, Mosquitto and Spark, once per test run; every test in a schema and topics of its own.

The servers are started when the first test asks for one of them, in a temporary runtime directory on free
ports; jars and the broker come from the user's cache. A killed test run leaves nothing behind (``infra.guard``).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException
from psycopg.conninfo import make_conninfo

from contracts.topics import Topics
from infra.backends import Backends, Ports
from infra.ca import Credentials, DevelopmentCa
from infra.errors import ServiceFailed
from infra.kafka import create_topics
from infra.migrate import create_roles
from infra.paths import default_cache
from infra.processes import free_ports
from infra.spark import spark_environment, spark_jars
from tests.fix_schema import Schemas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POSTGRES = {"autovacuum": "off", "fsync": "off", "full_page_writes": "off"}
"""Kills are of processes, not of machines, so what is committed stays. An autovacuum of its own time would hold back
the oldest running transaction, and with it what readers of the feed may see already."""


@dataclass(frozen=True, slots=True)
class MqttBroker:
    """The TLS broker: where it listens and how to get a client certificate (CN = name)."""

    host: str
    port: int
    ca: Path
    issue: Callable[[str], Credentials]


@pytest.fixture(scope="session")
def stack() -> Iterator[Backends]:
    """The three servers; tests that kill one must start it again (``stack.kill``, ``stack.revive``)."""
    home = Path(tempfile.mkdtemp(prefix="fleetstream-test-"))
    ports = Ports(*free_ports(4))
    backends = Backends(home, default_cache(), ports, POSTGRES)
    try:
        backends.start()
        create_roles(backends.postgres.dsn(), backends.postgres.passwords())
        yield backends
    finally:
        backends.stop()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_dsn(stack: Backends) -> str:
    """Superuser connection string of the run's database."""
    return stack.postgres.dsn()


@pytest.fixture(scope="session")
def schemas(postgres_dsn: str) -> Schemas:
    return Schemas(postgres_dsn)


@pytest.fixture
def schema(schemas: Schemas) -> Iterator[str]:
    """Name of an empty schema with every migration, the catalogue and today's partitions."""
    made = schemas.take()
    yield made.name
    schemas.give_back(made)


@pytest.fixture
def role_dsn(stack: Backends, schema: str) -> Callable[[str], str]:
    """Connection string of a role (``contracts.tables``; "postgres" = superuser) with ``schema`` as search path."""

    def connect_as(role: str) -> str:
        return make_conninfo(stack.postgres.dsn(role), options=f"-csearch_path={schema}")

    return connect_as


@pytest.fixture
def schema_dsn(role_dsn: Callable[[str], str]) -> str:
    """Superuser connection string with ``schema`` as search path."""
    return role_dsn("postgres")


@pytest.fixture(scope="session")
def kafka_bootstrap(stack: Backends) -> str:
    return f"127.0.0.1:{stack.ports.kafka}"


@dataclass(slots=True)
class Prefixes:
    """Sets of topics, the next one made while a test runs: half a second passes before a new topic has a leader."""

    bootstrap: str
    maker: ThreadPoolExecutor
    coming: Future[str] | None = None

    def take(self) -> str:
        coming, self.coming = self.coming, None
        try:
            taken = coming.result() if coming else self.make()
        except (ServiceFailed, KafkaException):  # Kafka was killed by a test meanwhile
            taken = self.make()
        self.coming = self.maker.submit(self.make)
        return taken

    def make(self) -> str:
        prefix = f"t{uuid.uuid4().hex[:10]}"
        create_topics(self.bootstrap, Topics(prefix).all())
        return prefix


@pytest.fixture(scope="session")
def prefixes(kafka_bootstrap: str) -> Iterator[Prefixes]:
    with ThreadPoolExecutor(1) as maker:
        yield Prefixes(kafka_bootstrap, maker)


@pytest.fixture
def topic_prefix(prefixes: Prefixes) -> str:
    """A fresh prefix whose topics (``contracts.topics.Topics(prefix)``) all exist."""
    return prefixes.take()


@pytest.fixture(scope="session")
def mqtt_broker(stack: Backends) -> MqttBroker:
    authority: DevelopmentCa = stack.authority
    return MqttBroker("127.0.0.1", stack.ports.mqtt, authority.ca_file, authority.client)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local session for the run: 2 threads, 2 GB, UTC, no UI, connector jars."""
    from pyspark.sql import SparkSession  # slow to import; only tests that ask for Spark pay

    scratch = Path(tempfile.mkdtemp(prefix="fleetstream-spark-"))
    os.environ.update(spark_environment(default_cache()))
    jars = ",".join(map(str, spark_jars(default_cache())))
    guard = (
        "-Dorg.apache.avro.limits.collectionItems.maxLength=1000000 -Dorg.apache.avro.limits.bytes.maxLength=1000000"
    )
    session = (
        SparkSession.builder.master("local[2]")
        .appName("fleetstream-tests")
        .config("spark.jars", jars)
        .config("spark.driver.memory", "2g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"{guard} -Dorg.apache.avro.limits.string.maxLength=1000000")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.local.dir", str(scratch / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()
        shutil.rmtree(scratch, ignore_errors=True)

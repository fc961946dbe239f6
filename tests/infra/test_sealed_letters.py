"""Crash records among what was set aside: reason, size and hash for who writes SQL, bytes for nobody there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from contracts.packet import parcel_schemas
from contracts.tables import ROLE_API, ROLE_READER, ROLE_SINK, TENANT_SETTING
from infra.enrol import Enrolment, enrol
from infra.tenants import make_sql_login
from stream_jobs.sinks.statements import QUARANTINE, REFUSED
from stream_jobs.withheld import stand_in
from tests.gateway.samples import frame
from tests.stream_jobs.test_withheld import LINKAGE, OTHERS, VIN, parcel

Connect = Callable[[], psycopg.Connection[Any]]
AT = "2026-11-21T12:00:00Z"
NAMED = parcel(LINKAGE)
TORN = b"\x00" + NAMED[1:12] + b"\x00" + NAMED[13:]


@pytest.fixture
def tenant(postgres_dsn: str, schema: str, role_dsn: Callable[[str], str]) -> Iterator[tuple[int, Connect]]:
    """Letters of tenant north, as the sink writes them; a login of its own."""
    with psycopg.connect(role_dsn(ROLE_SINK)) as sink:
        (one,) = enrol(sink, [Enrolment("north-1", "north", "Car 1", "car")])
        key, tenant_id = one.device_key, one.tenant_id
        letters = [
            ("linkage", "up/priority", NAMED), ("torn", "up/priority", TORN), ("stray", "up/live", NAMED),
            ("rebuilt", "up/priority", stand_in(NAMED)), ("packet", "up/live", frame()), ("junk", "up/live", b"junk"),
        ]  # fmt: skip
        letters += [("other", "up/live", parcel(message)) for message in OTHERS]
        for offset, (reason, channel, data) in enumerate(letters):
            values = (uuid4(), 0, offset, tenant_id, "north-1", 1, 5, reason, "", f"v1/north-1/{channel}", AT, data)
            sink.execute(REFUSED, values)
        for offset, data in enumerate((NAMED, frame())):
            sink.execute(
                QUARANTINE, (uuid4(), 0, offset, "t.live.v1", tenant_id, key, 1, 5, "undecodable", 0, "{}", AT, data)
            )
    login = make_sql_login(postgres_dsn, schema, "north")
    dsn = make_conninfo(postgres_dsn, user=login.login, password=login.password)
    yield tenant_id, lambda: psycopg.connect(dsn, autocommit=True)
    with psycopg.connect(postgres_dsn) as owner:
        owner.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(login.login)))


def test_the_fingerprint_is_that_of_parcels() -> None:
    """Another parcel schema needs another migration."""
    assert [one.hex() for one in parcel_schemas()] == ["4525bde54565ef9a"]


def test_sql_tells_reason_size_and_hash_of_a_parcel_and_never_its_bytes(
    tenant: tuple[int, Connect], role_dsn: Callable[[str], str]
) -> None:
    for connect in (tenant[1], lambda: psycopg.connect(role_dsn(ROLE_READER), autocommit=True)):
        with connect() as connection:
            rows = connection.execute("SELECT reason, size_bytes, sha256, bytes FROM dead_letters").fetchall()
            told = {reason: rest for reason, *rest in rows if reason != "other"}
            for reason, data in (("linkage", NAMED), ("torn", TORN), ("stray", NAMED), ("rebuilt", NAMED)):
                assert told[reason] == [len(data), hashlib.sha256(data).hexdigest(), b""], reason
            assert told["packet"][2] == frame() and told["junk"][2] == b"junk"
            assert {row[3] for row in rows if row[0] == "other"} == {b""}
            aside = connection.execute("SELECT size_bytes, sha256, bytes FROM quarantine ORDER BY kafka_offset")
            assert aside.fetchall() == [
                (len(NAMED), hashlib.sha256(NAMED).hexdigest(), b""),
                (len(frame()), hashlib.sha256(frame()).hexdigest(), frame()),
            ]
            for table in ("refused", "quarantined"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(f"SELECT sealed FROM {table}".encode())
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(f"SELECT {table}::text FROM {table}".encode())
                whole = connection.execute(f"SELECT bytes FROM {table}".encode()).fetchall()
                assert not [one for (one,) in whole if VIN.encode() in one]


def test_the_service_that_sends_letters_again_has_the_bytes_of_its_own_tenant(
    tenant: tuple[int, Connect], role_dsn: Callable[[str], str]
) -> None:
    with psycopg.connect(role_dsn(ROLE_API)) as api:
        asked = "SELECT sealed FROM refused WHERE reason = 'linkage'"
        assert api.execute(asked).fetchall() == []
        api.execute("SELECT set_config(%s, %s, true)", (TENANT_SETTING, str(tenant[0])))
        assert api.execute(asked).fetchall() == [(NAMED,)]


def test_letters_from_before_are_sealed_by_the_migration(schema_dsn: str) -> None:
    """The statement of the migration, on a row that lies there as it did before."""
    with psycopg.connect(schema_dsn) as owner:
        owner.execute("ALTER TABLE refused DISABLE TRIGGER seal")
        values = (uuid4(), 0, 1, None, "x", 1, 5, "old", "", "v1/x/up/priority", AT, NAMED)
        owner.execute(
            "INSERT INTO refused (topic_id, kafka_partition, kafka_offset, tenant_id, device, boot_epoch, seq, reason,"
            " detail, mqtt_topic, received_at, bytes, size_bytes, bytes_sha256)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 0, '')",
            values,
        )
        owner.execute("ALTER TABLE refused ENABLE TRIGGER seal")
        for _ in range(2):
            owner.execute("UPDATE refused SET bytes = bytes")
            row = owner.execute("SELECT bytes, size_bytes, bytes_sha256, sealed FROM refused").fetchone()
            assert row == (b"", len(NAMED), hashlib.sha256(NAMED).digest(), NAMED)

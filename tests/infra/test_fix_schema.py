"""Schemas that tests hand on: nothing of an earlier test is left in one, and one that was changed is not handed on."""

from __future__ import annotations

import psycopg
import pytest

from infra.enrol import Enrolment, enrol
from tests.fix_schema import Made, Schemas


def connect(dsn: str, made: Made) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(dsn, options=f"-csearch_path={made.name}")


def test_it_comes_back_as_new_under_another_name(postgres_dsn: str) -> None:
    schemas = Schemas(postgres_dsn)
    first = schemas.take()
    seeds, name, oid = dict(first.seeds), first.name, first.oid
    with connect(postgres_dsn, first) as connection:
        key = enrol(connection, [Enrolment("car-1", "north", "Car 1", "car")])[0].device_key
        connection.execute("UPDATE signals SET unit = 'furlong'")
        connection.execute("DELETE FROM schema_migrations")
    schemas.give_back(first)
    second = schemas.take()
    assert second.oid == oid and second.name != name
    with connect(postgres_dsn, second) as connection:
        for table in ("devices", "assets", "tenants", "bindings", "outbox"):
            assert connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() == (0,), table
        assert connection.execute("SELECT count(*) FROM signals WHERE unit = 'furlong'").fetchone() == (0,)
        count = connection.execute("SELECT count(*) FROM schema_migrations").fetchone()
        assert count == (len(seeds["schema_migrations"]),)
        assert enrol(connection, [Enrolment("car-2", "north", "Car 2", "car")])[0].device_key == key
    schemas.give_back(second)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE tenants ADD COLUMN colour text",
        "GRANT SELECT ON api_keys TO PUBLIC",
        "ALTER TABLE alert_events DISABLE TRIGGER USER",
        "CREATE FUNCTION own_tenant_id(text) RETURNS int LANGUAGE sql AS 'SELECT 1'",
    ],
)
def test_what_was_changed_is_not_handed_on(schemas: Schemas, postgres_dsn: str, change: str) -> None:
    made = schemas.take()
    with connect(postgres_dsn, made) as connection:
        connection.execute(change.encode())
    schemas.give_back(made)
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT 1 FROM pg_namespace WHERE oid = %s", (made.oid,)).fetchone() is None


def test_what_somebody_still_holds_is_not_handed_on(schemas: Schemas, postgres_dsn: str) -> None:
    made = schemas.take()
    with psycopg.connect(postgres_dsn) as late:
        late.execute("SELECT pg_advisory_lock(1, %s)", (made.oid,))
        schemas.give_back(made)
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT 1 FROM pg_namespace WHERE oid = %s", (made.oid,)).fetchone() is None

"""Row-level security as the roles meet it: a tenant sees its own rows, no tenant sees none, the reader sees all."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from contracts.tables import ROLE_API, ROLE_READER, ROLE_SINK, TENANT_SETTING
from infra.enrol import Enrolment, enrol

VIEWS_OF_TENANTS = ("SELECT name FROM tenants", "SELECT name FROM assets", "SELECT device FROM devices")


@pytest.fixture
def two_tenants(role_dsn: Callable[[str], str]) -> Iterator[tuple[int, int]]:
    """Tenant ids of north (car-1) and south (wt-1)."""
    with psycopg.connect(role_dsn(ROLE_SINK)) as connection:
        made = enrol(
            connection, [Enrolment("car-1", "north", "north", "car"), Enrolment("wt-1", "south", "south", "turbine")]
        )
    yield made[0].tenant_id, made[1].tenant_id


def count(connection: psycopg.Connection[tuple[object, ...]], query: str) -> int:
    return len(connection.execute(query.encode()).fetchall())


def test_the_api_sees_the_tenant_of_its_transaction_only(
    role_dsn: Callable[[str], str], two_tenants: tuple[int, int]
) -> None:
    with psycopg.connect(role_dsn(ROLE_API)) as connection:
        assert [count(connection, query) for query in VIEWS_OF_TENANTS] == [0, 0, 0]
        for tenant_id in two_tenants:
            connection.execute("SELECT set_config(%s, %s, true)", (TENANT_SETTING, str(tenant_id)))
            assert [count(connection, query) for query in VIEWS_OF_TENANTS] == [1, 1, 1]
        connection.rollback()
        assert [count(connection, query) for query in VIEWS_OF_TENANTS] == [0, 0, 0]


def test_the_reader_sees_all_tenants(role_dsn: Callable[[str], str], two_tenants: tuple[int, int]) -> None:
    with psycopg.connect(role_dsn(ROLE_READER)) as connection:
        assert [count(connection, query) for query in VIEWS_OF_TENANTS] == [2, 2, 2]


def test_nobody_but_the_api_and_the_sink_reads_keys(role_dsn: Callable[[str], str]) -> None:
    with psycopg.connect(role_dsn(ROLE_READER)) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("SELECT * FROM api_keys")
    with psycopg.connect(role_dsn(ROLE_API)) as connection:
        assert count(connection, "SELECT * FROM api_keys") == 0

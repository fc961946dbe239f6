"""The migrations, applied to a real PostgreSQL, agree with ``contracts.tables``; rights are as narrow as they say."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict

import psycopg
import pytest
from psycopg import sql

from contracts.signals import catalogue
from contracts.status import AgentStatus
from contracts.tables import PACKET_TABLE, ROLE_API, ROLE_READER, TENANT_SETTING, VIEWS


def connect(dsn: str, schema: str) -> psycopg.Connection:
    connection = psycopg.connect(dsn, autocommit=True)
    connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(schema)))
    return connection


def test_views_have_the_promised_columns(postgres_dsn: str, schema: str) -> None:
    with connect(postgres_dsn, schema) as connection:
        for view, columns in VIEWS.items():
            cursor = connection.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(sql.Identifier(view)))
            assert cursor.description is not None
            have = [column.name for column in cursor.description]
            assert set(columns) <= set(have), view


def test_the_catalogue_is_in_the_store(postgres_dsn: str, schema: str) -> None:
    with connect(postgres_dsn, schema) as connection:
        rows = connection.execute("SELECT signal, path, unit, exponent FROM signals ORDER BY signal").fetchall()
    assert rows == [(s.number, s.path, s.unit, s.exponent) for s in sorted(catalogue(), key=lambda s: s.number)]


def seed(connection: psycopg.Connection) -> None:
    connection.execute("INSERT INTO tenants (name) VALUES ('acme'), ('other')")
    connection.execute("INSERT INTO devices (device, tenant_id) VALUES ('car-1', 1), ('car-2', 2)")
    connection.execute("INSERT INTO assets (tenant_id, name, kind) VALUES (1, 'one', 'car'), (2, 'two', 'car')")
    connection.execute("INSERT INTO bindings (device_key, asset_id, tenant_id) VALUES (1, 1, 1), (2, 2, 2)")
    connection.execute(
        "INSERT INTO latest_values"
        " SELECT k, 1, k, 1700000000123, 1, 1, 0, 12.5 * k, 0, now() FROM generate_series(1, 2) k"
    )


def test_rows_of_another_tenant_are_not_there(postgres_dsn: str, schema: str, role_dsn: Callable[[str], str]) -> None:
    with connect(postgres_dsn, schema) as connection:
        seed(connection)
    with connect(role_dsn(ROLE_API), schema) as api:
        assert api.execute("SELECT asset FROM latest").fetchall() == []
        api.execute("SELECT set_config(%s, '2', false)", [TENANT_SETTING])
        assert api.execute("SELECT asset, value FROM latest").fetchall() == [("two", 25.0)]
        assert api.execute("SELECT name FROM assets").fetchall() == [("two",)]
    with connect(role_dsn(ROLE_READER), schema) as reader:
        assert [row[0] for row in reader.execute("SELECT asset FROM latest ORDER BY 1")] == ["one", "two"]


def test_reader_and_api_cannot_write_or_see_secrets(
    postgres_dsn: str, schema: str, role_dsn: Callable[[str], str]
) -> None:
    with connect(postgres_dsn, schema) as connection:
        seed(connection)
        partition = connection.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass LIMIT 1", [PACKET_TABLE]
        ).fetchone()
    assert partition is not None
    refused = (
        "DELETE FROM latest_values",
        "SELECT * FROM api_keys",
        "SELECT * FROM outbox",
        f"SELECT * FROM {partition[0]}",
    )
    with connect(role_dsn(ROLE_READER), schema) as reader:
        for statement in refused:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                reader.execute(statement)


def test_a_device_measures_one_asset_at_a_time(postgres_dsn: str, schema: str) -> None:
    with connect(postgres_dsn, schema) as connection:
        seed(connection)
        with pytest.raises(psycopg.errors.ExclusionViolation):
            connection.execute(
                "INSERT INTO bindings VALUES (1, 2, 1, tstzrange('2026-01-01', '2026-02-01'))",
            )


def test_what_a_clone_sent_explains_no_loss(postgres_dsn: str, schema: str) -> None:
    """Sequence number 2 never came; a clone's packet of that number is set aside. The ledger still says: missing."""
    with connect(postgres_dsn, schema) as connection:
        seed(connection)
        connection.execute("INSERT INTO seen_ranges VALUES (1, 1, 77, 1, '{[1,2),[3,4)}', 2, 20, 0)")
        for offset, (seq, reason) in enumerate([(2, "identity_conflict"), (4, "undecodable")]):
            connection.execute(
                "INSERT INTO quarantined (topic_id, kafka_partition, kafka_offset, topic, tenant_id, device_key,"
                " boot_epoch, seq, reason, bytes) VALUES (gen_random_uuid(), 0, %s, 't', 1, 1, 1, %s, %s, '')",
                (offset, seq, reason),
            )
        status = AgentStatus("car-1", 1, 77, 0, 6, 50, 0, 0, 0, 0, 0, 0, 0, 0, 0, "0.1.0")
        connection.execute(
            "INSERT INTO agent_status VALUES (1, 1, 77, 1, 6, 0, now(), %s)", [json.dumps(asdict(status))]
        )
        row = connection.execute("SELECT missing::text, accepted_packets FROM ledger WHERE device = 'car-1'").fetchone()
    assert row == ("{[2,3),[5,6)}", 5)

"""Migrations, roles, partitions and enrolment on a real PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.book import decode_page
from contracts.errors import Rejected
from contracts.registry import decode_registration
from contracts.signals import catalogue
from contracts.tables import PARTITIONS_AHEAD_DAYS, ROLE_SINK
from infra.enrol import Enrolment, enrol, revoke
from infra.errors import MigrationRefused
from infra.migrate import Migration, create_roles, maintain, migrate, read_migrations

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
PACKET = """
INSERT INTO packet_rows (received_at, first_at, last_at, boot_epoch, seq, base_ms, device_key, tenant_id, samples, lane,
    clock_trusted, signals, offsets_ms, vals, sha256)
VALUES (%s, %s, %s, 1, 1, 0, 1, 1, 0, 0, true, '{}', '{}', '{}', '\\x00')
"""


def scalar(dsn: str, query: str) -> object:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]


def test_a_second_run_applies_nothing(postgres_dsn: str, schema: str) -> None:
    assert migrate(postgres_dsn, schema) == ()


def test_concurrent_starts_apply_each_file_once(postgres_dsn: str) -> None:
    name = f"t_{uuid.uuid4().hex[:12]}"
    with ThreadPoolExecutor(4) as pool:
        applied = list(pool.map(lambda _: migrate(postgres_dsn, name), range(4)))
    assert sorted(map(len, applied)) == [0, 0, 0, len(read_migrations())]


def test_a_changed_file_is_refused(postgres_dsn: str, schema: str) -> None:
    changed = [Migration(one.name, one.text + "-- more") for one in read_migrations()]
    with pytest.raises(MigrationRefused, match="was changed after it was applied"):
        migrate(postgres_dsn, schema, changed)


def test_a_database_of_a_newer_version_is_refused(postgres_dsn: str, schema: str) -> None:
    with pytest.raises(MigrationRefused, match="newer version"):
        migrate(postgres_dsn, schema, read_migrations()[:-1])


def test_a_failing_migration_leaves_nothing(postgres_dsn: str, schema: str, schema_dsn: str) -> None:
    broken = Migration("999_broken.sql", "CREATE TABLE half (a int); SELECT 1 / 0;")
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(postgres_dsn, schema, [*read_migrations(), broken])
    assert scalar(schema_dsn, "SELECT to_regclass('half') IS NULL") is True


def test_a_file_without_a_number_is_refused(tmp_path: Path) -> None:
    (tmp_path / "later.sql").write_text("SELECT 1")
    with pytest.raises(MigrationRefused, match="not named"):
        read_migrations(tmp_path)


def test_roles_can_be_made_again_and_at_once(postgres_dsn: str, stack: object) -> None:
    from infra.backends import Backends

    assert isinstance(stack, Backends)
    passwords = stack.postgres.passwords()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: create_roles(postgres_dsn, passwords), range(4)))


def test_the_catalogue_is_in_the_store(schema_dsn: str) -> None:
    assert scalar(schema_dsn, "SELECT count(*) FROM signals") == len(catalogue())


def test_partitions_are_created_ahead_and_dropped_by_retention(postgres_dsn: str, schema: str, schema_dsn: str) -> None:
    first = maintain(postgres_dsn, schema, NOW, retention_days=10_000)
    assert len(first.created) == PARTITIONS_AHEAD_DAYS + 2
    assert maintain(postgres_dsn, schema, NOW, retention_days=10_000).created == ()
    later = maintain(postgres_dsn, schema, NOW + timedelta(days=17), retention_days=14)
    assert [name[-8:] for name in later.dropped] == ["20260309", "20260310", "20260311", "20260312"]
    assert scalar(schema_dsn, "SELECT to_regclass('packet_rows_20260313') IS NOT NULL") is True


def test_packets_without_a_partition_are_kept_then_moved_then_deleted(
    postgres_dsn: str, schema: str, role_dsn: Callable[[str], str], schema_dsn: str
) -> None:
    old = NOW - timedelta(days=1)
    with psycopg.connect(role_dsn(ROLE_SINK)) as connection:
        connection.execute(PACKET.encode(), (old, old, old))
    assert scalar(schema_dsn, "SELECT count(*) FROM packet_rows_other") == 1
    maintain(postgres_dsn, schema, NOW, retention_days=10_000)
    assert scalar(schema_dsn, "SELECT count(*) FROM packet_rows_20260309") == 1
    assert scalar(schema_dsn, "SELECT count(*) FROM packet_rows_other") == 0
    with psycopg.connect(role_dsn(ROLE_SINK)) as connection:
        connection.execute(PACKET.encode(), (old - timedelta(days=90),) * 3)
    maintain(postgres_dsn, schema, NOW, retention_days=14)
    assert scalar(schema_dsn, "SELECT count(*) FROM packet_rows") == 1
    maintain(postgres_dsn, schema, NOW + timedelta(days=17), retention_days=14)
    assert scalar(schema_dsn, "SELECT count(*) FROM packet_rows") == 0
    assert scalar(schema_dsn, "SELECT ranges::text FROM expired_packets") == "{[1,2)}"


def test_enrolment_writes_rows_and_the_registry_message(role_dsn: Callable[[str], str]) -> None:
    with psycopg.connect(role_dsn(ROLE_SINK)) as connection:
        one, two = enrol(
            connection, [Enrolment("car-1", "north", "Car 1", "car"), Enrolment("wt-1", "south", "T1", "turbine")]
        )
        assert one.tenant_id != two.tenant_id
        statement = "SELECT topic, kafka_key, kafka_value FROM outbox WHERE topic {} 'book' ORDER BY outbox_id"
        messages = connection.execute(statement.format("<>").encode()).fetchall()
        pages = connection.execute(statement.format("=").encode()).fetchall()
    assert [(topic, key) for topic, key, _ in messages] == [("registry", "car-1"), ("registry", "wt-1")]
    assert [decode_registration(value) for _, _, value in messages] == [one, two]
    book = {key: decode_page(value) for _, key, value in pages}
    assert {page.table for page in book.values()} == {"tenants", "assets", "devices", "bindings"}
    assert book[f"devices/{two.device_key}"].rows[0]["device"] == "wt-1"
    assert len(book) == len(pages) == 8


def test_all_enrolments_or_none(role_dsn: Callable[[str], str]) -> None:
    with psycopg.connect(role_dsn(ROLE_SINK), autocommit=True) as connection:
        enrol(connection, [Enrolment("car-1", "north", "Car 1", "car")])
        with pytest.raises(Rejected, match="other_tenant"):
            enrol(
                connection, [Enrolment("car-2", "south", "Car 2", "car"), Enrolment("car-1", "south", "Car 1", "car")]
            )
        assert connection.execute("SELECT array_agg(device) FROM devices").fetchone() == (["car-1"],)


def test_a_device_moves_from_car_to_car_on_a_date(role_dsn: Callable[[str], str]) -> None:
    with psycopg.connect(role_dsn(ROLE_SINK), autocommit=True) as connection:
        enrol(connection, [Enrolment("dongle", "north", "Car 1", "car")])
        enrol(connection, [Enrolment("dongle", "north", "Car 1", "car")])
        with pytest.raises(Rejected, match="bad_since"):
            enrol(connection, [Enrolment("dongle", "north", "Car 2", "car")])
        enrol(connection, [Enrolment("dongle", "north", "Car 2", "car", since=NOW)])
        query = "SELECT name FROM bindings JOIN assets USING (asset_id) WHERE valid @> %s::timestamptz"
        held = [connection.execute(query, (NOW + timedelta(days=days),)).fetchall() for days in (-1, 0, 1)]
    assert held == [[("Car 1",)], [("Car 2",)], [("Car 2",)]]


def test_a_revoked_device_leaves_the_registry_and_can_come_back(role_dsn: Callable[[str], str]) -> None:
    with psycopg.connect(role_dsn(ROLE_SINK), autocommit=True) as connection:
        first = enrol(connection, [Enrolment("car-1", "north", "Car 1", "car")])
        revoke(connection, "car-1")
        tombstone = "SELECT kafka_value FROM outbox WHERE topic = 'registry' ORDER BY outbox_id DESC LIMIT 1"
        assert connection.execute(tombstone.encode()).fetchone() == (None,)
        assert enrol(connection, [Enrolment("car-1", "north", "Car 1", "car")]) == first
        with pytest.raises(Rejected, match="unknown_device"):
            revoke(connection, "car-9")


@given(name=st.text(max_size=70), kind=st.text(max_size=8))
def test_bad_names_are_refused_before_the_store_is_asked(name: str, kind: str) -> None:
    from contracts.names import NAME_PATTERN
    from infra.enrol import _check

    sound = bool(NAME_PATTERN.fullmatch(name)) and kind in ("device", "simulated", "recording")
    try:
        _check(Enrolment(name, "north", "Car", "car", kind))
    except Rejected:
        assert not sound
    else:
        assert sound

"""A tenant's own SQL login sees its tenant's rows, whatever it sets, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from contracts.tables import ROLE_API, ROLE_READER, ROLE_SINK, ROLE_TENANT, TENANT_SETTING
from infra.enrol import Enrolment, enrol
from infra.errors import SetupError
from infra.migrate import Migration, migrate, read_migrations
from infra.tenants import drop_sql_login, make_sql_login

FLEET_TABLES = (
    "ingest_offsets", "archive_offsets", "archive_files", "schema_migrations", "sql_logins", "api_keys", "outbox",
)  # fmt: skip
OWN_VIEWS = (
    "readings", "windows", "packets", "latest", "ledger", "drops", "gaps", "late", "quarantine", "dead_letters",
)  # fmt: skip
LOOSE = """
CREATE TABLE later_table (tenant_id integer, secret text);
ALTER TABLE later_table ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON later_table
    USING (tenant_id = nullif(current_setting('fleetstream.tenant_id', true), '')::integer);
GRANT SELECT ON later_table TO fleetstream_tenant;
INSERT INTO later_table VALUES (1, 'north'), (2, 'south');
"""
Connection = psycopg.Connection[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Tenants:
    """Two tenants with one device each; ``login`` connects as north's own login."""

    ids: dict[str, int]
    login: str
    dsn: str

    def connect(self) -> Connection:
        return psycopg.connect(self.dsn, autocommit=True)


@pytest.fixture
def north(postgres_dsn: str, schema: str, role_dsn: Callable[[str], str]) -> Iterator[Tenants]:
    with psycopg.connect(role_dsn(ROLE_SINK)) as connection:
        made = enrol(
            connection, [Enrolment("car-1", "north", "Car 1", "car"), Enrolment("wt-1", "south", "T 1", "turbine")]
        )
        for one in made:
            connection.execute(
                "INSERT INTO latest_values VALUES (%s, 1, %s, 1700000000000, 1, 1, 0, 5, 0, now())",
                (one.device_key, one.tenant_id),
            )
            connection.execute(
                "INSERT INTO seen_ranges VALUES (%s, 1, 7, %s, '{[1,2)}', 1, 1, 0)", (one.device_key, one.tenant_id)
            )
    login = make_sql_login(postgres_dsn, schema, "north")
    dsn = make_conninfo(postgres_dsn, user=login.login, password=login.password)
    yield Tenants({one.tenant: one.tenant_id for one in made}, login.login, dsn)
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(login.login)))


def tenants_seen(connection: Connection) -> set[object]:
    """Every tenant whose rows any stable view or table of facts shows."""
    seen: set[object] = set()
    for statement in ("SELECT name FROM tenants", "SELECT tenant FROM ledger", "SELECT tenant FROM latest"):
        seen |= {row[0] for row in connection.execute(statement.encode())}
    seen |= {
        row[0]
        for row in connection.execute("SELECT CASE device WHEN 'car-1' THEN 'north' ELSE device END FROM devices")
    }
    return seen


def test_it_sees_its_own_tenant_at_once(north: Tenants) -> None:
    with north.connect() as connection:
        assert tenants_seen(connection) == {"north"}
        for view in OWN_VIEWS:
            connection.execute(sql.SQL("SELECT * FROM {} LIMIT 1").format(sql.Identifier(view)))


def test_nothing_it_sets_shows_more(north: Tenants) -> None:
    south = str(north.ids["south"])
    with north.connect() as connection:
        for how in ("SET {} = '{}'", "SET SESSION {} = '{}'", "SELECT set_config('{}', '{}', false)"):
            connection.execute(how.format(TENANT_SETTING, south).encode())
            assert tenants_seen(connection) == {"north"}
        with connection.transaction():
            connection.execute(f"SET LOCAL {TENANT_SETTING} = '{south}'".encode())
            assert tenants_seen(connection) == {"north"}
        connection.execute("SET row_security = off")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM devices")


@pytest.mark.parametrize("role", [ROLE_TENANT, ROLE_API, ROLE_READER, ROLE_SINK, "postgres"])
def test_it_becomes_nobody_else(north: Tenants, role: str) -> None:
    with north.connect() as connection:
        for how in ("SET ROLE {}", "SET SESSION AUTHORIZATION {}"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(sql.SQL(how).format(sql.Identifier(role)))
        connection.execute("RESET ROLE")
        assert tenants_seen(connection) == {"north"}


def test_even_as_the_group_itself_it_stays_bound(north: Tenants, postgres_dsn: str) -> None:
    """Should somebody grant it SET on its group: session_user still says who it is."""
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("GRANT fleetstream_tenant TO {} WITH SET TRUE").format(sql.Identifier(north.login)))
    with north.connect() as connection:
        connection.execute("SET ROLE fleetstream_tenant")
        connection.execute(f"SET {TENANT_SETTING} = '{north.ids['south']}'".encode())
        assert tenants_seen(connection) == {"north"}


def test_it_reads_nothing_about_the_fleet_and_writes_nothing(north: Tenants) -> None:
    with north.connect() as connection:
        for table in FLEET_TABLES:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table)))
        connection.execute("SET default_transaction_read_only = off")
        for statement in (
            "DELETE FROM devices", "UPDATE tenants SET name = 'x'", "TRUNCATE latest_values",
            "CREATE TABLE mine (a int)", "INSERT INTO assets (tenant_id, name, kind) VALUES (1, 'x', 'car')",
            "UPDATE sql_logins SET tenant_id = 2", "ALTER POLICY own_tenant ON devices USING (true)",
        ):  # fmt: skip
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())


def test_it_holds_no_lock_that_others_need_and_keeps_no_objects(north: Tenants, role_dsn: Callable[[str], str]) -> None:
    with north.connect() as connection:
        connection.execute("SET default_transaction_read_only = off")
        for statement in (
            "SELECT pg_advisory_lock(7310002, 1)",
            "SELECT pg_try_advisory_xact_lock(1)",
            "SELECT lo_creat(-1)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())
    with psycopg.connect(role_dsn(ROLE_SINK)) as connection:
        assert connection.execute("SELECT pg_try_advisory_lock(7310002, 1)").fetchone() == (True,)


def test_a_member_without_a_tenant_sees_nothing(north: Tenants, postgres_dsn: str, schema: str) -> None:
    with psycopg.connect(postgres_dsn, options=f"-csearch_path={schema}", autocommit=True) as connection:
        connection.execute("DELETE FROM sql_logins")
    with north.connect() as connection:
        connection.execute(f"SET {TENANT_SETTING} = '{north.ids['south']}'".encode())
        assert tenants_seen(connection) == set()


def test_a_policy_of_a_later_migration_is_bound_too(north: Tenants, postgres_dsn: str, schema: str) -> None:
    migrate(postgres_dsn, schema, [*read_migrations(), Migration("999_later.sql", LOOSE)])
    with north.connect() as connection:
        connection.execute(f"SET {TENANT_SETTING} = '{north.ids['south']}'".encode())
        assert connection.execute("SELECT secret FROM later_table").fetchall() == [("north",)]


def test_every_table_it_may_read_is_bound_to_the_login(schema_dsn: str) -> None:
    """A law for every migration: row-level security on, and no policy for tenants that asks a setting."""
    with psycopg.connect(schema_dsn) as connection:
        readable = connection.execute(
            "SELECT c.relname, c.relrowsecurity FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace"
            " AND c.relkind IN ('r', 'p') AND has_any_column_privilege('fleetstream_tenant', c.oid, 'SELECT')"
        ).fetchall()
        assert len(readable) > 10
        open_to_all = {name for name, secured in readable if not secured}
        assert open_to_all <= {"signals", "marks", "finality"}, "catalogues, and one moment that is the same for all"
        loose = connection.execute(
            "SELECT tablename, policyname FROM pg_policies WHERE schemaname = current_schema()"
            " AND (roles = '{public}' OR 'fleetstream_tenant' = ANY(roles))"
            " AND (coalesce(qual, '') LIKE '%current_setting%' OR coalesce(qual, '') = 'true')"
        ).fetchall()
        assert {name for name, _ in loose} & {name for name, _ in readable} == set()
        fleet = {row[0] for row in readable} & set(FLEET_TABLES)
        assert not fleet


def test_a_new_password_ends_the_old_one_and_revoking_ends_the_login(
    north: Tenants, postgres_dsn: str, schema: str
) -> None:
    again = make_sql_login(postgres_dsn, schema, "north")
    assert again.login == north.login
    with pytest.raises(psycopg.OperationalError):
        north.connect()
    psycopg.connect(make_conninfo(north.dsn, password=again.password)).close()
    assert drop_sql_login(postgres_dsn, schema, "north") == north.login
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(make_conninfo(north.dsn, password=again.password))
    for tenant in ("north", "nobody"):
        with pytest.raises(SetupError):
            drop_sql_login(postgres_dsn, schema, tenant)

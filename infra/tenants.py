"""A tenant's own SQL login: made, given a new password, taken away.

The login's name is neutral (``SCHEMA_sql_ID``) because every login of a cluster can read the names of all others. Which
tenant it sees follows from who logged in (``own_tenant_id()`` in the migrations), so nothing that it may SET matters.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import psycopg
from psycopg import sql

from contracts.locks import SIDE_DOORS_LOCK
from contracts.names import check_name
from contracts.tables import ROLE_TENANT, ROLES
from infra.errors import SetupError

CONNECTIONS = 5
"""Open sessions one tenant may have at once."""
STATEMENT_TIMEOUT = "60s"
WORK_MEMORY = "16MB"

Connection = psycopg.Connection[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class SqlLogin:
    """A login with its password, which is stored nowhere."""

    login: str
    password: str
    tenant: str


def make_sql_login(dsn: str, schema: str, tenant: str) -> SqlLogin:
    """Create the tenant's login or give it a new password; needs a superuser. Raises SetupError, Rejected."""
    with psycopg.connect(dsn) as connection:
        tenant_id = _tenant_id(connection, schema, tenant)
        made = SqlLogin(f"{schema}_sql_{tenant_id}", secrets.token_urlsafe(24), tenant)
        login = sql.Identifier(made.login)
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (made.login,)).fetchone():
            connection.execute(sql.SQL("CREATE ROLE {}").format(login))
        connection.execute(
            sql.SQL(
                "ALTER ROLE {} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS INHERIT"
                " CONNECTION LIMIT {} PASSWORD {}"
            ).format(login, sql.Literal(CONNECTIONS), sql.Literal(made.password))
        )
        for option, value in (
            ("search_path", schema), ("default_transaction_read_only", "on"),
            ("statement_timeout", STATEMENT_TIMEOUT), ("work_mem", WORK_MEMORY), ("timezone", "UTC"),
        ):  # fmt: skip
            connection.execute(
                sql.SQL("ALTER ROLE {} SET {} = {}").format(login, sql.Identifier(option), sql.Literal(value))
            )
        connection.execute(
            sql.SQL("GRANT {} TO {} WITH INHERIT TRUE, SET FALSE, ADMIN FALSE").format(
                sql.Identifier(ROLE_TENANT), login
            )
        )
        _close_side_doors(connection)
        connection.execute(
            "INSERT INTO sql_logins (login, tenant_id) VALUES (%s, %s) ON CONFLICT (login) DO NOTHING",
            (made.login, tenant_id),
        )
    return made


def drop_sql_login(dsn: str, schema: str, tenant: str) -> str:
    """Take the login away and end its sessions; its name. Raises SetupError when there is none."""
    with psycopg.connect(dsn) as connection:
        tenant_id = _tenant_id(connection, schema, tenant)
        row = connection.execute("DELETE FROM sql_logins WHERE tenant_id = %s RETURNING login", (tenant_id,)).fetchone()
        if row is None:
            raise SetupError(f"tenant {tenant} has no SQL login; nothing was changed")
        login = str(row[0])
        connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(login)))
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (login,))
    return login


def _close_side_doors(connection: Connection) -> None:
    """Take from everybody but our roles what needs no table: advisory locks (a tenant could hold the relay's) and large
    objects (a tenant could fill the disk). For the whole database; done once."""
    connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", (SIDE_DOORS_LOCK,))
    doors = connection.execute(
        "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace"
        " AND (proname LIKE 'pg%advisory%' OR proname LIKE 'lo\\_%' OR proname IN ('lowrite', 'loread'))"
        " AND has_function_privilege('public', oid, 'EXECUTE')"
    ).fetchall()
    ours = sql.SQL(", ").join(sql.Identifier(role) for role in ROLES if role != ROLE_TENANT)
    for (door,) in doors:
        function = sql.SQL(str(door))  # a name from the catalogue, quoted by it
        connection.execute(sql.SQL("REVOKE EXECUTE ON FUNCTION {} FROM PUBLIC").format(function))
        connection.execute(sql.SQL("GRANT EXECUTE ON FUNCTION {} TO {}").format(function, ours))


def _tenant_id(connection: Connection, schema: str, tenant: str) -> int:
    check_name("tenant", tenant)
    connection.execute("SELECT set_config('search_path', %s, false)", (sql.Identifier(schema).as_string(),))
    row = connection.execute("SELECT tenant_id FROM tenants WHERE name = %s", (tenant,)).fetchone()
    if row is None:
        raise SetupError(f"There is no tenant {tenant}; `fleetstream device enrol` makes one with its first device")
    return int(str(row[0]))

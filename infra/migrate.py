"""Bring a schema to this version: roles, migrations in order, the signal catalogue, partitions.

Each file of ``infra/migrations`` runs in one transaction of its own, once; its SHA-256 is recorded and an
applied file that changed later is refused. An advisory lock per schema makes concurrent starts wait.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import psycopg
from psycopg import sql

from contracts.locks import MIGRATE_LOCK
from contracts.signals import Signal, catalogue
from contracts.tables import (
    PACKET_RETENTION_DAYS,
    PACKET_TABLE,
    PARTITIONS_AHEAD_DAYS,
    ROLE_EVIDENCE,
    ROLE_LINKAGE,
    ROLE_SINK,
    ROLE_TENANT,
    ROLES,
)
from infra.errors import MigrationRefused

FOLDER = Path(__file__).parent / "migrations"
_FILE_NAME = re.compile(r"\d{3}_[a-z0-9_]+\.sql")
_SIGNAL_COLUMNS = (
    "signal", "path", "unit", "datatype", "exponent", "minimum", "maximum", "kind", "axis", "retention", "grace_s",
    "source", "text", "retired", "lateness_s",
)  # fmt: skip
log = logging.getLogger(__name__)

Connection = psycopg.Connection[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    name: str
    text: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def read_migrations(folder: Path = FOLDER) -> tuple[Migration, ...]:
    """The files in order. Raises MigrationRefused for a name that has no place in it."""
    files = sorted(folder.glob("*.sql"))
    for file in files:
        if not _FILE_NAME.fullmatch(file.name):
            raise MigrationRefused(f"{file.name} is not named NNN_name.sql; nothing was applied")
    return tuple(Migration(file.name, file.read_text(encoding="utf-8")) for file in files)


def create_roles(dsn: str, passwords: Mapping[str, str]) -> None:
    """Create the cluster's roles and set their passwords; needs a superuser. Safe to repeat and to race."""
    with psycopg.connect(dsn) as connection:
        _lock(connection, "roles")
        found = connection.execute("SELECT rolname FROM pg_roles WHERE rolname = ANY(%s)", (list(ROLES),)).fetchall()
        there = {row[0] for row in found}
        for role in ROLES:
            if role not in there:
                connection.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(role)))
            connection.execute(_role_options(role, passwords.get(role)))


def migrate(dsn: str, schema: str, migrations: Sequence[Migration] | None = None) -> tuple[str, ...]:
    """Apply what is missing to ``schema``; return the names applied. Raises MigrationRefused."""
    wanted = read_migrations() if migrations is None else migrations
    with psycopg.connect(dsn, autocommit=True) as connection:
        _lock(connection, schema)
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
        connection.execute("SELECT set_config('search_path', %s, false)", (sql.Identifier(schema).as_string(),))
        connection.execute(
            "CREATE TABLE IF NOT EXISTS schema_migrations"
            " (name text PRIMARY KEY, sha256 text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
        )
        done = {
            str(name): str(digest) for name, digest in connection.execute("SELECT name, sha256 FROM schema_migrations")
        }
        _refuse_changed(wanted, done)
        fresh = [migration for migration in wanted if migration.name not in done]
        for migration in fresh:
            _apply(connection, migration)
        _write_catalogue(connection)
        _bind_policies(connection)
    return tuple(migration.name for migration in fresh)


@dataclass(frozen=True, slots=True)
class Maintenance:
    """What one round of partition keeping did."""

    created: tuple[str, ...]
    dropped: tuple[str, ...]


def maintain(
    dsn: str, schema: str, now: datetime | None = None, retention_days: int = PACKET_RETENTION_DAYS
) -> Maintenance:
    """Create the coming days' packet partitions and drop those past retention.

    Packets whose receive day has no partition of its own (a replay of older log) lie in ``…_other``; they
    are moved when their day gets one and deleted by the same retention.
    """
    today = (now or datetime.now(UTC)).date()
    with psycopg.connect(dsn, autocommit=True) as connection:
        _lock(connection, schema)
        connection.execute("SELECT set_config('search_path', %s, false)", (sql.Identifier(schema).as_string(),))
        connection.execute("SET lock_timeout = '10s'")
        days = _partition_days(connection)
        wanted = [today + timedelta(days=ahead) for ahead in range(-1, PARTITIONS_AHEAD_DAYS + 1)]
        created = [_create_partition(connection, day) for day in wanted if day not in days]
        cutoff = today - timedelta(days=retention_days)
        dropped = [_drop_partition(connection, day) for day in sorted(days) if day < cutoff]
        with connection.transaction():
            other = f"{PACKET_TABLE}_other"
            connection.execute(sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(sql.Identifier(other)))
            connection.execute("SELECT note_expired(%s::regclass, %s)", (other, _start(cutoff)))
            connection.execute(
                sql.SQL("DELETE FROM {} WHERE received_at < %s").format(sql.Identifier(other)), (_start(cutoff),)
            )
    return Maintenance(tuple(created), tuple(dropped))


def _lock(connection: Connection, what: str) -> None:
    key = int.from_bytes(hashlib.sha256(what.encode()).digest()[:4], "big", signed=True)
    hold = "pg_advisory_lock" if connection.autocommit else "pg_advisory_xact_lock"
    connection.execute(f"SELECT {hold}(%s, %s)", (MIGRATE_LOCK, key))


def _role_options(role: str, password: str | None) -> sql.Composed:
    if role in (ROLE_TENANT, ROLE_LINKAGE):
        return sql.SQL("ALTER ROLE {} NOLOGIN").format(sql.Identifier(role))
    options = sql.SQL("ALTER ROLE {} LOGIN").format(sql.Identifier(role))
    if role in (ROLE_SINK, ROLE_EVIDENCE):
        options += sql.SQL(" BYPASSRLS")
    return options + sql.SQL(" PASSWORD {}").format(sql.Literal(password)) if password else options + sql.SQL("")


def _refuse_changed(wanted: Sequence[Migration], done: Mapping[str, str]) -> None:
    known = {migration.name: migration.sha256 for migration in wanted}
    for name, digest in done.items():
        if name not in known:
            raise MigrationRefused(f"{name} was applied by a newer version; nothing was changed: install that version")
        if known[name] != digest:
            raise MigrationRefused(f"{name} was changed after it was applied; restore the file and add a new migration")


def _apply(connection: Connection, migration: Migration) -> None:
    with connection.transaction():
        connection.execute(migration.text.encode())
        connection.execute(
            "INSERT INTO schema_migrations (name, sha256) VALUES (%s, %s)", (migration.name, migration.sha256)
        )
    log.info("event=migration_applied name=%s", migration.name)


def _write_catalogue(connection: Connection) -> None:
    columns = sql.SQL(", ").join(map(sql.Identifier, _SIGNAL_COLUMNS))
    values = sql.SQL(", ").join(sql.Placeholder() * len(_SIGNAL_COLUMNS))
    news = sql.SQL(", ").join(
        sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in _SIGNAL_COLUMNS[1:]
    )
    statement = sql.SQL("INSERT INTO signals ({}) VALUES ({}) ON CONFLICT (signal) DO UPDATE SET {}").format(
        columns, values, news
    )
    with connection.transaction(), connection.cursor() as cursor:
        cursor.executemany(statement, [_signal_row(signal) for signal in catalogue()])


def _bind_policies(connection: Connection) -> None:
    """Let every ``own_tenant`` policy ask ``own_tenant_id()``, also one of a migration that still asks the setting:
    a tenant's own login may SET anything. Tables that are bound already are not touched (no lock, no wait)."""
    loose = connection.execute(
        "SELECT tablename FROM pg_policies WHERE schemaname = current_schema() AND policyname = 'own_tenant'"
        " AND qual LIKE '%current_setting%' AND with_check IS NULL"
        " AND to_regprocedure('own_tenant_id()') IS NOT NULL"
    ).fetchall()
    for (table,) in loose:
        connection.execute(
            sql.SQL("ALTER POLICY own_tenant ON {} USING (tenant_id = (SELECT own_tenant_id()))").format(
                sql.Identifier(str(table))
            )
        )


def _signal_row(signal: Signal) -> tuple[object, ...]:
    return (
        signal.number, signal.path, signal.unit, signal.datatype, signal.exponent, signal.minimum, signal.maximum,
        signal.kind, signal.axis, int(signal.retention), signal.grace_s, signal.source, signal.text, signal.retired,
        signal.lateness_s,
    )  # fmt: skip


def _partition_days(connection: Connection) -> set[date]:
    """Days that have a partition; makes the partition for all others when it is missing."""
    other = sql.Identifier(f"{PACKET_TABLE}_other")
    connection.execute(
        sql.SQL("CREATE TABLE IF NOT EXISTS {} PARTITION OF {} DEFAULT").format(other, sql.Identifier(PACKET_TABLE))
    )
    rows = connection.execute(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass(%s)",
        (PACKET_TABLE,),
    ).fetchall()
    names = [str(row[0]).removeprefix(f"{PACKET_TABLE}_") for row in rows]
    return {datetime.strptime(name, "%Y%m%d").replace(tzinfo=UTC).date() for name in names if name.isdigit()}


def _create_partition(connection: Connection, day: date) -> str:
    name = f"{PACKET_TABLE}_{day:%Y%m%d}"
    table, parent, other = (sql.Identifier(one) for one in (name, PACKET_TABLE, f"{PACKET_TABLE}_other"))
    first, last = _start(day), _start(day + timedelta(days=1))
    with connection.transaction():
        connection.execute(sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(parent))
        connection.execute(sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL)").format(table, parent))
        connection.execute(
            sql.SQL(
                "WITH moved AS (DELETE FROM {} WHERE received_at >= {} AND received_at < {} RETURNING *)"
                " INSERT INTO {} SELECT * FROM moved"
            ).format(other, first, last, table)
        )
        connection.execute(
            sql.SQL("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})").format(
                parent, table, first, last
            )
        )
    return name


def _drop_partition(connection: Connection, day: date) -> str:
    """What the ledger calls stored stays stored: the identities are noted before their rows go."""
    name = f"{PACKET_TABLE}_{day:%Y%m%d}"
    with connection.transaction():
        connection.execute(sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(sql.Identifier(name)))
        connection.execute("SELECT note_expired(%s::regclass, 'infinity')", (name,))
        connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(name)))
    return name


def _start(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)

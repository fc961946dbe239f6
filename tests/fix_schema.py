"""Schemas for tests: made once, emptied after each test and handed on under another name.

Making one costs a second of migrations, emptying one a twentieth of it, and hundreds of tests want one. What a test
changed in the schema itself (tables, rights, functions, policies) is noticed by a fingerprint, and such a schema is
dropped instead; so is one that a connection of an earlier test still holds, and one made on another day, since
partitions are made by the day. The name is new each time, or connections that are kept by their address would meet
again.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import psycopg
from psycopg import sql

from infra.migrate import maintain, migrate

LOCK_TIMEOUT_MS = 180_000
"""A test that left a transaction open fails by this instead of hanging."""
TABLES = """
SELECT relname FROM pg_class WHERE relnamespace = %s AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY 1"""
COLUMNS = """
SELECT attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
WHERE relnamespace = %s AND relname = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum"""
SEQUENCES = "SELECT sequencename, start_value, last_value FROM pg_sequences WHERE schemaname = %s"
HELD = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND pid <> pg_backend_pid()"
FINGERPRINT = """
WITH mine AS (SELECT * FROM pg_class WHERE relnamespace = %(oid)s), parts (part) AS (
    SELECT ROW(relname, relkind, relowner, relacl, relrowsecurity, relforcerowsecurity, reloptions)::text FROM mine
    UNION ALL SELECT ROW(c.relname, attname, atttypid, attnotnull, atthasdef, attgenerated, attacl)::text
        FROM pg_attribute JOIN mine c ON c.oid = attrelid WHERE attnum > 0
    UNION ALL SELECT ROW(proname, md5(prosrc), proowner, proacl, proconfig, prosecdef)::text
        FROM pg_proc WHERE pronamespace = %(oid)s
    UNION ALL SELECT ROW(c.relname, polname, polcmd, polroles, pg_get_expr(polqual, polrelid))::text
        FROM pg_policy JOIN mine c ON c.oid = polrelid
    UNION ALL SELECT ROW(c.relname, CASE WHEN tgisinternal THEN '' ELSE tgname END, tgenabled)::text
        FROM pg_trigger JOIN mine c ON c.oid = tgrelid
    UNION ALL SELECT ROW(conname, contype, convalidated)::text FROM pg_constraint WHERE connamespace = %(oid)s
    UNION ALL SELECT nspacl::text FROM pg_namespace WHERE oid = %(oid)s)
SELECT md5(string_agg(part, E'\\n' ORDER BY part)) FROM parts"""

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(slots=True)
class Made:
    """A schema and what it looked like when it was new."""

    name: str
    oid: int
    day: date
    fingerprint: str
    seeds: dict[str, list[bytes]]
    """Rows of the tables that have some from the beginning, as COPY writes them."""
    sequences: dict[str, int | None]


class Schemas:
    """Those that wait for the next test."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._idle: list[Made] = []

    def take(self) -> Made:
        """An empty schema with every migration, the catalogue and today's partitions."""
        name = f"t_{uuid.uuid4().hex[:12]}"
        while self._idle:
            one = self._idle.pop()
            if one.day == datetime.now(UTC).date():
                with self._connect() as connection:
                    names = sql.Identifier(one.name), sql.Identifier(name)
                    connection.execute(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(*names))
                one.name = name
                return one
            self._drop(one.name)
        return self._make(name)

    def give_back(self, one: Made) -> None:
        """Empty it for the next test, or drop it."""
        with self._connect(one.name) as connection:
            there = connection.execute("SELECT oid FROM pg_namespace WHERE nspname = %s", (one.name,)).fetchone()
            if (
                there == (one.oid,)
                and _fingerprint(connection, one.oid) == one.fingerprint
                and connection.execute(HELD, (one.oid,)).fetchone() is None
            ):
                _empty(connection, one)
                self._idle.append(one)
                return
        self._drop(one.name)

    def _make(self, name: str) -> Made:
        day = datetime.now(UTC).date()
        migrate(self._dsn, name)
        maintain(self._dsn, name)
        with self._connect(name) as connection:
            row = connection.execute("SELECT oid FROM pg_namespace WHERE nspname = %s", (name,)).fetchone()
            assert row is not None
            oid = int(row[0])
            tables = [table for (table,) in connection.execute(TABLES, (oid,)).fetchall()]
            seeds = {table: rows for table in tables if (rows := _rows(connection, oid, table))}
            sequences = {seq: last for seq, _, last in connection.execute(SEQUENCES, (name,)).fetchall()}
            return Made(name, oid, day, _fingerprint(connection, oid), seeds, sequences)

    def _connect(self, schema: str = "public") -> Connection:
        options = f"-csearch_path={schema} -clock_timeout={LOCK_TIMEOUT_MS}"
        return psycopg.connect(self._dsn, options=options)

    def _drop(self, name: str) -> None:
        with self._connect() as connection:
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(name)))


def _fingerprint(connection: Connection, oid: int) -> str:
    row = connection.execute(FINGERPRINT, {"oid": oid}).fetchone()
    assert row is not None
    return str(row[0])


def _empty(connection: Connection, one: Made) -> None:
    connection.execute("SET LOCAL session_replication_role = replica")  # no trigger has a say in this
    tables = [table for (table,) in connection.execute(TABLES, (one.oid,)).fetchall()]
    asked = [
        sql.SQL("SELECT {} WHERE EXISTS (SELECT FROM {})").format(sql.Literal(table), sql.Identifier(table))
        for table in tables if table not in one.seeds
    ]  # fmt: skip
    used = [sql.Identifier(table) for (table,) in connection.execute(sql.SQL(" UNION ALL ").join(asked)).fetchall()]
    if used:
        connection.execute(sql.SQL("TRUNCATE {} CASCADE").format(sql.SQL(", ").join(used)))
    for table, rows in one.seeds.items():
        if _rows(connection, one.oid, table) != rows:
            connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
            with connection.cursor().copy(_copy(connection, one.oid, table, "FROM STDIN")) as copy:
                for row in rows:
                    copy.write(row)
    for name, start, last in connection.execute(SEQUENCES, (one.name,)).fetchall():
        if last != (was := one.sequences[name]):
            connection.execute(
                "SELECT setval(quote_ident(%s)::regclass, %s, %s)", (name, was or start, was is not None)
            )


def _rows(connection: Connection, oid: int, table: str) -> list[bytes]:
    """The table's rows as lines of text, in an order of their own."""
    with connection.cursor().copy(_copy(connection, oid, table, "TO STDOUT")) as copy:
        return sorted(bytes(row) for row in copy)


def _copy(connection: Connection, oid: int, table: str, direction: str) -> sql.Composed:
    columns = [sql.Identifier(name) for (name,) in connection.execute(COLUMNS, (oid, table)).fetchall()]
    select = sql.SQL("(SELECT {} FROM {})").format(sql.SQL(", ").join(columns), sql.Identifier(table))
    target = sql.SQL("{} ({})").format(sql.Identifier(table), sql.SQL(", ").join(columns))
    return sql.SQL("COPY {} {}").format(select if direction == "TO STDOUT" else target, sql.SQL(direction))

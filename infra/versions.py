"""Versions of the derived tables: a schema beside the live one, made, filled, carried along and dropped.

What ingest derives from the log is rebuilt (``REBUILT``); everything else in the store (tenants, devices, keys, what
was published, other rooms' results) has one truth, the live schema, and is carried over from there as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from contracts.locks import MIGRATE_LOCK
from contracts.packet import DropReason
from contracts.tables import PACKET_TABLE
from infra.errors import RebuildRefused
from infra.migrate import maintain, migrate

REBUILT: Final = (
    "ingest_offsets", "seen_ranges", PACKET_TABLE, "window_aggregates", "latest_values", "agent_gaps", "agent_status",
    "quarantined", "refused", "too_late_readings", "packet_blocks", "reading_blocks", "day_strips",
)  # fmt: skip
"""Tables that the ingest transaction writes, and what compaction and roll-ups make of its rows."""

FORGOTTEN: Final = """
INSERT INTO {name}.agent_gaps ({columns}) SELECT {columns} FROM {live}.agent_gaps WHERE reason = {reason}
ON CONFLICT DO NOTHING"""
"""The one kind of gap that is no record of the log: the clerk's, from a device's answer to `resync`. Where the log has
the device's own report of the same packets, that one stands, as in the live tables."""

OWN: Final = ("schema_migrations", "rebuild_notes", "packet_feed", "feed_horizons")
"""Tables that tell of the schema itself."""

FIRST: Final = (
    "tenants", "assets", "devices", "bindings", "epoch_owners", "asset_groups", "asset_group_members",
)  # fmt: skip
"""Carried before every filling: who is registered, and whose a contested boot epoch was decided to be."""

NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")

KEEP_ALL_DAYS: Final = 100_000
"""A retention that drops nothing: what is old is dropped when a version is filled."""

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Version:
    """One rebuilt schema and what it was made from."""

    name: str
    source: str
    since: datetime | None
    filled: bool


def check_name(name: str, live: str) -> None:
    """Raises RebuildRefused for a name that is no plain identifier, or is the live schema's."""
    if not NAME.fullmatch(name) or name.startswith("pg_") or name in (live, "public", "information_schema"):
        raise RebuildRefused(
            f"{name!r} cannot be the name of a rebuild; nothing was changed: take lower-case letters, digits and _, "
            f"at most 40, and not {live!r}"
        )


@contextmanager
def one_at_a_time(dsn: str, name: str) -> Iterator[None]:
    """Only one rebuild, compare, swap or drop works on a version. Raises RebuildRefused when another one does."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        got = connection.execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", (MIGRATE_LOCK, f"version {name}"))
        if got.fetchone() != (True,):
            raise RebuildRefused(f"another command works on {name} just now; nothing was changed: wait for it")
        try:
            yield
        finally:  # a busy server ends a session some time after it was closed, and the next command would be refused
            connection.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", (MIGRATE_LOCK, f"version {name}"))


def open_version(dsn: str, live: str, name: str, source: str, since: datetime | None) -> Version:
    """Make the version, or find the one that an interrupted rebuild left. Raises RebuildRefused."""
    check_name(name, live)
    found = find_version(dsn, name)
    if found is not None:
        if (found.source, found.since) != (source, since):
            began = f"--from {found.source}" + (f" --since {found.since:%Y-%m-%dT%H:%M:%SZ}" if found.since else "")
            raise RebuildRefused(
                f"{name} was begun with {began}; nothing was changed: go on with that, or `fleetstream drop {name}`"
            )
    elif _schema_exists(dsn, name):
        raise RebuildRefused(f"the schema {name} exists and is no rebuild; nothing was changed: take another name")
    migrate(dsn, name)
    if found is None:
        _copy_partitions(dsn, live, name)
        maintain(dsn, name, retention_days=KEEP_ALL_DAYS)  # the partition for all other days, if the live ones lack it
        carry(dsn, live, name, FIRST)
        note(dsn, name, "made", Version(name, source, since, filled=False))
    return Version(name, source, since, found is not None and found.filled)


def find_version(dsn: str, name: str) -> Version | None:
    """What a schema says of itself; None when it is no version."""
    with psycopg.connect(dsn) as connection:
        if connection.execute("SELECT to_regclass(%s)", (f"{name}.rebuild_notes",)).fetchone() == (None,):
            return None
        notes = connection.execute(
            sql.SQL("SELECT what, source, since FROM {}.rebuild_notes ORDER BY note_id").format(sql.Identifier(name))
        ).fetchall()
    if not notes:
        return None
    since = notes[0][2].astimezone(UTC) if notes[0][2] else None
    return Version(name, notes[0][1], since, any(what != "made" for what, _, _ in notes))


def require_version(dsn: str, live: str, name: str) -> Version:
    """Raises RebuildRefused when there is no such version."""
    check_name(name, live)
    found = find_version(dsn, name)
    if found is None:
        raise RebuildRefused(f"there is no rebuild named {name}; `fleetstream rebuild --into {name}` makes it")
    return found


def note(dsn: str, name: str, what: str, version: Version, **detail: object) -> None:
    with psycopg.connect(dsn) as connection:
        add_note(connection, name, what, version, **detail)


def add_note(connection: Connection, name: str, what: str, version: Version, **detail: object) -> None:
    """One line of a schema's life, in the caller's transaction."""
    connection.execute(
        sql.SQL("INSERT INTO {}.rebuild_notes (what, source, since, detail) VALUES (%s, %s, %s, %s)").format(
            sql.Identifier(name)
        ),
        (what, version.source, version.since, Jsonb(detail)),
    )


def drop_version(dsn: str, live: str, name: str) -> int:
    """Remove a version; its size in bytes. Raises RebuildRefused for anything else than a version."""
    require_version(dsn, live, name)
    with psycopg.connect(dsn) as connection:
        size = connection.execute(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relkind IN ('r', 'p')",
            (name,),
        ).fetchone()
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))
    return int(size[0]) if size else 0


def carried_tables(connection: Connection, live: str, only: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """Every table that is not rebuilt, partitions left out; ``only`` picks some of them."""
    rows = connection.execute(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1",
        (live,),
    ).fetchall()
    there = tuple(name for (name,) in rows if name not in REBUILT and name not in OWN)
    return there if only is None else tuple(name for name in there if name in only)


def carry(dsn: str, live: str, name: str, tables: tuple[str, ...] | None = None) -> None:
    """Make rows of carried tables, and all counters of keys, equal to the live ones; only what differs is touched."""
    with psycopg.connect(dsn) as connection:
        # foreign keys hold in the live schema; without triggers the order of tables does not matter
        connection.execute("SET LOCAL session_replication_role = replica")
        for table in carried_tables(connection, live, tables):
            _carry_table(connection, live, name, table)
        if tables is None:
            _carry_forgotten(connection, live, name)
        _carry_sequences(connection, live, name, REBUILT + OWN)


def offsets(connection: Connection, schema: str) -> dict[tuple[UUID, int], tuple[str, int]]:
    """The ledger of offsets: (topic id, partition) to (topic, next offset)."""
    rows = connection.execute(
        sql.SQL("SELECT topic_id, kafka_partition, topic, next_offset FROM {}.ingest_offsets").format(
            sql.Identifier(schema)
        )
    ).fetchall()
    return {(topic_id, partition): (topic, at) for topic_id, partition, topic, at in rows}


def behind(live: Mapping[tuple[UUID, int], tuple[str, int]], other: Mapping[tuple[UUID, int], tuple[str, int]]) -> int:
    """Records that the live tables have taken and the others have not; negative numbers count as ahead."""
    return sum(at - other.get(key, ("", 0))[1] for key, (_, at) in live.items())


def columns(connection: Connection, schema: str, table: str) -> tuple[str, ...]:
    """Columns that can be written, in order."""
    rows = connection.execute(
        "SELECT a.attname FROM pg_attribute a WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0"
        " AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum",
        (sql.Identifier(schema, table).as_string(),),
    ).fetchall()
    return tuple(name for (name,) in rows)


def _carry_table(connection: Connection, live: str, name: str, table: str) -> None:
    source, target = sql.Identifier(live, table), sql.Identifier(name, table)
    names = sql.SQL(", ").join(map(sql.Identifier, columns(connection, live, table)))
    connection.execute(
        sql.SQL("DELETE FROM {0} AS n WHERE NOT EXISTS (SELECT FROM {1} AS l WHERE (l.*)::text = (n.*)::text)").format(
            target, source
        )
    )
    connection.execute(
        sql.SQL(
            "INSERT INTO {0} ({2}) OVERRIDING SYSTEM VALUE SELECT {2} FROM {1} AS l"
            " WHERE NOT EXISTS (SELECT FROM {0} AS n WHERE (n.*)::text = (l.*)::text)"
        ).format(target, source, names)
    )


def _carry_forgotten(connection: Connection, live: str, name: str) -> None:
    listed = sql.SQL(", ").join(map(sql.Identifier, columns(connection, live, "agent_gaps")))
    connection.execute(
        sql.SQL(FORGOTTEN).format(
            name=sql.Identifier(name), live=sql.Identifier(live), columns=listed,
            reason=sql.Literal(int(DropReason.FORGOTTEN)),
        )
    )  # fmt: skip


def _carry_sequences(connection: Connection, live: str, name: str, left_out: tuple[str, ...]) -> None:
    """A key given after a swap must not repeat one that was given before it."""
    rows = connection.execute(
        "SELECT s.relname FROM pg_class s JOIN pg_namespace n ON n.oid = s.relnamespace"
        " JOIN pg_depend d ON d.objid = s.oid AND d.deptype IN ('a', 'i') JOIN pg_class t ON t.oid = d.refobjid"
        " WHERE s.relkind = 'S' AND n.nspname = %s AND NOT t.relname = ANY(%s)",
        (live, list(left_out)),
    ).fetchall()
    for (sequence,) in rows:
        connection.execute(
            sql.SQL("SELECT setval({}::regclass, last_value, is_called) FROM {}").format(
                sql.Literal(sql.Identifier(name, sequence).as_string()), sql.Identifier(live, sequence)
            )
        )


def _copy_partitions(dsn: str, live: str, name: str) -> None:
    """The days that the live packets are kept by; a row in the partition for all others is slow to move later."""
    with psycopg.connect(dsn) as connection:
        parts = connection.execute(
            "SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i JOIN pg_class c"
            " ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass(%s)",
            (sql.Identifier(live, PACKET_TABLE).as_string(),),
        ).fetchall()
        parent = sql.Identifier(name, PACKET_TABLE)
        for part, bound in parts:
            made = sql.SQL("CREATE TABLE IF NOT EXISTS {} PARTITION OF {} {}")
            connection.execute(made.format(sql.Identifier(name, part), parent, sql.SQL(bound)))


def _schema_exists(dsn: str, name: str) -> bool:
    with psycopg.connect(dsn) as connection:
        return connection.execute("SELECT to_regnamespace(%s) IS NOT NULL", (name,)).fetchone() == (True,)

"""Exchange the live tables with a version's, in one transaction, while everything runs.

Order: writers are held back (readers are not), the version is brought to the very position of the live tables,
everything that is not rebuilt is carried over, then both schemas change their names in one transaction, for which
readers wait some milliseconds. A reader's transaction therefore sees the old tables or the new ones, never both; a
writer that waited finds the new tables under the old name with the same offsets and goes on as if nothing had been.
A crash at any moment leaves the live tables as they were.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, LiteralString

import psycopg
from psycopg import errors, sql

from contracts.limits import ROLLUP_WIDTHS_S, WINDOW_WIDTHS_S
from infra.compare import CLOSING
from infra.errors import RebuildRefused
from infra.migrate import maintain
from infra.rebuild import Rebuilds
from infra.rollups import clear_rollups, make_rollups, note_differing
from infra.versions import Connection, Version, add_note, carry, columns, offsets, one_at_a_time, require_version

PATIENCE_S: Final = 60.0
"""How long a swap goes on asking for its locks; then nothing was changed."""

LOCK_TIMEOUT_MS: Final = 3_000
DEADLOCK_MS: Final = 50
"""We notice a deadlock before a reader does (PostgreSQL's default is 1 s), so it is us who begins again."""

SETTLE: Final = """
UPDATE {name}.window_aggregates AS n SET
    state = CASE WHEN {same} THEN l.state WHEN l.publications > 0 THEN 2 ELSE 0 END,
    published_revision = l.published_revision, publications = l.publications
FROM {live}.window_aggregates AS l
WHERE (n.device_key, n.signal, n.width_s, n.starts_at) = (l.device_key, l.signal, l.width_s, l.starts_at)
    AND (n.state, n.published_revision, n.publications) IS DISTINCT FROM
        (CASE WHEN {same} THEN l.state WHEN l.publications > 0 THEN 2 ELSE 0 END, l.published_revision, l.publications)
"""
"""What was said of a window stays said; a window that now says something else is said again by the closer."""

ROLL_UPS: Final = """
INSERT INTO {name}.window_aggregates ({columns}) SELECT {columns} FROM {live}.window_aggregates
WHERE width_s = {width} ON CONFLICT (device_key, signal, width_s, starts_at) DO NOTHING
"""
WITHOUT_PARTS: Final = """
DELETE FROM {name}.window_aggregates AS r WHERE r.width_s = {width} AND NOT EXISTS (
    SELECT FROM {name}.window_aggregates AS p WHERE p.device_key = r.device_key AND p.signal = r.signal
        AND p.width_s = {source} AND p.starts_at >= r.starts_at
        AND p.starts_at < r.starts_at + {width} * interval '1 s')
"""
DUE: Final = """
INSERT INTO {name}.rollup_due (width_s, starts_at, device_key, signal, tenant_id)
SELECT DISTINCT {width}, date_bin({width} * interval '1 s', l.starts_at, 'epoch'::timestamptz), l.device_key, l.signal,
    l.tenant_id
FROM {live}.window_aggregates AS l WHERE l.width_s = {source} AND NOT EXISTS (
    SELECT FROM {name}.window_aggregates AS n
    WHERE (n.device_key, n.signal, n.width_s, n.starts_at) = (l.device_key, l.signal, l.width_s, l.starts_at))
ON CONFLICT DO NOTHING
"""
"""Roll-ups are the closer's: they come along with what was said of them. Those of which parts are gone, and those that
say something else than the version's minutes, are made again by it, and said again when they changed."""

FORGET: Final = """
DELETE FROM {name}.window_publications AS p WHERE NOT EXISTS (
    SELECT FROM {name}.window_aggregates AS n
    WHERE (n.device_key, n.signal, n.width_s, n.starts_at) = (p.device_key, p.signal, p.width_s, p.starts_at))
"""
"""A window that the version does not have begins to count its publications anew, should it come back."""

UNSAID: Final = "SELECT count(*) FROM {name}.window_aggregates WHERE state = 2"


@dataclass(frozen=True, slots=True)
class Swapped:
    """What a swap did. ``windows_to_say_again``: published windows that differ and will be published anew."""

    version: str
    caught_up: int
    windows_to_say_again: int
    writers_waited_ms: int
    readers_waited_ms: int


def swap(rebuilds: Rebuilds, name: str, carried: bool = True) -> Swapped:
    """Exchange; afterwards ``name`` holds what was live, and swapping again brings it back.

    ``carried`` False leaves what is not rebuilt as the version has it (a restored store has its own). Raises
    RebuildRefused when the version cannot take the live place, or when locks are not to be had.
    """
    live, dsn = rebuilds.live, rebuilds.dsn
    with one_at_a_time(dsn, name):
        version = require_version(dsn, live, name)
        _check(rebuilds, version)
        caught_up = rebuilds.catch_up(version) if carried else 0
        maintain(dsn, name, rebuilds.clock(), rebuilds.retention_days)
        if carried:
            _bring_along(dsn, live, name)  # most of the work, while writers go on
        with psycopg.connect(dsn, autocommit=True) as holder, holder.transaction():
            _prepare(holder)
            _insist(holder, lambda: _lock(holder, (live,), "EXCLUSIVE"))
            began_s = time.monotonic()
            if carried:
                caught_up += rebuilds.fill_to(version, offsets(holder, live))
                _bring_along(dsn, live, name)
            else:
                caught_up += rebuilds.fill(name, version, offsets(holder, live))
            _check_position(holder, live, name)
            _insist(holder, lambda: _lock(holder, (live, name), "ACCESS EXCLUSIVE"))
            locked_s = time.monotonic()
            again = holder.execute(sql.SQL(UNSAID).format(name=sql.Identifier(name))).fetchone() if carried else None
            _rename(holder, live, name)
            add_note(holder, live, "swapped_in", version, was=name)
            add_note(holder, name, "swapped_out", Version(name, "archive", None, filled=True), was=live)
        ended_s = time.monotonic()
    return Swapped(
        name, caught_up, int(again[0]) if again else 0, round((ended_s - began_s) * 1000),
        round((ended_s - locked_s) * 1000),
    )  # fmt: skip


def _check(rebuilds: Rebuilds, version: Version) -> None:
    if version.since is not None:
        raise RebuildRefused(
            f"{version.name} holds only what was received since {version.since:%Y-%m-%d %H:%M}; nothing was changed: "
            "such a version is for comparing, rebuild without --since to swap"
        )
    if not version.filled:
        raise RebuildRefused(
            f"{version.name} is not filled yet; nothing was changed: let `fleetstream rebuild` end first"
        )
    with psycopg.connect(rebuilds.dsn) as connection:
        done = [
            connection.execute(
                sql.SQL("SELECT array_agg(name ORDER BY name) FROM {}.schema_migrations").format(sql.Identifier(schema))
            ).fetchone()
            for schema in (rebuilds.live, version.name)
        ]
    if done[0] != done[1]:
        raise RebuildRefused(
            f"{version.name} and the live tables were made by different versions of Fleetstream; nothing was changed: "
            "run `fleetstream migrate`, then rebuild"
        )


def _prepare(holder: Connection) -> None:
    holder.execute("SELECT set_config('lock_timeout', %s, true)", (f"{LOCK_TIMEOUT_MS}ms",))
    holder.execute("SELECT set_config('deadlock_timeout', %s, true)", (f"{DEADLOCK_MS}ms",))


def _insist(holder: Connection, take: Callable[[], None]) -> None:
    """Ask for locks until they are there; a failed attempt gives back what it got and keeps what was held before."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            with holder.transaction():
                take()
        except (errors.DeadlockDetected, errors.LockNotAvailable) as error:
            if time.monotonic() > deadline_s:
                raise RebuildRefused(
                    f"the tables were not to be had within {PATIENCE_S:.0f} s; nothing was changed: "
                    "look for a query that runs for long, and swap again"
                ) from error
        else:
            return


def _lock(holder: Connection, schemas: tuple[str, ...], mode: LiteralString) -> None:
    """All tables of the schemas, in the order of their names; partitions follow their parents."""
    rows = holder.execute(
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = ANY(%s) AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1, 2",
        (list(schemas),),
    ).fetchall()
    names = sql.SQL(", ").join(sql.Identifier(schema, table) for schema, table in rows)
    holder.execute(sql.SQL("LOCK TABLE {} IN {} MODE").format(names, sql.SQL(mode)))


def _check_position(holder: Connection, live: str, name: str) -> None:
    """The running ingest reads on from the live position: a version behind it would lose what lies between."""
    mine, theirs = offsets(holder, live), offsets(holder, name)
    late = [f"{topic}/{key[1]}" for key, (topic, at) in mine.items() if theirs.get(key, ("", 0))[1] < at]
    if late:
        raise RebuildRefused(f"{name} is behind the live tables in {', '.join(late)}; nothing was changed: swap again")


def _bring_along(dsn: str, live: str, name: str) -> None:
    carry(dsn, live, name)
    with psycopg.connect(dsn) as connection:
        names = {"live": sql.Identifier(live), "name": sql.Identifier(name)}
        all_columns = columns(connection, live, "window_aggregates")
        content = [one for one in all_columns if one not in CLOSING]
        same = sql.SQL("({}) IS NOT DISTINCT FROM ({})").format(
            sql.SQL(", ").join(sql.Identifier("n", one) for one in content),
            sql.SQL(", ").join(sql.Identifier("l", one) for one in content),
        )
        listed = sql.SQL(", ").join(map(sql.Identifier, all_columns))
        connection.execute("SET LOCAL session_replication_role = replica")
        connection.execute(sql.SQL(SETTLE).format(same=same, **names))
        make_rollups(connection, name)
        note_differing(connection, live, name)
        clear_rollups(connection, name)
        for source, width in pairwise((WINDOW_WIDTHS_S[-1], *ROLLUP_WIDTHS_S)):
            step = {"width": sql.Literal(width), "source": sql.Literal(source), "columns": listed, **names}
            for statement in (ROLL_UPS, WITHOUT_PARTS, DUE):
                connection.execute(sql.SQL(statement).format(**step))
        connection.execute(sql.SQL(FORGET).format(**names))


def _rename(holder: Connection, live: str, name: str) -> None:
    between = f"{name}_between"
    for old, new in ((live, between), (name, live), (between, name)):
        holder.execute(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(sql.Identifier(old), sql.Identifier(new)))

"""Roll-ups of a version: made from its own minutes by one statement, so that they can be compared and judged.

The closer makes those of the live tables bit by bit (``stream_jobs/sinks/closing.py``). Here the same is said once
more in another way, each width from the minutes: a mistake in one of them shows up in a comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import psycopg
from psycopg import sql

from contracts.limits import ROLLUP_WIDTHS_S, WINDOW_WIDTHS_S
from infra.versions import Connection

KEY: Final = ("device_key", "signal", "width_s", "starts_at")

CONTENT: Final = (
    "n", "sum_units", "sumsq_units", "min_units", "max_units", "first_ms", "first_epoch", "first_seq", "first_pos",
    "first_units", "last_ms", "last_epoch", "last_seq", "last_pos", "last_units", "late_minutes",
)  # fmt: skip
"""What a roll-up says."""

BEGIN: Final = "date_bin(r.width_s * interval '1 s', w.starts_at, 'epoch'::timestamptz)"
CLEAR: Final = "DELETE FROM {name}.window_aggregates WHERE width_s = ANY({widths})"

MAKE: Final = """
INSERT INTO {name}.window_aggregates (device_key, signal, width_s, starts_at, tenant_id, state, {content})
SELECT m.device_key, m.signal, m.width_s, m.starts_at, m.tenant_id, 1, m.n, m.sum_units, m.sumsq_units, m.min_units,
    m.max_units, f[1], f[2], f[3], f[4], f[5], l[1], l[2], l[3], l[4], l[5], coalesce(late.minutes, '{{}}')
FROM (
    SELECT w.device_key, w.signal, r.width_s, {begin} AS starts_at,
        min(w.tenant_id) AS tenant_id, sum(w.n)::bigint AS n, sum(w.sum_units) AS sum_units,
        sum(w.sumsq_units) AS sumsq_units, min(w.min_units) AS min_units, max(w.max_units) AS max_units,
        min(ARRAY[w.first_ms, w.first_epoch, w.first_seq, w.first_pos, w.first_units]) AS f,
        max(ARRAY[w.last_ms, w.last_epoch, w.last_seq, w.last_pos, w.last_units]) AS l
    FROM {name}.window_aggregates w CROSS JOIN unnest({widths}) AS r (width_s)
    WHERE w.width_s = {minute} GROUP BY 1, 2, 3, 4
) AS m LEFT JOIN (
    SELECT w.device_key, w.signal, r.width_s, {begin} AS starts_at,
        array_agg(DISTINCT u.minute ORDER BY u.minute) AS minutes
    FROM {name}.window_aggregates w JOIN {name}.signals s ON s.signal = w.signal
    CROSS JOIN unnest({widths}) AS r (width_s) CROSS JOIN unnest(w.late_minutes) AS u (minute)
    WHERE w.width_s = {minute} AND u.minute * 60::bigint
        >= extract(epoch FROM {begin}) + r.width_s
            + (s.grace_s / 60 + 1) * 60
    GROUP BY 1, 2, 3, 4
) AS late USING (device_key, signal, width_s, starts_at)
"""
"""A minute counts as late for a roll-up as the closer has it: it lies wholly after the full minute behind its grace."""

SETTLED: Final = """
SELECT device_key, signal, width_s, starts_at FROM (
    SELECT device_key, signal, width_s, starts_at, true AS settled
    FROM {live}.window_aggregates WHERE width_s = ANY({widths})
    UNION ALL
    SELECT w.device_key, w.signal, r.width_s, {begin}, w.state = 1
    FROM {live}.window_aggregates w CROSS JOIN unnest({widths}) AS r (width_s) WHERE w.width_s = {minute}
    UNION ALL
    SELECT w.device_key, w.signal, r.width_s, {begin}, false
    FROM {live}.rollup_due w JOIN unnest({widths}) AS r (width_s) ON r.width_s >= w.width_s
) AS told GROUP BY 1, 2, 3, 4 HAVING bool_and(settled) ORDER BY 1, 2, 3, 4
"""
"""Roll-ups that the closer owes nothing: all their minutes are published, and none of their parts waits to be made."""

DIFFERING: Final = """
INSERT INTO {name}.rollup_due (width_s, starts_at, device_key, signal, tenant_id)
SELECT n.width_s, n.starts_at, n.device_key, n.signal, n.tenant_id
FROM {name}.window_aggregates AS n LEFT JOIN {live}.window_aggregates AS l
    ON (n.device_key, n.signal, n.width_s, n.starts_at) = (l.device_key, l.signal, l.width_s, l.starts_at)
WHERE n.width_s = ANY({widths}) AND ({mine}) IS DISTINCT FROM ({theirs}) AND (l.n IS NOT NULL OR NOT EXISTS (
    SELECT FROM {live}.window_aggregates AS m
    WHERE m.device_key = n.device_key AND m.signal = n.signal AND m.width_s = {minute} AND m.starts_at >= n.starts_at
        AND m.starts_at < n.starts_at + n.width_s * interval '1 s' AND m.state <> 1))
ON CONFLICT DO NOTHING
"""
"""Those that say something else than the live ones, or that the live tables lack though all their minutes are
published, are made again by the closer."""


def names(schemas: Mapping[str, str]) -> dict[str, sql.Composable]:
    """What the statements of this file are formatted with: schemas under ``name`` and ``live``."""
    return {
        "widths": sql.Literal(list(ROLLUP_WIDTHS_S)), "minute": sql.Literal(WINDOW_WIDTHS_S[-1]),
        "begin": sql.SQL(BEGIN), "content": _listed(""), "mine": _listed("n."), "theirs": _listed("l."),
        **{key: sql.Identifier(schema) for key, schema in schemas.items()},
    }  # fmt: skip


def clear_rollups(connection: Connection, name: str) -> None:
    connection.execute(sql.SQL(CLEAR).format(**names({"name": name})))


def make_rollups(connection: Connection, name: str) -> None:
    """Every roll-up of a version anew, also of hours and days that are not over, in the caller's transaction."""
    clear_rollups(connection, name)
    connection.execute(sql.SQL(MAKE).format(**names({"name": name})))


def roll_up(dsn: str, name: str) -> None:
    """``make_rollups`` in a transaction of its own."""
    with psycopg.connect(dsn) as connection:
        make_rollups(connection, name)


def note_differing(connection: Connection, live: str, name: str) -> None:
    """Let the closer make again, after a swap, what the version's roll-ups say otherwise than the live ones."""
    connection.execute(sql.SQL(DIFFERING).format(**names({"name": name, "live": live})))


def _listed(prefix: str) -> sql.SQL:
    return sql.SQL(", ".join(prefix + one for one in CONTENT))

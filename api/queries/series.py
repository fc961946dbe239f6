"""Windows of one asset and signal as columns, for charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from psycopg.rows import dict_row

from api.queries.blocks import load_arrays
from api.queries.pool import Connection

SERIES = """
SELECT array_agg(ms ORDER BY ms, device_key) AS ms, array_agg(n ORDER BY ms, device_key) AS n,
       array_agg(min_units ORDER BY ms, device_key) AS lowest, array_agg(max_units ORDER BY ms, device_key) AS highest,
       array_agg(total ORDER BY ms, device_key) AS total, array_agg(revision ORDER BY ms, device_key) AS revision
FROM (SELECT (extract(epoch FROM w.starts_at) * 1000)::bigint AS ms, w.device_key, w.n, w.min_units, w.max_units,
             w.sum_units::double precision AS total, cardinality(w.late_minutes) AS revision
      FROM bindings b
      JOIN window_aggregates w ON w.device_key = b.device_key AND b.valid @> w.starts_at
      WHERE b.asset_id = %(asset)s AND w.signal = %(signal)s AND w.width_s = %(width_s)s
        AND w.starts_at > at_ms(%(from_ms)s) - %(width_s)s * interval '1 s' AND w.starts_at < at_ms(%(to_ms)s)
      ORDER BY w.starts_at LIMIT %(limit)s) found
"""

COUNT = """
SELECT coalesce(sum(w.n), 0)::bigint AS n FROM bindings b JOIN window_aggregates w ON w.device_key = b.device_key
WHERE b.asset_id = %(asset)s AND w.signal = ANY(%(signals)s) AND w.width_s = 3600
  AND w.starts_at >= at_ms(%(from_ms)s) AND w.starts_at < at_ms(%(to_ms)s)
"""


@dataclass(slots=True)
class Rollup:
    """Windows in order of their starts, as parallel lists; values are in units of the signal's resolution."""

    ms: list[int] = field(default_factory=list)
    n: list[int] = field(default_factory=list)
    lowest: list[int] = field(default_factory=list)
    highest: list[int] = field(default_factory=list)
    total: list[float] = field(default_factory=list)
    revision: list[int] = field(default_factory=list)


async def read_rollup(
    connection: Connection, asset_id: int, signal: int, width_s: int, from_ms: int, to_ms: int, limit: int
) -> Rollup:
    """Windows that touch [from, to), at most ``limit``."""
    values = {
        "asset": asset_id, "signal": signal, "width_s": width_s, "from_ms": from_ms, "to_ms": to_ms, "limit": limit
    }  # fmt: skip
    async with connection.cursor(binary=True, row_factory=dict_row) as cursor:
        load_arrays(cursor)
        row = await (await cursor.execute(SERIES, values)).fetchone()
    if row is None or row["ms"] is None:
        return Rollup()
    return Rollup(**{name: list(column) for name, column in row.items()})


async def count_samples(connection: Connection, asset_id: int, signals: Sequence[int], from_ms: int, to_ms: int) -> int:
    """About how many good samples a range holds, by its whole hours: cheap enough to ask before every export."""
    values = {"asset": asset_id, "signals": list(signals), "from_ms": from_ms, "to_ms": to_ms}
    row = await (await connection.execute(COUNT, values)).fetchone()
    return int(row["n"]) if row else 0


def merge_buckets(rollup: Rollup, width_ms: int) -> Rollup:
    """Neighbouring windows as wider ones, of whole multiples of ``width_ms``; only sums are rounded."""
    made = Rollup()
    for at, ms in enumerate(rollup.ms):
        start = ms // width_ms * width_ms
        if made.ms and made.ms[-1] == start:
            made.n[-1] += rollup.n[at]
            made.lowest[-1] = min(made.lowest[-1], rollup.lowest[at])
            made.highest[-1] = max(made.highest[-1], rollup.highest[at])
            made.total[-1] += rollup.total[at]
            made.revision[-1] = max(made.revision[-1], rollup.revision[at])
        else:
            made.ms.append(start)
            made.n.append(rollup.n[at])
            made.lowest.append(rollup.lowest[at])
            made.highest.append(rollup.highest[at])
            made.total.append(rollup.total[at])
            made.revision.append(rollup.revision[at])
    return made

"""Windows of one asset and signal, oldest first. A window that is not there is a gap, never a row of zeros."""

from __future__ import annotations

from datetime import datetime

from psycopg.rows import DictRow

from api.queries.pool import Connection

WINDOWS = """
SELECT w.starts_at, w.n, scaled(w.min_units, s.exponent) AS min, scaled(w.max_units, s.exponent) AS max,
       scaled(w.sum_units, s.exponent) / w.n AS mean,
       CASE WHEN w.n > 1 THEN sqrt(((w.sumsq_units * w.n - w.sum_units * w.sum_units)
            / (w.n::numeric * (w.n - 1)))::double precision) * scaled(1, s.exponent) END AS stddev,
       scaled(w.last_units, s.exponent) AS last, cardinality(w.late_minutes) AS revision, w.state <> 0 AS closed,
       d.kind <> 'recording' AND coalesce(w.starts_at + (w.width_s + s.lateness_s) * interval '1 s'
            <= (SELECT f.final_before FROM finality f), false) AS final, d.device, w.device_key,
       ARRAY(SELECT at_ms(m * 60000::bigint) FROM unnest(w.late_minutes) AS m ORDER BY m) AS late_at,
       p.n AS first_n, scaled(p.sum_units, s.exponent) / p.n AS first_mean, p.published_at AS first_said_at
FROM bindings b
JOIN window_aggregates w ON w.device_key = b.device_key AND b.valid @> w.starts_at
JOIN signals s ON s.signal = w.signal
JOIN devices d ON d.device_key = w.device_key
LEFT JOIN window_publications p ON cardinality(w.late_minutes) > 0 AND (p.device_key, p.signal, p.width_s, p.starts_at,
    p.publication) = (w.device_key, w.signal, w.width_s, w.starts_at, 1)
WHERE b.asset_id = %(asset)s AND w.signal = %(signal)s AND w.width_s = %(width_s)s
  AND w.starts_at >= %(from)s AND w.starts_at < %(to)s
  AND (w.starts_at, w.device_key) > (%(after)s, %(after_device)s)
ORDER BY w.starts_at, w.device_key LIMIT %(limit)s
"""


async def list_windows(
    connection: Connection, asset_id: int, signal: int, width_s: int, start: datetime, end: datetime,
    after: tuple[datetime, int], limit: int,
) -> list[DictRow]:  # fmt: skip
    """Windows that start in [start, end), after the pair (start of window, device key)."""
    values = {
        "asset": asset_id, "signal": signal, "width_s": width_s, "from": start, "to": end, "after": after[0],
        "after_device": after[1], "limit": limit,
    }  # fmt: skip
    return await (await connection.execute(WINDOWS, values)).fetchall()

"""Findings, and what explains one: the signal around it, its peers, cases like it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from psycopg.rows import DictRow

from api.queries.pool import Connection

_COLUMNS: Final = (
    "f.finding_id, f.asset, f.device, f.signal, f.unit, f.deployment AS detector, f.detector AS method,"
    " f.deployment_version AS version, f.cause, f.opened_at, f.last_at, f.closed_at, f.severity, f.score, f.threshold,"
    " f.observed, f.expected_low, f.expected_high, f.probability, f.readings, f.readings_lost, f.revision, f.advice,"
    " l.alert_id AS alert"
)
LIST: Final = f"""
SELECT {_COLUMNS} FROM findings f LEFT JOIN alert_findings l USING (finding_id)
WHERE (%(asset)s::text IS NULL OR f.asset = %(asset)s) AND (%(cause)s::text IS NULL OR f.cause = %(cause)s)
    AND (%(detector)s::text IS NULL OR f.deployment = %(detector)s) AND f.severity >= %(severity)s
    AND f.opened_at >= %(from)s AND f.opened_at < %(to)s AND (NOT %(running)s OR f.closed_at IS NULL)
    AND (%(before)s::timestamptz IS NULL OR (f.opened_at, f.finding_id) < (%(before)s, %(before_id)s::text))
ORDER BY f.opened_at DESC, f.finding_id DESC LIMIT %(limit)s
"""
ONE: Final = f"""
SELECT {_COLUMNS}, f.contributions, f.regime, f.asset_id, f.signal_number, a.kind
FROM findings f LEFT JOIN alert_findings l USING (finding_id) LEFT JOIN assets a ON a.asset_id = f.asset_id
WHERE f.finding_id = %s
"""
PEERS: Final = """
SELECT count(*) AS assets, percentile_cont(0.1) WITHIN GROUP (ORDER BY mean) AS low,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY mean) AS median,
       percentile_cont(0.9) WITHIN GROUP (ORDER BY mean) AS high
FROM (SELECT b.asset_id, scaled(sum(w.sum_units), max(s.exponent)) / sum(w.n) AS mean
      FROM (SELECT asset_id FROM assets WHERE kind = %(kind)s AND asset_id <> %(asset)s ORDER BY asset_id LIMIT 500) a
      JOIN bindings b USING (asset_id)
      JOIN window_aggregates w ON w.device_key = b.device_key AND b.valid @> w.starts_at
      JOIN signals s ON s.signal = w.signal
      WHERE w.signal = %(signal)s AND w.width_s = %(width_s)s AND w.starts_at >= %(from)s AND w.starts_at < %(to)s
      GROUP BY b.asset_id) m
"""
SIMILAR: Final = """
SELECT r.alert_id, r.asset, r.detector, r.resolution, r.resolved_at, e.note
FROM alerts r JOIN alert_events e ON e.alert_id = r.alert_id AND e.event_no = r.event_no
WHERE r.state = 'resolved' AND r.cause = %(cause)s AND r.alert_id <> coalesce(%(alert)s::text, '')
ORDER BY r.detector = %(detector)s DESC, r.resolved_at DESC, r.alert_id LIMIT 5
"""


async def list_findings(connection: Connection, values: dict[str, Any]) -> list[DictRow]:
    """``values`` are the names in ``LIST``."""
    return await (await connection.execute(LIST, values)).fetchall()


async def show_finding(connection: Connection, finding_id: str) -> DictRow | None:
    return await (await connection.execute(ONE, (finding_id,))).fetchone()


async def read_peers(
    connection: Connection, finding: DictRow, width_s: int, start: datetime, end: datetime
) -> DictRow | None:
    """How the signal stood on other assets of the kind in that time; None: on none of them."""
    values = {
        "kind": finding["kind"], "asset": finding["asset_id"], "signal": finding["signal_number"], "width_s": width_s,
        "from": start, "to": end,
    }  # fmt: skip
    row = await (await connection.execute(PEERS, values)).fetchone()
    return row if row and row["assets"] else None


async def similar_cases(connection: Connection, finding: DictRow) -> list[DictRow]:
    """Resolved alerts of the same cause, this detector's first, newest first."""
    values = {"cause": finding["cause"], "alert": finding["alert"], "detector": finding["detector"]}
    return await (await connection.execute(SIMILAR, values)).fetchall()

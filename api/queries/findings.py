"""Findings, and what explains one: the signal around it, its peers, cases like it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from api.queries.pool import Connection

_COLUMNS: Final = (
    "f.finding_id, f.asset, f.device, f.signal, f.unit, f.deployment AS detector, f.detector AS method,"
    " f.deployment_version AS version, f.cause, f.opened_at, f.last_at, f.closed_at, f.severity, f.score, f.threshold,"
    " f.observed, f.expected_low, f.expected_high, f.probability, f.readings, f.readings_lost, f.revision, f.advice,"
    " f.corrections, f.retracted_at, l.alert_id AS alert"
)
LIST: Final = f"""
SELECT {_COLUMNS} FROM findings f LEFT JOIN alert_findings l USING (finding_id)
WHERE (%(asset)s::text IS NULL OR f.asset = %(asset)s) AND (%(cause)s::text IS NULL OR f.cause = %(cause)s)
    AND (%(detector)s::text IS NULL OR f.deployment = %(detector)s) AND f.severity >= %(severity)s
    AND f.opened_at >= %(from)s AND f.opened_at < %(to)s AND (NOT %(running)s OR f.closed_at IS NULL)
    AND (%(retracted)s OR f.retracted_at IS NULL)
    AND (%(before)s::timestamptz IS NULL OR (f.opened_at, f.finding_id) < (%(before)s, %(before_id)s::text))
ORDER BY f.opened_at DESC, f.finding_id DESC LIMIT %(limit)s
"""
ONE: Final = f"""
SELECT {_COLUMNS}, f.contributions, f.regime, f.asset_id, f.signal_number, a.kind, r.signals
FROM findings f
JOIN finding_rows r USING (finding_id) LEFT JOIN alert_findings l USING (finding_id)
LEFT JOIN assets a ON a.asset_id = f.asset_id
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
CORRECTIONS: Final = """
SELECT kind, revision, reason, corrected_at, (before ->> 'opened_at')::timestamptz AS opened_at,
       (before ->> 'closed_at')::timestamptz AS closed_at, (before ->> 'severity')::integer AS severity,
       (before ->> 'score')::double precision AS score, (before ->> 'observed')::double precision AS observed
FROM finding_corrections WHERE finding_id = %s ORDER BY revision DESC LIMIT 20
"""
SIMILAR: Final = """
SELECT r.alert_id, r.asset, r.detector, r.resolution, r.resolved_at, e.note, n.distance
FROM (SELECT * FROM alerts WHERE state = 'resolved' AND cause = %(cause)s AND alert_id <> coalesce(%(alert)s::text, '')
      ORDER BY resolved_at DESC LIMIT 500) r
JOIN alert_events e ON e.alert_id = r.alert_id AND e.event_no = r.event_no
LEFT JOIN finding_rows f ON f.finding_id = r.finding_id
LEFT JOIN assets a ON a.asset_id = f.asset_id
CROSS JOIN LATERAL (
    SELECT coalesce(sum(abs(coalesce(x.share, 0) - coalesce(y.share, 0))) / 2, 1) AS distance
    FROM (SELECT (p ->> 0)::integer AS signal, (p ->> 1)::double precision AS share
          FROM jsonb_array_elements(f.contributions) p) x
    FULL JOIN (SELECT (p ->> 0)::integer AS signal, (p ->> 1)::double precision AS share
               FROM jsonb_array_elements(%(shares)s::jsonb) p) y USING (signal)) n
ORDER BY r.detector = %(detector)s DESC, a.kind IS NOT DISTINCT FROM %(kind)s::text DESC, n.distance,
    r.resolved_at DESC, r.alert_id
LIMIT 5
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
    """Resolved alerts of the same cause: this detector's first, then of assets of the kind, the nearest by what carried
    it (0: the same signals to the same share, 1: others), the newest."""
    values = {
        "cause": finding["cause"], "alert": finding["alert"], "detector": finding["detector"], "kind": finding["kind"],
        "shares": Jsonb(finding["contributions"]),
    }  # fmt: skip
    return await (await connection.execute(SIMILAR, values)).fetchall()


async def read_corrections(connection: Connection, finding_id: str) -> list[DictRow]:
    """What late readings changed of it and what it had said before, newest first."""
    return await (await connection.execute(CORRECTIONS, (finding_id,))).fetchall()

"""Assets with the age of their data, and the latest value of each of their signals.

A value belongs to an asset when the binding of its device held at the time it was measured. When the device has moved
on since, its last value on the asset is that of the newest window (``latest_before``).
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg.rows import DictRow

from api.queries.pool import Connection

FIND = "SELECT asset_id, name, kind FROM assets WHERE name = %s"
LIST = """
WITH picked AS MATERIALIZED (
    SELECT asset_id, name, kind FROM assets
    WHERE name > %(after)s AND (%(group)s::integer IS NULL OR asset_id IN (
          SELECT asset_id FROM asset_group_members WHERE group_id = %(group)s))
      AND (%(search)s = '' OR strpos(lower(name), lower(%(search)s)) > 0)
      AND (%(name)s::text IS NULL OR name = %(name)s)
    ORDER BY name LIMIT %(limit)s
), bound AS MATERIALIZED (
    SELECT b.asset_id, b.device_key, b.valid, lower_inf(b.valid) AND upper_inf(b.valid) AS always,
           bool_and(lower_inf(b.valid) AND upper_inf(b.valid)) OVER same AND count(*) OVER same = 1 AS alone
    FROM bindings b JOIN picked p USING (asset_id) WINDOW same AS (PARTITION BY b.asset_id)
), now_d AS (
    SELECT b.asset_id, array_agg(d.device ORDER BY d.device) AS devices, bool_and(d.kind = 'recording') AS recording
    FROM bound b JOIN devices d USING (device_key) WHERE b.valid @> now() GROUP BY b.asset_id
), told AS (
    SELECT b.asset_id, v.signal, v.measured_ms, v.received_at
    FROM bound b JOIN latest_values v ON v.device_key = b.device_key AND (b.always OR b.valid @> at_ms(v.measured_ms))
    WHERE NOT b.alone
    UNION ALL
    SELECT asset_id, signal, measured_ms, at_ms(measured_ms) FROM latest_before
    WHERE asset_id = ANY(ARRAY(SELECT asset_id FROM bound WHERE NOT always))
), newest AS (
    SELECT b.asset_id, max(v.measured_ms) AS measured_ms, max(v.received_at) AS received_at, count(*) AS signals
    FROM bound b JOIN latest_values v USING (device_key) WHERE b.alone GROUP BY b.asset_id
    UNION ALL
    SELECT asset_id, max(measured_ms), max(received_at), count(DISTINCT signal) FROM told GROUP BY asset_id
)
SELECT p.asset_id, p.name, p.kind, d.devices, coalesce(d.recording, false) AS recording,
       at_ms(l.measured_ms) AS measured_at, l.received_at, coalesce(l.signals, 0) AS signals
FROM picked p LEFT JOIN now_d d USING (asset_id) LEFT JOIN newest l USING (asset_id)
ORDER BY p.name
"""
"""Each table is read once for the whole page. An asset that has one device for ever (``alone``) needs no look at times,
and its signals are counted as they come."""

LATEST = """
SELECT DISTINCT ON (v.asset_id, v.signal)
       v.asset_id, s.path AS signal, nullif(v.val, 'NaN') AS value, s.unit, v.quality,
       at_ms(v.measured_ms) AS measured_at, v.received_at, d.device
FROM (
    SELECT b.asset_id, l.device_key, l.signal, l.measured_ms, l.val, l.quality, l.received_at
    FROM bindings b JOIN latest_values l ON l.device_key = b.device_key AND b.valid @> at_ms(l.measured_ms)
    WHERE b.asset_id = ANY(%(assets)s) AND (%(signals)s::smallint[] IS NULL OR l.signal = ANY(%(signals)s))
    UNION ALL
    SELECT asset_id, device_key, signal, measured_ms, val, 0::smallint, NULL
    FROM latest_before
    WHERE asset_id = ANY(%(assets)s) AND (%(signals)s::smallint[] IS NULL OR signal = ANY(%(signals)s))
) v
JOIN signals s ON s.signal = v.signal
JOIN devices d ON d.device_key = v.device_key
ORDER BY v.asset_id, v.signal, v.measured_ms DESC, v.device_key
"""

SIGNALS = """
SELECT DISTINCT l.signal FROM bindings b JOIN latest_values l ON l.device_key = b.device_key
WHERE b.asset_id = %s ORDER BY l.signal
"""


async def find_asset(connection: Connection, name: str) -> DictRow | None:
    return await (await connection.execute(FIND, (name,))).fetchone()


async def list_assets(
    connection: Connection, after: str = "", search: str = "", limit: int = 1, name: str | None = None,
    group_id: int | None = None,
) -> list[DictRow]:  # fmt: skip
    """Assets by name, at most ``limit`` after the name ``after``; ``name`` picks one, ``group_id`` those of a group."""
    values = {"after": after, "search": search, "limit": limit, "name": name, "group": group_id}
    return await (await connection.execute(LIST, values)).fetchall()


async def latest_values(
    connection: Connection, assets: Sequence[int], signals: Sequence[int] | None = None
) -> list[DictRow]:
    """The newest value per asset and signal; ``signals`` None means all."""
    values = {"assets": list(assets), "signals": None if signals is None else list(signals)}
    return await (await connection.execute(LATEST, values)).fetchall()


async def signals_of(connection: Connection, asset_id: int) -> list[int]:
    """Numbers of the signals that the asset's devices ever had a value of."""
    rows = await (await connection.execute(SIGNALS, (asset_id,))).fetchall()
    return [row["signal"] for row in rows]

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
SELECT a.asset_id, a.name, a.kind, now_d.devices, coalesce(now_d.recording, false) AS recording,
       l.measured_at, l.received_at, coalesce(l.signals, 0) AS signals
FROM (SELECT asset_id, name, kind FROM assets
      WHERE name > %(after)s AND (%(search)s = '' OR strpos(lower(name), lower(%(search)s)) > 0)
        AND (%(name)s::text IS NULL OR name = %(name)s)
      ORDER BY name LIMIT %(limit)s) a
LEFT JOIN LATERAL (
    SELECT array_agg(d.device ORDER BY d.device) AS devices, bool_and(d.kind = 'recording') AS recording
    FROM bindings b JOIN devices d ON d.device_key = b.device_key
    WHERE b.asset_id = a.asset_id AND b.valid @> now()) now_d ON true
LEFT JOIN LATERAL (
    SELECT at_ms(max(v.measured_ms)) AS measured_at, max(v.received_at) AS received_at,
           count(DISTINCT v.signal) AS signals
    FROM (
        SELECT l.measured_ms, l.received_at, l.signal
        FROM bindings b JOIN latest_values l ON l.device_key = b.device_key AND b.valid @> at_ms(l.measured_ms)
        WHERE b.asset_id = a.asset_id
        UNION ALL
        SELECT measured_ms, at_ms(measured_ms), signal FROM latest_before WHERE asset_id = a.asset_id) v) l ON true
ORDER BY a.name
"""
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


async def find_asset(connection: Connection, name: str) -> DictRow | None:
    return await (await connection.execute(FIND, (name,))).fetchone()


async def list_assets(
    connection: Connection, after: str = "", search: str = "", limit: int = 1, name: str | None = None
) -> list[DictRow]:
    """Assets by name, at most ``limit`` after the name ``after``; ``name`` picks one."""
    values = {"after": after, "search": search, "limit": limit, "name": name}
    return await (await connection.execute(LIST, values)).fetchall()


async def latest_values(
    connection: Connection, assets: Sequence[int], signals: Sequence[int] | None = None
) -> list[DictRow]:
    """The newest value per asset and signal; ``signals`` None means all."""
    values = {"assets": list(assets), "signals": None if signals is None else list(signals)}
    return await (await connection.execute(LATEST, values)).fetchall()

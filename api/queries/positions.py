"""Where every asset is: the newest position it told, or the place where it stands; and how old its data is."""

from __future__ import annotations

from psycopg.rows import DictRow

from api.queries.pool import Connection
from contracts.signals import catalogue

MOST_ASSETS = 20_000

POSITIONS = """
WITH told AS (
    SELECT b.asset_id, bool_and(d.kind = 'recording') FILTER (WHERE b.valid @> now()) AS recording,
           max(v.measured_ms) AS measured_ms, max(v.received_at) AS received_at,
           max(v.measured_ms) FILTER (WHERE v.signal = %(latitude)s) AS position_ms,
           (array_agg(v.val ORDER BY v.measured_ms DESC) FILTER (WHERE v.signal = %(latitude)s))[1] AS latitude,
           (array_agg(v.val ORDER BY v.measured_ms DESC) FILTER (WHERE v.signal = %(longitude)s))[1] AS longitude,
           (array_agg(v.val ORDER BY v.measured_ms DESC) FILTER (WHERE v.signal = %(heading)s))[1] AS heading,
           (array_agg(v.val ORDER BY v.measured_ms DESC) FILTER (WHERE v.signal = %(speed)s))[1] AS speed
    FROM bindings b
    JOIN devices d ON d.device_key = b.device_key
    JOIN latest_values v ON v.device_key = b.device_key
     AND b.valid @> at_ms(v.measured_ms)
    GROUP BY b.asset_id
)
SELECT a.name, a.kind, coalesce(t.recording, false) AS recording, at_ms(t.measured_ms) AS measured_at, t.received_at,
       at_ms(t.position_ms) AS position_at,
       nullif(coalesce(t.latitude, a.latitude), 'NaN') AS latitude,
       nullif(coalesce(t.longitude, a.longitude), 'NaN') AS longitude,
       nullif(t.heading, 'NaN') AS heading, nullif(t.speed, 'NaN') AS speed
FROM assets a LEFT JOIN told t ON t.asset_id = a.asset_id
ORDER BY a.name LIMIT %(limit)s
"""


async def positions(connection: Connection, limit: int = MOST_ASSETS) -> list[DictRow]:
    """One row per asset of the tenant, by name; latitude and longitude are both null where neither is known."""
    of = catalogue().by_path
    values = {
        "latitude": of("Vehicle.CurrentLocation.Latitude").number,
        "longitude": of("Vehicle.CurrentLocation.Longitude").number,
        "heading": of("Vehicle.CurrentLocation.Heading").number,
        "speed": of("Vehicle.Speed").number,
        "limit": limit,
    }
    return await (await connection.execute(POSITIONS, values)).fetchall()

"""Where every asset is: the newest position it told, or the place where it stands; and how old its data is."""

from __future__ import annotations

from psycopg.rows import DictRow

from api.queries.pool import Connection
from contracts.signals import catalogue

MOST_ASSETS = 20_000

# A pair is (time, value), so that the greatest pair holds the newest value. `own` is kept out of the join: the planner
# takes a containment for one row in a thousand and would choose a plan that takes more than twice as long.

POSITIONS = """
WITH told AS (
    SELECT asset_id, max(measured_ms) AS measured_ms, max(received_at) AS received_at,
           max(pair) FILTER (WHERE signal = %(latitude)s) AS latitude,
           max(pair) FILTER (WHERE signal = %(longitude)s) AS longitude,
           max(pair) FILTER (WHERE signal = %(heading)s) AS heading,
           max(pair) FILTER (WHERE signal = %(speed)s) AS speed
    FROM (
        SELECT b.asset_id, v.signal, v.measured_ms, v.received_at, b.valid @> at_ms(v.measured_ms) AS own,
               CASE WHEN v.signal IN (%(latitude)s, %(longitude)s, %(heading)s, %(speed)s)
                    THEN ARRAY[v.measured_ms::double precision, v.val] END AS pair
        FROM bindings b JOIN latest_values v ON v.device_key = b.device_key OFFSET 0) AS bound
    WHERE own GROUP BY asset_id
), recorded AS (
    SELECT b.asset_id, bool_and(d.kind = 'recording') AS recording
    FROM bindings b JOIN devices d ON d.device_key = b.device_key WHERE b.valid @> now() GROUP BY b.asset_id
)
SELECT a.name, a.kind, coalesce(r.recording, false) AS recording, at_ms(t.measured_ms) AS measured_at, t.received_at,
       at_ms(t.latitude[1]::bigint) AS position_at,
       nullif(coalesce(t.latitude[2], a.latitude), 'NaN') AS latitude,
       nullif(coalesce(t.longitude[2], a.longitude), 'NaN') AS longitude,
       nullif(t.heading[2], 'NaN') AS heading, nullif(t.speed[2], 'NaN') AS speed
FROM assets a LEFT JOIN told t ON t.asset_id = a.asset_id LEFT JOIN recorded r ON r.asset_id = a.asset_id
WHERE %(group)s::integer IS NULL OR a.asset_id IN (SELECT asset_id FROM asset_group_members WHERE group_id = %(group)s)
ORDER BY a.name LIMIT %(limit)s
"""


async def positions(connection: Connection, limit: int = MOST_ASSETS, group_id: int | None = None) -> list[DictRow]:
    """One row per asset of the tenant, by name; latitude and longitude are both null where neither is known."""
    of = catalogue().by_path
    values = {
        "latitude": of("Vehicle.CurrentLocation.Latitude").number,
        "longitude": of("Vehicle.CurrentLocation.Longitude").number,
        "heading": of("Vehicle.CurrentLocation.Heading").number,
        "speed": of("Vehicle.Speed").number,
        "limit": limit,
        "group": group_id,
    }
    return await (await connection.execute(POSITIONS, values)).fetchall()

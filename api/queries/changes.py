"""Which latest values changed, and which crash notices came, since a position, for the live stream.

A position is the oldest transaction still running when the store was last looked at. Every row written by that
transaction or a later one is given again, so nothing that commits out of order can be missed, whatever the clocks say;
what is given twice does no harm. Positions mean the same to every API process and survive their restarts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from psycopg.rows import DictRow

from api.queries.pool import Connection

POSITION = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS position"
CHANGED = """
SELECT a.name AS asset, s.path AS signal, nullif(v.val, 'NaN') AS value, s.unit, v.quality,
       at_ms(v.measured_ms) AS measured_at, v.received_at, v.device_key, v.boot_epoch, v.seq, v.pos
FROM (SELECT * FROM latest_values
      WHERE age(xmin) <= age(%(since)s::text::xid8::xid) LIMIT %(limit)s) v
JOIN signals s ON s.signal = v.signal
JOIN bindings b ON b.device_key = v.device_key AND b.valid @> at_ms(v.measured_ms)
JOIN assets a ON a.asset_id = b.asset_id
"""
NOTICES = """
SELECT n.device_key, n.event_id, n.notice, n.received_at, d.device, a.name AS asset
FROM (SELECT * FROM evidence_notices
      WHERE age(xmin) <= age(%(since)s::text::xid8::xid) ORDER BY entry_no DESC LIMIT %(limit)s) n
JOIN devices d ON d.device_key = n.device_key
LEFT JOIN bindings b ON b.device_key = n.device_key AND b.valid @> n.received_at
LEFT JOIN assets a ON a.asset_id = b.asset_id
ORDER BY n.entry_no
"""
MOST_NOTICES = 1_000
"""Of one look; older ones stay in the list of notices."""
WRAP = 2_000_000_000
"""Row versions carry 32 bits of their transaction's number: older positions cannot be compared."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows changed and the position to ask from next; ``whole`` False: too many or too old, load afresh."""

    position: int
    rows: list[DictRow]
    whole: bool = True
    notices: list[DictRow] = field(default_factory=list)


async def current_position(connection: Connection) -> int:
    row = await (await connection.execute(POSITION)).fetchone()
    return int(row["position"]) if row else 0


async def changes_since(connection: Connection, since: int, limit: int) -> Changes:
    """What changed since ``since``; a position of another cluster, or one too old, gives ``whole`` False."""
    position = await current_position(connection)  # before the rows: a later look may repeat, never skip
    if not position - WRAP < since <= position:
        return Changes(position, [], whole=False)
    values = {"since": str(since), "limit": limit + 1}
    rows = await (await connection.execute(CHANGED, values)).fetchall()
    asked = {"since": str(since), "limit": MOST_NOTICES}
    notices = await (await connection.execute(NOTICES, asked)).fetchall()
    return Changes(position, rows[:limit], len(rows) <= limit, notices)

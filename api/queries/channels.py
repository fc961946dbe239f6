"""Channels that messages about alerts go to, their deliveries, and what is at stake with an asset."""

from __future__ import annotations

from typing import Any, Final

from psycopg.rows import DictRow

from api.queries.pool import Connection

_COLUMNS: Final = (
    "channel_id, name, kind, target, min_severity, quiet_begin, quiet_end, zone, quiet_through, enabled, created_at,"
    " created_by"
)
LIST: Final = f"SELECT {_COLUMNS} FROM alert_channels ORDER BY name LIMIT 200"
COUNT: Final = "SELECT count(*) AS n FROM alert_channels"
ADD: Final = """
INSERT INTO alert_channels (channel_id, tenant_id, name, kind, target, secret, min_severity, quiet_begin, quiet_end,
    zone, quiet_through, created_by)
VALUES (%(channel_id)s, %(tenant_id)s, %(name)s, %(kind)s, %(target)s, %(secret)s, %(min_severity)s, %(quiet_begin)s,
    %(quiet_end)s, %(zone)s, %(quiet_through)s, %(created_by)s)
ON CONFLICT (tenant_id, name) DO NOTHING
"""
ONE: Final = f"SELECT {_COLUMNS} FROM alert_channels WHERE channel_id = %s"
REMOVE: Final = "DELETE FROM alert_channels WHERE channel_id = %s"
DELIVERIES: Final = """
SELECT delivery_id, alert_id, event_no, severity, state, attempts, next_attempt_at, last_error, created_at, ended_at
FROM alert_deliveries WHERE channel_id = %(channel)s AND (%(state)s::text IS NULL OR state = %(state)s)
ORDER BY delivery_id DESC LIMIT 100
"""
CARE: Final = "SELECT criticality, downtime_cost_per_day, visit_cost, currency FROM asset_care WHERE asset_id = %s"
SET_CARE: Final = """
INSERT INTO asset_care (asset_id, tenant_id, criticality, downtime_cost_per_day, visit_cost, currency, changed_by)
VALUES (%(asset_id)s, %(tenant_id)s, %(criticality)s, %(downtime_cost_per_day)s, %(visit_cost)s, %(currency)s, %(by)s)
ON CONFLICT (asset_id) DO UPDATE SET criticality = excluded.criticality, visit_cost = excluded.visit_cost,
    downtime_cost_per_day = excluded.downtime_cost_per_day, currency = excluded.currency, changed_at = now(),
    changed_by = excluded.changed_by
"""


async def list_channels(connection: Connection) -> list[DictRow]:
    return await (await connection.execute(LIST)).fetchall()


async def count_channels(connection: Connection) -> int:
    row = await (await connection.execute(COUNT)).fetchone()
    return int(row["n"]) if row else 0


async def add_channel(connection: Connection, values: dict[str, Any]) -> DictRow | None:
    """The channel; None: the tenant has one of that name."""
    if not (await connection.execute(ADD, values)).rowcount:
        return None
    return await show_channel(connection, values["channel_id"])


async def show_channel(connection: Connection, channel_id: str) -> DictRow | None:
    return await (await connection.execute(ONE, (channel_id,))).fetchone()


async def remove_channel(connection: Connection, channel_id: str) -> bool:
    return (await connection.execute(REMOVE, (channel_id,))).rowcount > 0


async def list_deliveries(connection: Connection, channel_id: str, state: str | None) -> list[DictRow]:
    return await (await connection.execute(DELIVERIES, {"channel": channel_id, "state": state})).fetchall()


async def read_care(connection: Connection, asset_id: int) -> DictRow | None:
    return await (await connection.execute(CARE, (asset_id,))).fetchone()


async def set_care(connection: Connection, values: dict[str, Any]) -> None:
    await connection.execute(SET_CARE, values)

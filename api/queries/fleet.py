"""What fleet questions read: the vehicles asked about, their newest values, sums of windows, strips of days.

A value, window or strip belongs to a vehicle while its device was bound to it. A newest value of bad quality tells
nothing; windows never held one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from psycopg.rows import TupleRow, tuple_row

from api.fleet.strips import overlay
from api.queries.pool import Connection
from api.questions import from_ms
from contracts.packet import FIRST_BAD_QUALITY
from contracts.signals import Signal

PICKED = """
WITH picked AS MATERIALIZED (
    SELECT asset_id, name, fleet, model, driver, load_capacity_kg, nominal_l_100km FROM assets
    WHERE kind IN ('car', 'truck') AND (%(fleet)s::text IS NULL OR fleet = %(fleet)s)
      AND (%(asset)s::text IS NULL OR name = %(asset)s)
), bound AS MATERIALIZED (
    SELECT b.asset_id, b.device_key, b.valid, lower_inf(b.valid) AND upper_inf(b.valid) AS always
    FROM bindings b JOIN picked p USING (asset_id)
)"""
VEHICLES = PICKED + " SELECT * FROM picked"

NEWEST = (
    PICKED
    + """, told AS (
    SELECT b.asset_id, v.signal, ARRAY[v.measured_ms::double precision,
        CASE WHEN v.quality < %(bad)s THEN v.val ELSE 'NaN' END] AS pair
    FROM bound b JOIN latest_values v ON v.device_key = b.device_key AND v.signal IN (%(first)s, %(second)s)
    WHERE b.always OR b.valid @> at_ms(v.measured_ms)
    UNION ALL
    SELECT asset_id, signal, ARRAY[measured_ms::double precision, val] FROM latest_before
    WHERE asset_id = ANY(ARRAY(SELECT asset_id FROM bound WHERE NOT always)) AND signal IN (%(first)s, %(second)s)
), newest AS (
    SELECT asset_id, max(pair) FILTER (WHERE signal = %(first)s) AS first,
           max(pair) FILTER (WHERE signal = %(second)s) AS second
    FROM told GROUP BY asset_id
)
SELECT p.*, n.first[1]::bigint, nullif(n.first[2], 'NaN'), n.second[1]::bigint, nullif(n.second[2], 'NaN')
FROM picked p LEFT JOIN newest n USING (asset_id)"""
)
"""A pair is (time, value), so that the greatest pair holds the newest value."""

SUMS = (
    PICKED
    + """, parts AS (
    SELECT b.asset_id, w.n, w.sum_units
    FROM bound b JOIN window_aggregates w ON w.device_key = b.device_key AND w.signal = %(signal)s
        AND w.width_s = %(width_s)s AND w.starts_at >= %(start)s AND w.starts_at < %(end)s
    WHERE b.always OR b.valid @> tstzrange(w.starts_at, w.starts_at + %(width_s)s * interval '1 s')
    UNION ALL
    SELECT b.asset_id, w.n, w.sum_units
    FROM bound b JOIN window_aggregates w ON NOT b.always AND w.device_key = b.device_key AND w.signal = %(signal)s
        AND w.width_s = 60 AND w.starts_at >= %(start)s AND w.starts_at < %(end)s
    CROSS JOIN LATERAL (
        SELECT date_bin(%(width_s)s * interval '1 s', w.starts_at, 'epoch'::timestamptz) AS begins) wide
    WHERE b.valid @> w.starts_at
        AND NOT b.valid @> tstzrange(wide.begins, wide.begins + %(width_s)s * interval '1 s')
)
SELECT p.asset_id, sum(p.n)::bigint, scaled(sum(p.sum_units), s.exponent)
FROM parts p CROSS JOIN signals s WHERE s.signal = %(signal)s
GROUP BY p.asset_id, s.exponent"""
)
"""A window in which a device was bound anew is told by its minutes."""

STRIPS = (
    PICKED
    + """, drawn AS (
    SELECT b.asset_id, s.day, s.strip, b.valid, b.always
    FROM bound b
    JOIN day_strips s ON s.device_key = b.device_key AND s.mark = (SELECT mark FROM marks WHERE name = %(mark)s)
        AND s.day >= %(first)s AND s.day < %(last)s
)
SELECT asset_id, day, strip FROM drawn WHERE always
UNION ALL
SELECT d.asset_id, d.day,
       repeat('.', c.begins) || substr(d.strip, c.begins + 1, c.ends - c.begins) || repeat('.', 144 - c.ends)
FROM drawn d CROSS JOIN LATERAL (
    SELECT greatest(0, least(144, coalesce(ceil(extract(epoch FROM lower(d.valid) - midnight) / 600), 0)))::integer
               AS begins,
           greatest(0, least(144, coalesce(ceil(extract(epoch FROM upper(d.valid) - midnight) / 600), 144)))::integer
               AS ends
    FROM (SELECT d.day::timestamp AT TIME ZONE 'UTC' AS midnight) m) c
WHERE NOT d.always AND c.begins < c.ends"""
)
"""A binding has the buckets that begin while it holds, as it has the windows that do."""


@dataclass(frozen=True, slots=True)
class Vehicle:
    """An asset that fleet questions are about."""

    asset_id: int
    name: str
    fleet: str | None
    model: str | None
    driver: str | None
    load_capacity_kg: float | None
    nominal_l_100km: float | None


@dataclass(frozen=True, slots=True)
class Newest:
    """A vehicle's newest values of two signals; both None where it never told one (or told no number)."""

    vehicle: Vehicle
    first_ms: int | None
    first: float | None
    second_ms: int | None
    second: float | None


async def vehicles(connection: Connection, fleet: str | None, asset: str | None) -> dict[int, Vehicle]:
    """The tenant's cars and trucks, of one fleet or one name where given, by asset id."""
    rows = await _rows(connection, VEHICLES, {"fleet": fleet, "asset": asset})
    return {row[0]: Vehicle(*row) for row in rows}


async def newest(
    connection: Connection, fleet: str | None, asset: str | None, first: Signal, second: Signal
) -> list[Newest]:
    values = {
        "fleet": fleet, "asset": asset, "first": first.number, "second": second.number, "bad": int(FIRST_BAD_QUALITY)
    }  # fmt: skip
    return [Newest(Vehicle(*row[:7]), *row[7:]) for row in await _rows(connection, NEWEST, values)]


async def sums(
    connection: Connection, fleet: str | None, asset: str | None, signal: Signal, width_s: int, start_ms: int,
    end_ms: int,
) -> dict[int, tuple[int, float]]:  # fmt: skip
    """(number of readings, their sum in the signal's unit) per asset, from windows that start in [start, end)."""
    values = {
        "fleet": fleet, "asset": asset, "signal": signal.number, "width_s": width_s, "start": from_ms(start_ms),
        "end": from_ms(end_ms),
    }  # fmt: skip
    return {row[0]: (row[1], row[2]) for row in await _rows(connection, SUMS, values)}


async def strips(
    connection: Connection, fleet: str | None, asset: str | None, mark: str, first: date, last: date
) -> dict[int, dict[int, str]]:
    """Strips per asset and day of [first, last), days counted from ``first``."""
    values = {"fleet": fleet, "asset": asset, "mark": mark, "first": first, "last": last}
    found: dict[int, dict[int, str]] = {}
    for asset_id, day, strip in await _rows(connection, STRIPS, values):
        days, number = found.setdefault(asset_id, {}), (day - first).days
        days[number] = overlay(days[number], strip) if number in days else strip
    return found


async def _rows(connection: Connection, statement: str, values: dict[str, Any]) -> Sequence[TupleRow]:
    async with connection.cursor(binary=True, row_factory=tuple_row) as cursor:
        return await (await cursor.execute(statement.encode(), values)).fetchall()

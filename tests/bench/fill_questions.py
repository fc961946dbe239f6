"""A store of trucks for the benchmark of fleet questions, filled by SQL: who they are, what they told last, windows.

The questions' cost lies in strips, day roll-ups, latest values and the minutes of ten minutes, so that is what is there
in full; of older speeds, engines and lamps there is one minute in ten, and no window of ten seconds. Strips are drawn
by the store's own trigger when the hours are put in.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, LiteralString

import psycopg

from infra.postgres import Postgres
from tests.bench.fill_history import TENANT, dsn

DAYS: Final = 3
DENSE_MIN: Final = 240
LATEST: Final = (
    "Vehicle.CurrentLocation.Latitude", "Vehicle.CurrentLocation.Longitude", "Vehicle.Speed",
    "Vehicle.Powertrain.FuelSystem.RelativeLevel", "Fleetstream.Cargo.Weight",
)  # fmt: skip
MARKED: Final = (
    "Vehicle.Speed", "Vehicle.Powertrain.CombustionEngine.IsRunning", "Fleetstream.Diagnostics.IsMalfunctionLampOn",
)  # fmt: skip
DAILY: Final = ("Vehicle.Powertrain.FuelSystem.InstantConsumption", "Fleetstream.Cargo.Weight")

TRUCKS: Final[LiteralString] = """
WITH tenant AS (
    INSERT INTO tenants (name) VALUES (%(tenant)s) RETURNING tenant_id
), made AS (
    INSERT INTO assets (tenant_id, name, kind, fleet, driver, model, load_capacity_kg, fuel_capacity_l, nominal_l_100km)
    SELECT t.tenant_id, 'truck_' || i, 'truck', (ARRAY['East', 'West', 'North', 'South'])[1 + mod(h, 4)],
        'driver ' || mod(h / 4, 6), (ARRAY['F-150', 'G-2000', 'H-2'])[1 + mod(h / 24, 3)],
        (ARRAY[2000, 5000, 1500])[1 + mod(h / 24, 3)], (ARRAY[200, 300, 150])[1 + mod(h / 24, 3)],
        (ARRAY[15, 19, 12])[1 + mod(h / 24, 3)]
    FROM tenant t, generate_series(0, %(trucks)s - 1) AS i, LATERAL (SELECT abs(hashint4(i) / 2) AS h) dice
    RETURNING asset_id, tenant_id, name
), device AS (
    INSERT INTO devices (device, tenant_id, kind) SELECT name, tenant_id, 'simulated' FROM made
    RETURNING device_key, tenant_id, device
)
INSERT INTO bindings (device_key, asset_id, tenant_id)
SELECT d.device_key, m.asset_id, d.tenant_id FROM device d JOIN made m ON m.name = d.device"""

NEWEST: Final[LiteralString] = """
INSERT INTO latest_values (device_key, signal, tenant_id, measured_ms, boot_epoch, seq, pos, val, quality, received_at)
SELECT d.device_key, s.signal, d.tenant_id, (extract(epoch FROM now()) * 1000)::bigint - mod(d.device_key, 9000), 1, 1,
       0, CASE WHEN s.path LIKE '%%Weight' THEN mod(h, 5000) WHEN s.path LIKE '%%Level' THEN mod(h, 1001) / 10.0
            ELSE mod(h, 90) END, 0, now()
FROM devices d JOIN signals s ON s.path = ANY(%(paths)s)
CROSS JOIN LATERAL (SELECT abs(hashint4(d.device_key * 7 + s.signal) / 2) AS h) dice"""

WINDOWS: Final[LiteralString] = """
INSERT INTO window_aggregates (device_key, signal, width_s, starts_at, tenant_id, state, n, sum_units, sumsq_units,
    min_units, max_units, first_units, first_ms, first_epoch, first_seq, first_pos, last_units, last_ms, last_epoch,
    last_seq, last_pos)
SELECT d.device_key, s.signal, %(width)s, at, d.tenant_id, 1, 6, 6 * v, 6 * v * v, v, v, v, 0, 1, 1, 1, v, 1, 1, 1, 1
FROM devices d JOIN signals s ON s.path = ANY(%(paths)s)
CROSS JOIN generate_series(%(start)s::timestamptz, %(end)s::timestamptz - interval '1 s', %(step)s * interval '1 s') at
CROSS JOIN LATERAL (
    SELECT abs(hashint8(d.device_key * 100003::bigint + s.signal * 1009 + extract(epoch FROM at)::bigint / 5400) / 2)
        AS h
) dice
CROSS JOIN LATERAL (SELECT (CASE WHEN s.signal = 1 THEN CASE mod(h, 5) WHEN 0 THEN 0 ELSE 1000 + mod(h, 9000) END
    WHEN s.datatype = 'boolean' THEN (mod(h, 5) > 0)::integer ELSE 100 + mod(h, 4000) END)::bigint AS v) said
ON CONFLICT DO NOTHING"""


@dataclass(frozen=True, slots=True)
class Filled:
    """What lies in the store: whole UTC days up to ``end_s`` (Unix seconds, a midnight)."""

    trucks: int
    end_s: int

    @property
    def start_s(self) -> int:
        return self.end_s - DAYS * 86_400


def fill(postgres: Postgres, trucks: int, end_s: int) -> Filled:
    """Minutes first, then the hours that are made of them, which draw the strips."""
    filled = Filled(trucks, end_s)
    speed = MARKED[0]
    with psycopg.connect(dsn(postgres), autocommit=True) as connection:
        connection.execute(TRUCKS, {"tenant": TENANT, "trucks": trucks})
        connection.execute(NEWEST, {"paths": list(LATEST)})
        for width, step, start_s, paths in (
            (60, 600, filled.start_s, MARKED), (60, 60, end_s - DENSE_MIN * 60, (speed,)),
            (3_600, 3_600, filled.start_s, MARKED), (86_400, 86_400, filled.start_s, DAILY),
        ):  # fmt: skip
            for begin_s in range(start_s, end_s, 86_400):
                last_s = min(end_s, begin_s + 86_400)
                values = {
                    "width": width, "step": step, "paths": list(paths), "start": _time(begin_s), "end": _time(last_s)
                }  # fmt: skip
                connection.execute(WINDOWS, values)
        connection.execute("VACUUM ANALYZE")
        row = connection.execute("SELECT count(*) FROM day_strips WHERE position('.' IN strip) = 0").fetchone()
    if row is None or row[0] != trucks * DAYS * len(MARKED):
        raise RuntimeError(f"the strips are not whole: {row}")
    return filled


def _time(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat()

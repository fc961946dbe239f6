"""Fleet: how many assets send, which do not, and what they do now."""

from __future__ import annotations

from typing import Any

from dashboards.grafana.panels import board, lines, number, query_variable, rows

TENANTS = "SELECT DISTINCT tenant FROM latest WHERE tenant <> 'platform' ORDER BY 1"
"""The platform's own processes are assets too, and no fleet."""
NOW = """
SELECT count(*) AS assets
FROM (SELECT asset, max(measured_at) AS at FROM latest WHERE tenant = ${tenant:sqlstring} AND asset IS NOT NULL
      GROUP BY asset) newest"""
STATE = """
SELECT asset, max(measured_at) AS measured_at, extract(epoch FROM now() - max(measured_at)) AS age,
       CASE WHEN max(measured_at) > now() - interval '15 s' THEN 'live'
            WHEN max(received_at) > now() - interval '15 s' THEN 'catching up'
            WHEN max(received_at) > now() - interval '60 s' THEN 'delayed' ELSE 'silent' END AS state,
       count(*) AS signals
FROM latest WHERE tenant = ${tenant:sqlstring} AND asset IS NOT NULL GROUP BY asset ORDER BY measured_at LIMIT 1000
"""
SPEED = """
SELECT $__timeGroupAlias(starts_at, $__interval, NULL), avg(mean) AS "mean of the fleet", max(max) AS fastest
FROM windows WHERE tenant = ${tenant:sqlstring} AND signal = 'Vehicle.Speed' AND width_s = 60
  AND $__timeFilter(starts_at) GROUP BY 1 ORDER BY 1
"""
POWER = """
SELECT $__timeGroupAlias(starts_at, $__interval, NULL), sum(mean) / count(DISTINCT starts_at) AS "all turbines"
FROM windows WHERE tenant = ${tenant:sqlstring} AND signal = 'WindTurbine.WTUR.W' AND width_s = 60
  AND $__timeFilter(starts_at) GROUP BY 1 ORDER BY 1
"""
ACTIVE = """
SELECT $__timeGroupAlias(received_at, $__interval, NULL), count(DISTINCT asset) AS "assets heard"
FROM packets WHERE tenant = ${tenant:sqlstring} AND $__timeFilter(received_at) GROUP BY 1 ORDER BY 1
"""


def make() -> dict[str, Any]:
    late = ((None, "green"), (1, "orange"))
    tenants = query_variable("tenant", "Tenant", TENANTS)
    return board(
        "fleetstream-fleet", "Fleetstream / Fleet", "Which assets send, which went silent, what the fleet does.",
        [
            [
                number("Assets", "Assets that ever sent a value.", NOW),
                number("Live", "Newest value measured within the last 15 s.",
                       f"{NOW} WHERE at > now() - interval '15 s'"),
                number("Silent", "Nothing measured for more than a minute.",
                       f"{NOW} WHERE at <= now() - interval '60 s'", steps=late),
            ],
            [
                lines("Assets heard", "Assets of which a packet arrived, by time of receipt.", ACTIVE),
                lines("Speed", "Mean over the cars' one-minute means, and the fastest reading.", SPEED, "km/h"),
                lines("Power", "Sum of the turbines' one-minute means.", POWER, "kW"),
            ],
            [rows("Assets by age of data", "The longest silent first. Ages are of the newest measured value.", STATE,
                  units={"age": "s"})],
        ],
        [tenants],
        least="1m",
    )  # fmt: skip

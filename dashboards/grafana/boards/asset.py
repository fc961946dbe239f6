"""One asset: everything it says now, any signal over time with its roll-up, and which windows were corrected."""

from __future__ import annotations

from typing import Any

from dashboards.grafana.panels import board, lines, query_variable, rows

NOW = """
SELECT signal, value, unit, measured_at, extract(epoch FROM now() - measured_at) AS age, quality, device
FROM latest WHERE tenant = ${tenant:sqlstring} AND asset = ${asset:sqlstring} ORDER BY signal
"""
HISTORY = """
SELECT $__timeGroupAlias(starts_at, $__interval, NULL), sum(mean * n) / sum(n) AS "mean (${signal:raw})",
       min(min) AS min, max(max) AS max
FROM windows
WHERE tenant = ${tenant:sqlstring} AND asset = ${asset:sqlstring} AND signal = ${signal:sqlstring}
  AND $__timeFilter(starts_at)
  AND width_s = CASE WHEN $__interval_ms < 60000 THEN 10 WHEN $__interval_ms < 3600000 THEN 60
                     WHEN $__interval_ms < 86400000 THEN 3600 ELSE 86400 END
GROUP BY 1 ORDER BY 1
"""
CORRECTED = """
SELECT starts_at, signal, width_s AS width, revision, first_published_mean AS "mean as first told", mean, n,
       first_published_n AS "n as first told"
FROM late WHERE tenant = ${tenant:sqlstring} AND asset = ${asset:sqlstring} AND $__timeFilter(starts_at)
ORDER BY starts_at DESC LIMIT 200
"""
RATE = """
SELECT $__timeGroupAlias(received_at, $__interval), sum(samples) AS samples
FROM packets WHERE tenant = ${tenant:sqlstring} AND asset = ${asset:sqlstring} AND $__timeFilter(received_at)
GROUP BY 1 ORDER BY 1
"""


def make() -> dict[str, Any]:
    tenants = query_variable("tenant", "Tenant", "SELECT DISTINCT tenant FROM latest ORDER BY 1")
    here = "FROM latest WHERE tenant = ${tenant:sqlstring} AND asset"
    assets = query_variable("asset", "Asset", f"SELECT DISTINCT asset {here} IS NOT NULL ORDER BY 1")
    signals = query_variable(
        "signal", "Signals", f"SELECT DISTINCT signal {here} = ${{asset:sqlstring}} ORDER BY 1", many=True
    )
    return board(
        "fleetstream-asset", "Fleetstream / Asset", "One asset: now, over time, corrected.",
        [
            [rows("Now", "The newest value of each signal with its age. No row: never sent.", NOW, units={"age": "s"})],
            [lines("${signal}", "Mean, smallest and largest reading per point; the unit stands in the table above.",
                   HISTORY, repeat="signal")],
            [
                lines("Samples received", "By time of receipt: a backlog shows as a peak.", RATE, bars=True),
                rows("Corrected windows", "Windows that late packets changed, with what was told first.", CORRECTED,
                     width=12, units={"width": "s"}),
            ],
        ],
        [tenants, assets, signals],
    )  # fmt: skip

"""Pipeline: how much arrives, how long it takes, how late it is, and what was set aside."""

from __future__ import annotations

from typing import Any

from dashboards.grafana.panels import board, lines, number, rows

RATE = """
SELECT $__timeGroupAlias(stored_at, $__interval, 0), sum(samples) * 1000.0 / $__interval_ms AS "samples per second"
FROM packets WHERE $__timeFilter(stored_at) AND received_at > $__timeFrom()::timestamptz - interval '2 days'
GROUP BY 1 ORDER BY 1
"""
STORE = """
SELECT $__timeGroupAlias(received_at, $__interval, NULL),
       percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM stored_at - received_at)) AS median,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY extract(epoch FROM stored_at - received_at)) AS p95
FROM packets WHERE $__timeFilter(received_at) GROUP BY 1 ORDER BY 1
"""
LATENESS = """
SELECT $__timeGroupAlias(received_at, $__interval, NULL),
       percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM received_at - last_at)) AS median,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY extract(epoch FROM received_at - last_at)) AS p95
FROM packets WHERE $__timeFilter(received_at) AND clock_trusted GROUP BY 1 ORDER BY 1
"""
CORRECTED = """
SELECT $__timeGroupAlias(starts_at, $__interval), count(*) AS "windows corrected"
FROM late WHERE $__timeFilter(starts_at) GROUP BY 1 ORDER BY 1
"""
ASIDE = """
SELECT $__timeGroupAlias(at, $__interval), reason AS metric, count(*) AS packets
FROM (SELECT received_at AS at, reason FROM quarantine UNION ALL SELECT received_at, reason FROM dead_letters) aside
WHERE $__timeFilter(at) GROUP BY 1, 2 ORDER BY 1
"""
LETTERS = """
SELECT received_at, 'dead letter' AS kind, device, reason, detail, size_bytes AS size FROM dead_letters
WHERE $__timeFilter(received_at)
UNION ALL
SELECT received_at, 'quarantine', device, reason, detail::text, size_bytes FROM quarantine
WHERE $__timeFilter(received_at) ORDER BY 1 DESC LIMIT 200
"""
CPU = """
SELECT starts_at AS time, asset AS metric,
       greatest(0, max - lag(max) OVER earlier) / extract(epoch FROM starts_at - lag(starts_at) OVER earlier) AS cores
FROM windows WHERE signal = 'Process.CpuSeconds' AND width_s = 60 AND $__timeFilter(starts_at)
WINDOW earlier AS (PARTITION BY tenant, asset ORDER BY starts_at) ORDER BY 1
"""
MEMORY = """
SELECT starts_at AS time, asset AS metric, max AS bytes
FROM windows WHERE signal = 'Process.ResidentBytes' AND width_s = 60 AND $__timeFilter(starts_at) ORDER BY 1
"""
BACKLOG = """
SELECT starts_at AS time, asset AS metric, max AS waiting
FROM windows WHERE signal = 'Process.Backlog' AND width_s = 60 AND $__timeFilter(starts_at) ORDER BY 1
"""
BEHIND = """
SELECT extract(epoch FROM now() - coalesce(
    (SELECT max(stored_at) FROM packets WHERE received_at > now() - interval '1 day'),
    (SELECT max(received_at) FROM latest))) AS seconds
"""


def make() -> dict[str, Any]:
    slow = ((None, "green"), (60, "orange"), (300, "red"))
    return board(
        "fleetstream-pipeline", "Fleetstream / Pipeline", "Rate, latency, lateness, and what was set aside.",
        [
            [number("Since the last row", "Age of the newest stored packet; after a day without, of the newest value.",
                    BEHIND, "s", steps=slow)],
            [
                lines("Stored", "Samples that became rows, at most two days after receipt.", RATE, "samples/s"),
                lines("Receipt to row", "From the gateway's stamp to the committed row.", STORE, "s"),
                lines("Lateness", "From the packet's newest sample to its receipt: links, backlogs, flat batteries.",
                      LATENESS, "s"),
                lines("Corrected windows", "Windows that late packets changed, by the time they tell about.", CORRECTED,
                      bars=True),
            ],
            [
                lines("Processor", "Cores in use per process of the platform, its children included.", CPU),
                lines("Memory", "Resident memory per process of the platform, its children included.", MEMORY, "By"),
                lines("Waiting", "Records before ingest, publishes in the gateway, rows in the outbox.", BACKLOG),
            ],
            [lines("Set aside", "Quarantined and dead-lettered packets by reason.", ASIDE, width=24, bars=True)],
            [rows("Newest set aside", "With reason and size; the bytes are kept in the store.", LETTERS,
                  units={"size": "By"})],
        ],
    )  # fmt: skip

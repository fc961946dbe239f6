"""Delivery ledger: accepted, stored, dropped, set aside, missing; from identities, per device."""

from __future__ import annotations

from typing import Any

from dashboards.grafana.panels import board, number, rows

MISSING = "upper(r) - lower(r)"
HOLES = f"SELECT coalesce(sum({MISSING}), 0)::bigint AS packets FROM ledger, unnest(missing) AS r"
DEVICES = f"""
SELECT device, boot_epoch, accepted_packets, stored_packets, duplicates_suppressed, dropped_packets,
       quarantined_packets, dead_lettered_packets,
       (SELECT coalesce(sum({MISSING}), 0) FROM unnest(missing) AS r)::bigint AS missing_packets, missing,
       oldest_unacked_ms / 1000.0 AS "oldest unacknowledged", reported_at
FROM ledger ORDER BY missing_packets DESC, device, boot_epoch LIMIT 1000
"""


def make() -> dict[str, Any]:
    bad, note = ((None, "green"), (1, "red")), ((None, "green"), (1, "orange"))
    column = "SELECT sum({0})::bigint AS packets FROM ledger".format
    return board(
        "fleetstream-delivery", "Fleetstream / Delivery ledger",
        "What became of every packet that an agent accepted. From identities, not from counters that restart.",
        [
            [
                number("Accepted", "Packets that agents committed to their spools.", column("accepted_packets")),
                number("Stored", "Packets in the store, each exactly once.", column("stored_packets")),
                number("Missing", "Accepted, and neither stored nor accounted for: under way, or lost if it stays.",
                       HOLES, steps=bad),
                number("Dropped by agents", "Given up by a full spool, reported with range and reason.",
                       column("dropped_packets"), steps=note),
                number("Set aside", "Quarantined or dead-lettered, with their bytes.",
                       column("quarantined_packets + dead_lettered_packets"), steps=note),
                number("Duplicates suppressed", "Arrived again and were recognised.", column("duplicates_suppressed")),
            ],
            [rows("By device and boot epoch", "The most missing first; ranges are of sequence numbers.", DEVICES,
                  height=16, units={"oldest unacknowledged": "s"})],
        ],
    )  # fmt: skip

"""The delivery ledger, and how much was set aside for which reason."""

from __future__ import annotations

from typing import Any

from psycopg.rows import DictRow
from psycopg.types.multirange import Multirange

from api.queries.pool import Connection

LEDGER = """
SELECT device, boot_epoch, accepted_packets, accepted_samples, stored_packets, stored_samples, duplicates_suppressed,
       dropped_packets, dropped_samples, quarantined_packets, dead_lettered_packets, missing, oldest_unacked_ms,
       reported_at
FROM ledger WHERE (device, boot_epoch) > (%s, %s) ORDER BY device, boot_epoch LIMIT %s
"""
TOTALS = """
SELECT count(DISTINCT device) AS devices, coalesce(sum(accepted_packets), 0)::bigint AS accepted_packets,
       sum(accepted_samples)::bigint AS accepted_samples, coalesce(sum(stored_packets), 0)::bigint AS stored_packets,
       coalesce(sum(stored_samples), 0)::bigint AS stored_samples,
       coalesce(sum(duplicates_suppressed), 0)::bigint AS duplicates_suppressed,
       coalesce(sum(dropped_packets), 0)::bigint AS dropped_packets,
       coalesce(sum(quarantined_packets), 0)::bigint AS quarantined_packets,
       coalesce(sum(dead_lettered_packets), 0)::bigint AS dead_lettered_packets,
       coalesce(sum((SELECT sum(upper(r) - lower(r)) FROM unnest(missing) r)), 0)::bigint AS missing_packets
FROM ledger
"""
QUARANTINE = """
SELECT reason, count(*) AS packets, coalesce(sum(samples), 0)::bigint AS samples, sum(size_bytes)::bigint AS bytes,
       min(received_at) AS first_received_at, max(received_at) AS last_received_at
FROM quarantine GROUP BY reason ORDER BY reason
"""
DEAD_LETTERS = """
SELECT reason, count(*) AS packets, NULL::bigint AS samples, sum(size_bytes)::bigint AS bytes,
       min(received_at) AS first_received_at, max(received_at) AS last_received_at
FROM dead_letters GROUP BY reason ORDER BY reason
"""


async def list_ledger(connection: Connection, after: tuple[str, int], limit: int) -> list[DictRow]:
    """Rows per device and boot epoch; ``missing`` becomes a list of inclusive (first, last)."""
    rows = await (await connection.execute(LEDGER, (*after, limit))).fetchall()
    return [{**row, "missing": _inclusive(row["missing"])} for row in rows]


async def ledger_totals(connection: Connection) -> DictRow:
    row = await (await connection.execute(TOTALS)).fetchone()
    return row or {}


async def count_quarantine(connection: Connection) -> list[DictRow]:
    return await (await connection.execute(QUARANTINE)).fetchall()


async def count_dead_letters(connection: Connection) -> list[DictRow]:
    return await (await connection.execute(DEAD_LETTERS)).fetchall()


def _inclusive(ranges: Multirange[Any]) -> list[tuple[int, int]]:
    """PostgreSQL gives int8 ranges as [lower, upper)."""
    return [(int(one.lower or 0), int(one.upper or 0) - 1) for one in ranges]

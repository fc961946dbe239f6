"""The delivery ledger, and how much was set aside for which reason."""

from __future__ import annotations

from typing import Any

from psycopg.rows import DictRow
from psycopg.types.multirange import Multirange

from api.queries.pool import Connection

LEDGER = """
SELECT device, boot_epoch, accepted_packets, accepted_samples, confirmed_packets, held_packets, stored_packets,
       stored_samples, evidence_packets, duplicates_suppressed, dropped_packets, dropped_samples, quarantined_packets,
       dead_lettered_packets, missing, numbers_in(missing) AS missing_packets,
       CASE WHEN on_its_way IS NOT NULL THEN numbers_in(on_its_way) END AS on_its_way_packets, not_accepted_samples,
       oldest_unacked_ms, oldest_waiting_ms, reported_at, heard_at
FROM ledger WHERE (device, boot_epoch) > (%(device)s, %(boot_epoch)s) AND (%(only)s::text IS NULL OR device = %(only)s)
ORDER BY device, boot_epoch LIMIT %(limit)s
"""
TOTALS = """
SELECT count(DISTINCT device) AS devices, coalesce(sum(accepted_packets), 0)::bigint AS accepted_packets,
       sum(accepted_samples)::bigint AS accepted_samples, sum(confirmed_packets)::bigint AS confirmed_packets,
       sum(held_packets)::bigint AS held_packets, coalesce(sum(stored_packets), 0)::bigint AS stored_packets,
       coalesce(sum(stored_samples), 0)::bigint AS stored_samples,
       coalesce(sum(evidence_packets), 0)::bigint AS evidence_packets,
       coalesce(sum(duplicates_suppressed), 0)::bigint AS duplicates_suppressed,
       coalesce(sum(dropped_packets), 0)::bigint AS dropped_packets,
       coalesce(sum(quarantined_packets), 0)::bigint AS quarantined_packets,
       coalesce(sum(dead_lettered_packets), 0)::bigint AS dead_lettered_packets,
       coalesce(sum(numbers_in(missing)), 0)::bigint AS missing_packets,
       sum(not_accepted_samples)::bigint AS not_accepted_samples,
       (SELECT count(*) FROM gaps WHERE state = 'open') AS open_gaps, max(oldest_waiting_ms) AS oldest_waiting_ms
FROM ledger
"""
DROPS = """
SELECT device, boot_epoch, first_seq, last_seq, reason, class, packets, samples, reported_at
FROM drops WHERE (device, boot_epoch, first_seq, last_seq) > (%(device)s, %(boot_epoch)s, %(first)s, %(last)s)
    AND (%(only)s::text IS NULL OR device = %(only)s)
ORDER BY device, boot_epoch, first_seq, last_seq LIMIT %(limit)s
"""
GAPS = """
SELECT gap_id, device, boot_epoch, state, missing_packets, first_seq, last_seq, since, opened_at, ended_at
FROM gaps WHERE gap_id < %(gap_id)s AND (%(only)s::text IS NULL OR device = %(only)s)
    AND (%(state)s::text IS NULL OR state = %(state)s)
ORDER BY gap_id DESC LIMIT %(limit)s
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


async def list_ledger(connection: Connection, after: tuple[str, int], only: str | None, limit: int) -> list[DictRow]:
    """Rows per device and boot epoch; ``missing`` becomes a list of inclusive (first, last)."""
    asked = {"device": after[0], "boot_epoch": after[1], "only": only, "limit": limit}
    rows = await (await connection.execute(LEDGER, asked)).fetchall()
    return [{**row, "missing": _inclusive(row["missing"])} for row in rows]


async def list_drops(
    connection: Connection, after: tuple[str, int, int, int], only: str | None, limit: int
) -> list[DictRow]:
    names = ("device", "boot_epoch", "first", "last")
    asked = {**dict(zip(names, after, strict=True)), "only": only, "limit": limit}
    return await (await connection.execute(DROPS, asked)).fetchall()


async def list_gaps(
    connection: Connection, before_id: int, only: str | None, state: str | None, limit: int
) -> list[DictRow]:
    """Newest first."""
    asked = {"gap_id": before_id, "only": only, "state": state, "limit": limit}
    return await (await connection.execute(GAPS, asked)).fetchall()


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

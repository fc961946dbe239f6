"""Readings of one asset and signal, oldest first, a page at a time.

A page looks at a bounded number of packets of each device, oldest first. The last one bounds the page: none behind it
holds an earlier sample, so what lies before its first sample is complete. That keeps each question's cost independent
of the length of the asked range.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.rows import DictRow

from api.errors import QueryTooLong
from api.queries.pool import Connection

PACKETS_PER_PAGE = 4_000
PAGES_PER_ANSWER = 16
MOST_PACKETS = 256_000
"""A page grows only when so many packets of one asset overlap in time that none is complete; this is the end of it."""

PAGE = """
WITH bound AS MATERIALIZED (
    SELECT device_key, valid FROM bindings WHERE asset_id = %(asset)s
), picked AS MATERIALIZED (
    SELECT p.*
    FROM (SELECT DISTINCT device_key FROM bound) d
    CROSS JOIN LATERAL (
        SELECT device_key, boot_epoch, seq, base_ms, first_at, signals, offsets_ms, vals, qualities
        FROM packet_rows
        WHERE device_key = d.device_key AND last_at >= at_ms(%(from_ms)s) AND first_at < at_ms(%(to_ms)s)
        ORDER BY first_at LIMIT %(packets)s + 1) p
), horizon AS MATERIALIZED (
    SELECT least(%(to_ms)s, floor(extract(epoch FROM min(complete_to)) * 1000)::bigint) AS ms
    FROM (SELECT max(first_at) AS complete_to FROM picked GROUP BY device_key HAVING count(*) > %(packets)s) one
)
SELECT h.ms AS horizon_ms, r.*
FROM horizon h
LEFT JOIN LATERAL (
    SELECT p.base_ms + p.offsets_ms[u.pos] AS measured_ms, p.device_key, p.boot_epoch, p.seq, u.pos,
           nullif(p.vals[u.pos], 'NaN') AS value, coalesce(p.qualities[u.pos], 0::smallint) AS quality
    FROM picked p
    CROSS JOIN LATERAL unnest(array_positions(p.signals, %(signal)s::smallint)) AS u (pos)
    JOIN bound b ON b.device_key = p.device_key AND b.valid @> at_ms(p.base_ms + p.offsets_ms[u.pos])
    WHERE p.base_ms + p.offsets_ms[u.pos] >= %(from_ms)s AND p.base_ms + p.offsets_ms[u.pos] < h.ms
      AND (p.base_ms + p.offsets_ms[u.pos], p.device_key, p.boot_epoch, p.seq, u.pos)
          > (%(after_ms)s, %(after_device)s, %(after_epoch)s, %(after_seq)s, %(after_pos)s)
    ORDER BY 1, 2, 3, 4, 5 LIMIT %(limit)s
) r ON true
ORDER BY r.measured_ms, r.device_key, r.boot_epoch, r.seq, r.pos
"""
DEVICES = "SELECT device_key, device FROM devices WHERE device_key = ANY(%s)"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page ended: the order of readings. Times are Unix epoch milliseconds."""

    ms: int
    device_key: int = 0
    boot_epoch: int = 0
    seq: int = 0
    pos: int = 0


@dataclass(frozen=True, slots=True)
class Page:
    """Readings of a page and where the next begins; ``next_place`` None: the range is complete."""

    rows: list[DictRow]
    next_place: Place | None


async def read_range(connection: Connection, asset_id: int, signal: int, place: Place, to_ms: int, limit: int) -> Page:
    """Up to ``limit`` readings after ``place`` and before ``to_ms``; a sparse signal may give fewer before the end."""
    rows: list[DictRow] = []
    at: Place | None = place
    for _ in range(PAGES_PER_ANSWER):
        if at is None or len(rows) == limit:
            break
        page = await read_page(connection, asset_id, signal, at, to_ms, limit - len(rows))
        rows += page.rows
        at = page.next_place
    return Page(rows, at)


async def read_page(
    connection: Connection, asset_id: int, signal: int, place: Place, to_ms: int, limit: int,
    packets: int = PACKETS_PER_PAGE,
) -> Page:  # fmt: skip
    """One look at the store. Raises QueryTooLong when too many packets cover one and the same moment."""
    while packets <= MOST_PACKETS:
        values = {
            "asset": asset_id, "signal": signal, "from_ms": place.ms, "to_ms": to_ms, "packets": packets,
            "limit": limit, "after_ms": place.ms, "after_device": place.device_key, "after_epoch": place.boot_epoch,
            "after_seq": place.seq, "after_pos": place.pos,
        }  # fmt: skip
        found = await (await connection.execute(PAGE, values)).fetchall()
        horizon_ms = int(found[0]["horizon_ms"])
        rows = [row for row in found if row["measured_ms"] is not None]
        if len(rows) == limit:
            return Page(rows, _place(rows[-1]))
        if horizon_ms >= to_ms:
            return Page(rows, None)
        if horizon_ms > place.ms:
            return Page(rows, Place(horizon_ms))
        packets *= 4
    raise QueryTooLong(f"more than {MOST_PACKETS} packets of this asset cover one moment; ask for another range")


async def device_names(connection: Connection, device_keys: set[int]) -> dict[int, str]:
    rows = await (await connection.execute(DEVICES, (list(device_keys),))).fetchall()
    return {row["device_key"]: row["device"] for row in rows}


def _place(row: DictRow) -> Place:
    return Place(row["measured_ms"], row["device_key"], row["boot_epoch"], row["seq"], row["pos"])

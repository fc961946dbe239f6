"""Readings of one asset and signal, oldest first, a page at a time, from packet rows and compacted blocks alike.

One statement reads both, so whatever a compaction moves in the meantime is seen once. A page looks at a bounded
number of packets and blocks of each device, oldest first. The last one bounds the page: none behind it holds an
earlier sample, so what lies before its first sample is complete. That keeps each question's cost independent of the
length of the asked range.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from psycopg.rows import DictRow, dict_row

from api.errors import QueryTooLong
from api.queries.blocks import Piece, load_arrays, read_piece
from api.queries.pool import Connection

PACKETS_PER_PAGE = 8_000
PAGES_PER_ANSWER = 16
MOST_PACKETS = 512_000
"""A page grows only when so many packets of one asset overlap in time that none is complete; this is the end of it."""

PACKETS_PER_BLOCK = 8
"""Blocks looked at are so many times fewer; each stands for about ten minutes."""

BINDINGS = """
SELECT device_key, lower_inc(valid) AS from_inc, upper_inc(valid) AS to_inc,
       CASE WHEN isfinite(lower(valid)) THEN (extract(epoch FROM lower(valid)) * 1000000)::bigint END AS from_us,
       CASE WHEN isfinite(upper(valid)) THEN (extract(epoch FROM upper(valid)) * 1000000)::bigint END AS to_us
FROM bindings WHERE asset_id = %s
"""
PAGE = """
WITH d AS (SELECT unnest(%(devices)s::integer[]) AS device_key),
picked AS MATERIALIZED (
    SELECT p.* FROM d CROSS JOIN LATERAL (
        SELECT device_key, boot_epoch, seq, base_ms, first_at, signals, offsets_ms, vals, qualities FROM packet_rows
        WHERE device_key = d.device_key AND last_at >= at_ms(%(from_ms)s) AND first_at < at_ms(%(to_ms)s)
        ORDER BY first_at LIMIT %(packets)s + 1) p
), blocks AS MATERIALIZED (
    SELECT b.* FROM d CROSS JOIN LATERAL (
        SELECT device_key, boot_epoch, base_ms, base_units, base_seq, exponent, scale, first_at, steps2, steps4,
               units2, units4, units8, raw, seq_steps, pos_steps, qualities FROM reading_blocks
        WHERE device_key = d.device_key AND signal = %(signal)s AND last_at >= at_ms(%(from_ms)s)
            AND first_at < at_ms(%(to_ms)s)
        ORDER BY first_at LIMIT %(blocks)s + 1) b
), horizon AS MATERIALIZED (
    SELECT least(%(to_ms)s, floor(extract(epoch FROM min(complete_to)) * 1000)::bigint) AS ms FROM (
        SELECT max(first_at) AS complete_to FROM picked GROUP BY device_key HAVING count(*) > %(packets)s
        UNION ALL SELECT max(first_at) FROM blocks GROUP BY device_key HAVING count(*) > %(blocks)s) one
), hot AS MATERIALIZED (
    SELECT p.device_key, p.boot_epoch, p.seq, u.pos, p.base_ms + p.offsets_ms[u.pos] AS ms, p.vals[u.pos] AS val,
           coalesce(p.qualities[u.pos], 0::smallint) AS quality
    FROM picked p CROSS JOIN LATERAL unnest(array_positions(p.signals, %(signal)s::smallint)) AS u (pos)
)
SELECT h.ms AS horizon_ms, x.* FROM horizon h LEFT JOIN LATERAL (
    SELECT device_key, boot_epoch, base_ms, base_units, base_seq, exponent, scale, steps2, steps4, units2, units4,
           units8, raw, seq_steps, pos_steps, qualities, NULL::bigint[] AS ms, NULL::double precision[] AS vals,
           NULL::bigint[] AS seqs, NULL::integer[] AS positions
    FROM blocks
    UNION ALL
    SELECT device_key, boot_epoch, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           array_agg(quality ORDER BY ms, seq, pos), array_agg(ms ORDER BY ms, seq, pos),
           array_agg(val ORDER BY ms, seq, pos), array_agg(seq ORDER BY ms, seq, pos),
           array_agg(pos ORDER BY ms, seq, pos)
    FROM hot GROUP BY device_key, boot_epoch
) x ON true
"""
DEVICES = "SELECT device_key, device FROM devices WHERE device_key = ANY(%s)"


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a page ended: the order of readings. Times are Unix epoch milliseconds."""

    ms: int
    device_key: int = 0
    boot_epoch: int = 0
    seq: int = 0
    pos: int = 0


@dataclass(slots=True)
class Columns:
    """Readings as parallel lists, in the order of places. A value None: no number (see its quality)."""

    ms: list[int] = field(default_factory=list)
    values: list[float | None] = field(default_factory=list)
    qualities: list[int] = field(default_factory=list)
    devices: list[int] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ms)

    def add(self, piece: Piece, begin: int, end: int) -> None:
        """Append a part of a piece."""
        size = end - begin
        self.ms += piece.ms[begin:end]
        self.values += piece.values[begin:end]
        self.qualities += [0] * size if piece.qualities is None else piece.qualities[begin:end]
        self.devices += [piece.device_key] * size
        self.epochs += [piece.boot_epoch] * size
        self.seqs += piece.seqs[begin:end]
        self.positions += piece.positions[begin:end]

    def place(self, at: int) -> Place:
        return Place(self.ms[at], self.devices[at], self.epochs[at], self.seqs[at], self.positions[at])

    def lists(self) -> tuple[list[Any], ...]:
        return self.ms, self.devices, self.epochs, self.seqs, self.positions, self.values, self.qualities


@dataclass(frozen=True, slots=True)
class Page:
    """Readings of a page and where the next begins; ``next_place`` None: the range is complete."""

    rows: Columns
    next_place: Place | None


@dataclass(frozen=True, slots=True)
class Bound:
    """When a device measured the asset, in whole milliseconds: [from, to); None is without end."""

    device_key: int
    from_ms: int | None
    to_ms: int | None

    def holds(self, ms: int) -> bool:
        return (self.from_ms is None or ms >= self.from_ms) and (self.to_ms is None or ms < self.to_ms)


async def read_range(connection: Connection, asset_id: int, signal: int, place: Place, to_ms: int, limit: int) -> Page:
    """Up to ``limit`` readings after ``place`` and before ``to_ms``; a sparse signal may give fewer before the end."""
    found = await (await connection.execute(BINDINGS, (asset_id,))).fetchall()
    bounds = [_bound(row) for row in found]
    rows = Columns()
    at: Place | None = place
    for _ in range(PAGES_PER_ANSWER):
        if at is None or len(rows) == limit:
            break
        page = await _page(connection, bounds, signal, at, to_ms, limit - len(rows), PACKETS_PER_PAGE)
        for mine, more in zip(rows.lists(), page.rows.lists(), strict=True):
            mine += more
        at = page.next_place
    return Page(rows, at)


async def read_page(
    connection: Connection, asset_id: int, signal: int, place: Place, to_ms: int, limit: int,
    packets: int = PACKETS_PER_PAGE,
) -> Page:  # fmt: skip
    """One look at the store. Raises QueryTooLong when too many packets cover one and the same moment."""
    found = await (await connection.execute(BINDINGS, (asset_id,))).fetchall()
    return await _page(connection, [_bound(row) for row in found], signal, place, to_ms, limit, packets)


async def _page(
    connection: Connection, bounds: Sequence[Bound], signal: int, place: Place, to_ms: int, limit: int, packets: int
) -> Page:
    while packets <= MOST_PACKETS:
        values = {
            "devices": sorted({bound.device_key for bound in bounds}), "signal": signal, "from_ms": place.ms,
            "to_ms": to_ms, "packets": packets, "blocks": -(-packets // PACKETS_PER_BLOCK),
        }  # fmt: skip
        found = await _ask(connection, values)
        horizon_ms = int(found[0]["horizon_ms"])
        pieces = [read_piece(row) for row in found if row["device_key"] is not None]
        rows = in_order(pieces, bounds, place, horizon_ms, limit)
        if len(rows) == limit:
            return Page(rows, rows.place(limit - 1))
        if horizon_ms >= to_ms:
            return Page(rows, None)
        if horizon_ms > place.ms:
            return Page(rows, Place(horizon_ms))
        packets *= 4
    raise QueryTooLong(f"more than {MOST_PACKETS} packets of this asset cover one moment; ask for another range")


async def _ask(connection: Connection, values: dict[str, Any]) -> list[DictRow]:
    async with connection.cursor(binary=True, row_factory=dict_row) as cursor:
        load_arrays(cursor)
        return await (await cursor.execute(PAGE, values)).fetchall()


def in_order(pieces: Sequence[Piece], bounds: Sequence[Bound], place: Place, horizon_ms: int, limit: int) -> Columns:
    """Readings after ``place`` and before ``horizon_ms``, at most ``limit``, of devices while they were bound."""
    parts = sorted(
        (part for piece in pieces for part in _parts(piece, bounds, place.ms, horizon_ms)),
        key=lambda part: part[0].ms[part[1]],
    )
    rows = Columns()
    for piece, begin, end in parts:
        rows.add(piece, begin, end)
    apart = all(one[0].ms[one[2] - 1] < other[0].ms[other[1]] for one, other in pairwise(parts))
    if not apart:
        _sort(rows)
    begin = 0
    while begin < len(rows) and rows.ms[begin] <= place.ms and rows.place(begin) <= place:
        begin += 1
    if begin or len(rows) > limit:
        for one in rows.lists():
            del one[begin + limit :]
            del one[:begin]
    return rows


def _parts(piece: Piece, bounds: Sequence[Bound], from_ms: int, to_ms: int) -> list[tuple[Piece, int, int]]:
    found = []
    for bound in bounds:
        if bound.device_key != piece.device_key:
            continue
        low = from_ms if bound.from_ms is None else max(from_ms, bound.from_ms)
        high = to_ms if bound.to_ms is None else min(to_ms, bound.to_ms)
        begin, end = bisect_left(piece.ms, low), bisect_left(piece.ms, high)
        if begin < end:
            found.append((piece, begin, end))
    return found


def _sort(rows: Columns) -> None:
    order = sorted(zip(*rows.lists()[:5], range(len(rows)), strict=True))
    at = [one[5] for one in order]
    for values in rows.lists():
        values[:] = [values[one] for one in at]


def _bound(row: DictRow) -> Bound:
    """Whole milliseconds that lie in the range."""

    def edge(us: int | None, stays_out: bool) -> int | None:
        return None if us is None else -(-(us + int(stays_out)) // 1000)

    return Bound(row["device_key"], edge(row["from_us"], not row["from_inc"]), edge(row["to_us"], bool(row["to_inc"])))


async def device_names(connection: Connection, device_keys: set[int]) -> dict[int, str]:
    rows = await (await connection.execute(DEVICES, (list(device_keys),))).fetchall()
    return {row["device_key"]: row["device"] for row in rows}

"""Readings that are older than what the store keeps, from the archive's files; joined with the store without a seam.

The store is read first and then asked from which day on it holds everything of the signal's retention class: whatever
retention drops in between is read from the files too. A reading that both give has the same place (time, device,
epoch, number, position) and is told once. Only what the ledger calls stored counts, so a reading never appears because
the store forgot it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from psycopg.types.multirange import Multirange

from api.archived import samples_of
from api.errors import QueryTooLong
from api.queries.blocks import Piece
from api.queries.pool import Connection
from api.queries.readings import BINDINGS, Columns, Page, Place, _bound, in_order, read_range
from contracts.errors import Rejected
from contracts.limits import MAX_FUTURE_MS, MAX_LATENESS_MS
from contracts.packet import Packet, decode_packet
from contracts.stamp import Stamp, decode_stamp

STEP_MS = 24 * 3_600_000
"""Event time that one look into the archive covers: bounds what is held in memory."""

LOOKS_PER_ANSWER = 8
MOST_FILES = 5_000
MOST_READINGS = 2_000_000
"""Of one device's signal in one look; thousands of samples a second would pass it."""

HOT_SINCE = r"""
SELECT greatest(
    (SELECT to_date(min(right(c.relname, 8)), 'YYYYMMDD') FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = to_regclass('packet_rows') AND c.relname ~ '_\d{8}$'),
    (SELECT (h.received_before AT TIME ZONE 'UTC')::date + 1 FROM reading_horizons h
     JOIN signals s ON s.retention = h.retention WHERE s.signal = %s)) AS day"""
"""A signal's receive days from this one on are whole in the store: rows have their partitions, and no block of the
signal's class went."""

FILES = """
SELECT path FROM archive_files WHERE received_day >= %(first)s AND received_day < %(hot)s
    AND (%(last)s::date IS NULL OR received_day <= %(last)s) AND topic LIKE '%%.telemetry.%%'
ORDER BY topic_id, kafka_partition, first_offset LIMIT %(limit)s"""
KNOWN = """
SELECT d.device_key, d.device, t.name AS tenant, d.kind, s.boot_epoch, s.nonce, s.ranges
FROM devices d JOIN tenants t ON t.tenant_id = d.tenant_id LEFT JOIN seen_ranges s ON s.device_key = d.device_key
WHERE d.device_key = ANY(%s)"""


@dataclass(slots=True)
class Known:
    """What the ledger says of one device: whose it is and, per boot epoch, the nonce and the stored numbers."""

    device: str
    tenant: str
    recording: bool
    epochs: dict[int, tuple[int, list[tuple[int, int]]]] = field(default_factory=dict)

    def holds(self, packet: Packet) -> bool:
        """Whether this packet, and not another one under its name, was stored."""
        header = packet.header
        nonce, ranges = self.epochs.get(header.boot_epoch, (None, []))
        if (header.device, header.tenant, header.nonce) != (self.device, self.tenant, nonce):
            return False
        at = bisect_right(ranges, (header.seq, 2**63)) - 1
        return at >= 0 and ranges[at][0] <= header.seq < ranges[at][1]


async def read_joined(
    connection: Connection, archive: Path | None, asset_id: int, signal: int, place: Place, to_ms: int, limit: int
) -> Page:
    """``read_range`` over store and archive together; ``archive`` None: the store alone. Raises QueryTooLong."""
    rows = Columns()
    at: Place | None = place
    for _ in range(LOOKS_PER_ANSWER):
        if at is None or len(rows) == limit:
            break
        page = await _look(connection, archive, asset_id, signal, at, to_ms, limit - len(rows))
        for mine, more in zip(rows.lists(), page.rows.lists(), strict=True):
            mine += more
        at = page.next_place
    return Page(rows, at)


async def _look(
    connection: Connection, archive: Path | None, asset_id: int, signal: int, place: Place, to_ms: int, limit: int
) -> Page:
    page = await read_range(connection, asset_id, signal, place, to_ms, limit)
    if archive is None:
        return page
    row = await (await connection.execute(HOT_SINCE, (signal,))).fetchone()
    hot: date | None = row["day"] if row else None
    if hot is None or place.ms >= _ms(hot) + MAX_FUTURE_MS:
        return page
    bounds = [_bound(one) for one in await (await connection.execute(BINDINGS, (asset_id,))).fetchall()]
    known = await _known(connection, {bound.device_key for bound in bounds})
    recording = any(one.recording for one in known.values())
    if not await _paths(connection, recording, place.ms, to_ms, hot, 1):
        return page
    end_ms = min(to_ms, place.ms + STEP_MS)
    until = min(page.next_place or Place(to_ms), Place(end_ms))
    paths = await _paths(connection, recording, place.ms, end_ms, hot, MOST_FILES + 1)
    if len(paths) > MOST_FILES:
        raise QueryTooLong(f"more than {MOST_FILES} files of the archive may hold this; ask for a shorter time")
    pieces = await asyncio.to_thread(_read_files, archive, paths, known, signal)
    old = in_order(pieces, bounds, place, end_ms, MOST_READINGS)
    rows = merged(page.rows, old, until, limit)
    if len(rows) == limit:
        return Page(rows, rows.place(limit - 1))
    return Page(rows, None if until >= Place(to_ms) else until)


def merged(one: Columns, other: Columns, until: Place, limit: int) -> Columns:
    """Both in order, each place once, nothing behind ``until``."""
    found: dict[Place, tuple[float | None, int]] = {}
    for columns in (other, one):
        for at in range(len(columns)):
            if (place := columns.place(at)) <= until:
                found[place] = (columns.values[at], columns.qualities[at])
    rows = Columns()
    for place in sorted(found)[:limit]:
        value, quality = found[place]
        parts = (place.ms, place.device_key, place.boot_epoch, place.seq, place.pos, value, quality)
        for column, part in zip(rows.lists(), parts, strict=True):
            column.append(part)
    return rows


async def _known(connection: Connection, devices: set[int]) -> dict[int, Known]:
    found: dict[int, Known] = {}
    for row in await (await connection.execute(KNOWN, (sorted(devices),))).fetchall():
        known = found.setdefault(row["device_key"], Known(row["device"], row["tenant"], row["kind"] == "recording"))
        if row["boot_epoch"] is not None:
            known.epochs[row["boot_epoch"]] = (row["nonce"], _half_open(row["ranges"]))
    return found


async def _paths(connection: Connection, recording: bool, from_ms: int, to_ms: int, hot: date, limit: int) -> list[str]:
    """Files that may hold readings of [from, to): packets come at most so early and so late, recordings at any time."""
    last = None if recording else _day(to_ms + MAX_LATENESS_MS)
    values = {"first": _day(from_ms - MAX_FUTURE_MS), "last": last, "hot": hot, "limit": limit}
    return [row["path"] for row in await (await connection.execute(FILES, values)).fetchall()]


def _read_files(folder: Path, paths: Sequence[str], known: Mapping[int, Known], signal: int) -> list[Piece]:
    """One piece per device and boot epoch. Of the copies of a packet the first in the log counts, as in the store."""
    import pyarrow.parquet as pq  # only an API that has an archive needs it

    parts: dict[tuple[int, int], list[tuple[int, int, int, float | None, int]]] = {}
    taken: set[tuple[int, int, int]] = set()
    for path in paths:
        table = pq.read_table(
            folder / path, columns=["offset", "device_key", "stamp", "bytes"], partitioning=None,
            filters=[("device_key", "in", sorted(known))],
        )  # fmt: skip
        for row in table.sort_by("offset").to_pylist():
            read = _stored(row, known)
            if read is None or (identity := _identity(*read)) in taken:
                continue
            taken.add(identity)
            packet, stamp = read
            parts.setdefault(identity[:2], []).extend(
                (one.ms, packet.header.seq, one.position, one.value, one.quality)
                for one in samples_of(packet, stamp, signal)
            )
    return [_piece(device, epoch, sorted(found, key=lambda one: one[:3])) for (device, epoch), found in parts.items()]


def _stored(row: Mapping[str, Any], known: Mapping[int, Known]) -> tuple[Packet, Stamp] | None:
    """A record that the store holds, or held; None for anything that was set aside."""
    try:
        stamp = decode_stamp(row["stamp"] or b"")
        packet = decode_packet(row["bytes"] or b"")
    except Rejected:
        return None
    return (packet, stamp) if known[stamp.device_key].holds(packet) else None


def _identity(packet: Packet, stamp: Stamp) -> tuple[int, int, int]:
    return stamp.device_key, packet.header.boot_epoch, packet.header.seq


def _piece(device_key: int, epoch: int, rows: Sequence[tuple[int, int, int, float | None, int]]) -> Piece:
    ms, seqs, positions, values, qualities = (list(column) for column in zip(*rows, strict=True)) if rows else [[]] * 5
    return Piece(device_key, epoch, ms, values, qualities, seqs, positions)


def _half_open(ranges: Multirange[Any]) -> list[tuple[int, int]]:
    return [(int(one.lower or 0), int(one.upper or 0)) for one in ranges]


def _day(ms: int) -> date:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=max(0, ms))).date()


def _ms(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)

"""Packets in the order in which the store took them, each once, whatever commits at the same time.

A packet's place is (number of the transaction that stored it, device, boot epoch, sequence number). A page ends before
the oldest transaction that still writes: of the transactions below it every one has committed or never will, so no
packet appears behind a reader. A transaction that stays open holds the feed back; it never makes it skip.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from psycopg.rows import DictRow, dict_row

from api.queries.blocks import load_arrays
from api.queries.pool import Connection
from api.queries.readings import Bound, _bound

PAGE = """
WITH at AS MATERIALIZED (SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS horizon),
picked AS (
    SELECT p.stored_by, p.device_key, p.boot_epoch, p.seq, p.received_at, p.stored_at, p.lane, p.base_ms, p.signals,
           p.offsets_ms, p.vals, p.qualities
    FROM packet_rows p
    WHERE p.tenant_id = %(tenant)s AND p.stored_by >= %(by)s AND p.stored_by < (SELECT horizon FROM at)
      AND (p.stored_by, p.device_key, p.boot_epoch, p.seq) > (%(by)s, %(device)s, %(epoch)s, %(seq)s)
    ORDER BY p.stored_by, p.device_key, p.boot_epoch, p.seq LIMIT %(limit)s
)
SELECT at.horizon, f.feed_id, coalesce(h.gone_to, 0) AS gone_to, picked.*
FROM at CROSS JOIN packet_feed f LEFT JOIN feed_horizons h ON h.tenant_id = %(tenant)s LEFT JOIN picked ON true
ORDER BY picked.stored_by, picked.device_key, picked.boot_epoch, picked.seq
"""
"""One statement, so rows, horizon and what has gone are seen at the same moment."""

BINDINGS = """
SELECT b.device_key, a.name, lower_inc(valid) AS from_inc, upper_inc(valid) AS to_inc,
       CASE WHEN isfinite(lower(valid)) THEN (extract(epoch FROM lower(valid)) * 1000000)::bigint END AS from_us,
       CASE WHEN isfinite(upper(valid)) THEN (extract(epoch FROM upper(valid)) * 1000000)::bigint END AS to_us
FROM bindings b JOIN assets a USING (asset_id) WHERE b.device_key = ANY(%s)
"""


PLACE: Final = ("stored_by", "device_key", "boot_epoch", "seq")
"""Columns that order the feed."""


@dataclass(frozen=True, slots=True)
class FeedPlace:
    """Behind which packet a page begins; ``feed_id`` 0: whatever feed there is."""

    feed_id: int = 0
    stored_by: int = 0
    device_key: int = -1
    boot_epoch: int = -1
    seq: int = -1


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Packets, where the next page begins, whether that is the end for now; ``gone``: the place lies before what is
    kept, or belongs to another feed, and ``packets`` is empty."""

    packets: list[DictRow]
    next_place: FeedPlace
    complete: bool
    gone: str | None


async def read_feed(connection: Connection, tenant_id: int, place: FeedPlace | None, limit: int) -> FeedPage:
    """``place`` None: from the oldest packet that is kept."""
    begin = place or FeedPlace()
    values = {
        "tenant": tenant_id, "by": begin.stored_by, "device": begin.device_key, "epoch": begin.boot_epoch,
        "seq": begin.seq, "limit": limit + 1,
    }  # fmt: skip
    async with connection.cursor(binary=True, row_factory=dict_row) as cursor:
        load_arrays(cursor)
        found = await (await cursor.execute(PAGE, values)).fetchall()
    feed_id, horizon, gone_to = (int(found[0][name]) for name in ("feed_id", "horizon", "gone_to"))
    end = FeedPlace(feed_id, horizon)
    if place is not None and place.feed_id:
        if place.feed_id != feed_id or place.stored_by > horizon:
            return FeedPage([], end, True, "feed_restarted")
        if place.stored_by < gone_to:
            return FeedPage([], end, True, "cursor_too_old")
    packets = [row for row in found if row["seq"] is not None]
    if len(packets) <= limit:
        return FeedPage(packets, end, True, None)
    last = packets[limit - 1]
    return FeedPage(packets[:limit], FeedPlace(feed_id, *(int(last[name]) for name in PLACE)), False, None)


async def feed_end(connection: Connection, tenant_id: int) -> FeedPlace:
    """Where only what comes from now on is read."""
    page = await read_feed(connection, tenant_id, FeedPlace(0, 2**62), 1)
    return page.next_place


async def assets_of(connection: Connection, device_keys: Sequence[int]) -> Mapping[int, list[tuple[Bound, str]]]:
    """Which asset a device measured when."""
    found: dict[int, list[tuple[Bound, str]]] = defaultdict(list)
    for row in await (await connection.execute(BINDINGS, (list(device_keys),))).fetchall():
        found[row["device_key"]].append((_bound(row), row["name"]))
    return found

"""Everything since: packets in the order in which the store took them, for programs that copy or follow.

A cursor always comes back, also when nothing is new; who keeps it goes on there after hours or restarts. ``wait_s``
holds the answer until something is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from api.errors import Gone
from api.keys import Caller
from api.queries.feed import PLACE, FeedPage, FeedPlace, assets_of, feed_end, read_feed
from api.queries.readings import Bound, device_names
from api.questions import from_ms, make_cursor, read_cursor
from api.routes.common import PREFIX, TelemetryCaller
from api.services import Parts, Services
from api.shapes import AT, Shape, example, quality_name
from api.shapes_series import moment, plain
from contracts.packet import Lane
from contracts.signals import catalogue

router = APIRouter(prefix=PREFIX, tags=["readings"])
CURSOR = "feed"
END = "end"
LONGEST_WAIT_S = 30
LANES = {lane.value: lane.name.lower() for lane in Lane}
HINTS = {
    "feed_restarted": "the store's tables were made anew, so this cursor means nothing in them",
    "cursor_too_old": "packets behind this cursor were compacted or have left the store",
}


class FeedReading(Shape):
    """One sample; ``asset`` null: the device measured none then. value null: no number (see quality)."""

    asset: str | None
    signal: str
    measured_at: datetime
    value: float | None
    unit: str
    quality: str


class FeedPacket(Shape):
    """One packet as the store took it; its identity is (device, boot_epoch, seq)."""

    model_config = example(
        device="car-001", boot_epoch=3, seq=118, lane="live", received_at=AT, stored_at=AT, cursor="WyJmZWVkIiw…",
        readings=[{
            "asset": "car-001", "signal": "Vehicle.Speed", "measured_at": AT, "value": 87.5, "unit": "km/h",
            "quality": "good",
        }],
    )  # fmt: skip

    device: str
    boot_epoch: int
    seq: int
    lane: str = Field(description="live, or backlog: sent after a time without a link")
    received_at: datetime
    stored_at: datetime
    cursor: str = Field(description="'after' this packet")
    readings: list[FeedReading]


class Feed(Shape):
    """Packets after the cursor, none twice and none left out; ask with ``next``, at once unless ``complete``."""

    as_of: datetime
    items: list[FeedPacket]
    next: str
    complete: bool = Field(description="this was all there is for now")


@router.get("/feed/readings", response_model=Feed)
async def feed_of_readings(
    request: Request, parts: Parts, caller: TelemetryCaller,
    after: Annotated[
        str | None,
        Query(max_length=1_000, description="'next' of the answer before; none: oldest kept; 'end': what comes now"),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=5_000, description="packets")] = 500,
    wait_s: Annotated[float, Query(ge=0, le=LONGEST_WAIT_S, description="wait so long for the first packet")] = 0,
) -> Response:  # fmt: skip
    """Packets in the order in which the store took them."""
    if after == END:
        async with parts.store.transaction(caller.tenant_id) as connection:
            place: FeedPlace | None = await feed_end(connection, caller.tenant_id)
    else:
        place = FeedPlace(*(int(part) for part in read_cursor(CURSOR, after, [int] * 5))) if after else None
    if wait_s:
        parts.seats.take(caller.key_id)
    try:
        return await _answer(request, parts, caller, place, limit, wait_s)
    finally:
        if wait_s:
            parts.seats.give_back(caller.key_id)


async def _answer(
    request: Request, parts: Services, caller: Caller, place: FeedPlace | None, limit: int, wait_s: float
) -> Response:
    deadline_s = parts.elapsed_s() + wait_s
    while True:
        async with parts.store.transaction(caller.tenant_id) as connection:
            page = await read_feed(connection, caller.tenant_id, place, limit)
            items = await _items(connection, page)
        if page.gone is not None:
            raise Gone(page.gone, f"{HINTS[page.gone]}; load what you need from /readings and go on with after={END}")
        place = page.next_place
        left_s = deadline_s - parts.elapsed_s()
        if items or left_s <= 0 or parts.hub.closing or await request.is_disconnected():
            break
        await asyncio.sleep(min(left_s, parts.settings.feed_poll_ms / 1000))
    return plain(
        {"as_of": moment(parts.now()), "items": items, "next": _cursor(page.next_place), "complete": page.complete}
    )


async def _items(connection: Any, page: FeedPage) -> list[dict[str, Any]]:
    keys = {row["device_key"] for row in page.packets}
    if not keys:
        return []
    names, assets = await device_names(connection, keys), await assets_of(connection, sorted(keys))
    feed_id = page.next_place.feed_id
    return [
        _packet(row, names[row["device_key"]], assets.get(row["device_key"], ()))
        | {"cursor": _cursor(FeedPlace(feed_id, *(row[part] for part in PLACE)))}
        for row in page.packets
    ]


def _packet(row: Mapping[str, Any], device: str, assets: Sequence[tuple[Bound, str]]) -> dict[str, Any]:
    qualities = row["qualities"] or [0] * len(row["signals"])
    return {
        "device": device, "boot_epoch": row["boot_epoch"], "seq": row["seq"], "lane": LANES.get(row["lane"], "live"),
        "received_at": moment(row["received_at"]), "stored_at": moment(row["stored_at"]),
        "readings": [
            _reading(number, row["base_ms"] + offset_ms, value, quality, assets)
            for number, offset_ms, value, quality in zip(
                row["signals"], row["offsets_ms"], row["vals"], qualities, strict=True
            )
        ],
    }  # fmt: skip


def _reading(
    number: int, ms: int, value: float, quality: int | None, assets: Sequence[tuple[Bound, str]]
) -> dict[str, Any]:
    signal = catalogue().by_number(number)
    return {
        "asset": next((name for bound, name in assets if bound.holds(ms)), None), "signal": signal.path,
        "measured_at": moment(from_ms(ms)), "value": None if value != value else value, "unit": signal.unit,
        "quality": quality_name(quality or 0),
    }  # fmt: skip


def _cursor(place: FeedPlace) -> str:
    return make_cursor(CURSOR, [place.feed_id, place.stored_by, place.device_key, place.boot_epoch, place.seq])

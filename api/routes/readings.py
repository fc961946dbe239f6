"""Stored readings of one asset and signal."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from api.errors import BadQuestion
from api.queries.readings import Place, device_names, read_range
from api.questions import Range, find_signal, from_ms, make_cursor, read_cursor, time_range
from api.routes.common import PREFIX, AssetName, Cursor, From, SignalPath, TelemetryCaller, To, require_asset
from api.services import Parts
from api.shapes import Readings, answer, quality_name

router = APIRouter(prefix=PREFIX, tags=["readings"])
CURSOR = "readings"


@router.get("/assets/{name}/readings", response_model=Readings)
async def readings(
    parts: Parts, caller: TelemetryCaller, name: AssetName, signal: SignalPath, start: From = None, end: To = None,
    cursor: Cursor = None, limit: Annotated[int, Query(ge=1, le=50_000)] = 5_000,
) -> Response:  # fmt: skip
    """Readings in [from, to), oldest first. Keep 'from' and 'to' while following 'next'."""
    found = find_signal(signal)
    asked = time_range(start, end, parts.now(), parts.settings.readings_range_s)
    place = _place(cursor, asked) if cursor else Place(asked.start_ms)
    async with parts.store.transaction(caller.tenant_id) as connection:
        asset = await require_asset(connection, name)
        page = await read_range(connection, asset["asset_id"], found.number, place, asked.end_ms, limit)
        devices = await device_names(connection, {row["device_key"] for row in page.rows})
    after = page.next_place
    items = [
        {
            "measured_at": from_ms(row["measured_ms"]),
            "value": row["value"],
            "quality": quality_name(row["quality"]),
            "device": devices[row["device_key"]],
            "boot_epoch": row["boot_epoch"],
            "seq": row["seq"],
        }
        for row in page.rows
    ]
    more = [after.ms, after.device_key, after.boot_epoch, after.seq, after.pos] if after else None
    return answer(
        Readings,
        asset=name, signal=signal, unit=found.unit, start=asked.start, end=asked.end, items=items,
        next=more and make_cursor(CURSOR, more),
    )  # fmt: skip


def _place(cursor: str, asked: Range) -> Place:
    place = Place(*(int(part) for part in read_cursor(CURSOR, cursor, [int] * 5)))
    if not asked.start_ms <= place.ms <= asked.end_ms:
        raise BadQuestion("bad_cursor", "this cursor belongs to another time range; keep 'from' and 'to'", "cursor")
    return place

"""Readings of one asset over all its signals, or some of them: a page of rows, or a file of any length."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import Field

from api.errors import BadQuestion
from api.forms import Form, documented
from api.parts import readings_part
from api.queries.archive import read_joined
from api.queries.readings import Place, device_names
from api.questions import Range, find_signal, from_ms, make_cursor, read_cursor, time_range
from api.routes.common import PREFIX, Cursor, From, IfNoneMatch, TelemetryCaller, To, Wanted, require_asset
from api.routes.readings import PAGE, ROWS, export_readings, signals_with_values, tagged
from api.services import Parts
from api.shapes import AT, Shape, answer, example
from api.tables import Part
from contracts.signals import Signal

router = APIRouter(prefix=PREFIX, tags=["readings"])
CURSOR = "asset-readings"
MOST_SIGNALS = 200


class SignalReading(Shape):
    """One stored sample of one of the asset's signals; value null: the sensor sent no number (see quality)."""

    model_config = example(
        signal="Vehicle.Speed", measured_at=AT, value=87.5, unit="km/h", quality="good", device="car-001",
        boot_epoch=3, seq=118,
    )  # fmt: skip

    signal: str
    measured_at: datetime
    value: float | None
    unit: str
    quality: str
    device: str
    boot_epoch: int
    seq: int


class AssetReadings(Shape):
    """Readings in [from, to), signal after signal, each oldest first; follow ``next`` until it is null."""

    asset: str
    start: datetime = Field(serialization_alias="from")
    end: datetime = Field(serialization_alias="to")
    items: list[SignalReading]
    next: str | None


@router.get("/readings", response_model=AssetReadings, responses=documented())
async def asset_readings(
    parts: Parts, caller: TelemetryCaller, wanted: Wanted,
    asset: Annotated[str, Query(min_length=1, max_length=200, description="name of the asset", examples=["car-001"])],
    signal: Annotated[
        list[str],
        Query(max_length=MOST_SIGNALS, description="only these; none: all it has", examples=[["Vehicle.Speed"]]),
    ] = [],  # noqa: B006
    start: From = None, end: To = None, cursor: Cursor = None, if_none_match: IfNoneMatch = None,
    limit: Annotated[int, Query(ge=1, le=ROWS, description="of JSON; files hold the whole range")] = PAGE,
) -> Response:  # fmt: skip
    """Readings of several signals of one asset in [from, to); as a file, for downloads."""
    named = sorted({find_signal(path) for path in signal}, key=lambda one: one.number)
    asked = time_range(start, end, parts.now(), parts.settings.readings_range_s)
    if wanted is not Form.JSON:
        return await export_readings(parts, caller, wanted, asset, named, asked, if_none_match)
    number, place = _place(cursor, asked) if cursor else (0, Place(asked.start_ms))
    items: list[dict[str, Any]] = []
    more: str | None = None
    async with parts.store.transaction(caller.tenant_id) as connection:
        row = await require_asset(connection, asset)
        known = named or await signals_with_values(connection, row["asset_id"])
        left = [one for one in known if one.number >= number]
        for one in left:
            at = place if one.number == number else Place(asked.start_ms)
            page = await read_joined(
                connection, parts.settings.archive_folder, row["asset_id"], one.number, at, asked.end_ms,
                limit - len(items),
            )  # fmt: skip
            devices = await device_names(connection, set(page.rows.devices))
            part = readings_part(asset, one, page, devices)
            items += _items(part)
            if page.next_place is not None or (len(items) >= limit and one is not left[-1]):
                more = _cursor(one, page.next_place or Place(asked.end_ms))
                break
    told = answer(AssetReadings, asset=asset, start=asked.start, end=asked.end, items=items, next=more)
    return tagged(told, end is not None and asked.end <= parts.now(), if_none_match)


def _items(part: Part) -> list[dict[str, Any]]:
    names = ("signal", "measured_at", "value", "unit", "quality", "device", "boot_epoch", "seq")
    rows = zip(*(part[name] for name in names), strict=True)
    return [dict(zip(names, row, strict=True)) | {"measured_at": from_ms(row[1])} for row in rows]


def _cursor(signal: Signal, place: Place) -> str:
    return make_cursor(CURSOR, [signal.number, place.ms, place.device_key, place.boot_epoch, place.seq, place.pos])


def _place(cursor: str, asked: Range) -> tuple[int, Place]:
    number, *rest = (int(part) for part in read_cursor(CURSOR, cursor, [int] * 6))
    place = Place(*rest)
    if not asked.start_ms <= place.ms <= asked.end_ms:
        raise BadQuestion("bad_cursor", "this cursor belongs to another time range; keep 'from' and 'to'", "cursor")
    return number, place

"""Windows (fixed-width aggregates) of one asset and signal."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from api.errors import BadQuestion
from api.exports import export, tag_of, unchanged
from api.forms import Form, documented
from api.keys import Caller
from api.parts import file_name, windows_of
from api.queries.fingerprints import of_windows
from api.queries.windows import list_windows
from api.questions import EARLIEST, Range, find_signal, from_ms, make_cursor, read_cursor, time_range, to_ms
from api.routes.common import (
    PREFIX,
    AssetName,
    Cursor,
    From,
    IfNoneMatch,
    SignalPath,
    TelemetryCaller,
    To,
    Wanted,
    require_asset,
)
from api.routes.readings import tagged
from api.services import Parts, Services
from api.shapes import Windows, answer
from api.tables import WINDOWS
from api.version import VERSION
from contracts.limits import ALL_WIDTHS_S
from contracts.signals import Signal

router = APIRouter(prefix=PREFIX, tags=["windows"])
CURSOR = "windows"
LATEST_MS = 253_402_300_799_000
"""End of the year 9999: later times cannot be told."""


@router.get("/assets/{name}/windows", response_model=Windows, responses=documented())
async def windows(
    parts: Parts, caller: TelemetryCaller, wanted: Wanted, name: AssetName, signal: SignalPath,
    width_s: Annotated[int, Query(description=f"one of {', '.join(map(str, ALL_WIDTHS_S))}")] = ALL_WIDTHS_S[0],
    start: From = None, end: To = None, cursor: Cursor = None, if_none_match: IfNoneMatch = None,
    limit: Annotated[int, Query(ge=1, le=20_000, description="of JSON; files hold the whole range")] = 5_000,
) -> Response:  # fmt: skip
    """Windows that start in [from, to), oldest first."""
    found = find_signal(signal)
    if width_s not in ALL_WIDTHS_S:
        raise BadQuestion("bad_width", f"windows are {' or '.join(map(str, ALL_WIDTHS_S))} s wide", "width_s")
    asked = time_range(start, end, parts.now(), parts.settings.windows_range_s)
    if wanted is not Form.JSON:
        return await _export(parts, caller, wanted, name, found, width_s, asked, if_none_match)
    after = _after(cursor) if cursor else (EARLIEST, -1)
    async with parts.store.transaction(caller.tenant_id) as connection:
        asset = await require_asset(connection, name)
        rows = await list_windows(
            connection, asset["asset_id"], found.number, width_s, asked.start, asked.end, after, limit + 1
        )
    page = rows[:limit]
    more = make_cursor(CURSOR, [to_ms(page[-1]["starts_at"]), page[-1]["device_key"]]) if len(rows) > limit else None
    told = answer(
        Windows,
        asset=name, signal=signal, unit=found.unit, width_s=width_s, start=asked.start, end=asked.end,
        items=page, next=more,
    )  # fmt: skip
    return tagged(told, end is not None and asked.end <= parts.now(), if_none_match)


async def _export(
    parts: Services, caller: Caller, wanted: Form, name: str, signal: Signal, width_s: int, asked: Range,
    if_none_match: str | None,
) -> Response:  # fmt: skip
    async with parts.store.transaction(caller.tenant_id) as connection:
        asset = await require_asset(connection, name)
        tag = None
        if asked.end <= parts.now():
            text = await of_windows(connection, asset["asset_id"], signal.number, width_s, asked.start, asked.end)
            tag = tag_of(VERSION, wanted.name, name, signal.number, width_s, asked.start, asked.end, text)
    known = unchanged(if_none_match, tag)
    if known is not None:
        return known
    pieces = windows_of(parts, caller.tenant_id, (asset["asset_id"], name), signal, width_s, asked)
    told = file_name(name, f"{signal.path}_{width_s}s", asked)
    return await export(wanted, WINDOWS, pieces, told, tag, parts.exports, caller.key_id)


def _after(cursor: str) -> tuple[datetime, int]:
    ms, device_key = (int(part) for part in read_cursor(CURSOR, cursor, [int, int]))
    if not 0 <= ms <= LATEST_MS or not -1 <= device_key < 2**31:
        raise BadQuestion(
            "bad_cursor", "not a cursor of this resource; take it from the last answer's 'next'", "cursor"
        )
    return from_ms(ms), device_key

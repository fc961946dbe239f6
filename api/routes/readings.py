"""Stored readings of one asset and signal: row by row, as columns, as a file, and as a chart.

A JSON answer is a page; the other forms hold the whole range unless a ``limit`` is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response

from api.downsample import thin
from api.errors import BadQuestion
from api.exports import caching, export, tag_of, unchanged
from api.forms import Form, disposition, documented
from api.keys import Caller
from api.parts import file_name, readings_of, readings_part
from api.queries.archive import read_joined
from api.queries.assets import signals_of
from api.queries.fingerprints import of_readings
from api.queries.pool import Connection
from api.queries.readings import Columns, Place, device_names
from api.queries.series import Rollup, count_samples, merge_buckets, read_rollup
from api.questions import Range, find_signal, from_ms, make_cursor, read_cursor, time_range
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
from api.services import Parts, Services
from api.shapes import Readings, answer, quality_name
from api.shapes_series import ReadingColumns, Series, moment, plain
from api.tables import READINGS, encoder
from api.version import VERSION
from contracts.limits import ALL_WIDTHS_S
from contracts.packet import FIRST_BAD_QUALITY
from contracts.signals import Signal, catalogue

router = APIRouter(prefix=PREFIX, tags=["readings"])
CURSOR = "readings"
PAGE, ROWS = 5_000, 50_000
CHART_READINGS = 200_000
"""What one chart may read from the store before it is thinned out."""
CHART_WINDOWS = 100_000


@router.get("/assets/{name}/readings", response_model=Readings | ReadingColumns, responses=documented())
async def readings(
    parts: Parts, caller: TelemetryCaller, wanted: Wanted, name: AssetName, signal: SignalPath, start: From = None,
    end: To = None, cursor: Cursor = None, if_none_match: IfNoneMatch = None,
    limit: Annotated[
        int | None, Query(ge=1, le=CHART_READINGS, description=f"JSON: {PAGE} when not given; files: the whole range")
    ] = None,
    form: Annotated[Literal["rows", "columns"], Query(description=f"of JSON; rows: at most {ROWS} at once")] = "rows",
) -> Response:  # fmt: skip
    """Readings in [from, to), oldest first. Keep 'from' and 'to' while following 'next'."""
    found = find_signal(signal)
    asked = time_range(start, end, parts.now(), parts.settings.readings_range_s)
    if wanted is not Form.JSON and limit is None and cursor is None:
        return await export_readings(parts, caller, wanted, name, [found], asked, if_none_match)
    if form == "rows" and (limit or 0) > ROWS and wanted is Form.JSON:
        raise BadQuestion("too_many_rows", f"at most {ROWS} rows at once; columns hold {CHART_READINGS}", "limit")
    place = _place(cursor, asked) if cursor else Place(asked.start_ms)
    rows = form == "rows" or wanted is not Form.JSON
    async with parts.store.transaction(caller.tenant_id) as connection:
        asset = await require_asset(connection, name)
        page = await read_joined(
            connection, parts.settings.archive_folder, asset["asset_id"], found.number, place, asked.end_ms,
            limit or PAGE,
        )  # fmt: skip
        devices = await device_names(connection, set(page.rows.devices)) if rows else {}
    after = page.next_place
    more = None
    if after is not None:
        more = make_cursor(CURSOR, [after.ms, after.device_key, after.boot_epoch, after.seq, after.pos])
    if wanted is not Form.JSON:
        made = encoder(wanted, READINGS)
        body = made.head() + made.part(readings_part(name, found, page, devices)) + made.tail()
        headers = caching(None) | {"Content-Disposition": disposition(file_name(name, signal, asked), wanted)}
        return Response(body, headers=headers | _next(more), media_type=wanted.value.header)
    if form == "columns":
        told = plain(_head(name, found, asked) | _columns(page.rows, asked.start_ms) | {"next": more})
    else:
        told = answer(
            Readings, asset=name, signal=signal, unit=found.unit, start=asked.start, end=asked.end,
            items=_items(page.rows, devices), next=more,
        )  # fmt: skip
    return tagged(told, end is not None and asked.end <= parts.now(), if_none_match)


async def export_readings(
    parts: Services, caller: Caller, wanted: Form, name: str, signals: Sequence[Signal], asked: Range,
    if_none_match: str | None,
) -> Response:  # fmt: skip
    """A file of all readings of the signals in the range; none named: of every signal the asset ever had."""
    async with parts.store.transaction(caller.tenant_id) as connection:
        asset = await require_asset(connection, name)
        wanted_signals = list(signals) or await signals_with_values(connection, asset["asset_id"])
        numbers = [one.number for one in wanted_signals]
        question = (connection, asset["asset_id"], numbers, asked.start_ms, asked.end_ms)
        rows = await count_samples(*question)
        if rows > parts.settings.export_rows:
            most = f"at most {parts.settings.export_rows} readings in one export"
            raise BadQuestion("too_many_rows", f"{most}, this range holds {rows}: take a shorter one", "from")
        tag = None
        if asked.end <= parts.now():
            tag = tag_of(
                VERSION, wanted.name, name, numbers, asked.start_ms, asked.end_ms, await of_readings(*question)
            )
    known = unchanged(if_none_match, tag)
    if known is not None:
        return known
    what = wanted_signals[0].path if len(wanted_signals) == 1 else "readings"
    pieces = readings_of(parts, caller.tenant_id, (asset["asset_id"], name), wanted_signals, asked)
    told = file_name(name, what, asked)
    return await export(wanted, READINGS, pieces, told, tag, parts.exports, caller.key_id)


async def signals_with_values(connection: Connection, asset_id: int) -> list[Signal]:
    """By catalogue number."""
    return [catalogue().by_number(number) for number in await signals_of(connection, asset_id)]


def tagged(told: Response, closed: bool, if_none_match: str | None) -> Response:
    """A page of a range that has ended gets a tag of its own bytes; 304 when the caller has them."""
    tag = tag_of(bytes(told.body).hex()) if closed else None
    told.headers.update(caching(tag))
    return unchanged(if_none_match, tag) or told


def _next(cursor: str | None) -> dict[str, str]:
    """Where a page that is a file goes on."""
    return {} if cursor is None else {"Link": f'<?cursor={cursor}>; rel="next"', "Next-Cursor": cursor}


@router.get("/assets/{name}/series", response_model=Series)
async def series(
    parts: Parts, caller: TelemetryCaller, name: AssetName, signal: SignalPath, start: From = None, end: To = None,
    points: Annotated[int, Query(ge=10, le=10_000, description="about so many points")] = 1_000,
    keep: Annotated[
        Literal["extremes", "triangles", "all"],
        Query(description="of readings: least and greatest of each part, Largest-Triangle-Three-Buckets, or all"),
    ] = "extremes",
    source: Annotated[
        Literal["auto", "readings", "windows"], Query(description="auto: windows where one is narrower than a point")
    ] = "auto",
) -> Response:  # fmt: skip
    """A chart: readings when zoomed in, else the widest windows that are no wider than a point.

    Values of bad quality are in neither: a bad reading breaks the line, and no window ever held one.
    """
    found = find_signal(signal)
    asked = time_range(start, end, parts.now(), parts.settings.windows_range_s)
    width_s = _width_s(asked, points, source)
    async with parts.store.transaction(caller.tenant_id) as connection:
        asset = await require_asset(connection, name)
        if width_s is None:
            place = Place(asked.start_ms)
            page = await read_joined(
                connection, parts.settings.archive_folder, asset["asset_id"], found.number, place, asked.end_ms,
                CHART_READINGS,
            )  # fmt: skip
        else:
            rollup = await read_rollup(
                connection, asset["asset_id"], found.number, width_s, asked.start_ms, asked.end_ms, CHART_WINDOWS
            )
    if width_s is None:
        times, values = thin(page.rows.ms, _good(page.rows), points, keep)
        body: dict[str, Any] = {"source": "readings", "width_s": None, "values": values}
        body |= dict.fromkeys(("low", "mean", "high", "n", "revision")) | {"complete": page.next_place is None}
    else:
        wider_s = max(1, (asked.end_ms - asked.start_ms) // (points * width_s * 1_000)) * width_s
        times, body = _windows(merge_buckets(rollup, wider_s * 1_000), found, wider_s)
        body["complete"] = len(rollup.ms) < CHART_WINDOWS
    return plain(_head(name, found, asked) | {"keep": keep, "offsets_ms": _offsets(times, asked.start_ms)} | body)


def _good(rows: Columns) -> list[float | None]:
    """Values as a chart may draw them; None where the quality is bad."""
    told = zip(rows.values, rows.qualities, strict=True)
    return [value if quality < FIRST_BAD_QUALITY else None for value, quality in told]


def _width_s(asked: Range, points: int, source: str) -> int | None:
    """None: readings themselves."""
    per_point_ms = (asked.end_ms - asked.start_ms) / points
    fitting = [width for width in ALL_WIDTHS_S if width * 1_000 <= per_point_ms]
    if source == "readings" or (source == "auto" and not fitting):
        return None
    return max(fitting, default=min(ALL_WIDTHS_S))


def _windows(rollup: Rollup, signal: Signal, width_s: int) -> tuple[list[int], dict[str, Any]]:
    """Columns of a chart of windows; an entry of nulls where the next window does not follow at once."""
    times: list[int] = []
    low: list[float | None] = []
    mean: list[float | None] = []
    high: list[float | None] = []
    n: list[int | None] = []
    revision: list[int | None] = []
    for at, ms in enumerate(rollup.ms):
        if times and ms - times[-1] > width_s * 1_000:
            times.append(times[-1] + width_s * 1_000)
            for column in (low, mean, high, n, revision):
                column.append(None)
        times.append(ms)
        low.append(signal.from_units(rollup.lowest[at]))
        high.append(signal.from_units(rollup.highest[at]))
        mean.append(rollup.total[at] * signal.resolution / rollup.n[at])
        n.append(rollup.n[at])
        revision.append(rollup.revision[at])
    return times, {
        "source": "windows", "width_s": width_s, "values": None, "low": low, "mean": mean, "high": high, "n": n,
        "revision": revision,
    }  # fmt: skip


def _head(asset: str, signal: Signal, asked: Range) -> dict[str, Any]:
    start = moment(asked.start)
    return {
        "asset": asset, "signal": signal.path, "unit": signal.unit, "from": start, "to": moment(asked.end),
        "base": moment(from_ms(asked.start_ms)),
    }  # fmt: skip


def _columns(rows: Columns, base_ms: int) -> dict[str, Any]:
    judged = any(rows.qualities)
    return {
        "offsets_ms": _offsets(rows.ms, base_ms), "values": rows.values,
        "qualities": [quality_name(one) for one in rows.qualities] if judged else None,
    }  # fmt: skip


def _offsets(times: Sequence[int], base_ms: int) -> list[int]:
    return [ms - base_ms for ms in times]


def _items(rows: Columns, devices: dict[int, str]) -> list[dict[str, Any]]:
    return [
        {
            "measured_at": from_ms(ms), "value": value, "quality": quality_name(quality), "device": devices[device],
            "boot_epoch": epoch, "seq": seq,
        }
        for ms, device, epoch, seq, _, value, quality in zip(*rows.lists(), strict=True)
    ]  # fmt: skip


def _place(cursor: str, asked: Range) -> Place:
    place = Place(*(int(part) for part in read_cursor(CURSOR, cursor, [int] * 5)))
    if not asked.start_ms <= place.ms <= asked.end_ms:
        raise BadQuestion("bad_cursor", "this cursor belongs to another time range; keep 'from' and 'to'", "cursor")
    return place

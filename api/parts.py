"""Parts of an export, page by page from the store: each page in a transaction of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

from api.exports import PAGE_ROWS
from api.queries.archive import read_joined
from api.queries.readings import Page, Place, device_names
from api.queries.windows import list_windows
from api.questions import EARLIEST, Range, to_ms
from api.services import Services
from api.shapes import quality_name
from api.tables import Part
from contracts.signals import Signal

WINDOWS_AT_ONCE = 20_000


async def readings_of(
    parts: Services, tenant_id: int, asset: tuple[int, str], signals: Sequence[Signal], asked: Range,
    begin: Place | None = None,
) -> AsyncIterator[Part]:  # fmt: skip
    """All readings in the range, signal after signal, each oldest first; ``begin``: where the first one's begin."""
    for signal in signals:
        place: Place | None = begin or Place(asked.start_ms)
        begin = None
        while place is not None:
            async with parts.store.transaction(tenant_id) as connection:
                page = await read_joined(
                    connection, parts.settings.archive_folder, asset[0], signal.number, place, asked.end_ms, PAGE_ROWS
                )
                devices = await device_names(connection, set(page.rows.devices))
            place = page.next_place
            if len(page.rows):
                yield readings_part(asset[1], signal, page, devices)


def readings_part(asset: str, signal: Signal, page: Page, devices: dict[int, str]) -> Part:
    """Columns of ``tables.READINGS``."""
    rows = page.rows
    size = len(rows)
    qualities = {code: quality_name(code) for code in set(rows.qualities)}
    return {
        "asset": [asset] * size, "signal": [signal.path] * size, "measured_at": rows.ms, "value": rows.values,
        "unit": [signal.unit] * size, "quality": [qualities[code] for code in rows.qualities],
        "device": [devices[key] for key in rows.devices], "boot_epoch": rows.epochs, "seq": rows.seqs,
    }  # fmt: skip


async def windows_of(
    parts: Services, tenant_id: int, asset: tuple[int, str], signal: Signal, width_s: int, asked: Range
) -> AsyncIterator[Part]:
    """All windows that start in the range, oldest first."""
    after = (EARLIEST, -1)
    while True:
        async with parts.store.transaction(tenant_id) as connection:
            rows = await list_windows(
                connection, asset[0], signal.number, width_s, asked.start, asked.end, after, WINDOWS_AT_ONCE
            )
        if rows:
            yield windows_part(asset[1], signal, width_s, rows)
        if len(rows) < WINDOWS_AT_ONCE:
            return
        after = (rows[-1]["starts_at"], rows[-1]["device_key"])


def windows_part(asset: str, signal: Signal, width_s: int, rows: Sequence[dict[str, Any]]) -> Part:
    """Columns of ``tables.WINDOWS``."""
    size = len(rows)
    columns: dict[str, Sequence[Any]] = {
        "asset": [asset] * size, "signal": [signal.path] * size, "unit": [signal.unit] * size,
        "width_s": [width_s] * size, "starts_at": [to_ms(row["starts_at"]) for row in rows],
    }  # fmt: skip
    told = ("n", "min", "max", "mean", "stddev", "last", "revision", "closed", "final", "device")
    return columns | {name: [row[name] for row in rows] for name in told}


def file_name(asset: str, what: str, asked: Range) -> str:
    """Of a download, without what it ends in."""
    return f"{asset}_{what}_{_short(asked.start)}_{_short(asked.end)}"


def _short(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}"

"""The delivery ledger, and what was set aside."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from api.queries.ledger import (
    count_quarantine,
    ledger_totals,
    list_drops,
    list_gaps,
    list_ledger,
)
from api.questions import make_cursor, read_cursor
from api.routes.common import PREFIX, Cursor, EvidenceCaller
from api.services import Parts
from api.shapes_ledger import (
    Aside,
    Drop,
    Drops,
    Ledger,
    LedgerGap,
    LedgerGaps,
    LedgerRow,
    LedgerTotals,
    SeqRange,
    SetAside,
)

router = APIRouter(prefix=PREFIX, tags=["ledger"])
CURSOR, DROPS_CURSOR, GAPS_CURSOR = "ledger", "drops", "gaps"
MOST_RANGES = 20
NEWEST = 2**63 - 1

OneDevice = Annotated[str | None, Query(max_length=64, description="one device only", examples=["car-001"])]
Limit = Annotated[int, Query(ge=1, le=5_000)]
GapState = Literal["waiting", "open", "closed", "explained"]


@router.get("/ledger")
async def ledger(
    parts: Parts, caller: EvidenceCaller, device: OneDevice = None, cursor: Cursor = None, limit: Limit = 500
) -> Ledger:
    """Per device and boot epoch: accepted by the agent, confirmed, stored, set aside, missing."""
    after: list[str | int] = read_cursor(CURSOR, cursor, [str, int]) if cursor else ["", -1]
    async with parts.store.transaction(caller.tenant_id) as connection:
        rows = await list_ledger(connection, (str(after[0]), int(after[1])), device, limit + 1)
        totals = await ledger_totals(connection)
    page = rows[:limit]
    more = make_cursor(CURSOR, [page[-1]["device"], page[-1]["boot_epoch"]]) if len(rows) > limit else None
    return Ledger(as_of=parts.now(), totals=LedgerTotals(**totals), items=[_row(row) for row in page], next=more)


@router.get("/ledger/drops")
async def drops(
    parts: Parts, caller: EvidenceCaller, device: OneDevice = None, cursor: Cursor = None, limit: Limit = 500
) -> Drops:
    """Packets that agents accepted and dropped: range, class, reason, as they reported them."""
    after: list[str | int] = ["", -1, -1, -1]
    if cursor:
        after = read_cursor(DROPS_CURSOR, cursor, [str, int, int, int])
    place = str(after[0]), int(after[1]), int(after[2]), int(after[3])
    async with parts.store.transaction(caller.tenant_id) as connection:
        rows = await list_drops(connection, place, device, limit + 1)
    page, more = rows[:limit], None
    if len(rows) > limit:
        more = make_cursor(DROPS_CURSOR, [page[-1][key] for key in ("device", "boot_epoch", "first_seq", "last_seq")])
    return Drops(as_of=parts.now(), items=[Drop(**row) for row in page], next=more)


@router.get("/ledger/gaps")
async def gaps(
    parts: Parts, caller: EvidenceCaller, device: OneDevice = None, state: GapState | None = None,
    cursor: Cursor = None, limit: Limit = 500,
) -> LedgerGaps:  # fmt: skip
    """Holes that were seen more than once, newest first, and what became of them."""
    before = int(read_cursor(GAPS_CURSOR, cursor, [int])[0]) if cursor else NEWEST
    async with parts.store.transaction(caller.tenant_id) as connection:
        rows = await list_gaps(connection, before, device, state, limit + 1)
    page = rows[:limit]
    more = make_cursor(GAPS_CURSOR, [page[-1]["gap_id"]]) if len(rows) > limit else None
    return LedgerGaps(as_of=parts.now(), items=[LedgerGap(**row) for row in page], next=more)


@router.get("/quarantine")
async def quarantine(parts: Parts, caller: EvidenceCaller) -> SetAside:
    """Packets, or samples of packets, that the stream job could not believe, by reason."""
    async with parts.store.transaction(caller.tenant_id) as connection:
        rows = await count_quarantine(connection)
    return SetAside(as_of=parts.now(), items=[Aside(**row) for row in rows])


def _row(row: dict[str, Any]) -> LedgerRow:
    ranges: list[tuple[int, int]] = row["missing"][:MOST_RANGES]
    return LedgerRow(**{**row, "missing": [SeqRange(first=first, last=last) for first, last in ranges]})

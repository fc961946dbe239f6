"""The delivery ledger, and what was set aside."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from api.queries.ledger import count_dead_letters, count_quarantine, ledger_totals, list_ledger
from api.questions import make_cursor, read_cursor
from api.routes.common import PREFIX, Cursor, EvidenceCaller
from api.services import Parts
from api.shapes import Aside, Ledger, LedgerRow, LedgerTotals, SeqRange, SetAside

router = APIRouter(prefix=PREFIX, tags=["ledger"])
CURSOR = "ledger"
MOST_RANGES = 20


@router.get("/ledger")
async def ledger(
    parts: Parts, caller: EvidenceCaller, cursor: Cursor = None, limit: Annotated[int, Query(ge=1, le=5_000)] = 500
) -> Ledger:
    """Per device and boot epoch: accepted by the agent, stored, set aside, missing."""
    after: list[str | int] = read_cursor(CURSOR, cursor, [str, int]) if cursor else ["", -1]
    async with parts.store.transaction(caller.tenant_id) as connection:
        rows = await list_ledger(connection, (str(after[0]), int(after[1])), limit + 1)
        totals = await ledger_totals(connection)
    page = rows[:limit]
    more = make_cursor(CURSOR, [page[-1]["device"], page[-1]["boot_epoch"]]) if len(rows) > limit else None
    return Ledger(as_of=parts.now(), totals=LedgerTotals(**totals), items=[_row(row) for row in page], next=more)


@router.get("/quarantine")
async def quarantine(parts: Parts, caller: EvidenceCaller) -> SetAside:
    """Packets, or samples of packets, that the stream job could not believe, by reason."""
    async with parts.store.transaction(caller.tenant_id) as connection:
        rows = await count_quarantine(connection)
    return SetAside(as_of=parts.now(), items=[Aside(**row) for row in rows])


@router.get("/dead-letters")
async def dead_letters(parts: Parts, caller: EvidenceCaller) -> SetAside:
    """Packets that the gateway refused, by reason."""
    async with parts.store.transaction(caller.tenant_id) as connection:
        rows = await count_dead_letters(connection)
    return SetAside(as_of=parts.now(), items=[Aside(**row) for row in rows])


def _row(row: dict[str, Any]) -> LedgerRow:
    missing: list[tuple[int, int]] = row["missing"]
    return LedgerRow(
        **{name: value for name, value in row.items() if name != "missing"},
        missing_packets=sum(last - first + 1 for first, last in missing),
        missing=[SeqRange(first=first, last=last) for first, last in missing[:MOST_RANGES]],
    )

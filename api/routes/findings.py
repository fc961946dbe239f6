"""What detectors found, and what explains a finding: the signal around it, its peers, cases like it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query

from api.errors import BadQuestion, NotFound
from api.queries.alerts import read_record
from api.queries.findings import list_findings, read_corrections, read_peers, show_finding, similar_cases
from api.queries.pool import Connection
from api.queries.windows import list_windows
from api.questions import EARLIEST, make_cursor, read_cursor, time_range
from api.routes.common import PREFIX, Cursor, From, TelemetryCaller, To
from api.services import Parts
from api.shapes_alerts import (
    Around,
    Band,
    Believed,
    Contribution,
    Correction,
    ExplainPoint,
    Explanation,
    Findings,
    FindingShape,
    Peers,
    SimilarCase,
)
from contracts.limits import ALL_WIDTHS_S
from contracts.signals import catalogue

router = APIRouter(prefix=PREFIX, tags=["findings"])
CURSOR = "findings"
LEAST_PAD: Final = timedelta(minutes=15)
MOST_PAD: Final = timedelta(days=2)
"""How much of the signal is shown on each side of a finding: as much as it lasted, within these."""

MOST_POINTS: Final = 600
MOST_ALSO: Final = 5
"""Signals shown beside the one that carried most."""

RANGE_S: Final = 366 * 86_400
"""Longest range of one question about findings; without limits it is the last hour of nothing but a week."""

FindingId = Annotated[str, Path(pattern="^[0-9a-f]{32}$", examples=["9f86d081884c7d659a2feaa0c55ad015"])]


@router.get("/findings")
async def findings(
    parts: Parts, caller: TelemetryCaller, start: From = None, end: To = None, cursor: Cursor = None,
    asset: Annotated[str | None, Query(max_length=200)] = None,
    cause: Annotated[str | None, Query(max_length=200)] = None,
    detector: Annotated[str | None, Query(max_length=200)] = None,
    severity: Annotated[int, Query(ge=1, le=4, description="at least this")] = 1,
    running: Annotated[bool, Query(description="only what is not over")] = False,
    retracted: Annotated[bool, Query(description="also what readings that came late contradict")] = False,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> Findings:  # fmt: skip
    """Findings that began in [from, to), newest first; without limits those of the last seven days."""
    now = parts.now()
    asked = time_range(start or (end or now) - timedelta(days=7), end, now, RANGE_S)
    before, before_id = _before(cursor) or (None, None)
    values = {
        "asset": asset, "cause": cause, "detector": detector, "severity": severity, "running": running,
        "from": asked.start, "to": asked.end, "before": before, "before_id": before_id, "retracted": retracted,
        "limit": limit + 1,
    }  # fmt: skip
    async with parts.store.transaction(caller.tenant_id) as connection:
        rows = await list_findings(connection, values)
    page = rows[:limit]
    last = page[-1] if len(rows) > limit else None
    more = make_cursor(CURSOR, [last["opened_at"].isoformat(), last["finding_id"]]) if last else None
    return Findings(as_of=now, items=[FindingShape(**row) for row in page], next=more)


@router.get("/findings/{finding_id}")
async def explain(parts: Parts, caller: TelemetryCaller, finding_id: FindingId) -> Explanation:
    """One finding: what was seen, what was expected, which signals carried it, how often its detector was wrong."""
    async with parts.store.transaction(caller.tenant_id) as connection:
        row = await show_finding(connection, finding_id)
        if row is None:
            raise NotFound("no_such_finding", f"there is no finding {finding_id}")
        around = await _around(connection, row, row["signal_number"])
        others = [number for number in row["signals"] if number != row["signal_number"]][:MOST_ALSO]
        also = [await _around(connection, row, number) for number in others]
        peers = None
        if row["asset_id"] is not None:
            peers = await read_peers(connection, row, around.width_s, row["opened_at"], _end(row, around.width_s))
        record = await read_record(connection, row["detector"])
        similar = await similar_cases(connection, row)
        corrections = await read_corrections(connection, finding_id)
    judged = record.confirmed + record.wrong
    return Explanation(
        finding=FindingShape(**row),
        contributions=[_contribution(number, share) for number, share in row["contributions"]],
        around=around,
        also=also,
        corrections=[Correction(**one) for one in corrections],
        peers=None if peers is None else Peers(**peers),
        believed=Believed(
            detector=row["detector"], confirmed=record.confirmed, wrong=record.wrong, unclear=record.unclear,
            precision=record.confirmed / judged if judged else None, sureness=record.sureness,
        ),
        similar=[SimilarCase(**case) for case in similar],
    )  # fmt: skip


async def _around(connection: Connection, row: dict[str, Any], number: int) -> Around:
    """One signal of a finding, with what was expected if it is the one that carried most."""
    opened, last, signal = row["opened_at"], row["last_at"], catalogue().by_number(number)
    pad = min(max(last - opened, LEAST_PAD), MOST_PAD)
    start, end = max(opened - pad, EARLIEST), last + pad
    width_s = next((width for width in ALL_WIDTHS_S if (end - start).total_seconds() <= width * MOST_POINTS), 86_400)
    windows: list[dict[str, Any]] = []
    if row["asset_id"] is not None:
        windows = await list_windows(
            connection, row["asset_id"], number, width_s, start, end, (EARLIEST, -1), MOST_POINTS
        )
    points = [ExplainPoint(at=one["starts_at"], min=one["min"], mean=one["mean"], max=one["max"]) for one in windows]
    carried = number == row["signal_number"]
    band = Band(low=row["expected_low"], high=row["expected_high"]) if carried else Band(low=None, high=None)
    return Around(
        signal=signal.path, unit=signal.unit, width_s=width_s, start=start, end=end, expected=band, points=points
    )


def _end(row: dict[str, Any], width_s: int) -> datetime:
    """At least one window long: a finding may be a single moment."""
    last: datetime = row["last_at"]
    return last + timedelta(seconds=width_s)


def _contribution(number: int, share: float) -> Contribution:
    signal = catalogue().by_number(int(number))
    return Contribution(signal=signal.path, unit=signal.unit, share=share)


def _before(cursor: str | None) -> tuple[datetime, str] | None:
    if not cursor:
        return None
    moment, finding_id = read_cursor(CURSOR, cursor, [str, str])
    try:
        return datetime.fromisoformat(str(moment)), str(finding_id)
    except ValueError as error:
        raise BadQuestion("bad_cursor", "not a cursor of this resource", "cursor") from error

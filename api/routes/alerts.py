"""Alerts: what needs a person, what became of it, how often detectors were right, and work orders.

A move is a row of the audit with the key that asked for it; a request that is repeated changes nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query
from fastapi.responses import Response

from anomaly.alerts.life import MOVES, OPEN, Move
from api.auth import EVIDENCE, TELEMETRY
from api.errors import BadQuestion, Conflict, NotFound
from api.keys import Caller
from api.queries.alerts import (
    Asked,
    Wanted,
    list_alerts,
    move_alert,
    read_precision,
    read_work_orders,
    show_alert,
)
from api.queries.pool import Connection
from api.questions import make_cursor, read_cursor, to_ms
from api.routes.common import PREFIX, Cursor
from api.services import Allow, Parts
from api.shapes_alerts import (
    Alerts,
    AlertShape,
    AlertWhole,
    DetectorMonth,
    Precision,
    Transition,
    WorkOrder,
    WorkOrders,
)
from api.work_orders import as_csv
from contracts.alert import AlertState
from contracts.errors import Rejected

router = APIRouter(prefix=PREFIX, tags=["alerts"])
CURSOR = "alerts"
MOST_ORDERS = 1_000

SeeingCaller = Annotated[Caller, Depends(Allow(EVIDENCE))]
MovingCaller = Annotated[Caller, Depends(Allow(TELEMETRY))]
AlertId = Annotated[str, Path(pattern="^a-[0-9a-f]{16}$", examples=["a-0a1b2c3d4e5f6071"])]
FileForm = Annotated[Literal["json", "csv"], Query(description="json, or csv as a file")]
Limit = Annotated[int, Query(ge=1, le=1_000)]
CSV: dict[int | str, dict[str, Any]] = {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}


@router.get("/alerts")
async def alerts(
    parts: Parts, caller: SeeingCaller, cursor: Cursor = None, limit: Limit = 100,
    state: Annotated[list[AlertState], Query(description="in one of these; default: in any")] = [],  # noqa: B006
    open_only: Annotated[bool, Query(alias="open", description="only what is not resolved or retracted")] = False,
    asset: Annotated[str | None, Query(max_length=200)] = None,
    cause: Annotated[str | None, Query(max_length=200)] = None,
    assignee: Annotated[str | None, Query(max_length=100)] = None,
    severity: Annotated[int, Query(ge=1, le=4, description="at least this")] = 1,
    grouped: Annotated[bool, Query(description="also what is grouped under the alert of its storm")] = False,
) -> Alerts:  # fmt: skip
    """Alerts, newest first."""
    states = tuple(state) or (tuple(OPEN) if open_only else None)
    wanted = Wanted(states, asset, cause, assignee, severity, grouped, _before(cursor), limit + 1)
    async with parts.store.transaction(caller.tenant_id) as connection:
        rows = await list_alerts(connection, wanted)
    page = rows[:limit]
    last = page[-1] if len(rows) > limit else None
    more = make_cursor(CURSOR, [last["opened_at"].isoformat(), last["alert_id"]]) if last else None
    return Alerts(as_of=parts.now(), items=[AlertShape(**row) for row in page], next=more)


@router.get("/alerts/precision")
async def precision(
    parts: Parts, caller: SeeingCaller,
    months: Annotated[int, Query(ge=1, le=120, description="this month and so many less one before it")] = 12,
) -> Precision:  # fmt: skip
    """How often each detector was right, by month, as people resolved its alerts."""
    now = parts.now()
    async with parts.store.transaction(caller.tenant_id) as connection:
        rows = await read_precision(connection, _months_ago(now, months - 1))
    return Precision(as_of=now, items=[DetectorMonth(**row) for row in rows])


@router.get("/work-orders", response_model=WorkOrders, responses=CSV)
async def work_orders(parts: Parts, caller: SeeingCaller, form: FileForm = "json") -> Response | WorkOrders:
    """Work orders of all open alerts, the gravest first."""
    async with parts.store.transaction(caller.tenant_id) as connection:
        rows = await read_work_orders(connection, None, MOST_ORDERS)
    return _orders(rows, parts.now(), form, "work-orders")


@router.get("/alerts/{alert_id}")
async def one(parts: Parts, caller: SeeingCaller, alert_id: AlertId) -> AlertWhole:
    """One alert: its life, its findings, where it may be moved from here."""
    async with parts.store.transaction(caller.tenant_id) as connection:
        return await _whole(connection, alert_id)


@router.post("/alerts/{alert_id}/transitions")
async def transition(parts: Parts, caller: MovingCaller, alert_id: AlertId, body: Transition) -> AlertWhole:
    """Move an alert. A resolution, and a suppression, is also that of what is grouped under it."""
    by = f"key:{caller.key_id}" + (f"/{body.actor}" if body.actor else "")
    until_ms = None if body.suppress_until is None else to_ms(body.suppress_until)
    move = Move(body.to_state, body.assignee, body.resolution, until_ms, body.note)
    try:
        async with parts.store.transaction(caller.tenant_id, writable=True) as connection:
            moved = await move_alert(connection, Asked(alert_id, move, by, body.event_no), to_ms(parts.now()))
            if moved is None:
                raise _no_alert(alert_id)
            return await _whole(connection, alert_id)
    except Rejected as error:
        if error.reason == "not_allowed":
            raise Conflict(error.reason, error.detail) from error
        if error.reason == "bad_move":
            raise BadQuestion(error.reason, error.detail, "to_state") from error
        raise


@router.get("/alerts/{alert_id}/work-order", response_model=WorkOrders, responses=CSV)
async def work_order(
    parts: Parts, caller: SeeingCaller, alert_id: AlertId, form: FileForm = "json"
) -> Response | WorkOrders:
    """The work order of one alert."""
    async with parts.store.transaction(caller.tenant_id) as connection:
        rows = await read_work_orders(connection, alert_id, 1)
    if not rows:
        raise _no_alert(alert_id)
    return _orders(rows, parts.now(), form, f"work-order-{alert_id}")


async def _whole(connection: Connection, alert_id: str) -> AlertWhole:
    row = await show_alert(connection, alert_id)
    if row is None:
        raise _no_alert(alert_id)
    alert = AlertShape(**row)
    more = {name: row[name] for name in ("events", "items", "children")}
    return AlertWhole(alert=alert, moves=[*MOVES[alert.state]], **more)


def _orders(rows: list[dict[str, Any]], now: datetime, form: str, name: str) -> Response | WorkOrders:
    orders = [WorkOrder(**row, exported_at=now) for row in rows]
    if form == "json":
        return WorkOrders(as_of=now, items=orders)
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return Response(as_csv(orders), media_type="text/csv; charset=utf-8; header=present", headers=headers)


def _no_alert(alert_id: str) -> NotFound:
    return NotFound("no_such_alert", f"there is no alert {alert_id}")


def _before(cursor: str | None) -> tuple[datetime, str] | None:
    if not cursor:
        return None
    moment, alert_id = read_cursor(CURSOR, cursor, [str, str])
    try:
        return datetime.fromisoformat(str(moment)), str(alert_id)
    except ValueError as error:
        raise BadQuestion("bad_cursor", "not a cursor of this resource", "cursor") from error


def _months_ago(now: datetime, months: int) -> datetime:
    """The first moment of the month that lies so many months before this one."""
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    for _ in range(months):
        first = (first - timedelta(days=1)).replace(day=1)
    return first

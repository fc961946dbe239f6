"""Who am I, the signal catalogue, assets with the age of their data, and one asset's latest values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response

from api.errors import NotFound
from api.queries.assets import latest_values, list_assets
from api.queries.keys import tenant_name
from api.questions import find_signal, make_cursor, read_cursor
from api.routes.common import PREFIX, AnyCaller, AssetName, Cursor, Group, TelemetryCaller, group_of
from api.services import Parts
from api.shapes import AssetLatest, Assets, Signals, SignalShape, WhoAmI, quality_name
from api.shapes_series import moment, plain
from api.state import state_of
from contracts.signals import catalogue

router = APIRouter(prefix=PREFIX, tags=["assets"])
CURSOR = "assets"


@router.get("/whoami")
async def whoami(parts: Parts, caller: AnyCaller) -> WhoAmI:
    """The key's tenant and role."""
    async with parts.store.transaction(caller.tenant_id) as connection:
        return WhoAmI(key_id=caller.key_id, tenant=await tenant_name(connection, caller.tenant_id), role=caller.role)


@router.get("/signals")
async def signals(_: AnyCaller) -> Signals:
    """The signal catalogue: what each path means, in which unit."""
    fields = set(SignalShape.model_fields)
    return Signals(items=[SignalShape(**{name: getattr(signal, name) for name in fields}) for signal in catalogue()])


@router.get("/assets", response_model=Assets)
async def assets(
    parts: Parts, caller: TelemetryCaller, cursor: Cursor = None,
    search: Annotated[str, Query(max_length=200, description="part of the name")] = "",
    signal: Annotated[list[str], Query(max_length=8, description="add the latest value of these")] = [],  # noqa: B006
    limit: Annotated[int, Query(ge=1, le=10_000)] = 500, group: Group = None,
) -> Response:  # fmt: skip
    """Assets by name, with the state and the age of their data."""
    after = str(read_cursor(CURSOR, cursor, [str])[0]) if cursor else ""
    numbers = [find_signal(path).number for path in signal]
    async with parts.store.transaction(caller.tenant_id) as connection:
        rows = await list_assets(connection, after, search, limit + 1, group_id=await group_of(connection, group))
        page = rows[:limit]
        values = await latest_values(connection, [row["asset_id"] for row in page], numbers) if numbers else []
    now = parts.now()
    by_asset: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for value in values:
        by_asset[value["asset_id"]].append(value)
    more = make_cursor(CURSOR, [page[-1]["name"]]) if len(rows) > limit else None
    items = [_asset(row, by_asset[row["asset_id"]], now) for row in page]
    return plain({"as_of": moment(now), "items": items, "next": more})


@router.get("/assets/{name}/latest", response_model=AssetLatest)
async def latest(parts: Parts, caller: TelemetryCaller, name: AssetName) -> Response:
    """The latest value of every signal of one asset."""
    async with parts.store.transaction(caller.tenant_id) as connection:
        rows = await list_assets(connection, name=name)
        if not rows:
            raise NotFound("no_such_asset", f"there is no asset named {name[:100]!r}")
        values = await latest_values(connection, [rows[0]["asset_id"]])
    now = parts.now()
    return plain({"as_of": moment(now), "asset": _asset(rows[0], values, now)})


def _asset(row: Mapping[str, Any], values: Sequence[Mapping[str, Any]], now: datetime) -> dict[str, Any]:
    measured_at, received_at = row["measured_at"], row["received_at"]
    return {
        "name": row["name"],
        "kind": row["kind"],
        "devices": row["devices"] or [],
        "state": state_of(measured_at, received_at, row["recording"], now),
        "measured_at": None if measured_at is None else moment(measured_at),
        "received_at": None if received_at is None else moment(received_at),
        "age_s": None if measured_at is None else _age_s(measured_at, now),
        "signals": row["signals"],
        "values": [_value(value, now) for value in values],
    }


def _value(value: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    received_at = value["received_at"]
    return {
        "signal": value["signal"], "value": value["value"], "unit": value["unit"],
        "quality": quality_name(value["quality"]), "measured_at": moment(value["measured_at"]),
        "received_at": None if received_at is None else moment(received_at),
        "age_s": _age_s(value["measured_at"], now), "device": value["device"],
    }  # fmt: skip


def _age_s(measured_at: datetime, now: datetime) -> float:
    return round((now - measured_at).total_seconds(), 3)

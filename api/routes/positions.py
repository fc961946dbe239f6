"""Where the fleet is, as columns: ten thousand assets in one short answer for the map."""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import Field

from api.queries.positions import positions
from api.routes.common import PREFIX, Group, TelemetryCaller, group_of
from api.services import Parts
from api.shapes import AT, Shape, answer, example
from api.state import State, state_of

router = APIRouter(prefix=PREFIX, tags=["assets"])


class Positions(Shape):
    """Equally long columns, one entry per asset, by name. Degrees are WGS 84, ``speed`` km/h, ``heading`` degrees from
    north. ``position_at`` null beside a latitude: the place where the asset stands, as it was enrolled."""

    model_config = example(
        as_of=AT, name=["car-001"], kind=["car"], state=["live"], latitude=[49.0131], longitude=[8.4044],
        heading=[271.5], speed=[48.2], measured_at=[AT], received_at=[AT], position_at=[AT],
    )  # fmt: skip

    as_of: datetime
    name: list[str]
    kind: list[str]
    state: list[State]
    latitude: list[float | None] = Field(description="null: no position is known")
    longitude: list[float | None]
    heading: list[float | None]
    speed: list[float | None]
    measured_at: list[datetime | None] = Field(description="event time of the asset's newest value of any signal")
    received_at: list[datetime | None]
    position_at: list[datetime | None] = Field(description="event time of the position")


@router.get("/positions", response_model=Positions)
async def fleet_positions(parts: Parts, caller: TelemetryCaller, group: Group = None) -> Response:
    """Every asset's newest position with the state of its data; at most 20,000 assets."""
    async with parts.store.transaction(caller.tenant_id) as connection:
        rows = await positions(connection, group_id=await group_of(connection, group))
    now = parts.now()
    columns = {
        name: [row[name] for row in rows]
        for name in (
            "name", "kind", "latitude", "longitude", "heading", "speed", "measured_at", "received_at", "position_at"
        )
    }  # fmt: skip
    states = [state_of(row["measured_at"], row["received_at"], row["recording"], now) for row in rows]
    return answer(Positions, as_of=now, state=states, **columns)

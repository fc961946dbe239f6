"""Parameters and lookups that several routes share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Depends, Header, Path, Query, Request
from pydantic import AfterValidator, AwareDatetime

from api.auth import EVERYONE, EVIDENCE, TELEMETRY
from api.errors import NotFound
from api.forms import Form, choose
from api.keys import Caller
from api.queries.assets import find_asset
from api.queries.groups import find_group
from api.queries.pool import Connection
from api.services import Allow

PREFIX = "/api/v1"

TelemetryCaller = Annotated[Caller, Depends(Allow(TELEMETRY))]
EvidenceCaller = Annotated[Caller, Depends(Allow(EVIDENCE))]
AnyCaller = Annotated[Caller, Depends(Allow(EVERYONE))]

AssetName = Annotated[str, Path(min_length=1, max_length=200, description="name of the asset", examples=["car-001"])]
SignalPath = Annotated[str, Query(max_length=200, description="catalogue path", examples=["Vehicle.Speed"])]
FIRST, LAST = datetime(1900, 1, 1, tzinfo=UTC), datetime(9990, 1, 1, tzinfo=UTC)


def in_utc(moment: datetime) -> datetime:
    """In UTC and within a calendar that can be reckoned with: no reading lies beyond it."""
    try:
        return min(max(moment.astimezone(UTC), FIRST), LAST)
    except OverflowError:
        return FIRST if moment.year < 2 else LAST


Moment = Annotated[AwareDatetime, AfterValidator(in_utc)]
From = Annotated[
    Moment | None,
    Query(
        alias="from", description="inclusive, RFC 3339; default one hour before 'to'", examples=["2026-11-21T11:00:00Z"]
    ),
]
To = Annotated[
    Moment | None,
    Query(alias="to", description="exclusive, RFC 3339; default now", examples=["2026-11-21T12:00:00Z"]),
]
Cursor = Annotated[str | None, Query(max_length=1_000, description="'next' of the answer before")]

Group = Annotated[str | None, Query(max_length=100, description="only assets of this group", examples=["Vans"])]
IfNoneMatch = Annotated[
    str | None, Header(max_length=1_000, description="ETag of an answer that you have; 304 when it still holds")
]


def wanted_form(
    request: Request,
    accept: Annotated[str | None, Header(max_length=2_000, description="the form of the answer")] = None,
) -> Form:
    """What Accept asks for, in one line or in several (RFC 9110 5.3). Raises NotAcceptable."""
    return choose(None if accept is None else ", ".join(filter(None, request.headers.getlist("accept"))))


Wanted = Annotated[Form, Depends(wanted_form)]


async def require_asset(connection: Connection, name: str) -> dict[str, Any]:
    """The tenant's asset. Raises NotFound, the same for none and for another tenant's."""
    found = await find_asset(connection, name)
    if found is None:
        raise NotFound("no_such_asset", f"there is no asset named {name[:100]!r}")
    return found


async def require_group(connection: Connection, name: str) -> int:
    """The tenant's group. Raises NotFound, the same for none and for another tenant's."""
    found = await find_group(connection, name)
    if found is None:
        raise no_group(name)
    return int(found["group_id"])


async def group_of(connection: Connection, name: str | None) -> int | None:
    """The group of a filter; None: no filter. Raises NotFound."""
    return None if name is None else await require_group(connection, name)


def no_group(name: str) -> NotFound:
    return NotFound("no_such_group", f"there is no group named {name[:100]!r}")

"""Groups of assets, and a whole fleet from one CSV file."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response
from pydantic import Field

from api.errors import BadQuestion
from api.imports import COLUMNS, LineError, as_json, read_fleet, told
from api.keys import Caller
from api.problems import problem
from api.queries.groups import drop_group, import_fleet, list_groups, members, set_group
from api.questions import make_cursor, read_cursor
from api.routes.common import PREFIX, Cursor, TelemetryCaller, no_group, require_group
from api.services import Allow, Parts
from api.shapes import AT, BadParameter, Shape, example

router = APIRouter(prefix=PREFIX, tags=["fleet"])
CURSOR = "groups"
ARRANGERS = frozenset({"operator", "admin"})
ADMIN = frozenset({"admin"})
CSV_TYPES = ("text/csv", "application/csv")
EXAMPLE = (
    "device,asset,asset_kind,device_kind,since,latitude,longitude,groups\n"
    "van-7,Van 7,car,device,,,,Depot south;Vans\n"
    "wt-3,Turbine 3,turbine,device,2026-11-21T12:00:00Z,49.03,8.47,Ridge\n"
)

ArrangingCaller = Annotated[Caller, Depends(Allow(ARRANGERS))]
AdminCaller = Annotated[Caller, Depends(Allow(ADMIN))]
GroupName = Annotated[str, Path(min_length=1, max_length=100, description="name of the group", examples=["Vans"])]


class AssetGroup(Shape):
    """A group and how many assets are in it."""

    model_config = example(name="Vans", assets=12, created_at=AT)

    name: str
    assets: int
    created_at: datetime


class AssetGroups(Shape):
    """A page of groups by name."""

    as_of: datetime
    items: list[AssetGroup]
    next: str | None


class GroupMembers(Shape):
    """A group with the names of its assets."""

    model_config = example(name="Vans", assets=["Van 7", "Van 8"])

    name: str
    assets: list[str]


class NewMembers(Shape):
    """The assets that the group shall hold, and no others."""

    model_config = example(assets=["Van 7", "Van 8"])

    assets: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(max_length=10_000)


class ImportFault(Shape):
    """What is wrong with one cell; the header is line 1."""

    line: int
    column: str
    reason: str
    detail: str


class Import(Shape):
    """What an import did, or would do. ``members_added``: assets that came into groups."""

    model_config = example(
        dry_run=True, accepted=True, lines=2, assets_made=2, assets_changed=0, devices_made=2, devices_changed=0,
        bindings_made=2, bindings_moved=0, groups_made=3, members_added=3, errors=[],
    )  # fmt: skip

    dry_run: bool
    accepted: bool
    lines: int
    assets_made: int = 0
    assets_changed: int = 0
    devices_made: int = 0
    devices_changed: int = 0
    bindings_made: int = 0
    bindings_moved: int = 0
    groups_made: int = 0
    members_added: int = 0
    errors: list[ImportFault]


@router.get("/groups")
async def groups(
    parts: Parts, caller: TelemetryCaller, cursor: Cursor = None, limit: Annotated[int, Query(ge=1, le=5_000)] = 500
) -> AssetGroups:
    """Groups by name."""
    after = str(read_cursor(CURSOR, cursor, [str])[0]) if cursor else ""
    async with parts.store.transaction(caller.tenant_id) as connection:
        rows = await list_groups(connection, after, limit + 1)
    page = rows[:limit]
    more = make_cursor(CURSOR, [page[-1]["name"]]) if len(rows) > limit else None
    return AssetGroups(as_of=parts.now(), items=[AssetGroup(**row) for row in page], next=more)


@router.get("/groups/{group}")
async def one_group(parts: Parts, caller: TelemetryCaller, group: GroupName) -> GroupMembers:
    """One group and the names of its assets."""
    async with parts.store.transaction(caller.tenant_id) as connection:
        return GroupMembers(name=group, assets=await members(connection, await require_group(connection, group)))


@router.put("/groups/{group}")
async def put_group(parts: Parts, caller: ArrangingCaller, group: GroupName, body: NewMembers) -> GroupMembers:
    """Make a group, or make it hold exactly these assets. The same again changes nothing."""
    if not group.isprintable():
        raise BadQuestion("bad_name", "a group's name has printable characters only", "group")
    async with parts.store.transaction(caller.tenant_id, writable=True) as connection:
        missing = await set_group(connection, caller.tenant_id, group, body.assets)
        if missing:
            raise BadQuestion("no_such_asset", f"there is no asset named {missing[0][:100]!r}", "assets")
        found = await members(connection, await require_group(connection, group))
    return GroupMembers(name=group, assets=found)


@router.delete("/groups/{group}", status_code=204)
async def delete_group(parts: Parts, caller: ArrangingCaller, group: GroupName) -> Response:
    """Take a group away; its assets stay."""
    async with parts.store.transaction(caller.tenant_id, writable=True) as connection:
        if not await drop_group(connection, caller.tenant_id, group):
            raise no_group(group)
    return Response(status_code=204)


@router.post(
    "/fleet/import", response_model=Import,
    openapi_extra={"requestBody": {"required": True, "content": {
        "text/csv": {"schema": {"type": "string"}, "example": EXAMPLE},
    }}},
)  # fmt: skip
async def import_csv(
    request: Request, parts: Parts, caller: AdminCaller,
    dry_run: Annotated[bool, Query(description="say what would happen and change nothing")] = False,
) -> Any:  # fmt: skip
    """Enrol devices, assets, bindings and groups: all lines or none. The same file again changes nothing."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind not in CSV_TYPES:
        return problem(415, "not_csv", f"send the file as text/csv with the columns {', '.join(COLUMNS)}")
    lines, errors = read_fleet(await request.body())
    counts: dict[str, int] = {"lines": len(lines) + len(errors)}
    if not errors:
        async with parts.store.transaction(caller.tenant_id, writable=True) as connection:
            report = await import_fleet(connection, caller.tenant_id, as_json(lines), dry_run)
        errors, counts = told(report), report["counts"]
    if errors and not dry_run:
        return _refused(errors)
    shown = [ImportFault(line=one.line, column=one.column, reason=one.reason, detail=one.detail) for one in errors]
    return Import(dry_run=dry_run, accepted=not errors, errors=shown, **counts)


def _refused(errors: list[LineError]) -> Response:
    shown = [BadParameter(parameter=f"line {one.line}: {one.column}", detail=one.detail) for one in errors]
    first = errors[0]
    detail = (
        f"nothing was changed; {len(errors)} errors, the first in line {first.line}, {first.column}: {first.detail}"
    )
    return problem(422, "import_refused", detail, errors=shown)

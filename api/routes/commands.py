"""Commands to devices: ask for one, see what became of it.

A request is accepted once per ``Idempotency-Key`` and waits until its device answers or it expires, also when the
device is off. Nothing here talks to a device: the request is a row, the clerk sends it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Response

from api.auth import EVIDENCE
from api.command_requests import new_request
from api.errors import BadQuestion, NotFound, TooMany
from api.keys import Caller
from api.queries.commands import MOST_OPEN, Before, Request, has_device, list_commands, show_command, submit
from api.questions import make_cursor, read_cursor
from api.routes.common import PREFIX, AnyCaller, Cursor
from api.services import Allow, Parts
from api.shapes_commands import CommandKinds, CommandKindShape, CommandRequest, Commands, CommandShape
from contracts.command_life import State
from contracts.command_menu import MENU, CommandKind
from contracts.errors import Rejected

router = APIRouter(prefix=PREFIX, tags=["commands"])
CURSOR = "commands"
SENDERS = frozenset({"operator", "admin"})
"""A command changes what a device does: reading roles see them and send none."""

SenderCaller = Annotated[Caller, Depends(Allow(SENDERS))]
SeeingCaller = Annotated[Caller, Depends(Allow(EVIDENCE))]
DeviceName = Annotated[str, Path(min_length=1, max_length=64, examples=["van-7"])]
IdempotencyKey = Annotated[
    str | None, Header(min_length=1, max_length=200, description="the same key and request: the same command")
]
StateFilter = Annotated[State | None, Query(description="only in this state")]
Limit = Annotated[int, Query(ge=1, le=1_000)]


@router.get("/command-kinds")
async def kinds(_: AnyCaller) -> CommandKinds:
    """What may be asked of a device, with which arguments."""
    return CommandKinds(items=[_kind(kind) for kind in MENU.values() if kind.offered])


@router.post(
    "/devices/{device}/commands", status_code=202,
    responses={200: {"model": CommandShape, "description": "this key asked for it before"}},
)  # fmt: skip
async def ask(
    parts: Parts, caller: SenderCaller, response: Response, device: DeviceName, body: CommandRequest,
    idempotency_key: IdempotencyKey = None,
) -> CommandShape:  # fmt: skip
    """Accept a command; 202 when it is new, 200 when this key asked for it before."""
    request = _checked(device, body, caller, idempotency_key, parts.now())
    async with parts.store.transaction(caller.tenant_id, writable=True) as connection:
        said, command_id = await submit(connection, request)
        row = await show_command(connection, command_id) if command_id else None
    if said == "too_many":
        raise TooMany(f"{MOST_OPEN} commands wait for {device[:64]!r} already; let some end first", 60, "open_commands")
    if said == "different":
        raise BadQuestion("key_reused", "this Idempotency-Key belongs to another request", "Idempotency-Key")
    if row is None:
        raise NotFound("no_such_device", f"there is no device named {device[:64]!r}")
    response.status_code = 202 if said == "created" else 200
    response.headers["Location"] = f"{PREFIX}/commands/{command_id}"
    return CommandShape(**row)


@router.get("/devices/{device}/commands")
async def of_device(
    parts: Parts, caller: SeeingCaller, device: DeviceName, state: StateFilter = None, cursor: Cursor = None,
    limit: Limit = 100,
) -> Commands:  # fmt: skip
    """One device's commands, newest first."""
    async with parts.store.transaction(caller.tenant_id) as connection:
        if not await has_device(connection, device):
            raise NotFound("no_such_device", f"there is no device named {device[:64]!r}")
        rows = await list_commands(connection, device, state, _before(cursor), limit + 1)
    return _page(rows, limit, parts.now())


@router.get("/commands")
async def of_all(
    parts: Parts, caller: SeeingCaller, state: StateFilter = None, cursor: Cursor = None, limit: Limit = 100
) -> Commands:
    """All commands of the tenant, newest first."""
    async with parts.store.transaction(caller.tenant_id) as connection:
        rows = await list_commands(connection, None, state, _before(cursor), limit + 1)
    return _page(rows, limit, parts.now())


@router.get("/commands/{command_id}")
async def one(
    parts: Parts, caller: SeeingCaller, command_id: Annotated[str, Path(min_length=1, max_length=64)]
) -> CommandShape:
    """One command and every change of its state: when, by whom, why."""
    async with parts.store.transaction(caller.tenant_id) as connection:
        row = await show_command(connection, command_id)
    if row is None:
        raise NotFound("no_such_command", f"there is no command {command_id[:64]!r}")
    return CommandShape(**row)


def _checked(device: str, body: CommandRequest, caller: Caller, key: str | None, now: datetime) -> Request:
    try:
        request = new_request(device, body.kind, body.arguments, f"key:{caller.key_id}", now, body.expires_in_s)
    except Rejected as error:
        parameter = {"unknown_kind": "kind", "bad_expiry": "expires_in_s"}.get(error.reason, "arguments")
        raise BadQuestion(error.reason, error.detail, parameter) from error
    return replace(request, tenant_id=caller.tenant_id, idempotency_key=key)


def _before(cursor: str | None) -> Before | None:
    if not cursor:
        return None
    moment, command_id = read_cursor(CURSOR, cursor, [str, str])
    try:
        return Before(datetime.fromisoformat(str(moment)), str(command_id))
    except ValueError as error:
        raise BadQuestion("bad_cursor", "not a cursor of this resource", "cursor") from error


def _page(rows: list[dict[str, Any]], limit: int, now: datetime) -> Commands:
    page = rows[:limit]
    last = page[-1] if len(rows) > limit else None
    more = make_cursor(CURSOR, [last["created_at"].isoformat(), last["command_id"]]) if last else None
    return Commands(as_of=now, items=[CommandShape(**row) for row in page], next=more)


def _kind(kind: CommandKind) -> CommandKindShape:
    arguments = {one.name: one.text + (" (required)" if one.required else "") for one in kind.arguments}
    return CommandKindShape(kind=kind.name, text=kind.text, arguments=arguments, life_s=kind.life_ms // 1000)

"""Where messages about alerts go, what became of them, and what is at stake with an asset: what decides who is told."""

from __future__ import annotations

import re
import secrets
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query

from api.auth import EVIDENCE
from api.carriers import NotDelivered, read_address
from api.errors import BadQuestion, Conflict, NotFound, TooMany
from api.keys import Caller
from api.queries.channels import (
    add_channel,
    count_channels,
    list_channels,
    list_deliveries,
    read_care,
    remove_channel,
    set_care,
    show_channel,
)
from api.routes.common import PREFIX, AssetName, TelemetryCaller, require_asset
from api.services import Allow, Parts
from api.shapes_channels import Care, Channel, Channels, Deliveries, Delivery, MadeChannel, NewChannel, Quiet

router = APIRouter(prefix=PREFIX, tags=["alerts"])
MAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", re.ASCII)
MOST_CHANNELS = 50

AdminCaller = Annotated[Caller, Depends(Allow(frozenset({"admin"})))]
SeeingCaller = Annotated[Caller, Depends(Allow(EVIDENCE))]
SettingCaller = Annotated[Caller, Depends(Allow(frozenset({"operator", "admin"})))]
ChannelId = Annotated[str, Path(pattern="^n-[0-9a-f]{16}$", examples=["n-0a1b2c3d4e5f6071"])]


@router.get("/alert-channels")
async def channels(parts: Parts, caller: SeeingCaller) -> Channels:
    """Where messages go; secrets are not told."""
    async with parts.store.transaction(caller.tenant_id) as connection:
        return Channels(items=[_channel(row) for row in await list_channels(connection)])


@router.post("/alert-channels", status_code=201)
async def make(parts: Parts, caller: AdminCaller, body: NewChannel) -> MadeChannel:
    """Make a channel. A webhook's secret is in this answer and in no other."""
    _check_target(body, parts.settings.webhook_private)
    secret = f"whsec_{secrets.token_urlsafe(32)}" if body.kind == "webhook" else None
    quiet = body.quiet
    values = {
        "channel_id": f"n-{secrets.token_hex(8)}", "tenant_id": caller.tenant_id, "name": body.name, "kind": body.kind,
        "target": body.target, "secret": secret, "min_severity": body.min_severity,
        "quiet_begin": quiet.begin if quiet else None, "quiet_end": quiet.end if quiet else None,
        "zone": quiet.zone if quiet else "UTC", "quiet_through": quiet.through if quiet else 4,
        "created_by": f"key:{caller.key_id}",
    }  # fmt: skip
    async with parts.store.transaction(caller.tenant_id, writable=True) as connection:
        if await count_channels(connection) >= MOST_CHANNELS:
            raise TooMany(f"there are {MOST_CHANNELS} channels already; remove one first", 60)
        row = await add_channel(connection, values)
    if row is None:
        raise Conflict("name_taken", f"there is a channel named {body.name!r} already")
    return MadeChannel(channel=_channel(row), secret=secret)


@router.delete("/alert-channels/{channel_id}", status_code=204)
async def remove(parts: Parts, caller: AdminCaller, channel_id: ChannelId) -> None:
    """Remove a channel with its deliveries; what waits for it is not sent."""
    async with parts.store.transaction(caller.tenant_id, writable=True) as connection:
        if not await remove_channel(connection, channel_id):
            raise _no_channel(channel_id)


@router.get("/alert-channels/{channel_id}/deliveries")
async def deliveries(
    parts: Parts, caller: SeeingCaller, channel_id: ChannelId,
    state: Annotated[Literal["waiting", "sent", "dead"] | None, Query()] = None,
) -> Deliveries:  # fmt: skip
    """The newest 100 messages of a channel and what became of them."""
    async with parts.store.transaction(caller.tenant_id) as connection:
        if await show_channel(connection, channel_id) is None:
            raise _no_channel(channel_id)
        rows = await list_deliveries(connection, channel_id, state)
    return Deliveries(items=[Delivery(**row) for row in rows])


@router.get("/assets/{name}/care")
async def care(parts: Parts, caller: TelemetryCaller, name: AssetName) -> Care:
    """What is at stake with an asset."""
    async with parts.store.transaction(caller.tenant_id) as connection:
        row = await read_care(connection, (await require_asset(connection, name))["asset_id"])
    return Care(**row) if row else Care()


@router.put("/assets/{name}/care")
async def say_care(parts: Parts, caller: SettingCaller, name: AssetName, body: Care) -> Care:
    """Say what is at stake; alerts are graded by it from their next step on."""
    async with parts.store.transaction(caller.tenant_id, writable=True) as connection:
        asset = await require_asset(connection, name)
        values = {**body.model_dump(), "criticality": int(body.criticality), "by": f"key:{caller.key_id}"}
        await set_care(connection, {**values, "asset_id": asset["asset_id"], "tenant_id": caller.tenant_id})
    return body


def _check_target(body: NewChannel, private: bool) -> None:
    if body.kind == "device":
        wanted = "" if not body.target else "a device channel goes to the machine of the alert and has no target"
    elif body.kind == "email":
        wanted = "" if MAIL.fullmatch(body.target) else "one mail address"
    else:
        try:
            read_address(body.target, private)
            wanted = ""
        except NotDelivered as error:
            wanted = str(error)
    if wanted:
        raise BadQuestion("bad_target", wanted, "target")


def _channel(row: dict[str, Any]) -> Channel:
    quiet = None
    if row["quiet_begin"] is not None:
        quiet = Quiet(
            begin=row["quiet_begin"], end=row["quiet_end"], zone=row["zone"], through=row["quiet_through"]
        )  # fmt: skip
    names = ("channel_id", "name", "kind", "target", "min_severity", "enabled", "created_at", "created_by")
    return Channel(quiet=quiet, **{name: row[name] for name in names})


def _no_channel(channel_id: str) -> NotFound:
    return NotFound("no_such_channel", f"there is no channel {channel_id}")

"""The live stream by Server-Sent Events.

Events: ``hello`` (the position the stream starts at), ``values`` (changed latest values), ``reset`` (too much has
changed: load the resources again and go on listening), ``notice`` (a crash on a device; where to look is read through
the custody log), ``bye`` (the server or the key ends; come back with the last id). A comment line keeps quiet
connections open; the id beside it, without an event, says how far a client has come that heard nothing.
``Last-Event-ID`` resumes without a gap: an id never stands for more than was sent up to that event, so only the last
event of a frame has the frame's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from api.custody import logged
from api.edr_shapes import LiveNotice, notice_shape
from api.errors import BadQuestion, Unauthorised
from api.keys import Caller
from api.live import Frame, Interest, Mailbox, Value
from api.questions import find_signal
from api.routes.common import PREFIX, TelemetryCaller
from api.services import Parts, Services
from api.shapes import LiveFrame, LiveValue, quality_name
from contracts.edr import custody

router = APIRouter(prefix=PREFIX, tags=["live"])
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
RETRY_MS = 2_000
EXAMPLE = 'id: 4711\nevent: values\ndata: {"at":"2026-11-21T12:00:00Z","skipped":0,"values":[…]}\n\n'


@router.get(
    "/stream",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"example": EXAMPLE}}}},
)
async def stream(
    request: Request, parts: Parts, caller: TelemetryCaller,
    asset: Annotated[list[str], Query(max_length=100, description="only these; none: all")] = [],  # noqa: B006
    signal: Annotated[list[str], Query(max_length=100, description="only these; none: all")] = [],  # noqa: B006
    last_event_id: Annotated[str | None, Header(description="id of the last event taken")] = None,
) -> StreamingResponse:  # fmt: skip
    """Changed latest values, at most four frames a second; a slow client gets the newest and hears what it skipped."""
    interest = Interest(frozenset(asset), frozenset(find_signal(path).path for path in signal))
    since = _position(last_event_id)
    parts.seats.take(caller.key_id)
    try:
        mailbox = await parts.hub.join(caller.tenant_id, interest, since)
    except BaseException:
        parts.seats.give_back(caller.key_id)
        raise
    events = _events(parts, caller, request.headers.get("authorization"), mailbox)
    return StreamingResponse(events, media_type="text/event-stream", headers=HEADERS)


async def _events(parts: Services, caller: Caller, header: str | None, mailbox: Mailbox) -> AsyncIterator[str]:
    pause_s = parts.settings.stream_frame_ms / 1000
    try:
        yield f"retry: {RETRY_MS}\n" + _event("hello", Frame(mailbox.taken, []), parts)
        while True:
            filled = await mailbox.wait(parts.settings.stream_heartbeat_s)
            if mailbox.ended or not await _still_admitted(parts, header):
                break
            if not filled:
                yield f": still here\nid: {mailbox.taken}\n\n"
                continue
            before, frame = mailbox.taken, mailbox.take()
            more = frame.reset or bool(frame.values)
            notices = frame.notices if await _may_hear(parts, caller, frame) else ()
            for left, notice in zip(range(len(notices) - 1, -1, -1), notices, strict=True):
                yield _notice(before if left or more else frame.position, notice, parts)
            if more:
                yield _event("reset" if frame.reset else "values", frame, parts)
            # values that arrive meanwhile wait in the mailbox, the newest of each only
            await asyncio.sleep(pause_s)
        yield _event("bye", Frame(mailbox.taken, []), parts)
    finally:
        parts.hub.leave(caller.tenant_id, mailbox)
        parts.seats.give_back(caller.key_id)


async def _may_hear(parts: Services, caller: Caller, frame: Frame) -> bool:
    """Crash notices are read here as from their list: each reading is in the custody log before it happens."""
    if not frame.notices:
        return False
    asked = custody.Request("", caller.key_id, caller.role, custody.NOTICES, purpose="live stream")
    decision, _ = await logged(parts.store, caller.tenant_id, asked)
    return decision.allowed


async def _still_admitted(parts: Services, header: str | None) -> bool:
    """A revoked or expired key ends its streams too; from memory, so a database that is away ends none."""
    try:
        await parts.doorman.recheck(header)
    except Unauthorised:
        return False
    return True


def _event(name: str, frame: Frame, parts: Services) -> str:
    if name == "values" and frame.skipped:
        parts.metrics.stream_skipped.inc(frame.skipped)
    if name == "reset":
        parts.metrics.stream_resets.inc()
    body = LiveFrame(at=parts.now(), skipped=frame.skipped, values=[_value(value) for value in frame.values])
    return f"id: {frame.position}\nevent: {name}\ndata: {body.model_dump_json()}\n\n"


def _notice(position: int, row: Value, parts: Services) -> str:
    body = LiveNotice(at=parts.now(), notice=notice_shape(row))
    return f"id: {position}\nevent: notice\ndata: {body.model_dump_json()}\n\n"


def _value(value: Value) -> LiveValue:
    return LiveValue(
        asset=value["asset"],
        signal=value["signal"],
        value=value["value"],
        unit=value["unit"],
        quality=quality_name(value["quality"]),
        measured_at=value["measured_at"],
        received_at=value["received_at"],
    )


def _position(last_event_id: str | None) -> int | None:
    if not last_event_id:
        return None
    if not last_event_id.isascii() or not last_event_id.isdigit() or len(last_event_id) > 19:
        raise BadQuestion("bad_event_id", "Last-Event-ID is the id of an event of this stream", "Last-Event-ID")
    return int(last_event_id)

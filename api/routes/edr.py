"""Crash records, notices, linkage and the custody log. Every read, allowed or refused, is in the log before it happens.

What a record says needs a legal basis with every request: headers ``Legal-Basis``, ``Purpose``, ``Legal-Reference``
(percent-encoded where they are not ASCII; headers, because addresses end in logs), and ``On-Behalf-Of`` for the person.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import fastapi
from fastapi import APIRouter, Depends, Header, Path, Query
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute

from api.custody import logged, plain, reading
from api.edr_records import file_name, masked, summary, whole
from api.edr_shapes import (
    CrashLinkage,
    CrashNotices,
    CrashPosition,
    CrashRecord,
    CrashRecords,
    Custody,
    CustodyEntry,
    notice_shape,
)
from api.errors import NotFound, NotReady
from api.keys import Caller
from api.queries import edr
from api.questions import from_ms, make_cursor, read_cursor, to_ms
from api.routes.common import PREFIX, AnyCaller, Cursor
from api.services import Parts, services
from contracts.edr import custody
from contracts.edr.custody import BASES, Request
from contracts.edr.export import build_export

ACTIONS = {
    "notices": custody.NOTICES, "position": custody.POSITION, "records": custody.LIST, "show": custody.SHOW,
    "report": custody.REPORT, "export": custody.EXPORT, "attachment": custody.EXPORT, "linkage": custody.LINKAGE,
    "custody_log": custody.CUSTODY,
}  # fmt: skip
"""What each route of this module reads, by its name."""


class LoggedRoute(APIRoute):
    """A request whose parameters cannot be read is an attempt too: logged as refused, then answered as everywhere."""

    def get_route_handler(self) -> Callable[[fastapi.Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_and_log(request: fastapi.Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError:
                caller: Caller = request.state.caller
                subject = request.path_params.get("record") or request.path_params.get("event") or ""
                told = {name: request.headers.get(name.replace("_", "-"), "") for name in _TOLD}
                asked = Basis(**told).request(caller, ACTIONS[self.name], plain(subject)[:200])
                await logged(services(request).store, caller.tenant_id, asked, unreadable=True)
                raise

        return handle_and_log


async def knocking(request: fastapi.Request, caller: AnyCaller) -> Caller:
    """Who asks, remembered for ``LoggedRoute``."""
    request.state.caller = caller
    return caller


Knocking = Annotated[Caller, Depends(knocking)]
router = APIRouter(prefix=f"{PREFIX}/edr", tags=["crash records"], route_class=LoggedRoute)
_TOLD = ("legal_basis", "purpose", "legal_reference", "on_behalf_of")
NEWEST = 2**62
BINARY: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
}

Record = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="SHA-256 of the record, in hexadecimal")]
EventId = Annotated[str, Path(pattern="^[0-9a-f]{2,64}-[0-9]{1,19}-[0-9]{1,19}$", description="id of the event")]
Limit = Annotated[int, Query(ge=1, le=1_000)]


class Basis:
    """What the caller says of why: read from headers, never from the address."""

    def __init__(
        self,
        legal_basis: Annotated[str, Header(description=f"one of {', '.join(BASES)}")] = "",
        purpose: Annotated[str, Header(description="what it is read for, in words")] = "",
        legal_reference: Annotated[str, Header(description="number or name of the document behind the basis")] = "",
        on_behalf_of: Annotated[str, Header(description="who asks through this key")] = "",
    ) -> None:
        self.basis, self.purpose = plain(legal_basis), plain(purpose)
        self.reference, self.actor = plain(legal_reference), plain(on_behalf_of)[:200]

    def request(self, caller: Caller, action: str, subject: str = "") -> Request:
        return Request(
            self.actor, caller.key_id, caller.role, action, subject, self.purpose, self.basis, self.reference
        )


Why = Annotated[Basis, Depends(Basis)]


@router.get("/notices")
async def notices(parts: Parts, caller: Knocking, why: Why, cursor: Cursor = None, limit: Limit = 100) -> CrashNotices:
    """Crash notices, newest first; new ones come with the live stream."""
    async with reading(parts.store, caller.tenant_id, why.request(caller, custody.NOTICES)) as opened:
        rows = await edr.list_notices(opened.connection, _before("notices", cursor), limit + 1)
    page = rows[:limit]
    more = make_cursor("notices", [page[-1]["entry_no"]]) if len(rows) > limit else None
    return CrashNotices(as_of=parts.now(), items=[notice_shape(row) for row in page], next=more)


@router.get("/notices/{event}/position")
async def position(parts: Parts, caller: Knocking, why: Why, event: EventId) -> CrashPosition:
    """Where to look; for those who send help."""
    async with reading(parts.store, caller.tenant_id, why.request(caller, custody.POSITION, event)) as opened:
        row = await edr.read_position(opened.connection, event)
    if row is None:
        raise NotFound("no_such_event", "no position is known of an event with this id")
    return CrashPosition(**_place(event, row))


@router.get("/records")
async def records(
    parts: Parts, caller: Knocking, why: Why, cursor: Cursor = None, limit: Limit = 100,
    device: Annotated[str | None, Query(max_length=64, description="of this device only")] = None,
) -> CrashRecords:  # fmt: skip
    """That records are held, newest first; what they say needs a legal basis."""
    async with reading(parts.store, caller.tenant_id, why.request(caller, custody.LIST)) as opened:
        rows = await edr.list_records(opened.connection, _before("records", cursor), device, limit + 1)
    page = rows[:limit]
    more = make_cursor("records", [page[-1]["entry_no"]]) if len(rows) > limit else None
    return CrashRecords(as_of=parts.now(), items=[summary(row) for row in page], next=more)


@router.get("/records/{record}")
async def show(parts: Parts, caller: Knocking, why: Why, record: Record) -> CrashRecord:
    """A decoded record: every element of its profile, with unit, resolution, accuracy and mark of its source."""
    return await _read(parts, caller, why, custody.SHOW, record)


@router.get("/records/{record}/report")
async def report(parts: Parts, caller: Knocking, why: Why, record: Record) -> CrashRecord:
    """The same for the report page, which a custody entry tells apart."""
    return await _read(parts, caller, why, custody.REPORT, record)


@router.get("/records/{record}/export", response_class=Response, responses=BINARY)
async def export(parts: Parts, caller: Knocking, why: Why, record: Record) -> Response:
    """The signed file that ``fleetstream edr verify`` checks offline."""
    async with reading(parts.store, caller.tenant_id, why.request(caller, custody.EXPORT, record)) as opened:
        row = await edr.read_record(opened.connection, bytes.fromhex(record))
        capsule = await edr.read_capsule(opened.connection, bytes.fromhex(record))
        raw = await edr.read_data(opened.connection, bytes.fromhex(record))
    if row is None or capsule is None:
        raise _no_record()
    if parts.signer is None:
        raise NotReady("no_export_key", "this service has no key to sign exports with; set edr_key and edr_chain")
    data = build_export(
        [(row["record_no"], capsule)], parts.signer, bytes(row["recorder_id"]), to_ms(parts.now()), None, "selection",
        [bytes(one["data"]) for one in raw],
    )  # fmt: skip
    name = file_name(masked(row, why.basis))
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Custody-Entry": str(opened.entry_no)}
    return Response(data, media_type="application/octet-stream", headers=headers)


@router.get("/records/{record}/attachments/{attachment}", response_class=Response, responses=BINARY)
async def attachment(parts: Parts, caller: Knocking, why: Why, record: Record, attachment: Record) -> Response:
    """Raw data that the record claims, by its SHA-256, as the recorder sent it; the export holds it too."""
    async with reading(parts.store, caller.tenant_id, why.request(caller, custody.EXPORT, record)) as opened:
        found = await edr.read_data(opened.connection, bytes.fromhex(record), bytes.fromhex(attachment))
    if not found:
        raise NotFound("no_such_attachment", "no such record is held, or it claims no data of this hash that are whole")
    headers = {"Custody-Entry": str(opened.entry_no)}
    return Response(bytes(found[0]["data"]), media_type="application/octet-stream", headers=headers)


@router.get("/records/{record}/linkage")
async def linkage(parts: Parts, caller: Knocking, why: Why, record: Record) -> CrashLinkage:
    """Who, where and when, on a basis that may name the owner."""
    async with reading(parts.store, caller.tenant_id, why.request(caller, custody.LINKAGE, record)) as opened:
        row = await edr.read_linkage(opened.connection, bytes.fromhex(record))
    if row is None:
        raise NotFound("no_linkage", "no record with this id is held, or its linkage has not arrived")
    return CrashLinkage(**_place(row["event_id"], row), record=record, vin=row["vin"], driver=row["driver"])


@router.get("/custody")
async def custody_log(parts: Parts, caller: Knocking, why: Why, cursor: Cursor = None, limit: Limit = 100) -> Custody:
    """Who read, or was refused to read, what; newest first, this read included."""
    async with reading(parts.store, caller.tenant_id, why.request(caller, custody.CUSTODY)) as opened:
        rows = await edr.list_custody(opened.connection, _before("custody", cursor), limit + 1)
    page = rows[:limit]
    more = make_cursor("custody", [page[-1]["entry_no"]]) if len(rows) > limit else None
    return Custody(as_of=parts.now(), items=[CustodyEntry(**row) for row in page], next=more)


async def _read(parts: Parts, caller: Caller, why: Basis, action: str, record: str) -> CrashRecord:
    async with reading(parts.store, caller.tenant_id, why.request(caller, action, record)) as opened:
        name = bytes.fromhex(record)
        row = await edr.read_record(opened.connection, name)
        elements = await edr.read_elements(opened.connection, name)
        attachments = await edr.read_attachments(opened.connection, name)
    if row is None:
        raise _no_record()
    return whole(masked(row, why.basis), elements, attachments, opened.entry_no)


def _no_record() -> NotFound:
    return NotFound("no_such_record", "no record with this SHA-256 is held for this tenant")


def _before(kind: str, cursor: str | None) -> int:
    return int(read_cursor(kind, cursor, [int])[0]) if cursor else NEWEST


def _place(event_id: str, row: dict[str, Any]) -> dict[str, Any]:
    def degrees(name: str) -> float | None:
        value = row[name]
        return value / 10_000_000 if isinstance(value, int) else None

    return {
        "event_id": event_id, "latitude": degrees("latitude_e7"), "longitude": degrees("longitude_e7"),
        "position_age_ms": row["position_age_ms"], "happened_at": from_ms(int(str(row["zero_at_ms"]))),
        "clock_trusted": row["clock_trusted"],
    }  # fmt: skip

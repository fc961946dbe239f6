"""Send a letter again: what may go, under which identity, with which audit. One transaction, given from outside."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import DictRow

from api.errors import NotFound
from api.letters import (
    Opened,
    Repair,
    Sending,
    as_rescued,
    check_believed,
    left_out,
    mended,
    open_letter,
    sending,
)
from api.queries.letters import (
    LetterId,
    Name,
    find_letter,
    hold_device,
    is_stored,
    rescue_name,
    send_again,
    sent_again,
)
from api.queries.pool import Connection
from api.questions import to_ms
from contracts.errors import Rejected
from contracts.packet import Packet
from contracts.stamp import FLAG_RECORDING, Stamp


@dataclass(frozen=True, slots=True)
class Asked:
    """Who wants a letter sent again, how repaired, and when (the receive time that it gets)."""

    letter: LetterId
    repair: Repair
    asked_by: str
    now: datetime


@dataclass(frozen=True, slots=True)
class Outcome:
    """``sent`` False: the store has it already, so nothing was sent."""

    sent: bool
    history: list[DictRow]


async def require_letter(connection: Connection, letter: LetterId) -> DictRow:
    """Raises NotFound, the same for none and for another tenant's."""
    row = await find_letter(connection, letter)
    if row is None:
        raise NotFound("no_such_letter", "nothing with this id was set aside for this tenant")
    return row


async def resubmit(connection: Connection, asked: Asked) -> Outcome:
    """Raises NotFound, and Rejected with what stands in the way; then nothing was sent."""
    row = await require_letter(connection, asked.letter)
    stamp = stamp_for(row, asked.now)
    check_given_up(row)
    await hold_device(connection, stamp.device_key)
    history = await sent_again(connection, asked.letter)
    if any(one["stored"] for one in history):
        return Outcome(False, history)
    opened = open_letter(bytes(row["bytes"]))
    if opened.parcel is not None and not opened.fault:
        made, rescued = await _parcel(connection, row, stamp, opened), False
    else:
        made, rescued = await _packet(connection, row, stamp, asked, opened, history)
    if made is None:
        return Outcome(False, history)
    await send_again(
        connection, asked.letter, row, made, stamp, rescued=rescued, shift_ms=asked.repair.shift_ms,
        asked_by=asked.asked_by,
    )  # fmt: skip
    return Outcome(True, await sent_again(connection, asked.letter))


def stamp_for(row: DictRow, now: datetime) -> Stamp:
    """What the gateway would stamp it with now. Raises Rejected when the device is not registered any more."""
    if row["device_key"] is None or row["revoked_at"] is not None:
        raise Rejected("unregistered", f"no device {row['device'][:64]!r} is in use; enrol it first")
    flags = FLAG_RECORDING if row["device_kind"] == "recording" else 0
    return Stamp(to_ms(now), row["device_key"], row["tenant_id"], flags)


def check_given_up(row: DictRow) -> None:
    """Raises Rejected for what its device still holds and will send by itself, under another identity."""
    if row["kept_by"] == "gateway" and row["reason"] == "identity_conflict":
        raise Rejected(
            "kept_by_device",
            "the device was told to take another epoch and sends it again itself; sent from here too, its readings "
            "would be stored twice",
        )


def readable(row: DictRow, opened: Opened) -> Packet:
    """The packet of a letter, when it is one that this device may send. Raises Rejected."""
    if opened.packet is None or opened.fault:
        said = opened.fault or "bad_body"
        raise Rejected("not_readable", f"these bytes are no packet ({said}); they stay here, nobody can store them")
    if opened.packet.header.device != row["device"]:
        raise Rejected("device_mismatch", "the packet names another device than the one that sent it")
    return opened.packet


async def _parcel(connection: Connection, row: DictRow, stamp: Stamp, opened: Opened) -> Sending | None:
    assert opened.parcel is not None
    header = opened.parcel.header
    if (header.device, header.tenant) != (row["device"], row["tenant"]):
        raise Rejected("device_mismatch", "the crash record's parcel names another device or tenant")
    stored = await is_stored(connection, stamp.device_key, Name(header.boot_epoch, header.nonce, header.seq))
    if stored is None:
        raise Rejected("identity_conflict", "its epoch belongs to another run of the device; evidence is not renamed")
    return Sending(bytes(row["bytes"]), header)


async def _packet(
    connection: Connection, row: DictRow, stamp: Stamp, asked: Asked, opened: Opened, history: list[DictRow]
) -> tuple[Sending | None, bool]:
    """(what to send, whether under a rescued identity); None: the store has all of it."""
    packet = readable(row, opened)
    header = packet.header
    stored = await is_stored(connection, stamp.device_key, Name(header.boot_epoch, header.nonce, header.seq))
    if stored and row["kept_by"] == "gateway":
        return None, False
    if stored:
        packet = left_out(packet, to_ms(row["received_at"]), bool(stamp.flags & FLAG_RECORDING))
    packet = mended(packet, asked.repair, row["tenant"])
    check_believed(packet, stamp)
    rescued = stored is None or stored
    if rescued:
        name = await _rescued_as(connection, stamp, history)
        packet = as_rescued(packet, name.boot_epoch, name.nonce, name.seq)
    made = sending(packet, bytes(row["bytes"]))
    _refuse_another_repair(made, asked.repair, history)
    return made, rescued


async def _rescued_as(connection: Connection, stamp: Stamp, history: list[DictRow]) -> Name:
    """The identity that this letter got before, unless the device came to use its epoch itself since."""
    for one in history:
        name = Name(one["boot_epoch"], one["nonce"], one["seq"])
        if one["rescued"] and await is_stored(connection, stamp.device_key, name) is not None:
            return name
    return await rescue_name(connection, stamp.tenant_id, stamp.device_key)


def _refuse_another_repair(made: Sending, repair: Repair, history: list[DictRow]) -> None:
    """One identity holds one set of readings: what is on its way cannot be sent with other times."""
    header: Any = made.header
    for one in history:
        same = (one["boot_epoch"], one["nonce"], one["seq"]) == (header.boot_epoch, header.nonce, header.seq)
        if same and one["shift_ms"] != repair.shift_ms:
            raise Rejected(
                "sent_otherwise", f"it was sent with its times shifted by {one['shift_ms']} ms and is on its way"
            )


def obstacle(row: dict[str, Any], opened: Opened, now: datetime) -> str | None:
    """Why it cannot be sent as it is, in a sentence; the store itself may find more when it is asked to."""
    try:
        stamp = stamp_for(row, now)
        check_given_up(row)
        if opened.parcel is None or opened.fault:
            check_believed(mended(readable(row, opened), Repair(), row["tenant"]), stamp)
    except Rejected as error:
        return error.detail
    return None

"""A record of the priority topic becomes an arrival: who sent it, when it was received, what it says. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from contracts.edr.wire import Message, open_parcel
from contracts.errors import Rejected
from contracts.packet import Header
from contracts.stamp import Stamp, decode_stamp

NUL: Final = "\x00"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record lies in the log."""

    topic_id: UUID
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Raw:
    """A record as read; ``stamp`` is the gateway's header, None when there is none."""

    place: Place
    stamp: bytes | None
    value: bytes


@dataclass(frozen=True, slots=True)
class Arrival:
    """A parcel that could be opened."""

    place: Place
    stamp: Stamp
    header: Header
    message: Message
    value: bytes


@dataclass(frozen=True, slots=True)
class Refusal:
    """Bytes that cannot be believed: kept aside with ``reason`` (a stable code) and ``detail`` (for people).

    ``stamp`` and ``header`` are None when they could not be read.
    """

    place: Place
    stamp: Stamp | None
    header: Header | None
    reason: str
    detail: str
    value: bytes


def take_in(raw: Raw) -> Arrival | Refusal:
    """Never raises for anything that may lie in the log."""
    stamp: Stamp | None = None
    try:
        if raw.stamp is None:
            raise Rejected("bad_stamp", "the gateway's header is missing")
        stamp = decode_stamp(raw.stamp)
        header, message = open_parcel(raw.value)
    except Rejected as error:
        return Refusal(raw.place, stamp, None, error.reason, storable(error.detail), raw.value)
    return Arrival(raw.place, stamp, header, message, raw.value)


def refuse(arrival: Arrival, reason: str, detail: str) -> Refusal:
    """What becomes of an arrival that is not believed."""
    return Refusal(arrival.place, arrival.stamp, arrival.header, reason, storable(detail), arrival.value)


def storable(text: str) -> str:
    """Foreign text, shortened, without the character that a database refuses."""
    return text[:500].replace(NUL, "\\x00")

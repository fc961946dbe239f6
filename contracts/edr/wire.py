"""How crash records travel: four kinds of parcel on the priority lane, and the receipt that comes back.

A parcel (``contracts.packet.Parcel``) goes device → spool → ``v1/{device}/up/priority`` → gateway → the Kafka topic
``priority`` like a packet: same header, same sequence numbers, same acknowledgement (which frees the spool only).
Its body is deterministic CBOR, one map per kind:

- ``notice``: within seconds of the trigger; what happened, not where.
- ``linkage``: who, where and when: VIN, driver, position, wall-clock time. The only kind that holds any of these.
- ``capsule``: a sealed record. An event whose tail takes seconds is told twice: incomplete at once, then whole under
  a higher record number; both are of one event, and the whole one stands for it.
- ``attachment_piece``: a slice of raw data too large for one message, claimed by hash in the capsule's own signed
  ``attachments`` part; ``join`` puts the whole together or says what is wrong.

The receipt is the command ``edr_receipt`` with ``{"event_id", "sha256"}``: sent after the database's commit for each
capsule, each linkage and each whole attachment, and sent *again* for every repeat, since the device repeats until it
hears one. It alone releases the device's own copy. What a hash is taken of: ``receipted_sha256``.

Parcels consume sequence numbers of the device's boot epoch: who stores them marks these as seen, as for packets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, Final

from contracts.commands import Command
from contracts.edr.capsule import MAX_CAPSULE_BYTES, Capsule
from contracts.edr.cbor import Value, decode, encode
from contracts.edr.errors import MalformedEvidence
from contracts.names import NAME_PATTERN
from contracts.packet import Header, Parcel, decode_parcel

WIRE_FORMAT: Final = 1
RECEIPT: Final = "edr_receipt"
PIECE_BYTES: Final = 32 * 1024
"""Data of one attachment piece: a quarter of what one message may carry, so that others get their turn between."""

MAX_ATTACHMENT_BYTES: Final = 8 * 1024 * 1024
MAX_TEXT: Final = 200
MAX_NAMES: Final = 64
HASH_BYTES: Final = 32


class Kind(IntEnum):
    """What a parcel's body is; numbers are never used for something else."""

    NOTICE = 1
    CAPSULE = 2
    ATTACHMENT_PIECE = 3
    LINKAGE = 4


@dataclass(frozen=True, slots=True)
class Notice:
    """Something happened. ``speed_dkmh``: tenths of km/h at the trigger; None without a source.

    ``event_id`` is ``<recorder id, hex>-<ignition cycle>-<trigger's monotonic microseconds>``: the same in all four
    kinds, and what ``event_of`` reads from the capsule itself.
    ``trigger_after_us``: from time zero, as known at the trigger, to the trigger.
    """

    event_id: str
    profile: str
    source: str
    trigger: str
    event_number: int
    trigger_after_us: int
    speed_dkmh: int | None
    restraints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CapsuleParcel:
    """A sealed capsule; everything else about it is under its own signature."""

    event_id: str
    record_no: int
    capsule: bytes


@dataclass(frozen=True, slots=True)
class AttachmentPiece:
    """Piece ``number`` (from 0) of ``pieces``. ``sha256`` and ``size_bytes`` are the whole attachment's.

    ``record_no`` names the capsule that claims it.
    """

    event_id: str
    record_no: int
    name: str
    sha256: bytes
    size_bytes: int
    number: int
    pieces: int
    piece_sha256: bytes
    data: bytes


@dataclass(frozen=True, slots=True)
class Linkage:
    """Who, where, when; None: no source. ``zero_at_ms``: Unix epoch milliseconds of time zero, by the device's clock.

    ``latitude_e7`` and ``longitude_e7`` are degrees times ten million (WGS 84), ``position_age_ms`` old at the trigger.
    """

    event_id: str
    zero_at_ms: int
    clock_trusted: bool
    vin: str | None
    driver: str | None
    latitude_e7: int | None
    longitude_e7: int | None
    position_age_ms: int | None


Message = Notice | CapsuleParcel | AttachmentPiece | Linkage

KINDS: Final[Mapping[Kind, type[Message]]] = {
    Kind.NOTICE: Notice,
    Kind.CAPSULE: CapsuleParcel,
    Kind.ATTACHMENT_PIECE: AttachmentPiece,
    Kind.LINKAGE: Linkage,
}
_KIND_OF: Final = {made: kind for kind, made in KINDS.items()}


@dataclass(frozen=True, slots=True)
class Receipt:
    """The cloud's database holds these bytes of this event."""

    event_id: str
    sha256: bytes


def event_id(recorder_id: bytes, ignition_cycle: int, triggered_us: int) -> str:
    """The name of an event: whose, in which of its starts, and when it triggered on the monotonic clock."""
    return f"{recorder_id.hex()}-{ignition_cycle}-{triggered_us}"


def event_of(capsule: Capsule) -> str:
    """The event that a capsule is the record of."""
    record = capsule.record
    triggered_us = record.time_zero_us + record.trigger_after_us
    return event_id(capsule.head.place.recorder_id, record.ignition_cycle_crash, triggered_us)


def encode_body(message: Message) -> tuple[Kind, bytes]:
    """Kind and body: same message, same bytes. Raises MalformedEvidence for what ``decode_body`` would refuse."""
    _check(message)
    body: dict[str, Value] = {field.name: getattr(message, field.name) for field in fields(message)}
    return _KIND_OF[type(message)], encode({"v": WIRE_FORMAT, **body})


def decode_body(kind: int, body: bytes) -> Message:
    """Raises MalformedEvidence, also for a kind or format that this version does not know."""
    raw = decode(body)
    if kind not in KINDS or not isinstance(raw, Mapping) or raw.get("v") != WIRE_FORMAT:
        raise MalformedEvidence(f"kind {kind} or its format is not known here")
    made = KINDS[Kind(kind)]
    names = [field.name for field in fields(made)]
    if set(raw) != {"v", *names}:
        raise MalformedEvidence(f"{made.__name__}: keys {sorted(set(raw).symmetric_difference({'v', *names}))}")
    values: dict[str, Any] = {name: raw[name] for name in names}
    values |= {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    message = made(**values)
    _check(message)
    return message


def open_parcel(frame: bytes) -> tuple[Header, Message]:
    """A record's value on the priority topic. Raises Rejected (PacketError or MalformedEvidence) with the reason."""
    parcel: Parcel = decode_parcel(frame)
    return parcel.header, decode_body(parcel.kind, parcel.body)


def receipted_sha256(message: Message) -> bytes | None:
    """Of what a receipt names: the capsule, the whole attachment, the linkage's body; None for what needs none."""
    if isinstance(message, CapsuleParcel):
        return hashlib.sha256(message.capsule).digest()
    if isinstance(message, AttachmentPiece):
        return message.sha256
    if isinstance(message, Linkage):
        return hashlib.sha256(encode_body(message)[1]).digest()
    return None


def receipt_arguments(receipt: Receipt) -> dict[str, Any]:
    """The arguments of an ``edr_receipt`` command."""
    return {"event_id": receipt.event_id, "sha256": receipt.sha256.hex()}


def read_receipt(command: Command) -> Receipt:
    """Raises MalformedEvidence."""
    event, digest = command.arguments.get("event_id"), command.arguments.get("sha256")
    if command.kind != RECEIPT or not isinstance(event, str) or not isinstance(digest, str):
        raise MalformedEvidence("a receipt names an event and a hash")
    try:
        receipt = Receipt(event, bytes.fromhex(digest))
    except ValueError as bad:
        raise MalformedEvidence("a receipt's hash is not hexadecimal") from bad
    if len(receipt.sha256) != HASH_BYTES or not NAME_PATTERN.fullmatch(event):
        raise MalformedEvidence("a receipt's hash or event has the wrong form")
    return receipt


def pieces_of(event: str, record_no: int, name: str, data: bytes) -> Iterator[AttachmentPiece]:
    """An attachment cut into pieces. Raises ValueError when it is empty or larger than any may be."""
    if not 0 < len(data) <= MAX_ATTACHMENT_BYTES:
        raise ValueError(f"an attachment has 1 to {MAX_ATTACHMENT_BYTES} bytes, this one {len(data)}")
    whole = hashlib.sha256(data).digest()
    count = -(-len(data) // PIECE_BYTES)
    for number in range(count):
        part = data[number * PIECE_BYTES : (number + 1) * PIECE_BYTES]
        own = hashlib.sha256(part).digest()
        yield AttachmentPiece(event, record_no, name, whole, len(data), number, count, own, part)


def join(pieces: Iterable[AttachmentPiece]) -> bytes:
    """The attachment of these pieces, in any order, repeats allowed. Raises MalformedEvidence naming what is wrong."""
    by_number: dict[int, AttachmentPiece] = {}
    for piece in pieces:
        _check(piece)
        first = next(iter(by_number.values()), piece)
        if (piece.sha256, piece.size_bytes) != (first.sha256, first.size_bytes):
            raise MalformedEvidence(f"piece {piece.number} belongs to another attachment")
        by_number[piece.number] = piece
    if not by_number:
        raise MalformedEvidence("no pieces")
    wanted = next(iter(by_number.values())).pieces
    missing = sorted(set(range(wanted)) - set(by_number))
    if missing:
        raise MalformedEvidence(f"pieces missing: {missing[:20]} of {wanted}")
    data = b"".join(by_number[number].data for number in range(wanted))
    if hashlib.sha256(data).digest() != by_number[0].sha256:
        raise MalformedEvidence("the pieces do not make the attachment that was claimed")
    return data


def _check(message: Message) -> None:
    """Types by the annotations above, then what they cannot say."""
    for field in fields(message):
        value = getattr(message, field.name)
        if not _CHECKS[str(field.type)](value):
            raise MalformedEvidence(f"{type(message).__name__}: {field.name} is no {field.type} of this format")
    if not NAME_PATTERN.fullmatch(message.event_id):
        raise MalformedEvidence("event_id has the wrong form")
    if isinstance(message, CapsuleParcel) and not 0 < len(message.capsule) <= MAX_CAPSULE_BYTES:
        raise MalformedEvidence(f"a capsule of {len(message.capsule)} bytes")
    if isinstance(message, AttachmentPiece):
        _check_piece(message)


def _check_piece(piece: AttachmentPiece) -> None:
    if not NAME_PATTERN.fullmatch(piece.name) or len(piece.sha256) != HASH_BYTES:
        raise MalformedEvidence("an attachment's name or hash has the wrong form")
    last = piece.number == piece.pieces - 1
    size = piece.size_bytes - piece.number * PIECE_BYTES if last else PIECE_BYTES
    fits = piece.size_bytes <= MAX_ATTACHMENT_BYTES and piece.pieces == -(-piece.size_bytes // PIECE_BYTES)
    if not fits or not 0 <= piece.number < piece.pieces or len(piece.data) != size:
        raise MalformedEvidence(f"piece {piece.number} of {piece.pieces} has the wrong size")
    if hashlib.sha256(piece.data).digest() != piece.piece_sha256:
        raise MalformedEvidence(f"piece {piece.number} does not have the hash that it names")


def _is_int(value: object) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT and value.isprintable()


_CHECKS: Final[Mapping[str, Any]] = {
    "int": _is_int,
    "int | None": lambda value: value is None or _is_int(value),
    "str": _is_text,
    "str | None": lambda value: value is None or _is_text(value),
    "bool": lambda value: isinstance(value, bool),
    "bytes": lambda value: isinstance(value, bytes),
    "tuple[str, ...]": lambda value: isinstance(value, tuple) and len(value) <= MAX_NAMES and all(map(_is_text, value)),
}

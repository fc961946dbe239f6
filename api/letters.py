"""A packet that was set aside: what can be read of it, and what may be sent again. Pure.

Bytes go again as they are whenever they can: only a repaired clock, another tenant's name or an identity that is taken
makes a new frame, always from the samples of the old one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import compress
from typing import Final, TypeVar

from api.archived import believed
from contracts.errors import Rejected
from contracts.packet import (
    CRC_BYTES,
    Block,
    DoubleBlock,
    Packet,
    Parcel,
    decode_header,
    decode_packet,
    decode_parcel,
    encode_packet,
    is_parcel,
    open_frame,
    seal,
)
from contracts.packet_model import Header
from contracts.signals import Signal, catalogue
from contracts.stamp import FLAG_RECORDING, Stamp

Found = TypeVar("Found")
Kind = TypeVar("Kind", Block, DoubleBlock)
LONGEST_SHIFT_MS: Final = 100 * 366 * 24 * 3_600_000
"""A clock that stood at 1970 is some fifty years off."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What could be read, None where nothing could; ``fault``: what the frame is refused for, '' if nothing."""

    header: Header | None
    packet: Packet | None
    parcel: Parcel | None
    fault: str


@dataclass(frozen=True, slots=True)
class Repair:
    """What a person decided: milliseconds to add to every time, and whether to take it for this tenant."""

    shift_ms: int = 0
    take_over: bool = False


@dataclass(frozen=True, slots=True)
class Sending:
    """A frame to be sent, and the header that it carries."""

    frame: bytes
    header: Header


def open_letter(data: bytes) -> Opened:
    """Never raises. With a wrong checksum the contents are still shown, but are not to be believed."""
    fault = ""
    try:
        open_frame(data)
    except Rejected as error:
        fault = error.reason
        data = seal(data[:-CRC_BYTES]) if error.reason == "bad_crc" else data
    header = _tried(decode_header, data)
    if is_parcel(data):
        parcel = _tried(decode_parcel, data)
        return Opened(header, None, parcel, fault or ("" if parcel else "bad_body"))
    packet = _tried(decode_packet, data)
    return Opened(header, packet, None, fault or ("" if packet else "bad_body"))


def _tried(read: Callable[[bytes], Found], data: bytes) -> Found | None:
    try:
        return read(data)
    except Rejected:
        return None


def mended(packet: Packet, repair: Repair, tenant: str) -> Packet:
    """The packet as it should have been sent. Raises Rejected."""
    header = packet.header
    if header.tenant != tenant:
        if not repair.take_over:
            raise Rejected("tenant_mismatch", f"the packet names another tenant than {tenant}; say that it is yours")
        header = replace(header, tenant=tenant)
    if abs(repair.shift_ms) > LONGEST_SHIFT_MS:
        raise Rejected("bad_shift", f"at most {LONGEST_SHIFT_MS} ms")
    return replace(packet, header=replace(header, base_ms=header.base_ms + repair.shift_ms))


def check_believed(packet: Packet, stamp: Stamp) -> int:
    """How many samples would be believed if the packet came now. Raises Rejected('still_not_believed') when none."""
    verdicts = [believed(ms, stamp, signal) for ms, signal in _samples(packet)]
    if verdicts and not any(verdicts):
        ahead_s = (packet.header.base_ms - stamp.received_ms) // 1000
        where = f"{_span(ahead_s)} ahead of" if ahead_s > 0 else f"{_span(-ahead_s)} before"
        raise Rejected(
            "still_not_believed", f"its times lie {where} now, so it would be set aside again; shift them, or wait"
        )
    return sum(verdicts)


def _span(seconds: int) -> str:
    return f"{seconds // 86_400} days" if seconds >= 2 * 86_400 else f"{seconds} s"


def left_out(packet: Packet, received_ms: int, recording: bool) -> Packet:
    """What the store did not take of a packet that it has: the samples that it could not believe when they came."""
    stamp = Stamp(received_ms, 0, 0, FLAG_RECORDING if recording else 0)
    blocks = [part for block in packet.blocks if (part := _unbelieved(packet, block, stamp)).offsets_ms]
    doubles = [part_of for one in packet.doubles if (part_of := _unbelieved(packet, one, stamp)).offsets_ms]
    count = sum(len(one.offsets_ms) for one in blocks) + sum(len(one.offsets_ms) for one in doubles)
    if not count:
        raise Rejected("nothing_left", "the store has every reading of this packet")
    return Packet(replace(packet.header, samples=count), tuple(blocks), tuple(doubles), ())


def as_rescued(packet: Packet, boot_epoch: int, nonce: int, seq: int) -> Packet:
    """The same samples under another identity; what it told of gaps was of its own epoch and stays out."""
    header = replace(packet.header, boot_epoch=boot_epoch, nonce=nonce, seq=seq)
    return replace(packet, header=header, gaps=())


def sending(packet: Packet, original: bytes) -> Sending:
    """The original bytes when they say the same. Raises PacketError."""
    same = _tried(decode_packet, original)
    return Sending(original if same == packet else encode_packet(packet), packet.header)


def _samples(packet: Packet) -> list[tuple[int, Signal]]:
    blocks: tuple[Block | DoubleBlock, ...] = (*packet.blocks, *packet.doubles)
    base = packet.header.base_ms
    return [(base + at, catalogue().by_number(block.signal)) for block in blocks for at in block.offsets_ms]


def _unbelieved(packet: Packet, block: Kind, stamp: Stamp) -> Kind:
    signal = catalogue().by_number(block.signal)
    chosen = [not believed(packet.header.base_ms + at, stamp, signal) for at in block.offsets_ms]
    return replace(
        block, offsets_ms=tuple(compress(block.offsets_ms, chosen)), values=tuple(compress(block.values, chosen)),
        qualities=tuple(compress(block.qualities, chosen)),
    )  # fmt: skip

"""The packet header read without a general decoder: same answers as ``contracts.packet.decode_header``, in less time.

All packets of one device and boot begin with the same bytes (marker, fingerprint, tenant, device, epoch, nonce).
A reader remembers that beginning per topic, compares it in one step and reads only the few integers after it.
Whatever is not plain (another beginning, a number of unusual length, a short frame) goes the general way, which
also finds the reason for a refusal. The checksum is always computed.
"""

from __future__ import annotations

from typing import NamedTuple

from contracts.packet import CRC_BYTES, PREFIX_BYTES, Header, decode_header, open_frame

MAX_TOPICS = 100_000
LONGEST = 9
"""Bytes of the longest varint read here; 63 bits. The tenth byte of a 64-bit one goes the general way."""

LONGEST_INT = 4


class Head(NamedTuple):
    """The part of a header that admission asks for."""

    tenant: str
    device: str
    boot_epoch: int
    nonce: int
    seq: int
    lane: int
    base_ms: int


class HeaderReader:
    """Bounded memory: when it is full it starts anew."""

    def __init__(self, max_topics: int = MAX_TOPICS) -> None:
        self._beginnings: dict[str, tuple[bytes, tuple[str, str, int, int]]] = {}
        self._max_topics = max_topics

    def read(self, frame: bytes, topic: str) -> Head:
        """Raises PacketError and Rejected like ``decode_header``."""
        known = self._beginnings.get(topic)
        if known is not None and frame.startswith(known[0]):
            open_frame(frame)
            tail = _tail(frame, len(known[0]))
            if tail is not None:
                return Head(*known[1], *tail)
        header = decode_header(frame)
        self._remember(topic, frame, header)
        return head_of(header)

    def _remember(self, topic: str, frame: bytes, header: Header) -> None:
        if len(self._beginnings) >= self._max_topics:
            self._beginnings.clear()
        identity = (header.tenant, header.device, header.boot_epoch, header.nonce)
        self._beginnings[topic] = (frame[: _beginning_bytes(frame)], identity)


def head_of(header: Header) -> Head:
    return Head(
        header.tenant, header.device, header.boot_epoch, header.nonce, header.seq, header.lane, header.base_ms
    )  # fmt: skip


def _beginning_bytes(frame: bytes) -> int:
    """Length of a frame up to and with the nonce; the frame is known to decode."""
    at = PREFIX_BYTES
    for _ in ("tenant", "device"):
        size, at = _varint(frame, at)
        at += size >> 1
    for _ in ("boot_epoch", "nonce"):
        _, at = _varint(frame, at)
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _tail(frame: bytes, at: int) -> tuple[int, int, int] | None:
    """(seq, lane, base_ms) when these and what follows them in the header are plain and in range."""
    numbers = []
    end = len(frame) - CRC_BYTES
    for longest in (LONGEST, LONGEST_INT, LONGEST, LONGEST, 1, LONGEST_INT):
        value = shift = 0
        last = at + longest
        while True:
            if at >= end or at >= last:
                return None
            byte = frame[at]
            at += 1
            if byte < 0x80:
                numbers.append(value | byte << shift)
                break
            value |= (byte & 0x7F) << shift
            shift += 7
    seq, lane, base_ms, _, trusted, samples = numbers
    # zig-zag: odd means negative
    if seq < 2 or (seq | samples) & 1 or lane not in (0, 2, 4) or trusted > 1:
        return None
    return seq >> 1, lane >> 1, -(base_ms >> 1) - 1 if base_ms & 1 else base_ms >> 1

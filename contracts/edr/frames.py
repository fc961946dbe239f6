"""Frames: how capsules and exports are cut into pieces so that a fault can be named by its place.

One frame is a tag (4 ASCII letters), the payload's length, a CRC-32 of those eight bytes, the payload and a CRC-32
of the payload. The sums find accidents and say where; hashes and signatures, one floor up, find malice.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from contracts.edr.errors import MalformedEvidence

HEAD_BYTES: Final = 12
TAIL_BYTES: Final = 4
MAX_PAYLOAD_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Frame:
    """One piece as found: where it lies, and ``damage`` (None when its sums hold)."""

    tag: str
    payload: bytes
    first_byte: int
    last_byte: int
    damage: str | None = None


def write(magic: bytes, pieces: Iterable[tuple[str, bytes]]) -> bytes:
    """The magic bytes followed by one frame per piece."""
    return magic + b"".join(_frame(tag, payload) for tag, payload in pieces)


def _frame(tag: str, payload: bytes) -> bytes:
    head = tag.encode("ascii") + len(payload).to_bytes(4, "big")
    if len(head) != 8 or len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"frame {tag!r} of {len(payload)} bytes")
    return head + _crc(head) + payload + _crc(payload)


def _crc(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "big")


def read(magic: bytes, data: bytes) -> list[Frame]:
    """Every frame of ``data``. A payload whose sum fails comes back with ``damage``; a broken skeleton raises.

    Raises MalformedEvidence at the first byte of the frame whose head is wrong or that ends too early.
    """
    if not data.startswith(magic):
        raise MalformedEvidence(f"does not begin with {magic!r}", 0)
    frames: list[Frame] = []
    at = len(magic)
    while at < len(data):
        frame = _read_one(data, at)
        frames.append(frame)
        at = frame.last_byte + 1
    return frames


def _read_one(data: bytes, at: int) -> Frame:
    head = data[at : at + 8]
    if len(data) - at < HEAD_BYTES or data[at + 8 : at + HEAD_BYTES] != _crc(head):
        raise MalformedEvidence("frame head is damaged or cut", at)
    length = int.from_bytes(head[4:], "big")
    start = at + HEAD_BYTES
    end = start + length
    if length > MAX_PAYLOAD_BYTES or end + TAIL_BYTES > len(data):
        raise MalformedEvidence("frame ends after the end of the data", at)
    payload = data[start:end]
    damage = None if data[end : end + TAIL_BYTES] == _crc(payload) else "check sum does not match"
    return Frame(head[:4].decode("ascii", "replace"), payload, at, end + TAIL_BYTES - 1, damage)

"""Raw motion around an event: what an accelerometer said, sample by sample. The one attachment that there is.

Axes and sign are those of the record (x forward, y right, z down, zero at rest), the sensor's zero taken off; units are
mm/s² and microseconds from time zero. ``limits`` has bits 1, 2, 4 where x, y, z were at the sensor's limit. Columns are
big-endian 32-bit integers inside of one deterministic CBOR map.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from contracts.edr.cbor import decode, encode
from contracts.edr.errors import MalformedEvidence

RAW_MOTION: Final = "raw_motion"
"""The attachment's name."""

RAW_FORMAT: Final = 1
_COLUMNS: Final = ("after_us", "x", "y", "z")
_LIMIT: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RawMotion:
    """Columns of equal length."""

    after_us: tuple[int, ...]
    x: tuple[int, ...]
    y: tuple[int, ...]
    z: tuple[int, ...]
    limits: bytes


def encode_raw(raw: RawMotion) -> bytes:
    """Values beyond 32 bits are cut to the largest (no sensor reaches 2,000 km/s²)."""
    columns = {name: _pack(getattr(raw, name)) for name in _COLUMNS}
    return encode({"v": RAW_FORMAT, "limits": raw.limits, **columns})


def decode_raw(data: bytes) -> RawMotion:
    """Raises MalformedEvidence."""
    body = decode(data)
    if not isinstance(body, Mapping) or set(body) != {"v", "limits", *_COLUMNS} or body["v"] != RAW_FORMAT:
        raise MalformedEvidence("not raw motion of a format known here")
    limits = body["limits"]
    if not isinstance(limits, bytes):
        raise MalformedEvidence("limits is not a byte string")
    after_us, x, y, z = (_unpack(body[name], len(limits)) for name in _COLUMNS)
    return RawMotion(after_us, x, y, z, limits)


def _pack(values: tuple[int, ...]) -> bytes:
    return struct.pack(f">{len(values)}i", *(max(-_LIMIT, min(_LIMIT, value)) for value in values))


def _unpack(column: object, count: int) -> tuple[int, ...]:
    if not isinstance(column, bytes) or len(column) != 4 * count:
        raise MalformedEvidence("columns differ in length")
    return struct.unpack(f">{count}i", column)

"""What a packet is: header, blocks of scaled integers, gaps; and the parcel, a header with one opaque body.

``contracts.packet`` turns these into bytes and back, and offers every name of this module too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Lane(IntEnum):
    """Which topic a packet travels on, chosen in the commit that accepts it and never changed."""

    LIVE = 0
    BACKLOG = 1
    PRIORITY = 2


class Quality(IntEnum):
    """Quality of one sample. Codes of 64 and above are bad: kept, shown, never aggregated."""

    GOOD = 0
    UNCERTAIN = 1
    SUBSTITUTED = 2
    BAD_SENSOR = 64
    NOT_FINITE = 65
    OUT_OF_RANGE = 66


FIRST_BAD_QUALITY = 64


class DropReason(IntEnum):
    """Why an agent dropped packets that it had accepted."""

    SPOOL_BYTES = 1
    SPOOL_AGE = 2
    CORRUPT_SPOOL = 3
    DISK_FULL = 4
    FORGOTTEN = 5
    """The device was asked for them and has no memory of them: it lost the spool that held them."""


@dataclass(frozen=True, slots=True)
class Header:
    """Who sent it and when. ``boot_epoch`` and ``seq`` are stored by the agent, never derived from a clock."""

    tenant: str
    device: str
    boot_epoch: int
    nonce: int
    seq: int
    lane: int
    base_ms: int
    mono_ms: int
    clock_trusted: bool
    samples: int


@dataclass(frozen=True, slots=True)
class Block:
    """Samples of one signal as scaled integers."""

    signal: int
    exponent: int
    base: int
    offsets_ms: tuple[int, ...]
    values: tuple[int, ...]
    qualities: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DoubleBlock:
    """Samples of one signal as IEEE doubles, for values that integers cannot carry."""

    signal: int
    offsets_ms: tuple[int, ...]
    values: tuple[float, ...]
    qualities: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Gap:
    """Sequence numbers that the agent accepted and later dropped, with the reason (``DropReason``)."""

    first_seq: int
    last_seq: int
    reason: int
    retention: int
    packets: int
    samples: int


@dataclass(frozen=True, slots=True)
class Packet:
    """A header with its samples and, rarely, the agent's report of what it dropped."""

    header: Header
    blocks: tuple[Block, ...] = ()
    doubles: tuple[DoubleBlock, ...] = ()
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class Parcel:
    """A header with one body; ``kind`` says whose, its room knows how to read it. ``header.samples`` is 0."""

    header: Header
    kind: int
    body: bytes

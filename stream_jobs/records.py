"""What a batch is made of: records as they lie in Kafka, and what decoding makes of them.

Everything is columns (NumPy, Arrow), because a batch holds a million samples. Samples of one packet lie together
and in the packet's own order; ``Samples.packet`` is the packet's index.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

import numpy as np

from stream_jobs.arithmetic import Bools, Floats, Ints

Nested: TypeAlias = Any
"""An Arrow array; the stubs forget the type of a nested field, so its users say what it is by its name."""

Row = TypeVar("Row", bound="_Columns")


class Kind(Enum):
    """What the records of a topic are."""

    PACKETS = "packets"
    STATUS = "status"
    DEAD_LETTERS = "dead_letters"


@dataclass(frozen=True, slots=True)
class Source:
    """One Kafka partition; the topic's id tells a re-created topic from the old one."""

    topic: str
    topic_id: UUID
    partition: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one or more partitions of the same kind, in offset order within each.

    ``source`` is an index into ``sources``; ``stamp`` is the gateway's header; ``packet`` is the decoded body,
    all NULL where it does not decode.
    """

    sources: tuple[Source, ...]
    source: Ints
    offset: Ints
    value: Nested
    stamp: Nested
    packet: Nested

    def __len__(self) -> int:
        return len(self.offset)


class _Columns:
    """Parallel arrays that are filtered, or put into another order, together."""

    def where(self: Row, mask: Bools | Ints) -> Row:
        return type(self)(*(getattr(self, one.name)[mask] for one in fields(self)))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Packets(_Columns):
    """One entry per packet that decoded. ``row`` is its index among the records; times are milliseconds."""

    row: Ints
    source: Ints
    offset: Ints
    received_ms: Ints
    device_key: Ints
    tenant_id: Ints
    recording: Bools
    boot_epoch: Ints
    nonce: Ints
    seq: Ints
    lane: Ints
    base_ms: Ints
    clock_trusted: Bools

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, slots=True)
class Samples(_Columns):
    """One entry per sample. ``signal`` is a position in ``Scales``; ``belief`` is 0 or an index of ``DISBELIEF``."""

    packet: Ints
    pos: Ints
    signal: Ints
    event_ms: Ints
    units: Ints
    value: Floats
    quality: Ints
    belief: Ints

    def __len__(self) -> int:
        return len(self.packet)


DISBELIEF = ("", "future", "too_late")
"""Why a single sample is not believed."""

FUTURE, TOO_LATE = 1, 2
"""Places in ``DISBELIEF``."""


@dataclass(frozen=True, slots=True)
class Gaps(_Columns):
    """What agents reported as dropped, one entry per range."""

    packet: Ints
    first_seq: Ints
    last_seq: Ints
    reason: Ints
    retention: Ints
    packets: Ints
    samples: Ints


@dataclass(frozen=True, slots=True)
class Refusal:
    """A record that is set aside with its bytes; identity is what could be read of it."""

    row: int
    reason: str
    detail: dict[str, object] = field(default_factory=dict)
    samples: int = 0
    boot_epoch: int | None = None
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class Stamps:
    """The gateway's headers as columns; where ``valid`` is false the rest is 0."""

    valid: Bools
    received_ms: Ints
    device_key: Ints
    tenant_id: Ints
    recording: Bools


@dataclass(frozen=True, slots=True)
class Decoded:
    """Everything that packets' records say, before anyone asks whether it is new."""

    records: Records
    stamps: Stamps
    packets: Packets
    samples: Samples
    gaps: Gaps
    refusals: tuple[Refusal, ...]
    devices: tuple[str, ...]
    tenants: tuple[str, ...]
    sha256: np.ndarray[tuple[int, int], np.dtype[np.uint8]]

    def frame(self, row: int) -> bytes:
        """The record's bytes as they lie in Kafka ('' for a tombstone)."""
        value = self.records.value[row].as_py()
        return b"" if value is None else bytes(value)

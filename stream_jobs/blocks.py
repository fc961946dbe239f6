"""Nested Arrow blocks of a batch: are they sound, and what do they say as flat arrays? Pure.

Soundness is decided from lengths alone, before anything is expanded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow.compute as pc

from stream_jobs.arithmetic import Bools, Floats, Ints
from stream_jobs.records import Nested
from stream_jobs.scales import Scales

LARGEST_EXPONENT = 18
"""Block exponents beyond this are nonsense for any unit; the catalogue stays within -9 .. 6."""

MAX_QUALITY = 127
MAX_SMALL = 2**15 - 1
LARGEST_NUMBER = 2**62
"""Sequence numbers and epochs beyond this would overflow a range's upper bound in the store."""

LARGEST_COUNT = 2**40
"""Bound of what one gap report counts, so that sums over a fleet stay within a bigint."""

_LENGTHS, _COUNT, _UNKNOWN, _EXPONENT, _QUALITY, _GAP = range(1, 7)
_TEXTS = {
    _LENGTHS: "arrays of a block differ in length",
    _COUNT: "the header's count is not the body's",
    _EXPONENT: "a block's exponent is out of bounds",
    _QUALITY: "a quality code is out of bounds",
    _GAP: "a gap report is out of bounds",
}


@dataclass(frozen=True, slots=True)
class Blocks:
    """Flat integer samples; ``value`` counts from ``base``."""

    packet: Ints
    signal: Ints
    exponent: Ints
    base: Ints
    offset_ms: Ints
    value: Ints
    quality: Ints


@dataclass(frozen=True, slots=True)
class Doubles:
    """Flat samples that travelled as doubles."""

    packet: Ints
    signal: Ints
    offset_ms: Ints
    value: Floats
    quality: Ints


@dataclass(frozen=True, slots=True)
class Faults:
    """``code`` is 0 for a sound body; ``signal`` is the first unknown number where that is the fault."""

    code: Ints
    signal: Ints

    def describe(self, index: int) -> tuple[str, dict[str, object]]:
        """(reason, detail) of one packet."""
        code = int(self.code[index])
        if code == _UNKNOWN:
            return "unknown_signal", {"signal": int(self.signal[index])}
        return "bad_body", {"detail": _TEXTS[code]}


def body_fault(body: Nested, claimed: Ints, scales: Scales) -> Faults:
    """What is wrong with each packet's body, judged in a fixed order."""
    size = len(body)
    code, unknown = np.zeros(size, np.int64), np.zeros(size, np.int64)
    total = np.zeros(size, np.int64)
    for name in ("blocks", "doubles"):
        packet, rows = _rows(body.field(name))
        lengths = _lengths(rows.field("offsets_ms"))
        qualities = _lengths(rows.field("qualities"))
        differ = (_lengths(rows.field("values")) != lengths) | ((qualities != 0) & (qualities != lengths))
        _mark(code, packet[differ], _LENGTHS)
        total += np.bincount(packet, lengths, size).astype(np.int64)
        strange = _quality_fault(rows.field("qualities"))
        _mark(code, packet[strange], _QUALITY)
        signals = _ints(rows, "signal")
        lost = ~scales.find(signals)[1]
        _mark(code, packet[lost], _UNKNOWN)
        unknown[packet[lost]] = signals[lost]
        if name == "blocks":
            exponents = _ints(rows, "exponent")
            _mark(code, packet[(exponents < -LARGEST_EXPONENT) | (exponents > LARGEST_EXPONENT)], _EXPONENT)
    _mark(code, np.flatnonzero(total != claimed), _COUNT)
    packet, rows = _rows(body.field("gaps"))
    _mark(code, packet[_gap_fault(rows)], _GAP)
    return Faults(code, unknown)


def flatten_blocks(body: Nested) -> Blocks:
    """Expand sound integer blocks."""
    packet, rows = _rows(body.field("blocks"))
    offsets = rows.field("offsets_ms")
    sizes = _lengths(offsets)
    return Blocks(
        np.repeat(packet, sizes),
        np.repeat(_ints(rows, "signal"), sizes),
        np.repeat(_ints(rows, "exponent"), sizes),
        np.repeat(_ints(rows, "base"), sizes),
        _flat_ints(offsets),
        _flat_ints(rows.field("values")),
        _qualities(rows, sizes),
    )


def flatten_doubles(body: Nested) -> Doubles:
    """Expand sound blocks of doubles."""
    packet, rows = _rows(body.field("doubles"))
    offsets = rows.field("offsets_ms")
    sizes = _lengths(offsets)
    values = rows.field("values").flatten().to_numpy(zero_copy_only=False).astype(np.float64)
    return Doubles(
        np.repeat(packet, sizes), np.repeat(_ints(rows, "signal"), sizes), _flat_ints(offsets), values,
        _qualities(rows, sizes),
    )  # fmt: skip


def _qualities(rows: Nested, sizes: Ints) -> Ints:
    """One quality per sample; an empty array means that all are good."""
    lists = rows.field("qualities")
    result = np.zeros(int(sizes.sum()), np.int64)
    given = _flat_ints(lists)
    if len(given):
        result[np.repeat(_lengths(lists) > 0, sizes)] = given
    return result


def _quality_fault(lists: Nested) -> Bools:
    given = _flat_ints(lists)
    fault = np.zeros(len(lists), np.bool_)
    bad = (given < 0) | (given > MAX_QUALITY)
    if bad.any():
        fault[np.repeat(np.arange(len(lists)), _lengths(lists))[bad]] = True
    return fault


def _gap_fault(rows: Nested) -> Bools:
    first, last = _ints(rows, "first_seq"), _ints(rows, "last_seq")
    fault = (first < 1) | (last < first) | (last > LARGEST_NUMBER)
    for name, limit in (
        ("reason", MAX_SMALL),
        ("retention", MAX_SMALL),
        ("packets", LARGEST_COUNT),
        ("samples", LARGEST_COUNT),
    ):
        fault |= (_ints(rows, name) < 0) | (_ints(rows, name) > limit)
    return fault


def _mark(code: Ints, packets: Ints, fault: int) -> None:
    code[packets[code[packets] == 0]] = fault


def _rows(lists: Nested) -> tuple[Ints, Nested]:
    """(packet index of each entry, entries) of a list column."""
    return np.repeat(np.arange(len(lists)), _lengths(lists)), lists.flatten()


def _lengths(lists: Nested) -> Ints:
    return cast(Ints, pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64))


def _flat_ints(lists: Nested) -> Ints:
    return cast(Ints, lists.flatten().to_numpy(zero_copy_only=False).astype(np.int64))


def _ints(struct: Nested, name: str) -> Ints:
    return cast(Ints, struct.field(name).to_numpy(zero_copy_only=False).astype(np.int64))

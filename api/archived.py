"""A packet's readings as the store would hold them, from the packet itself: the same rules as ingest, one at a time.

The archive keeps what devices sent; the store keeps what ingest made of it. Values, qualities and positions must not
depend on where a reading is read from, so a test compares this module with the store, reading by reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite

from contracts.limits import MAX_FUTURE_MS
from contracts.packet import FIRST_BAD_QUALITY, Block, DoubleBlock, Packet, Quality
from contracts.signals import Signal, catalogue
from contracts.stamp import FLAG_RECORDING, Stamp

EXACT_LIMIT = 2**52
"""Integers beyond this are not believed: their doubles would no longer be exact (as in ingest)."""

LARGEST_POWER = 18


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading; ``value`` None: the sensor sent no number. ``position`` counts from 1 within the packet."""

    ms: int
    value: float | None
    quality: int
    position: int


def samples_of(packet: Packet, stamp: Stamp, number: int) -> Iterator[Sample]:
    """What the store holds of a packet for the signal ``number``, in the packet's order."""
    position = 0
    blocks: tuple[Block | DoubleBlock, ...] = (*packet.blocks, *packet.doubles)
    for block in blocks:
        signal = catalogue().by_number(block.signal)
        if signal.transient:
            continue
        for at, offset_ms in enumerate(block.offsets_ms):
            ms = packet.header.base_ms + offset_ms
            if not believed(ms, stamp, signal):
                continue
            position += 1
            if block.signal == number:
                given = block.qualities[at] if block.qualities else int(Quality.GOOD)
                value, quality = _judged(block, at, signal, given)
                yield Sample(ms, value, quality, position)


def believed(ms: int, stamp: Stamp, signal: Signal) -> bool:
    """Neither from before 1970, nor from the future, nor later than its signal's class (recordings are exempt)."""
    if ms < 0 or ms > stamp.received_ms + MAX_FUTURE_MS:
        return False
    return bool(stamp.flags & FLAG_RECORDING) or ms >= stamp.received_ms - signal.lateness_s * 1000


def _judged(block: Block | DoubleBlock, at: int, signal: Signal, given: int) -> tuple[float | None, int]:
    if isinstance(block, Block):
        value, units = _scaled(block.base, block.values[at], block.exponent, signal)
    elif isfinite(block.values[at]):
        value, units = _rounded(block.values[at], signal)
    else:
        return None, given if given >= FIRST_BAD_QUALITY else int(Quality.NOT_FINITE)
    outside = units is None or not signal.to_units(signal.minimum) <= units <= signal.to_units(signal.maximum)
    return value, int(Quality.OUT_OF_RANGE) if outside and given < FIRST_BAD_QUALITY else given


def _scaled(base: int, step: int, exponent: int, signal: Signal) -> tuple[float, int | None]:
    """(value, units) of a scaled integer; units None: too large to be exact."""
    units = None
    if abs(base) <= EXACT_LIMIT and abs(step) <= EXACT_LIMIT:
        units = _shifted(base + step, exponent - signal.exponent)
    if units is None:
        return (float(base) + float(step)) * 10.0**exponent, None
    return to_double(units, signal.exponent), units


def _shifted(raw: int, shift: int) -> int | None:
    """``raw * 10**shift``, ties to even; None when it is too large."""
    power: int = 10 ** min(abs(shift), LARGEST_POWER)
    if shift >= 0:
        too_large = (shift > LARGEST_POWER and raw != 0) or abs(raw) > EXACT_LIMIT // power
        return None if too_large else raw * power
    quotient, rest = divmod(raw, power)
    units = quotient + int(2 * rest > power or (2 * rest == power and quotient % 2 == 1))
    return units if abs(units) <= EXACT_LIMIT else None


def _rounded(value: float, signal: Signal) -> tuple[float, int | None]:
    """(value, units) of a double, rounded to the signal's resolution."""
    power = 10.0 ** abs(signal.exponent)
    scaled = value * power if signal.exponent < 0 else value / power
    if not abs(scaled) <= EXACT_LIMIT:
        return value, None
    return to_double(round(scaled), signal.exponent), round(scaled)


def to_double(units: int, exponent: int) -> float:
    """The double nearest to ``units * 10**exponent``."""
    return units / 10.0**-exponent if exponent < 0 else float(units) * 10.0**exponent

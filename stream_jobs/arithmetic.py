"""Exact arithmetic on NumPy arrays: scaled integers in, catalogue units and 128-bit sums out.

Nothing here rounds twice and nothing overflows silently: what does not fit is flagged, never wrapped.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

EXACT_LIMIT = 2**52
"""Integers beyond this are not believed: their doubles would no longer be exact."""

UNITS_LIMIT = 2**48
"""Largest magnitude of a catalogue range in units; below it sums of squares stay inside two limbs."""

LIMB_BITS = 62
_LIMB_MASK = 2**LIMB_BITS - 1
_HALF = 24
_HALF_MASK = 2**_HALF - 1
_WORD = 32
_WORD_MASK = 2**_WORD - 1
_LARGEST_POWER = 18
_POWERS = 10 ** np.arange(_LARGEST_POWER + 1, dtype=np.int64)


class Wide(NamedTuple):
    """Signed integers as ``high * 2**62 + low`` with ``0 <= low < 2**62``."""

    high: Ints
    low: Ints


def rescale(raw: Ints, shift: Ints) -> tuple[Ints, Bools]:
    """``raw * 10**shift`` as integers, ties to even, and a mask of those that do not fit ``EXACT_LIMIT``.

    ``|raw|`` must not exceed ``2 * EXACT_LIMIT``. Values that do not fit come back as 0.
    """
    up = _POWERS[np.clip(shift, 0, _LARGEST_POWER)]
    too_large = np.abs(raw) > EXACT_LIMIT // up
    too_large |= (shift > _LARGEST_POWER) & (raw != 0)
    finer = shift < 0
    down = _POWERS[np.clip(-shift, 0, _LARGEST_POWER)]
    quotient, rest = np.divmod(raw, down)
    twice = 2 * rest
    rounded = quotient + ((twice > down) | ((twice == down) & (quotient % 2 == 1)))
    units = np.where(finer, rounded, np.where(too_large, 0, raw) * up)
    too_large = np.where(finer, np.abs(units) > EXACT_LIMIT, too_large)
    return np.where(too_large, 0, units), too_large


def to_double(units: Ints, exponent: Ints) -> Floats:
    """The double nearest to ``units * 10**exponent``; exact powers make the division correctly rounded."""
    power = 10.0 ** np.abs(exponent)
    return np.where(exponent < 0, units / power, units * power)


def sum_runs(values: Ints, starts: Ints) -> Wide:
    """Exact sums of consecutive runs; ``|values| <= UNITS_LIMIT``, fewer than 2**24 values in all."""
    high = np.add.reduceat(values >> _HALF, starts)
    low = np.add.reduceat(values & _HALF_MASK, starts)
    return _plus(_plus(_zero(len(starts)), high, _HALF), low, 0)


def sum_square_runs(values: Ints, starts: Ints) -> Wide:
    """Exact sums of squares of consecutive runs; same bounds as ``sum_runs``."""
    high, low = values >> _HALF, values & _HALF_MASK
    total = _zero(len(starts))
    for product, bits in ((high * high, 2 * _HALF), (high * low, _HALF + 1), (low * low, 0)):
        total = _plus(total, np.add.reduceat(product >> _WORD, starts), bits + _WORD)
        total = _plus(total, np.add.reduceat(product & _WORD_MASK, starts), bits)
    return total


def as_ints(wide: Wide) -> list[int]:
    """Python integers, for tests and for small numbers of rows."""
    return [(int(high) << LIMB_BITS) + int(low) for high, low in zip(wide.high, wide.low, strict=True)]


def _zero(size: int) -> Wide:
    return Wide(np.zeros(size, np.int64), np.zeros(size, np.int64))


def _plus(total: Wide, addend: Ints, bits: int) -> Wide:
    """``total + addend * 2**bits``."""
    if bits >= LIMB_BITS:
        return Wide(total.high + (addend << (bits - LIMB_BITS)), total.low)
    keep = LIMB_BITS - bits
    low = total.low + ((addend & ((1 << keep) - 1)) << bits)
    return Wide(total.high + (addend >> keep) + (low >> LIMB_BITS), low & _LIMB_MASK)

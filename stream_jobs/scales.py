"""The signal catalogue as arrays, so that a whole batch is looked up at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from contracts.errors import Fatal
from contracts.signals import Signal, catalogue
from stream_jobs.arithmetic import UNITS_LIMIT, Ints


@dataclass(frozen=True, slots=True)
class Scales:
    """Parallel arrays, one entry per signal, ordered by ``numbers``; lowest and highest are in units."""

    numbers: Ints
    exponents: Ints
    lowest: Ints
    highest: Ints
    grace_ms: Ints
    lateness_ms: Ints
    transient: NDArray[np.bool_]

    def find(self, numbers: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Positions in these arrays and whether each number is known at all."""
        at = np.minimum(np.searchsorted(self.numbers, numbers), len(self.numbers) - 1)
        return at, self.numbers[at] == numbers


def make_scales(signals: tuple[Signal, ...]) -> Scales:
    """Raises Fatal when a range is too wide for its resolution."""
    rows = sorted(signals, key=lambda signal: signal.number)
    bounds = [(row.to_units(row.minimum), row.to_units(row.maximum)) for row in rows]
    for row, (low, high) in zip(rows, bounds, strict=True):
        if max(abs(low), abs(high)) > UNITS_LIMIT:
            raise Fatal(f"signal {row.path}: the range needs more than 48 bits; give it a coarser resolution")
    return Scales(
        np.array([row.number for row in rows], np.int64),
        np.array([row.exponent for row in rows], np.int64),
        np.array([low for low, _ in bounds], np.int64),
        np.array([high for _, high in bounds], np.int64),
        np.array([row.grace_s * 1000 for row in rows], np.int64),
        np.array([row.lateness_s * 1000 for row in rows], np.int64),
        np.array([row.transient for row in rows], np.bool_),
    )


@cache
def catalogue_scales() -> Scales:
    """Scales of the catalogue that ships with this version."""
    return make_scales(tuple(catalogue()))

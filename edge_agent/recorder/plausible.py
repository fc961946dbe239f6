"""Spikes that no vehicle can make: a motion reading far above both of its neighbours is the sensor's, not the road's.

A bumper, a kerb or another car gives a pulse of tens of milliseconds: before and after its highest reading there are
others of its size. A bit error, a loose plug or a discharge gives one reading, or a few milliseconds of them, out of
calm and back into calm; at the sensor's limit that is a velocity change that would trigger a record. Pure.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from edge_agent.recorder.axes import STANDARD_GRAVITY_MPS2

SPIKE_MPS2: Final = 10 * STANDARD_GRAVITY_MPS2
"""Lower ones are left: one of this size at 100 Hz is a change of 3.5 km/h, less than half of what triggers."""

CALM_SHARE: Final = 0.25
"""Neighbours below this share of a spike are calm."""

LONGEST_SPIKE_US: Final = 6_000
"""A run of high readings that lasts this long is a pulse: 8 km/h in so short a time would take 38 g, out of calm."""

WIDEST_US: Final = 25_000
"""When the calm readings beside a spike lie further apart (slower than 80 Hz), a real pulse fits between them."""


class Felt(NamedTuple):
    """One motion reading: microseconds, the record's axes in m/s², and which of them stood at the sensor's limit."""

    at_us: int
    x: float
    y: float
    z: float
    limits: int

    @property
    def size_mps2(self) -> float:
        return math.sqrt(self.x * self.x + self.y * self.y + self.z * self.z)


class SpikeGate:
    """Readings go through at once; one that jumps out of calm is held back until the next ones tell what it was."""

    def __init__(self) -> None:
        self._last: Felt | None = None
        self._held: list[Felt] = []
        self.dropped = 0
        """Readings that were spikes."""

    def push(self, felt: Felt) -> list[Felt]:
        """The readings that may be believed now, in order."""
        if not self._held:
            if self._jumps(felt):
                self._held = [felt]
                return []
            return self._believe([felt])
        if self._calm_again(felt):
            self.dropped += len(self._held)
            return self._believe([felt])
        if felt.at_us - self._held[0].at_us < LONGEST_SPIKE_US:
            self._held.append(felt)
            return []
        return self._believe([*self._held, felt])

    def flush(self) -> list[Felt]:
        """What is held back, when nothing comes after it that could tell."""
        return self._believe(self._held) if self._held else []

    def _believe(self, felt: list[Felt]) -> list[Felt]:
        self._last, self._held = felt[-1], []
        return felt

    def _jumps(self, felt: Felt) -> bool:
        last = self._last
        if last is None or felt.size_mps2 < SPIKE_MPS2 or felt.at_us - last.at_us > WIDEST_US:
            return False
        return last.size_mps2 <= CALM_SHARE * felt.size_mps2

    def _calm_again(self, felt: Felt) -> bool:
        if self._last is None or felt.at_us - self._last.at_us > WIDEST_US:
            return False
        return felt.size_mps2 <= CALM_SHARE * max(held.size_mps2 for held in self._held)

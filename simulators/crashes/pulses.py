"""Pulse shapes with closed forms: acceleration and its exact integral, so that truth needs no numerical integration.

Times in seconds, velocities in m/s, in the record's axes (x forward, y right, z down).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Pulse(Protocol):
    """An acceleration over time and what it has added to the velocity by then."""

    def acceleration(self, at_s: float) -> float: ...
    def velocity(self, at_s: float) -> float: ...


@dataclass(frozen=True, slots=True)
class Haversine:
    """A sin² bump: smooth at both ends, peak 2 Δv / T in the middle.

    >>> round(Haversine(0.0, 0.1, 10.0).velocity(0.05), 9)
    5.0
    """

    start_s: float
    duration_s: float
    delta_v_mps: float

    def acceleration(self, at_s: float) -> float:
        share = (at_s - self.start_s) / self.duration_s
        if not 0 < share < 1:
            return 0.0
        return 2 * self.delta_v_mps / self.duration_s * math.sin(math.pi * share) ** 2

    def velocity(self, at_s: float) -> float:
        share = min(1.0, max(0.0, (at_s - self.start_s) / self.duration_s))
        return self.delta_v_mps * (share - math.sin(2 * math.pi * share) / (2 * math.pi))

    def travel(self, at_s: float) -> float:
        """The integral of ``velocity``: how far it has come."""
        share = min(1.0, max(0.0, (at_s - self.start_s) / self.duration_s))
        inside = share * share / 2 + (math.cos(2 * math.pi * share) - 1) / (4 * math.pi * math.pi)
        after_s = max(0.0, at_s - self.start_s - self.duration_s)
        return self.delta_v_mps * (self.duration_s * inside + after_s)


@dataclass(frozen=True, slots=True)
class Triangle:
    """Straight up to 2 Δv / T at half time and straight down."""

    start_s: float
    duration_s: float
    delta_v_mps: float

    def acceleration(self, at_s: float) -> float:
        share = (at_s - self.start_s) / self.duration_s
        if not 0 < share < 1:
            return 0.0
        return 2 * self.delta_v_mps / self.duration_s * (1 - abs(2 * share - 1))

    def velocity(self, at_s: float) -> float:
        share = min(1.0, max(0.0, (at_s - self.start_s) / self.duration_s))
        if share <= 0.5:
            return self.delta_v_mps * 2 * share * share
        return self.delta_v_mps * (1 - 2 * (1 - share) ** 2)


@dataclass(frozen=True, slots=True)
class Square:
    """Constant from start to end: impacts with a hard edge, and braking, accelerating, sliding to rest."""

    start_s: float
    duration_s: float
    delta_v_mps: float

    def acceleration(self, at_s: float) -> float:
        inside = 0 <= at_s - self.start_s < self.duration_s
        return self.delta_v_mps / self.duration_s if inside else 0.0

    def velocity(self, at_s: float) -> float:
        return self.delta_v_mps * min(1.0, max(0.0, (at_s - self.start_s) / self.duration_s))


@dataclass(frozen=True, slots=True)
class Ripple:
    """A sine of whole periods that adds nothing in the end: a wheel over a kerb, an ABS at work."""

    start_s: float
    period_s: float
    periods: int
    peak_mps2: float

    def acceleration(self, at_s: float) -> float:
        after_s = at_s - self.start_s
        if not 0 < after_s < self.periods * self.period_s:
            return 0.0
        return self.peak_mps2 * math.sin(2 * math.pi * after_s / self.period_s)

    def velocity(self, at_s: float) -> float:
        after_s = min(self.periods * self.period_s, max(0.0, at_s - self.start_s))
        scale = self.peak_mps2 * self.period_s / (2 * math.pi)
        return scale * (1 - math.cos(2 * math.pi * after_s / self.period_s))


def acceleration(pulses: Sequence[Pulse], at_s: float) -> float:
    """The sum of the pulses (m/s²)."""
    return sum(pulse.acceleration(at_s) for pulse in pulses)


def velocity(pulses: Sequence[Pulse], at_s: float) -> float:
    """What the pulses have added to the velocity by ``at_s`` (m/s)."""
    return sum(pulse.velocity(at_s) for pulse in pulses)

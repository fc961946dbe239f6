"""Wind at hub height: a slow mean, turbulence around it, a direction that veers; one Ornstein-Uhlenbeck process each.

Neighbouring turbines feel one weather (same ``weather`` seed) and their own gusts (same class, own seed).
"""

from __future__ import annotations

import math
import random
from typing import Final

from simulators.machine import STEP_MS

STEP_S: Final = STEP_MS / 1_000
WEATHER_S: Final = 5_400.0
"""Correlation time of the slow mean."""
GUST_S: Final = 9.0
VEER_S: Final = 2_400.0
INTENSITY: Final = 0.11
"""Turbulence over mean speed; IEC 61400-1 class C has 0.12 at 15 m/s."""
MEAN_MPS: Final = 9.5
SPREAD_MPS: Final = 4.2
CALM_MPS: Final = 0.4


class Wind:
    """Speed in m/s and direction in degrees (where it comes from), by steps."""

    def __init__(self, weather: int, seed: int, mean_mps: float = MEAN_MPS, steady: bool = False) -> None:
        self._weather = random.Random(f"weather {weather}")
        self._gusts = random.Random(f"gusts {seed}")
        self._mean_mps = mean_mps
        self._steady = steady
        self.slow = mean_mps if steady else max(CALM_MPS, self._weather.gauss(mean_mps, SPREAD_MPS))
        self.gust = 0.0
        self.direction = 240.0 if steady else self._weather.gauss(240.0, 40.0) % 360
        self._home = self.direction

    @property
    def speed(self) -> float:
        """Wind speed now, never negative."""
        return max(0.0, self.slow + self.gust)

    def step(self) -> None:
        """Let STEP_S pass."""
        if self._steady:
            return
        self.slow = max(CALM_MPS, _wander(self._weather, self.slow, self._mean_mps, SPREAD_MPS, WEATHER_S))
        self.gust = _wander(self._gusts, self.gust, 0.0, INTENSITY * self.slow, GUST_S)
        off = _wander(self._weather, (self.direction - self._home + 180) % 360 - 180, 0.0, 25.0, VEER_S)
        self.direction = (self._home + off) % 360


def _wander(chance: random.Random, value: float, mean: float, spread: float, time_s: float) -> float:
    """One step of an Ornstein-Uhlenbeck process with this stationary spread."""
    pull = STEP_S / time_s
    return value + pull * (mean - value) + spread * math.sqrt(2 * pull) * chance.gauss(0.0, 1.0)

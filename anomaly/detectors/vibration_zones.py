"""Vibration severity zones of ISO 20816-3:2022 (velocity, mm/s rms, 10-1000 Hz), where the standard covers the machine.

It covers industrial machines over 15 kW; it excludes wind turbines (ISO 20816-21) and pumps have their own part, so
an uncovered kind of machine is refused at construction instead of coloured with the wrong limits. A zone counts only
after ``persist`` readings in steady operation (regime 0) in a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from anomaly.base import Detector, Readings, Verdict, columns
from anomaly.errors import BadParameters
from anomaly.types import Floats, Rows

ZONES = {
    ("group 1", "rigid"): (2.3, 4.5, 7.1),
    ("group 1", "flexible"): (3.5, 7.1, 11.0),
    ("group 2", "rigid"): (1.4, 2.8, 4.5),
    ("group 2", "flexible"): (2.3, 4.5, 7.1),
}
"""Boundaries A/B, B/C and C/D. Group 1: over 300 kW or shaft height from 315 mm; group 2: 15 to 300 kW."""


@dataclass(frozen=True)
class VibrationZones(Detector):
    """Score 0 to 3 for zones A to D; above 1 (zones C and D) is an alarm."""

    name: ClassVar[str] = "vibration_zones"
    layer: ClassVar[str] = "a"
    machine: str = "group 2"
    support: str = "rigid"
    persist: int = 3

    def __post_init__(self) -> None:
        if (self.machine, self.support) not in ZONES:
            raise BadParameters(
                f"ISO 20816-3 has no zones for a {self.machine} on {self.support} support; use ewma_cusum"
            )

    @classmethod
    def example(cls) -> Self:
        return cls()

    @property
    def channels(self) -> int:
        return 1

    def row(self) -> Rows:
        return np.zeros(1, dtype=[("streak", "<u4", (3,))])

    def _streak(self, rows: Rows, readings: Readings) -> Floats:
        over = readings.values > np.asarray(ZONES[self.machine, self.support])
        return np.where(over, np.minimum(rows["streak"] + 1.0, 1e6), 0.0)

    def judge(self, rows: Rows, readings: Readings) -> Verdict:
        zone = (self._streak(rows, readings) >= self.persist).sum(axis=1).astype(np.float64)
        known = np.isfinite(readings.values[:, 0]) & (readings.regime == 0)
        limit = np.full(len(rows), ZONES[self.machine, self.support][1])
        return columns(zone, 1.0, known, low=np.zeros(len(rows)), high=limit)

    def learn(self, rows: Rows, readings: Readings, verdict: Verdict) -> None:
        rows["streak"] = np.where(verdict.known[:, None], self._streak(rows, readings), rows["streak"])

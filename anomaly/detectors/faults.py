"""Rules of the vehicle's own diagnosis: the malfunction lamp is on, or the number of stored trouble codes rose.

Columns: DTC count (``Vehicle.Diagnostics.DTCCount``), lamp as 0 or 1. An alarm is told once per rise; ``severity``
of a code's text is the business of a catalogue of codes, not of this rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from anomaly.base import Detector, Readings, Verdict, columns
from anomaly.types import Floats, Rows


@dataclass(frozen=True)
class Faults(Detector):
    """Score 2 for a lamp that comes on, 1 for each new code; above 0.5 is an alarm."""

    name: ClassVar[str] = "faults"
    layer: ClassVar[str] = "a"
    threshold: float = 0.5

    @classmethod
    def example(cls) -> Self:
        return cls()

    @property
    def channels(self) -> int:
        return 2

    def row(self) -> Rows:
        return np.zeros(1, dtype=[("told", "<f8", (2,))])

    def _rise(self, rows: Rows, readings: Readings) -> Floats:
        rise = np.maximum(np.nan_to_num(readings.values) - rows["told"], 0.0)
        return np.asarray(rise * np.array([1.0, 2.0]))

    def judge(self, rows: Rows, readings: Readings) -> Verdict:
        rise = self._rise(rows, readings)
        known = np.isfinite(readings.values).any(axis=1)
        none = np.zeros(len(rows))
        return columns(rise.max(axis=1), self.threshold, known, channel=rise.argmax(axis=1), low=none, high=none)

    def learn(self, rows: Rows, readings: Readings, verdict: Verdict) -> None:
        rows["told"] = np.where(np.isfinite(readings.values), readings.values, rows["told"])

"""Rules of what does not come: a signal that stands still while it should move, a signal that stopped arriving."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from anomaly.base import Detector, Readings, Verdict, columns
from anomaly.types import Rows


@dataclass(frozen=True)
class Silence(Detector):
    """Per signal: seconds it may keep one exact value (``flat_s``) and seconds it may be missing (``missing_s``).

    Only regimes listed in ``active`` are judged: a parked car's speed is flat and healthy. The score is the time over
    its limit as a ratio; above 1 is an alarm. Needs a row (of NaN) at moments when nothing came, which the caller
    makes from any other signal's arrival.
    """

    name: ClassVar[str] = "silence"
    layer: ClassVar[str] = "a"
    flat_s: tuple[float, ...]
    missing_s: tuple[float, ...]
    active: tuple[int, ...] = (0,)

    @classmethod
    def example(cls) -> Self:
        """Mass air flow in g/s (never still in a running engine) and coolant temperature in Celsius."""
        return cls(flat_s=(60.0, float("inf")), missing_s=(30.0, 120.0))

    @property
    def channels(self) -> int:
        return len(self.flat_s)

    def row(self) -> Rows:
        shape = (self.channels,)
        fresh = np.zeros(1, dtype=[("last", "<f8", shape), ("moved", "<i8", shape), ("seen", "<i8", shape)])
        fresh["last"], fresh["moved"], fresh["seen"] = np.nan, -1, -1
        return fresh

    def judge(self, rows: Rows, readings: Readings) -> Verdict:
        now, here = readings.at_ms[:, None], np.isfinite(readings.values)
        still = here & (readings.values == rows["last"]) & (rows["moved"] >= 0)
        gone = ~here & (rows["seen"] >= 0)
        flat = np.where(still, (now - rows["moved"]) / 1000.0 / np.asarray(self.flat_s), 0.0)
        missing = np.where(gone, (now - rows["seen"]) / 1000.0 / np.asarray(self.missing_s), 0.0)
        score = np.maximum(flat, missing)
        known = np.isin(readings.regime, np.asarray(self.active))
        return columns(score.max(axis=1), 1.0, known, channel=score.argmax(axis=1))

    def learn(self, rows: Rows, readings: Readings, verdict: Verdict) -> None:
        now, here = readings.at_ms[:, None], np.isfinite(readings.values)
        idle = ~verdict.known[:, None]
        moved = here & ((readings.values != rows["last"]) | idle)
        rows["moved"] = np.where(moved, now, rows["moved"])
        rows["seen"] = np.where(here | (idle & (rows["seen"] >= 0)), now, rows["seen"])
        rows["last"] = np.where(here, readings.values, rows["last"])

"""Rules of one reading and its predecessor: outside of the plausible range, or changing faster than physics lets it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from anomaly.base import Detector, Readings, Verdict, columns
from anomaly.types import Rows


@dataclass(frozen=True)
class Limits(Detector):
    """Per signal: inclusive ``low`` and ``high`` in its unit, ``rate`` in units per second (inf: no limit).

    The score is how often the violated limit is contained in the excess, plus one; above 1 is an alarm. The band is
    that of the limit that says more: the range, or what the predecessor and the rate leave possible.
    """

    name: ClassVar[str] = "limits"
    layer: ClassVar[str] = "a"
    low: tuple[float, ...]
    high: tuple[float, ...]
    rate: tuple[float, ...]

    @classmethod
    def example(cls) -> Self:
        """Coolant temperature in Celsius and battery voltage in V of a car with a combustion engine."""
        return cls(low=(-40.0, 10.5), high=(115.0, 15.5), rate=(5.0, float("inf")))

    @property
    def channels(self) -> int:
        return len(self.low)

    @property
    def memory_ms(self) -> int:
        """Of its predecessor a reading knows the value; after an hour no rate that is worth a limit is left."""
        return 3_600_000

    def row(self) -> Rows:
        fresh = np.zeros(1, dtype=[("last", "<f8", (self.channels,)), ("at", "<i8", (self.channels,))])
        fresh["last"] = np.nan
        return fresh

    def judge(self, rows: Rows, readings: Readings) -> Verdict:
        value = readings.values
        low, high = np.asarray(self.low), np.asarray(self.high)
        span = np.maximum(high - low, 1e-9)
        outside = np.maximum(low - value, value - high) / span + 1.0
        elapsed = np.maximum((readings.at_ms[:, None] - rows["at"]) / 1000.0, 1e-3)
        fast = np.abs(value - rows["last"]) / elapsed / np.asarray(self.rate)
        score = np.fmax(np.nan_to_num(outside, nan=0.0), np.nan_to_num(fast, nan=0.0))
        channel = score.argmax(axis=1)
        known = np.isfinite(value).any(axis=1)
        each, reach = np.arange(len(rows)), np.asarray(self.rate) * elapsed
        by_rate = np.nan_to_num(fast[each, channel], nan=0.0) > np.nan_to_num(outside[each, channel], nan=0.0)
        least = np.where(by_rate, (rows["last"] - reach)[each, channel], low[channel])
        most = np.where(by_rate, (rows["last"] + reach)[each, channel], high[channel])
        return columns(score.max(axis=1), 1.0, known, channel=channel, low=least, high=most)

    def learn(self, rows: Rows, readings: Readings, verdict: Verdict) -> None:
        fresh = np.isfinite(readings.values)
        rows["last"] = np.where(fresh, readings.values, rows["last"])
        rows["at"] = np.where(fresh, readings.at_ms[:, None], rows["at"])

"""Maintenance counters: distance, hours or cycles since the last service, against the interval of the maker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from anomaly.base import Detector, Readings, Verdict, columns
from anomaly.types import Floats, Rows


@dataclass(frozen=True)
class Maintenance(Detector):
    """Per counter: its service ``interval`` in its own unit; the score is the used share, above ``due`` is told once.

    A counter that falls was replaced or reset: the service starts anew there. ``at_service`` of a state's row may be
    set by the caller when a service was done.
    """

    name: ClassVar[str] = "maintenance"
    layer: ClassVar[str] = "a"
    interval: tuple[float, ...]
    due: float = 0.95

    @classmethod
    def example(cls) -> Self:
        """15,000 km of distance (in m) and 250 engine hours."""
        return cls(interval=(15_000_000.0, 250.0))

    @property
    def channels(self) -> int:
        return len(self.interval)

    def row(self) -> Rows:
        shape = (self.channels,)
        fresh = np.zeros(1, dtype=[("at_service", "<f8", shape), ("last", "<f8", shape), ("told", "?", shape)])
        fresh["at_service"], fresh["last"] = np.nan, np.nan
        return fresh

    def _used(self, rows: Rows, readings: Readings) -> Floats:
        used = (readings.values - rows["at_service"]) / np.asarray(self.interval)
        return np.where(rows["told"] | (readings.values < rows["last"]), 0.0, np.nan_to_num(used))

    def judge(self, rows: Rows, readings: Readings) -> Verdict:
        used = self._used(rows, readings)
        channel = used.argmax(axis=1)
        end = rows["at_service"][np.arange(len(rows)), channel] + np.asarray(self.interval)[channel]
        known = np.isfinite(readings.values).any(axis=1)
        return columns(used.max(axis=1), self.due, known, channel=channel, high=end)

    def learn(self, rows: Rows, readings: Readings, verdict: Verdict) -> None:
        value, used = readings.values, self._used(rows, readings)
        here = np.isfinite(value)
        anew = here & (~np.isfinite(rows["at_service"]) | (value < rows["last"]))
        rows["told"] = np.where(anew, False, rows["told"] | (used > self.due))
        rows["at_service"] = np.where(anew, value, rows["at_service"])
        rows["last"] = np.where(here, value, rows["last"])

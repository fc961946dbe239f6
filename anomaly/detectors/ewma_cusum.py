"""Each signal of a device against its own past, per operating regime: EWMA level, CUSUM of small shifts.

The first ``warm`` readings of a regime fix its mean and spread; afterwards they follow slowly and only with readings
that were no alarm. Two one-sided sums collect what lies more than ``slack`` spreads away; their largest, over all
signals, is the score. The threshold is the device's own: a generalised Pareto tail over its past excesses
(``anomaly.tail.gpd``) at risk ``risk``, never below ``floor``. An excess is the peak of a run above the start of the
tail, taken when the run is over, and not at all when it became an alarm: the onset of a fault teaches nothing. A
regime the device has not been warm in is answered as unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from anomaly import tail
from anomaly.base import Detector, Readings, Verdict, columns
from anomaly.errors import BadParameters
from anomaly.types import Floats, Rows

EXCESSES = 32
"""Excesses kept a device; the oldest makes room (a ring)."""
START_RATE = 0.02
"""Stochastic approximation of the START_SHARE quantile of the score, as a share of its running mean."""
START_SHARE = 0.05
HEAVIEST = 0.05
"""The sum of a healthy signal is a reflected random walk, whose tail is exponential (shape zero)."""


@dataclass(frozen=True)
class EwmaCusum(Detector):
    """``slack`` and ``floor`` in standard deviations; ``risk`` is the probability of an alarm a healthy reading."""

    name: ClassVar[str] = "ewma_cusum"
    layer: ClassVar[str] = "b"
    signals: int = 1
    regimes: int = 1
    alpha: float = 0.002
    slack: float = 0.5
    risk: float = 1e-6
    floor: float = 12.0
    ceiling: float = 1e6
    warm: int = 120

    def __post_init__(self) -> None:
        if self.signals * (8 * self.regimes + 8) + 8 * self.regimes + 4 * EXCESSES + 48 > 1024:
            raise BadParameters("signals x regimes need more than 1 KB a device; split the signals over two detectors")

    @classmethod
    def example(cls) -> Self:
        return cls(signals=3, regimes=4)

    @property
    def channels(self) -> int:
        return self.signals

    def row(self) -> Rows:
        fields = [
            ("mean", "<f4", (self.regimes, self.signals)), ("var", "<f4", (self.regimes, self.signals)),
            ("n", "<u4", (self.regimes,)), ("up", "<f4", (self.signals,)), ("down", "<f4", (self.signals,)),
            ("start", "<f4"), ("peak", "<f4"), ("typical", "<f4"), ("scored", "<u4"), ("over", "<u4"), ("level", "<f4"),
            ("excess", "<f4", (EXCESSES,)),
        ]  # fmt: skip
        fresh = np.zeros(1, dtype=fields)
        fresh["level"] = self.floor
        return fresh

    def _sums(self, rows: Rows, readings: Readings) -> tuple[Floats, Floats, Floats]:
        each = np.arange(len(rows))
        regime = np.clip(readings.regime, 0, self.regimes - 1)
        mean, var = rows["mean"][each, regime].astype(float), rows["var"][each, regime].astype(float)
        spread = np.sqrt(np.maximum(var, 1e-12)) + 1e-6 * np.abs(mean) + 1e-9
        z = np.nan_to_num(np.clip((readings.values - mean) / spread, -8.0, 8.0))
        up = np.clip(rows["up"] + z - self.slack, 0.0, self.ceiling)
        down = np.clip(rows["down"] - z - self.slack, 0.0, self.ceiling)
        return up, down, np.stack([mean - 3 * spread, mean + 3 * spread])

    def _known(self, rows: Rows, readings: Readings) -> np.ndarray:
        inside = (readings.regime >= 0) & (readings.regime < self.regimes)
        seen = rows["n"][np.arange(len(rows)), np.clip(readings.regime, 0, self.regimes - 1)]
        return inside & (seen >= self.warm) & np.isfinite(readings.values).any(axis=1)

    def judge(self, rows: Rows, readings: Readings) -> Verdict:
        up, down, band = self._sums(rows, readings)
        worst = np.maximum(up, down)
        channel = worst.argmax(axis=1)
        each = np.arange(len(rows))
        return columns(
            worst.max(axis=1), np.maximum(rows["level"], self.floor), self._known(rows, readings),
            channel=channel, low=band[0, each, channel], high=band[1, each, channel],
        )  # fmt: skip

    def learn(self, rows: Rows, readings: Readings, verdict: Verdict) -> None:
        up, down, _ = self._sums(rows, readings)
        known = verdict.known
        rows["up"] = np.where(known[:, None], np.where(verdict.alarm[:, None], np.minimum(up, self._cap(rows)), up), 0)
        rows["down"] = np.where(
            known[:, None], np.where(verdict.alarm[:, None], np.minimum(down, self._cap(rows)), down), 0
        )
        inside = (readings.regime >= 0) & (readings.regime < self.regimes)
        self._learn_level(rows, readings, np.flatnonzero(inside & ~verdict.alarm))
        rows["peak"] = np.where(verdict.alarm, -1.0, rows["peak"])
        self._learn_tail(rows, verdict, np.flatnonzero(known & ~verdict.alarm))

    def _cap(self, rows: Rows) -> Floats:
        """An excursion's sum stops at twice the threshold, so that it ends soon after its cause does."""
        return np.asarray(2.0 * np.maximum(rows["level"], self.floor))[:, None]

    def _learn_level(self, rows: Rows, readings: Readings, use: np.ndarray) -> None:
        regime, value = readings.regime[use], readings.values[use]
        seen = rows["n"][use, regime].astype(np.float64)
        rate = np.maximum(self.alpha, 1.0 / (seen + 1.0))[:, None]
        mean = rows["mean"][use, regime].astype(np.float64)
        var = rows["var"][use, regime].astype(np.float64)
        distance = np.where(np.isfinite(value), value - mean, 0.0)
        rows["mean"][use, regime] = mean + rate * distance
        rows["var"][use, regime] = (1 - rate) * (var + rate * distance**2)
        rows["n"][use, regime] += 1

    def _learn_tail(self, rows: Rows, verdict: Verdict, use: np.ndarray) -> None:
        score = verdict.score[use]
        mine = rows[use]
        mine["scored"] += 1
        share = np.maximum(0.001, 1.0 / mine["scored"])
        mine["typical"] += share * (score - mine["typical"])
        above = score > mine["start"]
        step = START_RATE * np.maximum(mine["typical"], 0.1)
        mine["start"] += step * np.where(above, 1.0 - START_SHARE, -START_SHARE)
        ended = ~above & (mine["peak"] > 0)
        for row in np.flatnonzero(ended & (mine["scored"] > self.warm)):
            self._excess(mine[row : row + 1])
        mine["peak"] = np.where(above, np.where(mine["peak"] < 0, -1.0, np.maximum(mine["peak"], score)), 0.0)
        rows[use] = mine

    def _excess(self, row: Rows) -> None:
        past, peak = float(row["start"][0]), float(row["peak"][0])
        if peak <= past:
            return
        row["excess"][0, int(row["over"][0]) % EXCESSES] = peak - past
        row["over"] += 1
        kept = row["excess"][0, : min(int(row["over"][0]), EXCESSES)].astype(np.float64)
        shape, scale = tail.gpd(kept, HEAVIEST)
        level = tail.gpd_level(shape, scale, past, START_SHARE, self.risk)
        row["level"] = min(max(level, self.floor), self.ceiling)

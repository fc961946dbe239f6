"""Several signals together: Mahalanobis distance of the smoothed, standardised readings, covariance shrunk.

The covariance is the one of the smoothed healthy readings themselves, so that slow common movements which are
healthy count little; smoothing, not the kind of model, is what finds weak persistent faults.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from anomaly import fit
from anomaly.base import Detector, Readings, Verdict, columns
from anomaly.types import Floats, Rows


@dataclass(frozen=True)
class Mahalanobis(Detector):
    """``alpha`` smooths per reading; ``inverse`` is the inverse covariance of smoothed standardised readings."""

    name: ClassVar[str] = "mahalanobis"
    layer: ClassVar[str] = "c"
    mean: tuple[float, ...]
    spread: tuple[float, ...]
    inverse: tuple[tuple[float, ...], ...]
    threshold: float
    alpha: float = 0.1

    @classmethod
    def trained(cls, healthy: Floats, alpha: float = 0.1, shrink: float = 0.5, margin: float = 1.5) -> Self:
        """``margin`` times the largest distance of the healthy readings is the threshold; no label is read."""
        mean, spread = fit.scale(healthy)
        smooth = fit.smoothed((healthy - mean) / spread, alpha)[min(fit.SETTLE, len(healthy) // 4) :]
        inverse = fit.shrunk_inverse(smooth, shrink)
        largest = float(np.sqrt(np.einsum("ij,jk,ik->i", smooth, inverse, smooth).max()))
        return cls(tuple(mean.tolist()), tuple(spread.tolist()), fit.frozen(inverse), margin * largest, alpha)

    @classmethod
    def example(cls) -> Self:
        return cls.trained(np.random.default_rng(7).normal(size=(400, 3)))

    @property
    def channels(self) -> int:
        return len(self.mean)

    @cached_property
    def _model(self) -> tuple[Floats, Floats, Floats]:
        return np.asarray(self.mean), np.asarray(self.spread), np.asarray(self.inverse)

    def row(self) -> Rows:
        return np.zeros(1, dtype=[("smooth", "<f8", (self.channels,))])

    def _smooth(self, rows: Rows, readings: Readings) -> Floats:
        mean, spread, _ = self._model
        z = np.where(np.isfinite(readings.values), (readings.values - mean) / spread, rows["smooth"])
        return np.asarray(rows["smooth"] + self.alpha * (z - rows["smooth"]))

    def judge(self, rows: Rows, readings: Readings) -> Verdict:
        mean, spread, inverse = self._model
        smooth = self._smooth(rows, readings)
        share = smooth * (smooth @ inverse)
        channel = share.argmax(axis=1)
        known = np.isfinite(readings.values).any(axis=1) & (readings.regime >= 0)
        score = np.sqrt(np.maximum(share.sum(axis=1), 0.0))
        low, high = (mean - 3 * spread)[channel], (mean + 3 * spread)[channel]
        return columns(score, self.threshold, known, channel=channel, low=low, high=high)

    def learn(self, rows: Rows, readings: Readings, verdict: Verdict) -> None:
        rows["smooth"] = np.where(verdict.known[:, None], self._smooth(rows, readings), rows["smooth"])

"""Several signals together: principal components of healthy readings, T² inside and SPE (Q) outside of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from anomaly import fit
from anomaly.base import Detector, Readings, Verdict, columns
from anomaly.types import Floats, Rows


@dataclass(frozen=True)
class Subspace(Detector):
    """The score is the larger of T²/limit and SPE/limit, both of smoothed readings; above 1 is an alarm."""

    name: ClassVar[str] = "subspace"
    layer: ClassVar[str] = "c"
    mean: tuple[float, ...]
    spread: tuple[float, ...]
    loadings: tuple[tuple[float, ...], ...]
    variances: tuple[float, ...]
    t2_limit: float
    spe_limit: float
    alpha: float = 0.1

    @classmethod
    def trained(cls, healthy: Floats, alpha: float = 0.1, share: float = 0.9, margin: float = 1.5) -> Self:
        """``margin`` (in units of distance) times the healthy maximum limits both statistics; no label is read."""
        mean, spread = fit.scale(healthy)
        smooth = fit.smoothed((healthy - mean) / spread, alpha)[min(fit.SETTLE, len(healthy) // 4) :]
        loadings, variances = fit.principal(smooth, share)
        inside = smooth @ loadings
        t2 = float((inside**2 / variances).sum(axis=1).max())
        spe = float(((smooth - inside @ loadings.T) ** 2).sum(axis=1).max())
        limits = margin**2 * max(t2, 1e-9), margin**2 * max(spe, 1e-9)
        told = tuple(mean.tolist()), tuple(spread.tolist()), fit.frozen(loadings), tuple(variances.tolist())
        return cls(*told, *limits, alpha)

    @classmethod
    def example(cls) -> Self:
        return cls.trained(np.random.default_rng(8).normal(size=(400, 4)) @ np.diag([3.0, 2.0, 1.0, 0.5]))

    @property
    def channels(self) -> int:
        return len(self.mean)

    @cached_property
    def _model(self) -> tuple[Floats, Floats, Floats, Floats]:
        return tuple(np.asarray(part) for part in (self.mean, self.spread, self.loadings, self.variances))  # type: ignore[return-value]

    def row(self) -> Rows:
        return np.zeros(1, dtype=[("smooth", "<f8", (self.channels,))])

    def _smooth(self, rows: Rows, readings: Readings) -> Floats:
        mean, spread, _, _ = self._model
        z = np.where(np.isfinite(readings.values), (readings.values - mean) / spread, rows["smooth"])
        return np.asarray(rows["smooth"] + self.alpha * (z - rows["smooth"]))

    def judge(self, rows: Rows, readings: Readings) -> Verdict:
        mean, spread, loadings, variances = self._model
        smooth = self._smooth(rows, readings)
        inside = smooth @ loadings
        left = (smooth - inside @ loadings.T) ** 2
        t2 = (inside**2 / variances).sum(axis=1) / self.t2_limit
        spe = left.sum(axis=1) / self.spe_limit
        carried = (inside / variances) @ loadings.T * smooth
        channel = np.where(spe > t2, left.argmax(axis=1), carried.argmax(axis=1))
        known = np.isfinite(readings.values).any(axis=1) & (readings.regime >= 0)
        low, high = (mean - 3 * spread)[channel], (mean + 3 * spread)[channel]
        return columns(np.maximum(t2, spe), 1.0, known, channel=channel, low=low, high=high)

    def learn(self, rows: Rows, readings: Readings, verdict: Verdict) -> None:
        rows["smooth"] = np.where(verdict.known[:, None], self._smooth(rows, readings), rows["smooth"])

"""One signal explained by others: power from wind speed, coolant temperature from load; the smoothed residual judged.

The curve is a least-squares fit on a piecewise linear basis of each driver (hinges at its quantiles), frozen after
training. A reading whose drivers lie outside of what training saw is a regime the model does not know: it says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from anomaly import fit
from anomaly.base import Detector, Readings, Verdict, columns
from anomaly.types import Bools, Floats, Rows

MARGIN = 0.02
"""Share of a driver's trained range by which it may leave that range and still be known."""


@dataclass(frozen=True)
class Residual(Detector):
    """Column 0 is explained, the others explain; the score is the smoothed residual in healthy spreads."""

    name: ClassVar[str] = "residual"
    layer: ClassVar[str] = "c"
    knots: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    spread: float
    threshold: float
    alpha: float = 0.05

    @classmethod
    def trained(cls, healthy: Floats, hinges: int = 8, alpha: float = 0.05, margin: float = 2.0) -> Self:
        """``healthy`` has the explained signal first; the threshold is ``margin`` times its largest healthy score."""
        fit.scale(healthy)
        knots = np.quantile(healthy[:, 1:], np.linspace(0, 1, hinges), axis=0).T
        basis = _basis(healthy[:, 1:], knots)
        ridge = 1e-6 * np.trace(basis.T @ basis) / basis.shape[1] * np.eye(basis.shape[1])
        weights = np.linalg.solve(basis.T @ basis + ridge, basis.T @ healthy[:, 0])
        left = healthy[:, 0] - basis @ weights
        spread = max(float(fit.smoothed(left[:, None], alpha).std()), 1e-9)
        largest = float(np.abs(fit.smoothed(left[:, None], alpha)).max()) / spread
        return cls(fit.frozen(knots), tuple(weights.tolist()), spread, margin * largest, alpha)

    @classmethod
    def example(cls) -> Self:
        """Power in kW of a small turbine over wind speed in m/s."""
        rng = np.random.default_rng(9)
        wind = rng.uniform(3, 20, 600)
        power = np.clip(2.0 * wind**3, 0, 2000) + rng.normal(0, 30, 600)
        return cls.trained(np.stack([power, wind], axis=1))

    @property
    def channels(self) -> int:
        return 1 + len(self.knots)

    @cached_property
    def _model(self) -> tuple[Floats, Floats]:
        return np.asarray(self.knots), np.asarray(self.weights)

    def row(self) -> Rows:
        return np.zeros(1, dtype=[("smooth", "<f8")])

    def _left(self, readings: Readings) -> tuple[Floats, Floats, Bools]:
        knots, weights = self._model
        drivers = readings.values[:, 1:]
        room = MARGIN * (knots[:, -1] - knots[:, 0])
        inside = ((drivers >= knots[:, 0] - room) & (drivers <= knots[:, -1] + room)).all(axis=1)
        known = inside & np.isfinite(readings.values[:, 0]) & (readings.regime >= 0)
        expected = _basis(np.where(known[:, None], drivers, knots[:, 0]), knots) @ weights
        return np.where(known, readings.values[:, 0] - expected, 0.0), expected, known

    def judge(self, rows: Rows, readings: Readings) -> Verdict:
        left, expected, known = self._left(readings)
        smooth = rows["smooth"] + self.alpha * (left - rows["smooth"])
        band = self.threshold * self.spread
        return columns(np.abs(smooth) / self.spread, self.threshold, known, low=expected - band, high=expected + band)

    def learn(self, rows: Rows, readings: Readings, verdict: Verdict) -> None:
        left, _, known = self._left(readings)
        rows["smooth"] = np.where(known, rows["smooth"] + self.alpha * (left - rows["smooth"]), rows["smooth"])


def _basis(drivers: Floats, knots: Floats) -> Floats:
    hinges = [np.maximum(drivers[:, [i]] - knots[i, :-1], 0.0) for i in range(drivers.shape[1])]
    return np.hstack([np.ones((len(drivers), 1)), *hinges])

"""What a model is given against what it was trained on: the population stability index of each of its inputs.

Beside every live model one of these looks at the same rows. Shares of the inputs in the deciles of the training are
kept per device and fade slowly, beginning as they were in training; the score is the largest index of any input. It
speaks of the model, not of the machine: where it alarms, the model judges a world that it has not seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from anomaly.base import Detector, Readings, Verdict, columns
from anomaly.types import Bools, Floats, Ints, Rows

BINS = 10
LEAST_SHARE = 1e-3
"""Smaller shares are not told apart, or a single reading in a bin that was never met would decide."""
UNSTEADY = 0.25
"""The usual reading of the index: below 0.1 steady, above 0.25 another population."""


@dataclass(frozen=True)
class InputDrift(Detector):
    """``edges``: per input the 9 inner edges of its bins; ``shares``: per input the 10 shares of the training rows.

    ``memory`` is in rows: after so many the old shares have faded to a third.
    """

    name: ClassVar[str] = "input_drift"
    layer: ClassVar[str] = "c"
    edges: tuple[tuple[float, ...], ...]
    shares: tuple[tuple[float, ...], ...]
    memory: float = 86_400.0
    threshold: float = UNSTEADY

    @classmethod
    def of(cls, rows: Floats, memory: float, threshold: float = UNSTEADY) -> Self:
        """From training rows (rows x inputs)."""
        edges = np.quantile(rows, np.linspace(0, 1, BINS + 1)[1:-1], axis=0).T
        shares = np.stack([_counts(edge, column) for edge, column in zip(edges, rows.T, strict=True)]) / len(rows)
        return cls(tuple(map(tuple, edges.tolist())), tuple(map(tuple, shares.tolist())), memory, threshold)

    @classmethod
    def example(cls) -> Self:
        return cls.of(np.random.default_rng(11).normal(size=(500, 3)), memory=200.0)

    @property
    def channels(self) -> int:
        return len(self.edges)

    @cached_property
    def _model(self) -> tuple[Floats, Floats]:
        return np.asarray(self.edges), np.maximum(np.asarray(self.shares), LEAST_SHARE)

    def row(self) -> Rows:
        row = np.zeros(1, dtype=[("shares", "<f4", (self.channels, BINS))])
        row["shares"] = np.asarray(self.shares)
        return row

    def index(self, rows: Floats) -> float:
        """The largest index of any input over given rows, as one population."""
        edges, was = self._model
        now = np.stack([_counts(edge, column) for edge, column in zip(edges, rows.T, strict=True)]) / max(len(rows), 1)
        return float(_index(now, was).max())

    def _known(self, readings: Readings) -> Bools:
        return np.asarray(np.isfinite(readings.values).any(axis=1) & (readings.regime >= 0))

    def judge(self, rows: Rows, readings: Readings) -> Verdict:
        edges, was = self._model
        each = _index(rows["shares"].astype(np.float64), was)
        channel = each.argmax(axis=1)
        low, high = edges[channel, 0], edges[channel, -1]
        return columns(each.max(axis=1), self.threshold, self._known(readings), channel=channel, low=low, high=high)

    def learn(self, rows: Rows, readings: Readings, verdict: Verdict) -> None:
        edges, _ = self._model
        for channel in range(self.channels):
            value = readings.values[:, channel]
            counted = verdict.known & np.isfinite(value)
            fell = np.zeros((len(readings), BINS))
            fell[np.arange(len(readings)), _bins(edges[channel], np.where(counted, value, 0.0))] = 1.0
            shares = rows["shares"][:, channel]
            rows["shares"][:, channel] = np.where(counted[:, None], shares + (fell - shares) / self.memory, shares)


def _bins(edges: Floats, values: Floats) -> Ints:
    return np.asarray(np.searchsorted(edges, values, side="right"), np.int64)


def _counts(edges: Floats, values: Floats) -> Floats:
    return np.bincount(_bins(edges, values), minlength=BINS).astype(np.float64)


def _index(now: Floats, was: Floats) -> Floats:
    """Per input; the last axis is the bins."""
    now = np.maximum(now, LEAST_SHARE)
    return np.asarray(((now - was) * np.log(now / was)).sum(axis=-1))

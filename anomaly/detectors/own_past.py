"""One series against its own past: level, hour of working day or weekend, and restlessness.

Three distances are taken from every reading: from a slow mean, from the mean of this hour on working days or on
weekends (shrunk to the slow mean while the hour is young), and of the fast mean step from the slow mean step (on a
logarithm). Each is turned into its rarity on this very series (``anomaly.tail``),
so that one threshold, a probability, fits every series. The largest rarity is the score, and it is told once: while
an excursion lasts, only what tops a fading memory of what was already told is told again.

State: 0.9 KB a series. Needs event times that follow the machine's day within a constant shift.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from anomaly import tail
from anomaly.base import Detector, Readings, Verdict, columns
from anomaly.types import Floats, Ints, Rows

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
FEATURES = 3
EPOCH_WEEKDAY = 3
"""1 January 1970 was a Thursday; Monday is 0, so 5 and 6 are the weekend."""


@dataclass(frozen=True)
class OwnPast(Detector):
    """``threshold`` is -log10 of the probability at which a reading is told; the rates are per reading."""

    name: ClassVar[str] = "own_past"
    layer: ClassVar[str] = "b"
    threshold: float = 3.0
    slow: float = 0.003
    level: float = 0.01
    fast: float = 1 / 12
    hour_rate: float = 0.02
    hour_prior: float = 4.0
    warm: int = 30
    memory: float = 70.0
    memory_share: float = 0.05

    @classmethod
    def example(cls) -> Self:
        return cls()

    @property
    def channels(self) -> int:
        return 1

    def row(self) -> Rows:
        return np.zeros(
            1,
            dtype=[
                ("n", "<u4"), ("slow", "<f8"), ("level", "<f8"), ("variance", "<f8"), ("last", "<f8"),
                ("step_fast", "<f8"), ("step_slow", "<f8"), ("told", "<f8"), ("unit", "<f8", (FEATURES,)),
                ("kind", "<f4", (48,)), ("seen", "<u2", (48,)),
                ("counts", "<u2", (FEATURES, tail.BINS)),
            ],
        )  # fmt: skip

    def _slot(self, at_ms: Ints) -> Ints:
        hour = at_ms // HOUR_MS % 24
        weekend = ((at_ms // DAY_MS + EPOCH_WEEKDAY) % 7 >= 5).astype(np.int64)
        return np.asarray(hour + 24 * weekend)

    def _expected(self, rows: Rows, at_ms: Ints) -> Floats:
        """Mean of this hour on this kind of day, shrunk to the slow mean."""
        kind, each = self._slot(at_ms), np.arange(len(rows))
        seen = rows["seen"][each, kind].astype(np.float64)
        weight = seen / (seen + self.hour_prior)
        return np.asarray(weight * rows["kind"][each, kind] + (1 - weight) * rows["slow"])

    def _steps(self, rows: Rows, value: Floats) -> Floats:
        step = np.where(rows["n"] > 0, np.abs(value - rows["last"]), 0.0)
        rate = np.maximum(self.fast, 1.0 / (rows["n"] + 1.0))
        return np.asarray(rows["step_fast"] + rate * (step - rows["step_fast"]))

    def _features(self, rows: Rows, readings: Readings) -> Floats:
        value = readings.values[:, 0]
        floor = 1e-3 * np.sqrt(rows["variance"]) + 1e-9
        restless = np.log(self._steps(rows, value) + floor) - np.log(rows["step_slow"] + floor)
        far = np.stack([value - self._expected(rows, readings.at_ms), restless, value - rows["level"]], axis=1)
        return np.where((rows["n"] > 0)[:, None], np.abs(far), 0.0)

    def _faded(self, rows: Rows) -> Floats:
        half_life = np.maximum(self.memory, self.memory_share * rows["n"])
        return np.asarray(rows["told"] * 0.5 ** (1.0 / half_life))

    def judge(self, rows: Rows, readings: Readings) -> Verdict:
        value = readings.values[:, 0]
        known = np.isfinite(value) & (readings.regime >= 0)
        features = self._features(rows, readings)
        rare = tail.rarity(rows["counts"], rows["unit"], features)
        ready = rows["n"] >= 2 * self.warm
        score = np.where(ready & known, rare.max(axis=1), 0.0)
        score = np.where(score > self._faded(rows), score, 0.0)
        by_kind = self._expected(rows, readings.at_ms)
        width = np.sqrt(rows["variance"])
        return columns(score, self.threshold, known, low=by_kind - 3 * width, high=by_kind + 3 * width)

    def learn(self, rows: Rows, readings: Readings, verdict: Verdict) -> None:
        use = np.flatnonzero(verdict.known)
        mine, value = rows[use], readings.values[use, 0]
        features = self._features(mine, readings.take(use))
        n = mine["n"].astype(np.float64)
        warm = (n < self.warm)[:, None]
        mine["unit"] = np.where(warm, mine["unit"] + (features - mine["unit"]) / (n + 1.0)[:, None], mine["unit"])
        tail.count(mine["counts"], mine["unit"], features, np.broadcast_to(~warm, features.shape))
        mine["told"] = np.maximum(self._faded(mine), verdict.score[use])
        mine["step_fast"] = self._steps(mine, value)
        step = np.where(n > 0, np.abs(value - mine["last"]), 0.0)
        slow = np.maximum(self.slow, 1.0 / (n + 1.0))
        mine["step_slow"] += slow * (step - mine["step_slow"])
        self._learn_means(mine, readings.at_ms[use], value, slow)
        mine["last"] = value
        mine["n"] += 1
        rows[use] = mine

    def _learn_means(self, mine: Rows, at_ms: Ints, value: Floats, slow: Floats) -> None:
        kind, each = self._slot(at_ms), np.arange(len(mine))
        seen = mine["seen"][each, kind].astype(np.float64)
        mine["kind"][each, kind] += np.maximum(self.hour_rate, 1 / (seen + 1)) * (value - mine["kind"][each, kind])
        mine["seen"][each, kind] = np.minimum(seen + 1, 65_535)
        distance = value - mine["slow"]
        mine["slow"] += slow * distance
        mine["variance"] = (1 - slow) * (mine["variance"] + slow * distance**2)
        mine["level"] += np.maximum(self.level, 1.0 / (mine["n"] + 1.0)) * (value - mine["level"])

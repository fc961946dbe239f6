"""A unit against its peers: the one whose smoothed level leaves the consensus of its group at the same moment.

Every call holds one moment of a group (one wind farm, one model of car on one day's summary). The consensus is the
median, its width the median absolute deviation, so that a few faulty peers do not move it. Common causes (weather,
season) cancel. Fewer than ``quorum`` peers in a regime are no consensus: unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from anomaly.base import Detector, Readings, Verdict, columns
from anomaly.types import Floats, Ints, Rows

MAD_TO_SIGMA = 1.4826
"""Median absolute deviation of a normal distribution times this is its standard deviation."""


@dataclass(frozen=True)
class Peers(Detector):
    """The score is the largest smoothed deviation in widths of the group; ``floor`` is the least width per signal.

    Readings of one call with the same regime and the same time are one moment of one group.
    """

    name: ClassVar[str] = "peers"
    layer: ClassVar[str] = "d"
    floor: tuple[float, ...]
    threshold: float = 5.0
    alpha: float = 0.1
    quorum: int = 5

    @classmethod
    def example(cls) -> Self:
        return cls(floor=(0.5, 0.5))

    @property
    def channels(self) -> int:
        return len(self.floor)

    def row(self) -> Rows:
        return np.zeros(1, dtype=[("smooth", "<f8", (self.channels,))])

    def _moment(self, readings: Readings) -> tuple[Floats, Floats, Floats]:
        """Deviation in widths, consensus, and the number of peers, each per reading."""
        shape = readings.values.shape
        off, centre, peers = np.zeros(shape), np.full(shape, np.nan), np.zeros(len(readings))
        groups: Ints = np.unique(np.stack([readings.regime, readings.at_ms]), axis=1).T
        for regime, at_ms in groups:
            mine = np.flatnonzero((readings.regime == regime) & (readings.at_ms == at_ms))
            value = readings.values[mine]
            peers[mine] = np.isfinite(value).all(axis=1).sum()
            if regime < 0 or peers[mine[0]] < self.quorum:
                continue
            middle = np.nanmedian(value, axis=0)
            width = np.maximum(MAD_TO_SIGMA * np.nanmedian(np.abs(value - middle), axis=0), np.asarray(self.floor))
            off[mine], centre[mine] = np.nan_to_num((value - middle) / width), middle
        return off, centre, peers

    def judge(self, rows: Rows, readings: Readings) -> Verdict:
        off, centre, peers = self._moment(readings)
        smooth = rows["smooth"] + self.alpha * (off - rows["smooth"])
        channel = np.abs(smooth).argmax(axis=1)
        known = (peers >= self.quorum) & (readings.regime >= 0) & np.isfinite(readings.values).all(axis=1)
        expected = centre[np.arange(len(rows)), channel]
        return columns(np.abs(smooth).max(axis=1), self.threshold, known, channel=channel, low=expected, high=expected)

    def learn(self, rows: Rows, readings: Readings, verdict: Verdict) -> None:
        off, _, _ = self._moment(readings)
        smooth = rows["smooth"] + self.alpha * (off - rows["smooth"])
        rows["smooth"] = np.where(verdict.known[:, None], smooth, rows["smooth"])

"""A model tried on rows that it was not trained on: false alarms on healthy ones, delay of injected faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from anomaly import excursions
from anomaly.base import Readings
from anomaly.deployment import Deployment
from anomaly.metrics import poisson_upper
from anomaly.models.recipe import Injected
from anomaly.models.rows import hours_of
from anomaly.moments import NEVER
from anomaly.types import Bools, Ints, Rows

HOURS_A_MONTH: Final = 730.5
LEAST_ROWS: Final = 240
"""A series with fewer rows is no place to put a fault into."""


@dataclass(frozen=True, slots=True)
class FaultScore:
    """How often one injected fault was found, and how long after it began (median, NULL when never)."""

    name: str
    tried: int
    found: int
    median_delay_s: float | None


@dataclass(frozen=True, slots=True)
class Score:
    """``hours`` of healthy rows that the model knew how to judge; ``false_alarms`` are calls within them."""

    hours: float
    false_alarms: int
    faults: tuple[FaultScore, ...]

    @property
    def per_device_month(self) -> float | None:
        return self.false_alarms / self.hours * HOURS_A_MONTH if self.hours else None

    @property
    def per_device_month_upper(self) -> float | None:
        """95 % upper bound: a few quiet hours prove little."""
        return poisson_upper(self.false_alarms, self.hours) * HOURS_A_MONTH if self.hours else None


@dataclass(frozen=True, slots=True)
class Tried:
    """One device's part; ``delays_s``: per fault None where it was not tried, infinity where it was not found."""

    hours: float
    false_alarms: int
    delays_s: tuple[float | None, ...]


def tellings(deployment: Deployment, readings: Readings) -> tuple[Rows, Bools]:
    """Everything that is said of rows (``rows.rows_of``), as the stream would say it; which rows were known."""
    devices = int(readings.device.max()) + 1 if len(readings) else 0
    detector = deployment.detector
    _, verdict = detector.run(detector.start(devices), readings)
    lost = np.full(len(readings), NEVER, np.int64)
    _, told = excursions.follow(deployment, excursions.fresh(deployment, devices), readings, verdict, lost)
    return told, verdict.known


def try_out(deployment: Deployment, faults: Sequence[Injected], readings: Readings) -> Tried:
    """Each fault begins in the middle of the longest series."""
    said, known = tellings(deployment, readings)
    hours = hours_of(readings.take(np.flatnonzero(known)))
    told = Tried(hours, len(_opened(said)), (None,) * len(faults))
    if not len(readings):
        return told
    counts = np.bincount(readings.device)
    longest = int(counts.argmax())
    if counts[longest] < LEAST_ROWS:
        return told
    chosen = readings.take(np.flatnonzero(readings.device == longest))
    begin_ms = int(chosen.at_ms[len(chosen) // 2])
    alone = set(_opened(tellings(deployment, _alone(chosen))[0]).tolist())
    delays = tuple(_delay_s(deployment, fault, chosen, begin_ms, alone) for fault in faults)
    return Tried(told.hours, told.false_alarms, delays)


def joined(faults: Sequence[Injected], parts: Sequence[Tried]) -> Score:
    """All devices together; hours are rounded to the second, so that order does not show."""
    scores = []
    for at, fault in enumerate(faults):
        delays = [delay for part in parts if (delay := part.delays_s[at]) is not None]
        found = sorted(delay for delay in delays if np.isfinite(delay))
        scores.append(FaultScore(fault.name, len(delays), len(found), float(np.median(found)) if found else None))
    hours = sum(round(part.hours * 3_600) for part in parts) / 3_600
    return Score(hours, sum(part.false_alarms for part in parts), tuple(scores))


def _alone(readings: Readings) -> Readings:
    return Readings(np.zeros(len(readings), np.int64), readings.at_ms, readings.values, readings.regime)


def _opened(told: Rows) -> Ints:
    """Event times at which a person is called."""
    return np.asarray(np.sort(told["at_ms"][told["revision"] == 1]))


def _delay_s(deployment: Deployment, fault: Injected, readings: Readings, begin_ms: int, plain: set[int]) -> float:
    since_s = (readings.at_ms - begin_ms) / 1_000
    broken = Readings(
        np.zeros(len(readings), np.int64), readings.at_ms, fault.into(readings.values, since_s), readings.regime
    )
    after = [at for at in _opened(tellings(deployment, broken)[0]).tolist() if at >= begin_ms and at not in plain]
    return (after[0] - begin_ms) / 1_000 if after else float("inf")

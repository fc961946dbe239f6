"""Readings of a device to the rows that a detector judges, by the same steps as the stream (``anomaly.shard``)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anomaly.base import Readings
from anomaly.deployment import Regime
from anomaly.moments import SERIES, arrive, cells, held, moments
from anomaly.types import Floats, Ints, Rows

GAP_MS = 60_000
"""Rows further apart than this do not belong to one stretch."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides how readings become rows; the fields are those of a deployment."""

    signals: tuple[int, ...]
    channels: int
    awaits: tuple[int, ...]
    hold_ms: int
    regime: Regime


def rows_of(shape: Shape, samples: Rows, wait_ms: int) -> Readings:
    """Rows of whole series (``moments.SAMPLE``, log order per series), ordered by series and time.

    ``Readings.device`` is the place of the series, by the order in which they were first seen.
    """
    samples = samples[np.isin(samples["signal"], shape.signals)]
    arrived = arrive(np.zeros(0, SERIES), samples, wait_ms)
    chosen, place = cells(arrived.accepted, arrived.place)
    found = moments(chosen, place, shape.signals)
    series, columns = len(arrived.series), len(shape.signals)
    values, _, _ = held(found, np.full((series, columns), np.nan), np.zeros((series, columns), np.int64), shape.hold_ms)
    awaited = np.asarray(np.isfinite(found.values[:, list(shape.awaits)]).any(axis=1))
    regime = shape.regime.of(values)[awaited]
    kept = found.take(awaited)
    return Readings(kept.place, kept.at_ms, values[awaited][:, : shape.channels], regime)


def within(readings: Readings, first_ms: int, until_ms: int, left_out: Ints) -> Readings:
    """Rows from ``first_ms`` on and before ``until_ms`` that lie in none of the spans ``left_out`` (n x 2, ms)."""
    at = readings.at_ms
    kept = (at >= first_ms) & (at < until_ms)
    for begin, end in left_out.reshape(-1, 2):
        kept &= (at < begin) | (at > end)
    return readings.take(np.flatnonzero(kept))


def healthy(readings: Readings) -> Readings:
    """Rows of known regimes in which every channel was measured."""
    whole = np.isfinite(readings.values).all(axis=1) & (readings.regime >= 0)
    return readings.take(np.flatnonzero(whole))


def stretches(readings: Readings, longest: int) -> list[Ints]:
    """Row numbers of runs without gaps, each of one series and at most ``longest`` rows."""
    if not len(readings):
        return []
    breaks = (np.diff(readings.at_ms) > GAP_MS) | (np.diff(readings.device) != 0)
    runs = np.split(np.arange(len(readings)), np.flatnonzero(breaks) + 1)
    return [part for run in runs for part in np.split(run, range(longest, len(run), longest))]


def hours_of(readings: Readings) -> float:
    """Time that rows cover, gaps left out."""
    step = np.diff(readings.at_ms)
    inside = (step > 0) & (step <= GAP_MS) & (np.diff(readings.device) == 0)
    return float(step[inside].sum()) / 3_600_000


def matrix(data: bytes, columns: int) -> Floats:
    """Rows from their bytes (float64)."""
    return np.frombuffer(data, np.float64).reshape(-1, columns)

"""From sensor rows of units to features: EWMA state, standardised per operating regime; one pass, small state.

Regimes are the distinct operating points of the training settings (clusters of the settings). The state of a unit
is the same whether its cycles come one by one or all at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from anomaly.types import Bools, Floats, Ints

SPANS = (10.0, 30.0, 60.0)
"""Spans in cycles of the three means; alpha = 2 / (span + 1)."""
INDEX_SPANS = (4.0, 10.0, 20.0, 40.0, 100.0)
BASELINE_CYCLES = 20
"""The first cycles of a unit say how it was made: its own offset, shrunk while they are few."""
MAX_REGIMES = 12
REGIME_WIDTH = 0.15
"""Settings closer than this share of the settings' spread are one operating regime."""
CONSTANT = 1e-6


@dataclass(frozen=True, slots=True)
class Cycles:
    """Rows of many units, each unit's cycles together and rising."""

    unit: Ints
    cycle: Ints
    settings: Floats
    sensors: Floats


@dataclass(frozen=True)
class Standard:
    """What healthy and failing training rows look like in each regime; frozen after ``learnt``."""

    setting_scale: Floats
    centres: Floats
    mean: Floats
    spread: Floats
    kept: Ints

    @classmethod
    def learnt(cls, cycles: Cycles) -> Standard:
        scale = np.maximum(cycles.settings.std(axis=0), 1e-9)
        steady = cycles.settings.std(axis=0) < 0.01 * np.abs(cycles.settings).max(axis=0) + 0.01
        scale = np.where(steady, np.inf, scale)
        points = cycles.settings / scale
        centres = _centres(points)
        regime = _nearest(points, centres)
        mean = np.stack([cycles.sensors[regime == number].mean(axis=0) for number in range(len(centres))])
        spread = np.stack([cycles.sensors[regime == number].std(axis=0) for number in range(len(centres))])
        kept = np.flatnonzero(spread.max(axis=0) > CONSTANT)
        return cls(scale, centres, mean[:, kept], np.where(spread > CONSTANT, spread, 1.0)[:, kept], kept)

    def of(self, cycles: Cycles) -> Floats:
        regime = _nearest(cycles.settings / self.setting_scale, self.centres)
        return np.asarray((cycles.sensors[:, self.kept] - self.mean[regime]) / self.spread[regime])


def features(cycles: Cycles, standard: Standard) -> dict[str, Floats]:
    """Named blocks of columns, a row for each cycle."""
    z = standard.of(cycles)
    begins = begins_of(cycles.unit)
    short, middle, long = (smooth(z, begins, span) for span in SPANS)
    restless = np.sqrt(smooth((z - short) ** 2, begins, SPANS[1]))
    nth = _nth(begins)
    early = np.minimum(nth, BASELINE_CYCLES).astype(np.float64)[:, None]
    origin = _baseline(z, begins)
    shrunk = origin * early / (early + BASELINE_CYCLES)
    return {
        "z": z, "short": short, "middle": middle, "trend": short - long, "restless": restless,
        "short_off": short - origin, "middle_off": middle - origin, "short_shrunk": short - shrunk,
        "middle_shrunk": middle - shrunk, "cycle": cycles.cycle[:, None].astype(np.float64),
    }  # fmt: skip


def smooth(values: Floats, begins: Bools, span: float) -> Floats:
    """Bias-corrected EWMA down the rows that starts anew with each unit; span in cycles."""
    alpha, out = 2.0 / (span + 1.0), np.empty_like(values)
    total, weight = np.zeros((int(begins.sum()), values.shape[1])), 0.0
    for rows in side_by_side(begins):
        now = total[: len(rows)]
        now += alpha * (values[rows] - now)
        weight += alpha * (1.0 - weight)
        out[rows] = now / weight
    return out


def side_by_side(begins: Bools) -> Iterator[Ints]:
    """First the rows of the first cycle of all units, then of the second, and so on; the longest unit comes first.

    A unit keeps its place, so a recursion over cycles runs over all units at once.
    """
    starts = np.flatnonzero(begins)
    lengths = np.diff(np.append(starts, len(begins)))
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    for nth in range(int(lengths.max(initial=0))):
        yield starts[: int(np.searchsorted(-lengths, -nth, side="left"))] + nth


def begins_of(unit: Ints) -> Bools:
    """Where a unit's rows begin."""
    return np.append(True, unit[1:] != unit[:-1])


def index_columns(z: Floats, weights: Floats, begins: Bools) -> Floats:
    """One weighted sum of the standardised sensors, which says how worn a unit is, as levels, slopes and an offset."""
    raw = (z @ weights[:-1] + weights[-1])[:, None]
    levels = [smooth(raw, begins, span) for span in INDEX_SPANS]
    ahead = [
        2.0 * level - smooth(level, begins, span) for level, span in zip(levels[1:3], INDEX_SPANS[1:3], strict=True)
    ]
    slopes = [levels[at] - levels[at + 2] for at in range(3)]
    origin = _baseline(raw, begins)
    return np.hstack([*levels, *ahead, *slopes, origin, levels[1] - origin])


def _nth(begins: Bools) -> Ints:
    """1 for the first row of a unit, 2 for the next."""
    starts = np.flatnonzero(begins)
    return np.asarray(np.arange(len(begins)) - np.repeat(starts, np.diff(np.append(starts, len(begins)))) + 1)


def _baseline(z: Floats, begins: Bools) -> Floats:
    out, mean = np.empty_like(z), np.zeros((int(begins.sum()), z.shape[1]))
    for nth, rows in enumerate(side_by_side(begins), start=1):
        now = mean[: len(rows)]
        if nth <= BASELINE_CYCLES:
            now += (z[rows] - now) / nth
        out[rows] = now
    return out


def _centres(points: Floats) -> Floats:
    """Leader clustering: a point farther than REGIME_WIDTH from all centres founds one, at most MAX_REGIMES."""
    found = [points[0]]
    for point in points:
        away = min(float(np.abs(point - centre).max()) for centre in found)
        if away > REGIME_WIDTH and len(found) < MAX_REGIMES:
            found.append(point)
    nearest = _nearest(points, np.stack(found))
    return np.stack([points[nearest == number].mean(axis=0) for number in range(len(found))])


def _nearest(points: Floats, centres: Floats) -> Ints:
    distance = ((points[:, None, :] - centres[None]) ** 2).sum(axis=2)
    return np.asarray(distance.argmin(axis=1), dtype=np.int64)

"""How rare is a value on this device? Tails of a device's own past, in a few bytes.

Two forms. ``histogram`` keeps counts in bins of equal ratio and extrapolates above the 90 % point with an
exponential tail: cheap, for several features a device. ``gpd`` fits the generalised Pareto distribution to a bounded
buffer of excesses, as in peaks over threshold (Siffer and others 2017, "Anomaly detection in streams with extreme
value theory"; profile likelihood after Grimshaw 1993): for alarm thresholds at a stated risk.
"""

from __future__ import annotations

import numpy as np

from anomaly.types import Bools, Floats, Ints, Rows

BINS = 96
BINS_PER_OCTAVE = 5
CENTRE_BIN = 48
"""The bin of the unit itself: bins reach from unit / 776 to unit * 776."""
TAIL_SHARE = 0.1
HALVE_AT = 60_000
"""Counts are 16 bit; halving them all at this total makes the far past fade."""
LEAST_EXCESS = 1e-3
"""A mean excess is at least this share of the unit, or the first movement of a still series would be a miracle."""
RAREST = 30.0
"""-log10 beyond which rarities are not told apart: no past is long enough to know."""
MIN_EXCESSES = 12
"""Fewer excesses than this fit an exponential (shape zero): its one parameter is their mean."""
_EDGES = 2.0 ** ((np.arange(BINS + 1) - CENTRE_BIN) / BINS_PER_OCTAVE)
_CENTRES = np.sqrt(_EDGES[1:] * _EDGES[:-1])
_SMALLEST = 1e-300


def bin_of(value: Floats, unit: Floats) -> Ints:
    """Bin numbers of values >= 0; what is below or above the range falls into the end bins."""
    ratio = np.maximum(value, _SMALLEST) / np.maximum(unit, _SMALLEST)
    raw = np.floor(np.log2(np.maximum(ratio, _SMALLEST)) * BINS_PER_OCTAVE) + CENTRE_BIN
    return np.asarray(np.clip(raw, 0, BINS - 1), dtype=np.int64)


def rarity(counts: Rows, unit: Floats, value: Floats) -> Floats:
    """-log10 of the probability of a value as large, by an exponential tail above the TAIL_SHARE point; 0 below it.

    Shapes (..., BINS), (...), (...). Where the tail starts and how long it is are read off the counts.
    """
    numbers = counts.astype(np.float64)
    at_least = np.cumsum(numbers[..., ::-1], -1)[..., ::-1]
    wanted = TAIL_SHARE * at_least[..., 0]
    first = np.maximum((at_least > wanted[..., None]).sum(-1) - 1, 0)
    here = np.take_along_axis(numbers, first[..., None], -1)[..., 0]
    above = np.take_along_axis(at_least, first[..., None], -1)[..., 0] - here
    inside = np.where(here > 0, (wanted - above) / np.maximum(here, 1.0), 0.0)
    lower = np.where(first > 0, _EDGES[first], 0.0)
    start = _EDGES[first + 1] - inside * (_EDGES[first + 1] - lower)
    beyond = np.maximum(_CENTRES - start[..., None], 0.0) * (np.arange(BINS) > first[..., None])
    in_first = 0.5 * (_EDGES[first + 1] - start) * inside * here
    mean = ((beyond * numbers).sum(-1) + in_first) / np.maximum(wanted, 1.0)
    scaled = value / np.maximum(unit, _SMALLEST)
    rare = -np.log10(TAIL_SHARE) + (scaled - start) / np.maximum(mean, LEAST_EXCESS) / np.log(10.0)
    return np.where(scaled > start, np.clip(rare, 0.0, RAREST), 0.0)


def count(counts: Rows, unit: Floats, value: Floats, counted: Bools) -> None:
    """Add values to their bins in place, where ``counted``; halve a histogram that is full.

    A value beyond the last bin becomes the new unit: the bins move down (a series that was constant while its unit
    was taken would otherwise call everything rare for ever).
    """
    for at in zip(*np.nonzero(counted & (value > unit * _EDGES[-1])), strict=True):
        _rescale(counts[at], float(value[at] / max(unit[at], _SMALLEST)))
        unit[at] = value[at]
    number = bin_of(value, unit)[..., None]
    full = counts.sum(-1, dtype=np.int64) >= HALVE_AT
    counts[full] //= 2
    now = np.take_along_axis(counts, number, -1)
    np.put_along_axis(counts, number, now + counted[..., None].astype(counts.dtype), -1)


def _rescale(counts: Rows, ratio: float) -> None:
    moved = min(BINS - 1, int(np.log2(ratio) * BINS_PER_OCTAVE))
    lowest = counts[: moved + 1].sum()
    counts[: BINS - moved] = counts[moved:].copy()
    counts[BINS - moved :] = 0
    counts[0] = lowest


def gpd(excesses: Floats, heaviest: float = 1.0) -> tuple[float, float]:
    """Shape and scale of the generalised Pareto distribution, by maximum profile likelihood over a grid.

    ``excesses`` are positive distances above the initial threshold; ``heaviest`` bounds the shape where theory does.
    """
    mean = float(excesses.mean())
    if len(excesses) < MIN_EXCESSES or mean <= 0:
        return 0.0, max(mean, _SMALLEST)
    largest = float(excesses.max())
    theta = np.concatenate([-np.geomspace(0.999, 0.01, 24) / largest, np.geomspace(0.01, 20.0, 40) / mean])
    shape = np.log1p(np.outer(theta, excesses)).mean(1)
    scale = shape / theta
    likelihood = np.where(shape <= heaviest, -np.log(scale) - 1.0 - shape, -np.inf)
    exponential = -np.log(mean) - 1.0
    best = int(np.argmax(likelihood))
    if likelihood[best] <= exponential or shape[best] < -0.5:
        return 0.0, mean
    return float(shape[best]), float(scale[best])


def gpd_level(shape: float, scale: float, start: float, share_above: float, risk: float) -> float:
    """The level exceeded with probability ``risk``; ``share_above`` of the past lies above ``start``."""
    ratio = risk / share_above
    if abs(shape) < 1e-6:
        return start - scale * float(np.log(ratio))
    return start + scale / shape * float(ratio**-shape - 1.0)

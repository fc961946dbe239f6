"""The Numenta Anomaly Benchmark's scoring (Lavin and Ahmad 2015, version 1.1), vectorised and our own.

The earliest detection in a window earns up to ``tp`` by its place in the window; a record above the threshold
outside of a window costs ``fp``, little just behind a window; a missed window costs ``fn``. The first 15 % of a
series (at most 750 records) are not scored. The benchmark's own rule picks one threshold per profile for the whole
corpus on the corpus' labels: the result says so by carrying that threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anomaly.types import Floats, Ints

PROBATION_SHARE = 0.15
PROBATION_RECORDS = 750
FAR_BEHIND = 3.0
"""Window widths behind a window after which a false alarm costs its full weight."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Weights of a hit, a false alarm and a missed window."""

    name: str
    tp: float
    fp: float
    fn: float


PROFILES = (
    Profile("standard", 1.0, 0.11, 1.0),
    Profile("reward_low_fp", 1.0, 0.22, 1.0),
    Profile("reward_low_fn", 1.0, 0.11, 2.0),
)


@dataclass(frozen=True, slots=True)
class Series:
    """One scored series; ``windows`` are inclusive pairs of row numbers in rising order."""

    name: str
    scores: Floats
    windows: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class NabScore:
    """Normalised score (100 perfect, 0 no detection at all) at the threshold."""

    score: float
    threshold: float


@dataclass(frozen=True, slots=True)
class _Rows:
    """What each scored row of a corpus is worth; ``window`` is -1 outside of windows."""

    scores: Floats
    worth: Floats
    window: Ints
    windows: int


def probation(rows: int) -> int:
    """Number of records at the start of a series that are not scored."""
    return min(int(PROBATION_SHARE * rows), PROBATION_RECORDS)


def scaled_sigmoid(position: Floats) -> Floats:
    """+1 far left of a window's right edge (0), -1 far right of it."""
    value = 2.0 / (1.0 + np.exp(5.0 * np.minimum(position, FAR_BEHIND))) - 1.0
    return np.where(position >= FAR_BEHIND, -1.0, value)


def unweighted(rows: int, windows: Sequence[tuple[int, int]]) -> tuple[Floats, Ints]:
    """Worth of an alarm at each row before weights, and the number of its window or -1."""
    worth = np.full(rows, -1.0)
    inside = np.full(rows, -1, dtype=np.int64)
    for number, (left, right) in enumerate(windows):
        width = right - left + 1
        here = np.arange(left, right + 1)
        worth[here] = scaled_sigmoid(-(right - here + 1) / width) / scaled_sigmoid(np.array(-1.0))
        inside[here] = number
        end = windows[number + 1][0] if number + 1 < len(windows) else rows
        behind = np.arange(right + 1, end)
        worth[behind] = scaled_sigmoid((behind - right) / max(1.0, width - 1.0))
    return worth, inside


def _rows(corpus: Sequence[Series], profile: Profile) -> _Rows:
    scores, worths, numbers, count = [], [], [], 0
    for series in corpus:
        worth, inside = unweighted(len(series.scores), series.windows)
        kept = slice(probation(len(series.scores)), None)
        scored, found = np.unique(inside[kept][inside[kept] >= 0], return_inverse=True)
        number = np.full(len(worth), -1, dtype=np.int64)[kept]
        number[inside[kept] >= 0] = found + count
        count += len(scored)
        scores.append(series.scores[kept])
        worths.append(np.where(inside[kept] >= 0, worth[kept] * profile.tp, worth[kept] * profile.fp))
        numbers.append(number)
    return _Rows(np.concatenate(scores), np.concatenate(worths), np.concatenate(numbers), count)


def best(corpus: Sequence[Series], profile: Profile) -> NabScore:
    """The benchmark's own rule: the one threshold that scores best on this corpus. Ties take the higher threshold."""
    rows = _rows(corpus, profile)
    order = np.argsort(-rows.scores, kind="stable")
    score, worth, window = rows.scores[order], rows.worth[order], rows.window[order]
    gain = np.where(window < 0, worth, 0.0)
    for number in range(rows.windows):
        mine = np.flatnonzero(window == number)
        reached = np.maximum.accumulate(np.maximum(worth[mine], -profile.fn))
        gain[mine] = np.diff(reached, prepend=-profile.fn)
    total = -profile.fn * rows.windows + np.cumsum(gain)
    last_of_equal = np.append(score[1:] != score[:-1], True) if len(score) else np.zeros(0, dtype=bool)
    candidates = np.flatnonzero(last_of_equal)
    none = -profile.fn * rows.windows
    if not len(candidates) or total[candidates].max() <= none:
        return NabScore(normalised(none, rows.windows, profile), float("inf"))
    at = candidates[int(np.argmax(total[candidates]))]
    return NabScore(normalised(float(total[at]), rows.windows, profile), float(score[at]))


def at_threshold(corpus: Sequence[Series], profile: Profile, threshold: float) -> float:
    """Normalised score of a corpus (or a part of it) when every record at or above ``threshold`` is an alarm."""
    rows = _rows(corpus, profile)
    alarms = rows.scores >= threshold
    total = float(rows.worth[alarms & (rows.window < 0)].sum())
    for number in range(rows.windows):
        hits = rows.worth[alarms & (rows.window == number)]
        total += float(hits.max()) if len(hits) else -profile.fn
    return normalised(total, rows.windows, profile)


def normalised(total: float, windows: int, profile: Profile) -> float:
    """0 for no detection at all, 100 for every window at its left edge and no false alarm; 0 without windows."""
    null, perfect = -profile.fn * windows, profile.tp * windows
    return 100.0 * (total - null) / (perfect - null) if windows else 0.0

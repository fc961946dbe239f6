"""Readings as they lie in the log, brought into the order of event time: late ones told apart, cells, moments.

A series is one lane of one device (live, backlog): it lies in one partition, so its order in the log is the same on
every replay. A reading is late when it lies more than the watermark's ``wait_ms`` behind the newest reading of the
packets before it in its series; that is a property of the log, not of how it was cut into batches. A cell is one
signal of one series in one second; of several readings the last one stands (equal times decided by ``epoch, seq,
pos``), so copies of a packet change nothing. A cell is complete when its series is ``wait_ms`` past it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anomaly.types import Bools, Floats, Ints, Rows

STEP_MS = 1_000
"""Width of a cell; detectors judge at most one moment of a device a second."""

SAMPLE = np.dtype(
    [
        ("device", "<i4"), ("lane", "u1"), ("signal", "<i2"), ("at_ms", "<i8"), ("epoch", "<i8"), ("seq", "<i8"),
        ("pos", "<i4"), ("value", "<f8"),
    ]
)  # fmt: skip
"""Readings in log order. ``lane``: 0 live, 1 backlog. Event times are 0 <= at_ms < 2**42."""

SERIES = np.dtype([("key", "<i8"), ("newest_ms", "<i8")])
"""What is known of a series: its key, and the event time of its newest reading."""

ASTRAY = np.dtype([("device", "<i4"), ("from_ms", "<i8"), ("to_ms", "<i8")])
"""What was judged out of order, or not at all: event times of a device, both inclusive."""

LANES = 2
NEVER = -(2**42)
_SPAN = 2**43
"""Distance between series in one sorted number line; event times and NEVER lie within half of it."""


@dataclass(frozen=True, slots=True)
class Late:
    """Readings that came too late: ``frontier_ms`` is how far their series was judged when they came."""

    series: Ints
    signal: Ints
    at_ms: Ints
    frontier_ms: Ints

    def __len__(self) -> int:
        return len(self.series)


@dataclass(frozen=True, slots=True)
class Arrived:
    """What one call found: the series as they stand now, accepted readings with their series' places, late ones."""

    series: Rows
    accepted: Rows
    place: Ints
    late: Late


def series_key(device: Rows, lane: Rows) -> Ints:
    return np.asarray(device.astype(np.int64) * LANES + lane)


def astray(device: Ints, from_ms: Ints, to_ms: Ints) -> Rows:
    """One row per device: all its spans together."""
    names, place = np.unique(device, return_inverse=True)
    rows = np.zeros(len(names), ASTRAY)
    rows["device"], rows["from_ms"], rows["to_ms"] = names, np.iinfo(np.int64).max, np.iinfo(np.int64).min
    np.minimum.at(rows["from_ms"], place, from_ms)
    np.maximum.at(rows["to_ms"], place, to_ms)
    return rows


def places(keys: Ints, wanted: Ints) -> tuple[Ints, Ints]:
    """``keys`` with new ones appended, and where each of ``wanted`` is in them."""
    order = np.argsort(keys, kind="stable")
    at = np.searchsorted(keys, wanted, sorter=order)
    found = np.minimum(at, max(0, len(keys) - 1))
    known = keys[order[found]] == wanted if len(keys) else np.zeros(len(wanted), np.bool_)
    if known.all():
        return keys, order[found] if len(keys) else at
    keys = np.concatenate([keys, np.unique(wanted[~known])])
    order = np.argsort(keys, kind="stable")
    return keys, order[np.searchsorted(keys, wanted, sorter=order)]


def arrive(series: Rows, samples: Rows, wait_ms: int) -> Arrived:
    """Take readings in: which series they belong to, which of them are late. ``series`` stays as it was."""
    keys, place = places(series["key"], series_key(samples["device"], samples["lane"]))
    after = np.full(len(keys), 0, SERIES)
    after["key"], after["newest_ms"] = keys, NEVER
    after["newest_ms"][: len(series)] = series["newest_ms"]
    order = np.argsort(place, kind="stable")
    samples, place = samples[order], place[order]
    if not len(samples):
        nothing = np.zeros(0, np.int64)
        return Arrived(after, samples, place, Late(nothing, nothing, nothing, nothing))
    starts = np.flatnonzero(_changes(place, samples["epoch"], samples["seq"]))
    of_packet = place[starts]
    newest, before = _running(np.maximum.reduceat(samples["at_ms"], starts), of_packet, after["newest_ms"])
    packet = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(samples))))
    frontier = before[packet] - wait_ms
    late = samples["at_ms"] < frontier
    last = np.flatnonzero(np.append(of_packet[1:] != of_packet[:-1], True))
    after["newest_ms"][of_packet[last]] = newest[last]
    told = Late(place[late], samples["signal"][late].astype(np.int64), samples["at_ms"][late], frontier[late])
    return Arrived(after, samples[~late], place[~late], told)


def _running(value: Ints, group: Ints, start: Ints) -> tuple[Ints, Ints]:
    """Largest value of each group up to and including each row, and before it; groups lie together, ascending."""
    first = np.append(True, group[1:] != group[:-1])
    seeded = np.where(first, np.maximum(value, start[group]), value)
    including = np.maximum.accumulate(seeded + group * _SPAN) - group * _SPAN
    return including, np.where(first, start[group], np.append(NEVER, including[:-1]))


def cells(samples: Rows, place: Ints) -> tuple[Rows, Ints]:
    """One reading per series, signal and second, ordered by series, signal and time."""
    lane = place * 2**16 + samples["signal"]
    order = np.lexsort((samples["at_ms"], lane))
    at, key = samples["at_ms"][order], lane[order]
    if len(at) > 1 and ((at[1:] == at[:-1]) & (key[1:] == key[:-1])).any():
        order = np.lexsort((samples["pos"], samples["seq"], samples["epoch"], samples["at_ms"], lane))
        at, key = samples["at_ms"][order], lane[order]
    ends = np.append(_changes(key, at // STEP_MS)[1:], True) if len(at) else np.zeros(0, np.bool_)
    chosen = order[ends]
    return samples[chosen], place[chosen]


@dataclass(frozen=True, slots=True)
class Moments:
    """Rows of one deployment, ordered by series and time: measured values (NaN: not in this second)."""

    place: Ints
    at_ms: Ints
    values: Floats

    def __len__(self) -> int:
        return len(self.place)

    def take(self, chosen: Bools) -> Moments:
        return Moments(self.place[chosen], self.at_ms[chosen], self.values[chosen])


def moments(ready: Rows, place: Ints, signals: tuple[int, ...]) -> Moments:
    """Complete cells of ``signals`` as rows; ``place`` is renumbered by nobody."""
    column = np.full(2**16, -1, np.int64)
    column[list(signals)] = np.arange(len(signals))
    at_column = column[ready["signal"]]
    mine = at_column >= 0
    ready, place, at_column = ready[mine], place[mine], at_column[mine]
    line, row = np.unique(place * _SPAN + ready["at_ms"] // STEP_MS, return_inverse=True)
    values = np.full((len(line), len(signals)), np.nan)
    values[row, at_column] = ready["value"]
    return Moments(line // _SPAN, line % _SPAN * STEP_MS, values)


def held(rows: Moments, last: Floats, last_ms: Ints, hold_ms: int) -> tuple[Floats, Floats, Ints]:
    """Values with gaps filled by the newest one within ``hold_ms``; also what is newest afterwards, and since when.

    ``last`` and ``last_ms`` (rows: places) are what was newest before; they stay as they were.
    """
    last, last_ms = last.copy(), last_ms.copy()
    if not len(rows):
        return rows.values, last, last_ms
    fresh = np.isfinite(rows.values)
    starts = np.append(True, rows.place[1:] != rows.place[:-1])
    begin = np.maximum.accumulate(np.where(starts, np.arange(len(rows)), 0))
    newest = np.maximum.accumulate(np.where(fresh, np.arange(len(rows))[:, None], -1), axis=0)
    here = newest >= begin[:, None]
    column = np.arange(rows.values.shape[1])
    value = np.where(here, rows.values[np.maximum(newest, 0), column], last[rows.place])
    since = np.where(here, rows.at_ms[np.maximum(newest, 0)], last_ms[rows.place])
    ends = np.append(starts[1:], True)
    last[rows.place[ends]], last_ms[rows.place[ends]] = value[ends], since[ends]
    young = rows.at_ms[:, None] - since <= hold_ms
    return np.where(fresh, rows.values, np.where(young, value, np.nan)), last, last_ms


def lost_until(rows: Moments, late: Late) -> Ints:
    """For each row the newest event time of late readings that came before its series was judged past it."""
    if not len(late):
        return np.full(len(rows), NEVER, np.int64)
    place = np.concatenate([late.series, rows.place])
    when = np.concatenate([late.frontier_ms, rows.at_ms + STEP_MS])
    judged = np.append(np.zeros(len(late), np.int8), np.ones(len(rows), np.int8))
    order = np.lexsort((-judged, when, place))  # a row that ends at the frontier was judged before the late one came
    value = np.concatenate([late.at_ms, np.full(len(rows), NEVER)])[order]
    newest, _ = _running(value, place[order], np.full(int(place.max()) + 1, NEVER, np.int64))
    back = np.empty(len(order), np.int64)
    back[order] = newest
    return back[len(late) :]


def _changes(*columns: Rows) -> Bools:
    result = np.ones(len(columns[0]), np.bool_)
    if len(result) > 1:
        result[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return result

"""Partial aggregates that merge, and latest values, pure.

Samples are sorted once by device, signal and the finest window; every width is then a run of that order. Sums are
exact integers, so neither order nor batching can change a result; first and last are decided by time, then boot
epoch, sequence number and position. Angles, positions and states are aggregated as plain numbers: their mean is the
mean of the numbers (a heading's is not a direction), their minimum, maximum, first and last are what they say.

Late: the packet's receive time exceeds the window's end plus the signal's grace. The set of receive minutes in
which that happened is kept per window; its size is the window's revision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from contracts.limits import WINDOW_WIDTHS_S
from contracts.packet import FIRST_BAD_QUALITY
from stream_jobs.arithmetic import Bools, Floats, Ints, Wide, sum_runs, sum_square_runs
from stream_jobs.heart import ranks
from stream_jobs.records import TOO_LATE, Packets, Samples
from stream_jobs.scales import Scales

MINUTE_MS = 60_000
_LAST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Edge:
    """First or last sample of each window."""

    units: Ints
    ms: Ints
    boot_epoch: Ints
    seq: Ints
    pos: Ints


@dataclass(frozen=True, slots=True)
class Windows:
    """Partial windows in key order (device, signal, width, start); ``late`` holds sorted receive minutes."""

    device_key: Ints
    signal: Ints
    width_s: Ints
    start_s: Ints
    tenant_id: Ints
    n: Ints
    total: Wide
    squares: Wide
    lowest: Ints
    highest: Ints
    first: Edge
    last: Edge
    late: dict[int, tuple[int, ...]]

    def __len__(self) -> int:
        return len(self.n)


@dataclass(frozen=True, slots=True)
class Latest:
    """Newest stored sample per device and signal, in key order."""

    device_key: Ints
    signal: Ints
    tenant_id: Ints
    measured_ms: Ints
    boot_epoch: Ints
    seq: Ints
    pos: Ints
    value: Floats
    quality: Ints
    received_ms: Ints


@dataclass(frozen=True, slots=True)
class Ordered:
    """Believed samples of a batch sorted by device, signal and finest bin; ``rank`` breaks ties of time."""

    packets: Packets
    samples: Samples
    rank: Ints
    series: Ints


def order_samples(packets: Packets, samples: Samples) -> Ordered:
    """Sort once. ``samples`` are believed ones; their packets are ``packets``."""
    bin_ms = gcd(*WINDOW_WIDTHS_S) * 1000
    _, device = np.unique(packets.device_key, return_inverse=True)
    series = device[samples.packet] * (int(samples.signal.max(initial=0)) + 1) + samples.signal
    bins = samples.event_ms // bin_ms
    low = int(bins.min()) if len(bins) else 0
    span = int(bins.max(initial=low)) - low + 1
    order = np.argsort(series * span + (bins - low), kind="stable")
    moved = samples.where(order)
    return Ordered(packets, moved, ranks(packets)[moved.packet], series[order])


def aggregate(ordered: Ordered, scales: Scales) -> Windows:
    """Reduce to partial windows of every width."""
    good = ordered.samples.quality < FIRST_BAD_QUALITY
    if not good.all():
        ordered = Ordered(ordered.packets, ordered.samples.where(good), ordered.rank[good], ordered.series[good])
    return _in_key_order([_reduce(ordered, scales, width) for width in WINDOW_WIDTHS_S])


def newest(ordered: Ordered, scales: Scales) -> Latest:
    """The newest sample of each series, bad ones included (their quality says so)."""
    samples, packets = ordered.samples, ordered.packets
    starts = _starts(ordered.series)
    at = _edge_index(ordered, starts, newest=True)
    packet = samples.packet[at]
    order = np.lexsort((samples.signal[at], packets.device_key[packet]))
    at, packet = at[order], packet[order]
    return Latest(
        packets.device_key[packet], scales.numbers[samples.signal[at]], packets.tenant_id[packet],
        samples.event_ms[at], packets.boot_epoch[packet], packets.seq[packet], samples.pos[at],
        samples.value[at], samples.quality[at], packets.received_ms[packet],
    )  # fmt: skip


def _reduce(ordered: Ordered, scales: Scales, width_s: int) -> Windows:
    samples, packets = ordered.samples, ordered.packets
    window = samples.event_ms // (width_s * 1000)
    starts = _starts(ordered.series, window)
    owner = samples.packet[starts]
    empty = not len(starts)
    units = samples.units
    counts = np.diff(np.append(starts, len(samples)))
    return Windows(
        packets.device_key[owner],
        scales.numbers[samples.signal[starts]],
        np.full(len(starts), width_s, np.int64),
        window[starts] * width_s,
        packets.tenant_id[owner],
        counts,
        Wide(units, units) if empty else sum_runs(units, starts),
        Wide(units, units) if empty else sum_square_runs(units, starts),
        units if empty else np.minimum.reduceat(units, starts),
        units if empty else np.maximum.reduceat(units, starts),
        _edge(ordered, starts, newest=False),
        _edge(ordered, starts, newest=True),
        _late(ordered, scales, window, width_s, counts),
    )


def _late(ordered: Ordered, scales: Scales, window: Ints, width_s: int, counts: Ints) -> dict[int, tuple[int, ...]]:
    """Receive minutes of late samples, by window index."""
    samples = ordered.samples
    received = ordered.packets.received_ms[samples.packet]
    late = received > (window + 1) * (width_s * 1000) + scales.grace_ms[samples.signal]
    if not late.any():
        return {}
    of_sample = np.repeat(np.arange(len(counts)), counts)
    pairs = np.unique(np.stack([of_sample[late], received[late] // MINUTE_MS]), axis=1)
    splits = np.flatnonzero(np.diff(pairs[0])) + 1
    return {int(part[0][0]): tuple(part[1].tolist()) for part in np.split(pairs, splits, axis=1)}


def _edge(ordered: Ordered, starts: Ints, newest: bool) -> Edge:
    samples, packets = ordered.samples, ordered.packets
    at = _edge_index(ordered, starts, newest)
    packet = samples.packet[at]
    return Edge(
        samples.units[at], samples.event_ms[at], packets.boot_epoch[packet], packets.seq[packet], samples.pos[at]
    )


def _edge_index(ordered: Ordered, starts: Ints, newest: bool) -> Ints:
    """Index of each run's first (or last) sample by (time, rank, position)."""
    if not len(starts):
        return starts
    samples = ordered.samples
    sign = -1 if newest else 1
    counts = np.diff(np.append(starts, len(samples)))
    open_ = np.ones(len(samples), np.bool_)
    for key in (samples.event_ms, ordered.rank, samples.pos):
        candidate = np.where(open_, key * sign, _LAST)
        best = np.repeat(np.minimum.reduceat(candidate, starts), counts)
        open_ &= candidate == best
        if np.count_nonzero(open_) == len(starts):
            break
    return np.flatnonzero(open_)


def _starts(*columns: Ints) -> Ints:
    """Where the runs of equal keys begin in a sorted table."""
    if not len(columns[0]):
        return np.zeros(0, np.int64)
    change = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return np.concatenate([np.zeros(1, np.int64), np.flatnonzero(change) + 1])


def _in_key_order(parts: list[Windows]) -> Windows:
    """All widths in one table, sorted by the store's key: the order in which rows are locked."""

    def joined(name: str) -> Ints:
        return np.concatenate([getattr(part, name) for part in parts])

    device, signal, width, start = (joined(name) for name in ("device_key", "signal", "width_s", "start_s"))
    order = np.lexsort((start, width, signal, device))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    shifts = np.cumsum([0, *(len(part) for part in parts)])
    late = {
        int(place[index + shift]): minutes
        for part, shift in zip(parts, shifts.tolist(), strict=False)
        for index, minutes in part.late.items()
    }

    def wide(name: str) -> Wide:
        return Wide(*(np.concatenate([getattr(part, name)[n] for part in parts])[order] for n in range(2)))

    def edge(name: str) -> Edge:
        columns = (
            np.concatenate([getattr(getattr(part, name), column) for part in parts])[order] for column in Edge.__slots__
        )
        return Edge(*columns)

    return Windows(
        device[order], signal[order], width[order], start[order], joined("tenant_id")[order], joined("n")[order],
        wide("total"), wide("squares"), joined("lowest")[order], joined("highest")[order],
        edge("first"), edge("last"), late,
    )  # fmt: skip


def beyond_final(packets: Packets, samples: Samples, scales: Scales, final_before_ms: int) -> Samples:
    """Disbelieve samples whose narrowest window is final already: what was called final never changes.

    The receive stamp refuses nearly all of them before; this holds also for a stamp that came an hour too old.
    """
    width_ms = min(WINDOW_WIDTHS_S) * 1000
    if not len(samples) or int(samples.event_ms.min()) + int(scales.lateness_ms.min()) >= final_before_ms:
        return samples
    final_at = (samples.event_ms // width_ms + 1) * width_ms + scales.lateness_ms[samples.signal]
    changed = (final_at <= final_before_ms) & (samples.belief == 0) & ~packets.recording[samples.packet]
    return replace(samples, belief=np.where(changed, TOO_LATE, samples.belief)) if changed.any() else samples


def good_counts(samples: Samples, packets: int) -> Ints:
    """Believed samples per packet."""
    believed: Bools = samples.belief == 0
    return np.bincount(samples.packet[believed], minlength=packets).astype(np.int64)

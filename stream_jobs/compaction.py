"""Packets of one device as blocks per signal and ten minutes: scaled integers, steps instead of times; pure.

A *run* keeps what survives of packets whose sequence numbers follow each other (identity, hash, times, counts). A
*block* keeps the readings of one signal from one run's packets, ordered by (time, sequence number, position).
Nothing is rounded: a value that is no multiple of its signal's resolution stays a double.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_jobs.arithmetic import EXACT_LIMIT, Bools, Floats, Ints, to_double
from stream_jobs.scales import Scales

SLOT_MS = 600_000
"""A run holds packets whose first readings lie in the same ten minutes."""

LONGEST_HOLE = 8
"""A run goes on over so many missing sequence numbers; each costs 32 bytes in it."""

STEP_LIMIT = 2**31 - 1
_SMALL = 2**15 - 1


@dataclass(frozen=True, slots=True)
class HotPackets:
    """Packets of one device as their rows say, one entry per packet; the last five lie together per packet.

    Times are Unix milliseconds, ``stored_us`` microseconds; ``sha256`` has 32 columns; ``qualities`` 0 is good.
    """

    device_key: int
    tenant_id: Ints
    boot_epoch: Ints
    seq: Ints
    received_ms: Ints
    first_ms: Ints
    last_ms: Ints
    stored_us: Ints
    believed: Ints
    lane: Ints
    clock_trusted: Bools
    sha256: NDArray[np.uint8]
    counts: Ints
    event_ms: Ints
    signals: Ints
    values: Floats
    qualities: Ints


@dataclass(frozen=True, slots=True)
class Run:
    """A row of ``packet_blocks``; arrays go from ``first_seq`` on, ``present`` says which numbers there are."""

    device_key: int
    boot_epoch: int
    first_seq: int
    tenant_id: int
    received_to_ms: int
    received_ms: int
    received_steps: Ints
    first_ms: int
    first_steps: Ints
    spans_ms: Ints
    stored_us: Ints
    samples: Ints
    lanes: Ints
    clock_trusted: Bools
    sha256s: bytes
    present: Bools


@dataclass(frozen=True, slots=True)
class Block:
    """A row of ``reading_blocks``. ``units`` (steps, or whole when ``whole``) where ``known``; else ``raw``."""

    device_key: int
    signal: int
    exponent: int
    tenant_id: int
    received_to_ms: int
    boot_epoch: int
    run_seq: int
    base_ms: int
    last_ms: int
    base_units: int | None
    base_seq: int
    steps: Ints
    units: Ints
    known: Bools
    whole: bool
    raw: Floats | None
    seq_steps: Ints
    pos_steps: Ints
    qualities: Ints | None

    def __len__(self) -> int:
        return len(self.steps)


def compact(hot: HotPackets, scales: Scales) -> tuple[list[Run], list[Block]]:
    """Everything the packets say, in another form; packets without readings have a run and no block."""
    if not len(hot.seq):
        return [], []
    order = np.lexsort((hot.seq, hot.first_ms // SLOT_MS, hot.boot_epoch, hot.tenant_id))
    starts = _run_starts(hot, order)
    runs = [_run(hot, piece) for piece in np.split(order, starts[1:])]
    run_of = np.empty(len(order), np.int64)
    run_of[order] = np.cumsum(np.isin(np.arange(len(order)), starts)) - 1
    return runs, list(_blocks(hot, runs, run_of, scales))


def _run_starts(hot: HotPackets, order: Ints) -> Ints:
    seq, received, first = hot.seq[order], hot.received_ms[order], hot.first_ms[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = np.diff(seq) > LONGEST_HOLE + 1
    for key in (hot.tenant_id, hot.boot_epoch, hot.first_ms // SLOT_MS):
        new[1:] |= np.diff(key[order]) != 0
    for times in (received, first):
        new[1:] |= np.abs(np.diff(times)) > STEP_LIMIT
    return np.flatnonzero(new)


def _run(hot: HotPackets, at: Ints) -> Run:
    place = hot.seq[at] - hot.seq[at[0]]
    size = int(place[-1]) + 1
    present = np.zeros(size, np.bool_)
    present[place] = True

    def spread(values: Ints) -> Ints:
        wide = np.zeros(size, np.int64)
        wide[place] = values
        return wide

    hashes = np.zeros((size, 32), np.uint8)
    hashes[place] = hot.sha256[at]
    return Run(
        hot.device_key, int(hot.boot_epoch[at[0]]), int(hot.seq[at[0]]), int(hot.tenant_id[at[0]]),
        int(hot.received_ms[at].max()), int(hot.received_ms[at[0]]), spread(_steps(hot.received_ms[at])),
        int(hot.first_ms[at[0]]), spread(_steps(hot.first_ms[at])), spread(hot.last_ms[at] - hot.first_ms[at]),
        spread(hot.stored_us[at] - 1000 * hot.received_ms[at]), spread(hot.believed[at]), spread(hot.lane[at]),
        spread(hot.clock_trusted[at].astype(np.int64)) > 0, hashes.tobytes(), present,
    )  # fmt: skip


def _blocks(hot: HotPackets, runs: Sequence[Run], run_of: Ints, scales: Scales) -> Iterator[Block]:
    packet = np.repeat(np.arange(len(hot.seq)), hot.counts)
    if not len(packet):
        return
    pos = np.arange(len(packet)) - np.repeat(np.cumsum(hot.counts) - hot.counts, hot.counts) + 1
    seq = hot.seq[packet]
    order = np.lexsort((pos, seq, hot.event_ms, hot.signals, run_of[packet]))
    packet, pos, seq = packet[order], pos[order], seq[order]
    event, signal, value, quality = hot.event_ms[order], hot.signals[order], hot.values[order], hot.qualities[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(run_of[packet]) != 0) | (np.diff(signal) != 0) | (np.diff(event) > STEP_LIMIT)
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], len(order))
    exponent, units, known, odd = _as_units(signal, value, scales)
    steps = _steps(event)
    seq_steps, pos_steps = _steps(seq), _steps(pos)
    judged = np.logical_or.reduceat(quality != 0, starts)
    odd_block = np.logical_or.reduceat(odd, starts)
    for at, (a, z) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        run = runs[int(run_of[packet[a]])]
        steps[a], seq_steps[a], pos_steps[a] = 0, 0, pos[a]
        base, shown, whole = _differences(units[a:z], known[a:z])
        yield Block(
            hot.device_key, int(signal[a]), int(exponent[a]), run.tenant_id,
            int(hot.received_ms[packet[a:z]].max()), run.boot_epoch, run.first_seq, int(event[a]), int(event[z - 1]),
            base, int(seq[a]), steps[a:z], shown, known[a:z], whole, value[a:z] if odd_block[at] else None,
            seq_steps[a:z], pos_steps[a:z], quality[a:z] if judged[at] else None,
        )  # fmt: skip


def _as_units(signal: Ints, value: Floats, scales: Scales) -> tuple[Ints, Ints, Bools, Bools]:
    """(exponent, units, a number at all, no multiple of the resolution)."""
    at, found = scales.find(signal)
    exponent = np.where(found, scales.exponents[at], 0)
    known = ~np.isnan(value)
    with np.errstate(over="ignore"):
        scaled = np.where(known, value, 0.0)
        scaled = np.where(exponent < 0, scaled * 10.0 ** np.abs(exponent), scaled / 10.0 ** np.abs(exponent))
    fits = np.abs(scaled) <= EXACT_LIMIT
    units = np.rint(np.where(fits, scaled, 0.0)).astype(np.int64)
    again = to_double(units, exponent)
    same = fits & (again == value) & (np.signbit(again) == np.signbit(value))
    return exponent, units, known, known & ~same


def _differences(units: Ints, known: Bools) -> tuple[int | None, Ints, bool]:
    """(first value, steps between values that are known, False), or the values themselves and True."""
    if not known.any():
        return None, np.zeros(len(units), np.int64), False
    steps = np.zeros(len(units), np.int64)
    steps[known] = _steps(units[known])
    if np.abs(steps).max() > STEP_LIMIT:
        return int(units[known][0]), units, True
    return int(units[known][0]), steps, False


def _steps(values: Ints) -> Ints:
    return np.diff(values, prepend=values[:1])


def narrow(steps: Ints) -> bool:
    """Whether two bytes are enough for each."""
    return not len(steps) or bool(np.abs(steps).max() <= _SMALL)

"""Readings into packet bodies: blocks of scaled integers, one packet per retention class. Pure.

A draft is a packet without an identity: its sequence number and lane are given in the commit that accepts it, so
what was never accepted never takes a number. A value becomes the nearest multiple of its signal's resolution; what
an integer cannot carry (NaN, infinities, absurd magnitudes) travels in a block of doubles.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from contracts.packet import Block, DoubleBlock, Gap, Header, Packet, Parcel, encode_packet, encode_parcel
from contracts.signals import Catalogue, Retention, Signal
from edge_agent.settings import PackingSettings
from edge_agent.sources.base import Reading

MAX_UNITS = 2**52
"""Above this a double no longer tells neighbouring integers apart once a base is subtracted."""
MAX_STAMP_MS = 2**53
"""Event times beyond the year 287,000 are no times; the wire's integers end at 2**63."""
MAX_OPEN = 16
"""Open packets at once; more event-time spans than this close everything (a source with mad stamps)."""
BYTES_PER_SAMPLE = 40
"""What a waiting sample costs in memory (three small integers in tuples), for the memory bound."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A packet's body, waiting to be accepted; times are Unix epoch milliseconds."""

    retention: Retention
    base_ms: int
    mono_ms: int
    clock_trusted: bool
    samples: int
    blocks: tuple[Block, ...] = ()
    doubles: tuple[DoubleBlock, ...] = ()
    parcel: tuple[int, bytes] | None = None
    """Kind and body of a parcel, which holds no samples and travels on the priority lane."""

    @property
    def memory_bytes(self) -> int:
        """Estimate of what the draft costs while it waits."""
        return 200 + self.samples * BYTES_PER_SAMPLE + self._body_bytes

    @property
    def frame_bytes(self) -> int:
        """Estimate of the encoded frame, on the large side for ordinary signals."""
        return 100 + 12 * len(self.blocks) + 8 * self.samples + self._body_bytes

    @property
    def _body_bytes(self) -> int:
        return len(self.parcel[1]) if self.parcel else 0


def encode_draft(header: Header, draft: Draft, gaps: tuple[Gap, ...]) -> bytes:
    """The frame of a draft under its identity. Raises PacketError when it would be too large."""
    if draft.parcel is not None:
        return encode_parcel(Parcel(header, *draft.parcel))
    return encode_packet(Packet(header, draft.blocks, draft.doubles, gaps))


class Packer:
    """Collects readings until ``close``; memory is bounded by ``max_samples`` per open packet."""

    def __init__(self, settings: PackingSettings, signals: Catalogue) -> None:
        self._settings = settings
        self._signals = {signal.number: signal for signal in signals}
        self._open: dict[tuple[Retention, int], list[Reading]] = {}
        self._full: list[tuple[Retention, list[Reading]]] = []
        self._opened_mono_ms = 0
        self.refused: Counter[str] = Counter()
        """Readings that no packet can carry, by reason; their source is at fault."""

    def __bool__(self) -> bool:
        """Whether any reading waits."""
        return bool(self._open or self._full)

    def add(self, readings: Iterable[Reading], mono_ms: int) -> None:
        """Take readings in; what no packet can carry is counted in ``refused``, not kept."""
        for reading in readings:
            signal = self._signals.get(reading.signal)
            if signal is None:
                self.refused["unknown_signal"] += 1
                continue
            if abs(reading.at_ms) > MAX_STAMP_MS or not 0 <= reading.quality <= 255:
                self.refused["bad_stamp_or_quality"] += 1
                continue
            if not self:
                self._opened_mono_ms = mono_ms
            self._put(signal.retention, reading)

    def due(self, mono_ms: int) -> bool:
        """Whether the oldest waiting reading has waited for a packet's duration, or a packet is full."""
        return bool(self._full) or (bool(self._open) and mono_ms - self._opened_mono_ms >= self._settings.packet_ms)

    def close(self, mono_ms: int, clock_trusted: bool) -> list[Draft]:
        """Everything that waits, as drafts: all classes close together, so that one commit takes them."""
        waiting = [*self._full, *((retention, readings) for (retention, _), readings in self._open.items())]
        self._full, self._open = [], {}
        return [self._draft(retention, readings, mono_ms, clock_trusted) for retention, readings in waiting]

    def _put(self, retention: Retention, reading: Reading) -> None:
        key = (retention, reading.at_ms // self._settings.max_span_ms)
        if key not in self._open and len(self._open) >= MAX_OPEN:
            self._full += [(kept, readings) for (kept, _), readings in self._open.items()]
            self._open.clear()
        readings = self._open.setdefault(key, [])
        readings.append(reading)
        if len(readings) >= self._settings.max_samples:
            self._full.append((retention, self._open.pop(key)))

    def _draft(self, retention: Retention, readings: list[Reading], mono_ms: int, trusted: bool) -> Draft:
        base_ms = min(reading.at_ms for reading in readings)
        by_signal: dict[int, list[Reading]] = {}
        for reading in readings:
            by_signal.setdefault(reading.signal, []).append(reading)
        blocks: list[Block] = []
        doubles: list[DoubleBlock] = []
        for number, same in by_signal.items():
            block, double = pack_signal(self._signals[number], same, base_ms)
            blocks += [block] if block else []
            doubles += [double] if double else []
        return Draft(retention, base_ms, mono_ms, trusted, len(readings), tuple(blocks), tuple(doubles))


def pack_signal(signal: Signal, readings: list[Reading], base_ms: int) -> tuple[Block | None, DoubleBlock | None]:
    """One signal's readings as integers and, for those that integers cannot carry, as doubles."""
    limit = MAX_UNITS * 10.0**signal.exponent
    whole = [reading for reading in readings if math.isfinite(reading.value) and abs(reading.value) < limit]
    rest = [reading for reading in readings if not (math.isfinite(reading.value) and abs(reading.value) < limit)]
    block = double = None
    if whole:
        units = [signal.to_units(reading.value) for reading in whole]
        values = tuple(unit - units[0] for unit in units)
        block = Block(signal.number, signal.exponent, units[0], _offsets(whole, base_ms), values, _qualities(whole))
    if rest:
        raw = tuple(reading.value for reading in rest)
        double = DoubleBlock(signal.number, _offsets(rest, base_ms), raw, _qualities(rest))
    return block, double


def _offsets(readings: list[Reading], base_ms: int) -> tuple[int, ...]:
    return tuple(reading.at_ms - base_ms for reading in readings)


def _qualities(readings: list[Reading]) -> tuple[int, ...]:
    """Empty when all are good, as the wire wants it."""
    return tuple(int(reading.quality) for reading in readings) if any(reading.quality for reading in readings) else ()

"""Readings survive packing: whatever goes in comes out of the decoded frame, to the signal's resolution."""

from __future__ import annotations

import math
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.packet import MAX_FRAME_BYTES, Header, Packet, decode_packet, encode_packet
from contracts.signals import catalogue
from edge_agent.packing import MAX_STAMP_MS, Draft, Packer
from edge_agent.settings import MAX_SAMPLES_PER_PACKET, PackingSettings
from edge_agent.sources import Reading

SIGNALS = {signal.number: signal for signal in catalogue()}
stamps = st.integers(1_700_000_000_000, 1_700_000_100_000) | st.integers(-MAX_STAMP_MS, MAX_STAMP_MS)
readings = st.builds(
    Reading, st.sampled_from(sorted(SIGNALS)), stamps, st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0, 0, 0, 1, 64, 255]),
)  # fmt: skip


def pack(given: list[Reading], **rules: int) -> list[Draft]:
    packer = Packer(PackingSettings(**rules), catalogue())
    packer.add(given, mono_ms=0)
    return packer.close(mono_ms=5, clock_trusted=True)


def through_the_wire(draft: Draft) -> Packet:
    header = Header("t" * 64, "d" * 64, 2**22, 2**62, 2**39, 0, draft.base_ms, draft.mono_ms, True, draft.samples)
    return decode_packet(encode_packet(Packet(header, draft.blocks, draft.doubles)))


def read_back(packet: Packet) -> list[Reading]:
    found: list[Reading] = []
    base_ms = packet.header.base_ms
    for block in packet.blocks:
        qualities = block.qualities or (0,) * len(block.values)
        for offset, value, quality in zip(block.offsets_ms, block.values, qualities, strict=True):
            units = SIGNALS[block.signal].from_units(block.base + value)
            found.append(Reading(block.signal, base_ms + offset, units, quality))
    for double in packet.doubles:
        qualities = double.qualities or (0,) * len(double.values)
        for offset, number, quality in zip(double.offsets_ms, double.values, qualities, strict=True):
            found.append(Reading(double.signal, base_ms + offset, number, quality))
    return found


def as_kept(reading: Reading) -> tuple[int, int, str, int]:
    """What must come back: the value at the signal's resolution; beyond integers, the double itself."""
    signal = SIGNALS[reading.signal]
    value = reading.value
    if math.isfinite(value) and abs(value) < 2**52 * 10.0**signal.exponent:
        value = signal.from_units(signal.to_units(value))
    return reading.signal, reading.at_ms, repr(value + 0.0), reading.quality


@settings(max_examples=150, deadline=None)
@given(st.lists(readings, max_size=60))
def test_every_reading_comes_out_once(given: list[Reading]) -> None:
    drafts = pack(given)
    back = [reading for draft in drafts for reading in read_back(through_the_wire(draft))]
    assert Counter((r.signal, r.at_ms, repr(r.value + 0.0), r.quality) for r in back) == Counter(map(as_kept, given))
    for draft in drafts:
        classes = {SIGNALS[block.signal].retention for block in (*draft.blocks,)}
        classes |= {SIGNALS[double.signal].retention for double in draft.doubles}
        assert classes == {draft.retention}


@settings(max_examples=30, deadline=None)
@given(st.lists(readings, min_size=1, max_size=80), st.integers(1, 20), st.integers(1_000, 600_000))
def test_packets_keep_their_bounds(given: list[Reading], most: int, span_ms: int) -> None:
    for draft in pack(given, max_samples=most, max_span_ms=span_ms):
        assert 1 <= draft.samples <= most
        offsets = [at for block in (*draft.blocks,) for at in block.offsets_ms]
        offsets += [at for double in draft.doubles for at in double.offsets_ms]
        assert min(offsets) == 0
        assert max(offsets) < span_ms


def test_the_largest_packet_fits_a_frame() -> None:
    numbers = sorted(number for number, signal in SIGNALS.items() if signal.retention == SIGNALS[1].retention)
    worst = []
    for n in range(MAX_SAMPLES_PER_PACKET):
        number = numbers[n % len(numbers)]
        value = (-1) ** n * 2**51 * 10.0 ** SIGNALS[number].exponent
        worst.append(Reading(number, 1_700_000_000_000 + n * 80, value, 255))
    [draft] = pack(worst, max_samples=MAX_SAMPLES_PER_PACKET, max_span_ms=10_000_000_000)
    assert draft.samples == MAX_SAMPLES_PER_PACKET
    header = Header("t" * 64, "d" * 64, 2**22, 2**62, 2**39, 2, draft.base_ms, 2**60, True, draft.samples)
    assert len(encode_packet(Packet(header, draft.blocks, draft.doubles))) <= MAX_FRAME_BYTES


def test_what_no_packet_can_carry_is_counted() -> None:
    packer = Packer(PackingSettings(), catalogue())
    packer.add([Reading(10**6, 0, 1.0), Reading(1, 2**60, 1.0), Reading(1, 0, 1.0, 300)], 0)
    assert not packer
    assert packer.refused == {"unknown_signal": 1, "bad_stamp_or_quality": 2}


def test_a_packet_closes_after_its_duration_or_when_full() -> None:
    packer = Packer(PackingSettings(packet_ms=250, max_samples=2), catalogue())
    packer.add([Reading(1, 0, 1.0)], mono_ms=1_000)
    assert not packer.due(1_249)
    assert packer.due(1_250)
    packer.add([Reading(1, 1, 1.0)], mono_ms=1_001)
    assert packer.due(1_001)
    assert [draft.samples for draft in packer.close(1_001, True)] == [2]
    assert not packer.due(9_999)


def test_one_mad_stamp_spoils_only_its_own_packet() -> None:
    drafts = pack([Reading(1, 1_790_000_000_000, 1.0), Reading(1, 0, 2.0), Reading(1, 1_790_000_000_100, 3.0)])
    assert sorted((draft.base_ms, draft.samples) for draft in drafts) == [(0, 1), (1_790_000_000_000, 2)]

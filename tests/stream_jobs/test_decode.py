"""Decoding against the contract's own reader: same samples, same verdicts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.errors import Fatal
from contracts.packet import Block, DoubleBlock, Quality, decode_packet
from contracts.signals import Signal, catalogue, parse_catalogue
from stream_jobs.arithmetic import EXACT_LIMIT
from stream_jobs.decode import decode
from stream_jobs.records import Decoded
from stream_jobs.scales import catalogue_scales, make_scales
from stream_jobs.sinks.assemble import assemble
from tests.stream_jobs.build import T0, TOPICS, Device, Record, in_log_order, table

CAR = Device("car1", 7, "north", 3)
NUMBERS = [signal.number for signal in catalogue()]
offsets = st.integers(-(2**31), 2**31 - 1)
qualities = st.integers(0, 127)


def read(records: list[Record]) -> Decoded:
    (part,) = assemble(table(records), TOPICS)
    return decode(part, catalogue_scales())


@st.composite
def blocks(draw: st.DrawFn) -> Block | DoubleBlock:
    size = draw(st.integers(0, 4))
    signal, at = draw(st.sampled_from(NUMBERS)), draw(st.tuples(*[offsets] * size))
    given_qualities = draw(st.one_of(st.just(()), st.tuples(*[qualities] * size)))
    if draw(st.booleans()):
        values = draw(st.tuples(*[st.floats(width=64)] * size))
        return DoubleBlock(signal, at, values, given_qualities)
    wide = st.one_of(st.integers(-(2**53), 2**53), st.integers(-(2**63), 2**63 - 1), st.integers(-1000, 1000))
    return Block(signal, draw(st.integers(-18, 18)), draw(wide), at, draw(st.tuples(*[wide] * size)), given_qualities)


def expected(block: Block | DoubleBlock) -> list[tuple[int, int, int, int]]:
    """(signal, offset, units, quality) by the contract, one sample at a time; units 0 where there are none."""
    signal = catalogue().by_number(block.signal)
    given_qualities = block.qualities or (0,) * len(block.offsets_ms)
    lowest, highest = signal.to_units(signal.minimum), signal.to_units(signal.maximum)
    rows = []
    for at, value, quality in zip(block.offsets_ms, block.values, given_qualities, strict=True):
        units = _units(block, value, signal)
        verdict = quality
        if quality < 64 and isinstance(value, float) and not math.isfinite(value):
            verdict = int(Quality.NOT_FINITE)
        elif quality < 64 and (units is None or not lowest <= units <= highest):
            verdict = int(Quality.OUT_OF_RANGE)
        rows.append((block.signal, at, units or 0, verdict))
    return rows


def _units(block: Block | DoubleBlock, value: float, signal: Signal) -> int | None:
    """None where the value is not believed at all."""
    if isinstance(block, DoubleBlock):
        scaled = value * 10.0**-signal.exponent if signal.exponent < 0 else value / 10.0**signal.exponent
        return round(scaled) if math.isfinite(scaled) and abs(scaled) <= EXACT_LIMIT else None
    if abs(block.base) > EXACT_LIMIT or abs(value) > EXACT_LIMIT:
        return None
    raw, shift = block.base + int(value), block.exponent - signal.exponent
    if shift >= 0:
        units = raw * 10**shift
    else:
        units, rest = divmod(raw, 10**-shift)
        units += 2 * rest > 10**-shift or (2 * rest == 10**-shift and units % 2 == 1)
    return units if abs(units) <= EXACT_LIMIT else None


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(blocks(), max_size=3), min_size=1, max_size=4))
def test_samples_are_those_of_the_contract(packets: list[list[Block | DoubleBlock]]) -> None:
    frames = [CAR.packet(n + 1, *packet) for n, packet in enumerate(packets)]
    decoded = read(in_log_order([(frame, CAR.stamp(T0)) for frame in frames]))
    assert not decoded.refusals
    scales, samples = catalogue_scales(), decoded.samples
    for index, frame in enumerate(frames):
        packet = decode_packet(frame)
        mine = samples.packet == index
        found = list(
            zip(
                scales.numbers[samples.signal[mine]].tolist(), (samples.event_ms[mine] - T0).tolist(),
                samples.units[mine].tolist(), samples.quality[mine].tolist(), strict=True,
            )
        )  # fmt: skip
        whole: list[Block | DoubleBlock] = [*packet.blocks, *packet.doubles]
        assert found == [row for block in whole for row in expected(block)]
        assert samples.pos[mine].tolist() == list(range(packet.header.samples))


@given(st.sampled_from(NUMBERS), st.integers(-(2**40), 2**40))
@settings(deadline=None)
def test_a_stored_value_is_the_double_of_its_decimal(number: int, units: int) -> None:
    signal = catalogue().by_number(number)
    decoded = read(in_log_order([(CAR.packet(1, Block(number, signal.exponent, 0, (0,), (units,))), CAR.stamp(T0))]))
    assert decoded.samples.value.tolist() == [signal.from_units(units)]


def test_a_flipped_bit_anywhere_is_refused() -> None:
    frame = CAR.packet(1, Block(1, -2, 5, (0, 1), (3, 4)))
    flipped = []
    for bit in range(len(frame) * 8):
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        flipped.append((bytes(damaged), CAR.stamp(T0)))
    decoded = read(in_log_order(flipped))
    assert len(decoded.refusals) == len(flipped) and not len(decoded.packets)
    assert {refusal.reason for refusal in decoded.refusals} == {"bad_crc", "not_a_packet"}


def test_columns_stay_together_when_rows_are_refused() -> None:
    frames: list[tuple[bytes | None, bytes | None]] = []
    for n in range(1, 40):
        good = CAR.packet(n, Block(1, -2, n, (0,), (0,)), DoubleBlock(20, (1,), (float(n),)))
        frames.append((good if n % 3 else good[:-5], CAR.stamp(T0 + n)))
    decoded = read(in_log_order(frames))
    seqs = [n for n in range(1, 40) if n % 3]
    assert decoded.packets.seq.tolist() == seqs
    assert decoded.packets.received_ms.tolist() == [T0 + n for n in seqs]
    assert decoded.samples.units.tolist() == [units for n in seqs for units in (n, n * 10)]
    assert np.array_equal(decoded.samples.packet, np.repeat(np.arange(len(seqs)), 2))


def test_a_range_too_wide_for_its_resolution_is_refused_at_the_start() -> None:
    row = (
        '[[signal]]\nnumber = 1\npath = "A.B"\nunit = ""\ndatatype = "double"\nexponent = -9\nminimum = 0\n'
        'maximum = 1e9\nkind = "gauge"\nsource = "test"\ntext = "Too wide."\n'
    )
    with pytest.raises(Fatal, match="coarser"):
        make_scales(tuple(parse_catalogue(row)))

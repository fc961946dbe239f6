"""Signs, mounting, standstill calibration; ring buffers; the class 60 filter."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.recorder.axes import BLOCK_SAMPLES, STANDARD_GRAVITY_MPS2, MotionFrame, record_axes, rotation, turn
from edge_agent.recorder.filters import cfc60
from edge_agent.recorder.rings import ChannelRing, MotionRing

G = STANDARD_GRAVITY_MPS2


def test_left_and_up_become_negative() -> None:
    """ISO 8855 is y left, z up; 49 CFR 563.5 is y right, z down."""
    assert record_axes(0.0, 5.0, 0.0) == (0.0, -5.0, 0.0)
    assert record_axes(0.0, 0.0, 7.0) == (0.0, 0.0, -7.0)
    assert record_axes(-3.0, 0.0, 0.0)[0] == -3.0, "braking stays negative x"


def test_a_sensor_turned_a_quarter_to_the_left_reads_braking_on_its_y() -> None:
    # its x points to the vehicle's left, its y to the vehicle's rear: braking (-x) shows as +y
    forward, left, up = turn(rotation(0, 0, 90), 0.0, 6.0, 0.0)
    assert (forward, left, up) == pytest.approx((-6.0, 0.0, 0.0), abs=1e-12)


@given(st.tuples(*[st.floats(-180, 180)] * 3), st.tuples(*[st.floats(-50, 50)] * 3))
def test_turning_keeps_length(angles: tuple[float, float, float], vector: tuple[float, float, float]) -> None:
    assert math.hypot(*turn(rotation(*angles), *vector)) == pytest.approx(math.hypot(*vector), abs=1e-9)


def test_normal_acceleration_is_zero_at_rest_before_and_after_learning() -> None:
    frame = MotionFrame(rotation(0, 0, 0))
    assert frame.convert(0.0, 0.0, G) == pytest.approx((0, 0, 0))
    for _ in range(BLOCK_SAMPLES):
        frame.learn(0.4, -0.3, G + 0.2)
    assert frame.convert(0.4, -0.3, G + 0.2) == pytest.approx((0, 0, 0))
    assert frame.convert(-4.6, -0.3, G + 0.2) == pytest.approx((-5, 0, 0))


def test_an_impact_at_a_standstill_is_not_learned() -> None:
    frame = MotionFrame(rotation(0, 0, 0))
    for index in range(BLOCK_SAMPLES):
        frame.learn(30.0 if index == 7 else 0.0, 0.0, G)
    assert frame.convert(0.0, 0.0, G) == pytest.approx((0, 0, 0))
    for _ in range(BLOCK_SAMPLES // 2):
        frame.learn(5.0, 0.0, G)
    frame.moving()
    for _ in range(BLOCK_SAMPLES // 2):
        frame.learn(5.0, 0.0, G)
    assert frame.convert(0.0, 0.0, G) == pytest.approx((0, 0, 0)), "two halves are not one standstill"


def test_saturation_is_felt_by_the_axes_that_the_sensor_axis_enters() -> None:
    assert MotionFrame(rotation(0, 0, 0)).touched((True, False, False)) == 1
    assert MotionFrame(rotation(0, 0, 45)).touched((True, False, False)) == 3
    assert MotionFrame(rotation(0, 0, 90)).touched((True, False, False)) == 2


@given(st.lists(st.integers(1, 400_000), min_size=1, max_size=300))
def test_a_ring_stays_bounded_and_remembers_the_newest(gaps: list[int]) -> None:
    ring = ChannelRing(20, 45_000)
    at_us = 0
    kept: list[int] = []
    for gap in gaps:
        at_us += gap
        if not kept or at_us - kept[-1] >= 45_000:
            kept.append(at_us)
        ring.add(at_us, float(at_us))
    assert len(ring) < 40
    assert ring.at(at_us) == (kept[-1], float(kept[-1]))


def test_nearest_is_fresh_or_nothing() -> None:
    ring = ChannelRing(20, 10)
    ring.add(1_000, 1.0)
    ring.add(2_000, 2.0)
    assert ring.nearest(1_400, 1_000, 0) == 1.0
    assert ring.nearest(1_600, 1_000, 500) == 2.0
    assert ring.nearest(1_600, 1_000, 300) == 1.0
    assert ring.nearest(9_000, 1_000, 0) is None
    assert ring.nearest(500, 1_000, 100) is None
    ring.add(3_000, None)
    assert ring.nearest(3_100, 1_000, 0) is None, "a source that says unknown is not the value before it"


def test_a_changed_state_is_kept_however_close() -> None:
    ring = ChannelRing(20, 45_000)
    for at_us, state in ((0, "off"), (10_000, "off"), (20_000, "on")):
        ring.add(at_us, state)
    assert ring.at(15_000) == (0, "off") and ring.at(20_000) == (20_000, "on")


def test_the_motion_ring_is_bounded() -> None:
    ring = MotionRing(100)
    for index in range(1_000):
        ring.add(index, float(index), 0.0, 0.0, index % 2)
    assert len(ring) < 200
    stretch = ring.between(950, 960)
    assert list(stretch.times_us) == list(range(950, 961)) and stretch.axes[0][0] == 950.0


@pytest.mark.parametrize(("frequency_hz", "low", "high"), [(10, 0.97, 1.02), (60, 0.89, 1.05), (200, 0.0, 0.15)])
def test_class_60_passes_its_band_and_stops_what_lies_above(frequency_hz: int, low: float, high: float) -> None:
    step_us = 500
    wave = [math.sin(2 * math.pi * frequency_hz * index * step_us / 1e6) for index in range(2_000)]
    peak = max(abs(value) for value in cfc60(wave, step_us)[500:1_500])
    assert low <= peak <= high


def test_the_filter_shifts_nothing_and_leaves_slow_data_alone() -> None:
    pulse = [math.exp(-(((index - 100) / 15) ** 2)) for index in range(201)]
    smooth = cfc60(pulse, 1_000)
    assert max(range(201), key=smooth.__getitem__) == 100
    assert cfc60(pulse, 10_000) == pulse

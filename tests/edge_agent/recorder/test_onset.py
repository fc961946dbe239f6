"""When a braking began, from a speed read ten times a second: within the table's tenth of a second, with noise."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.edr.profiles import load_profile
from edge_agent.recorder.speed_triggers import SpeedTriggers, onset_us

STEP_US = 100_000


@given(st.floats(4.2, 9.5), st.integers(0, 99_999), st.floats(40, 120), st.integers(0, 2**32))
def test_the_onset_is_dated_within_a_tenth_of_a_second(mps2: float, phase_us: int, kmh: float, seed: int) -> None:
    # nearer to the rule's 3.25 m/s² noise interrupts the braking for the rule, and the later stretch is the event
    noise, begun_us = random.Random(seed), 3_000_000
    triggers = SpeedTriggers(load_profile("un-r169"))
    events = []
    for at_us in range(phase_us, 5_000_000, STEP_US):
        speed = kmh - 3.6 * mps2 * max(0, at_us - begun_us) / 1e6 + noise.gauss(0, 0.1)
        events += triggers.on_speed(at_us, max(0.0, speed))
    assert [event.trigger for event in events] == ["sustained_deceleration"]
    assert events[0].time_zero_us == pytest.approx(begun_us, abs=90_000)


@given(st.integers(0, 999_999), st.floats(4.0, 9.0))
def test_a_speed_told_once_a_second_suffices_for_the_trigger_but_not_for_a_shock(phase_us: int, mps2: float) -> None:
    """How well it dates it is another matter: an interval that is braked in part may stay below the limit (3.25 of
    4 m/s² are 0.81 s of one), then the middle of the next one is taken for the beginning."""
    braked, shaken = SpeedTriggers(load_profile("un-r169")), SpeedTriggers(load_profile("un-r169"))
    events, others, begun_us = [], [], 5_000_000
    for at_us in range(phase_us, 9_500_000, 1_000_000):
        events += braked.on_speed(at_us, max(0.0, 120 - 3.6 * mps2 * max(0, min(at_us - begun_us, 3_000_000)) / 1e6))
        others += shaken.on_speed(at_us, 80.0 if at_us < begun_us else 40.0)
    assert [event.trigger for event in events] == ["sustained_deceleration"] and others == []
    assert events[0].time_zero_us == pytest.approx(begun_us, abs=1_320_000)


def test_without_enough_readings_the_coarse_instant_stands() -> None:
    few = [(0, 50.0), (900_000, 50.0), (1_300_000, 40.0)]
    assert onset_us(few, 1_000_000) == 1_000_000
    level = [(at_us, 50.0) for at_us in range(0, 2_000_000, STEP_US)]
    assert onset_us(level, 1_000_000) == 1_000_000

"""A spike out of calm is dropped, a pulse never; nothing is reordered."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.edr.profiles import load_profile
from edge_agent.recorder.axes import STANDARD_GRAVITY_MPS2
from edge_agent.recorder.capture import Captured, EventCapture
from edge_agent.recorder.plausible import LONGEST_SPIKE_US, SPIKE_MPS2, Felt, SpikeGate
from edge_agent.recorder.settings import RecorderSettings

LIMIT_MPS2 = 50 * STANDARD_GRAVITY_MPS2


def through(gate: SpikeGate, stream: list[Felt]) -> list[Felt]:
    return [felt for one in stream for felt in gate.push(one)] + gate.flush()


def drive(hz: int, high: dict[int, float], seconds: float = 3.0, offset: float = 0.0) -> tuple[list[Captured], int]:
    """A calm drive whose samples of these numbers read otherwise. What was recorded, and how many were dropped."""
    capture = EventCapture(load_profile("un-r160"), RecorderSettings(profile="un-r160", motion_rate_hz=hz), 1, 1)
    made: list[Captured] = []
    for number in range(int(hz * seconds)):
        x = high.get(number, offset)
        made += capture.on_motion(number * 1_000_000 // hz, x, 0.0, STANDARD_GRAVITY_MPS2)
    return made + capture.close(), capture.spikes


@pytest.mark.parametrize(("hz", "samples"), [(80, 1), (100, 1), (250, 1), (500, 1), (500, 3), (1_000, 5)])
@pytest.mark.parametrize("spike", [LIMIT_MPS2, -LIMIT_MPS2])
def test_readings_at_the_limit_out_of_calm_make_no_crash_record(hz: int, samples: int, spike: float) -> None:
    made, dropped = drive(hz, dict.fromkeys(range(hz, hz + samples), spike))
    assert made == [] and dropped == samples


@pytest.mark.parametrize("hz", [100, 500])
def test_an_impact_as_hard_as_the_limit_makes_one(hz: int) -> None:
    """A wall: 50 g from one reading to the next, for 30 ms."""
    made, dropped = drive(hz, dict.fromkeys(range(hz, hz + 30 * hz // 1_000), -LIMIT_MPS2))
    assert made and dropped == 0
    change = made[-1].record.value("max_delta_v_longitudinal")
    assert change is not None and change.values[0] == pytest.approx(-0.03 * LIMIT_MPS2 * 3.6, rel=0.05)


def test_a_spike_within_a_crash_does_not_spoil_its_velocity_change() -> None:
    pulse = dict.fromkeys(range(500, 550), -40.0) | {520: LIMIT_MPS2}
    made, dropped = drive(500, pulse)
    change = made[-1].record.value("max_delta_v_longitudinal")
    assert dropped == 1 and change is not None and change.values[0] == pytest.approx(-14, abs=1)


@given(st.lists(st.tuples(st.integers(1, 30_000), st.floats(-500, 500)), max_size=60))
@settings(max_examples=80, deadline=None)
def test_what_goes_in_comes_out_in_order_but_for_short_spikes(steps: list[tuple[int, float]]) -> None:
    gate, stream, at_us = SpikeGate(), [], 0
    for gap_us, x in steps:
        at_us += gap_us
        stream.append(Felt(at_us, x, 0.0, 0.0, 0))
    out = through(gate, stream)
    assert [felt for felt in stream if felt in out] == out
    lost = [felt for felt in stream if felt not in out]
    assert len(lost) == gate.dropped
    runs = [felt for felt in stream if felt.size_mps2 < SPIKE_MPS2 / 5]
    assert all(felt in out for felt in runs), "calm is always believed"


@given(st.floats(SPIKE_MPS2, 500), st.integers(500, 4_000))
@settings(max_examples=80, deadline=None)
def test_a_pulse_longer_than_a_spike_loses_nothing(size: float, hz: int) -> None:
    step_us = 1_000_000 // hz
    count = LONGEST_SPIKE_US // step_us + 2
    values = [0.0] * 5 + [size] * count + [0.0] * 5
    stream = [Felt(index * step_us, x, 0.0, 0.0, 0) for index, x in enumerate(values)]
    assert through(SpikeGate(), stream) == stream

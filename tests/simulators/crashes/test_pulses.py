"""The closed forms are each other's integrals."""

from __future__ import annotations

import pytest

from contracts.edr.profiles import load_profile
from simulators.crashes.pulses import Haversine, Pulse, Ripple, Square, Triangle
from simulators.crashes.scenarios import IMPACT_S, SCENARIOS
from simulators.crashes.truth import change_kmh, true_events

PULSES: list[Pulse] = [
    Haversine(0.1, 0.1, -9.0),
    Triangle(0.1, 0.09, 7.0),
    Square(0.1, 0.08, 5.0),
    Ripple(0.1, 0.02, 3, 60.0),
]


@pytest.mark.parametrize("pulse", PULSES, ids=lambda pulse: type(pulse).__name__)
def test_velocity_is_the_integral_of_acceleration(pulse: Pulse) -> None:
    total, step_s = 0.0, 1e-5
    for index in range(30_000):
        total += pulse.acceleration((index + 0.5) * step_s) * step_s
        if index % 2_999 == 0:
            assert total == pytest.approx(pulse.velocity((index + 1) * step_s), abs=2e-3)


def test_travel_is_the_integral_of_velocity() -> None:
    pulse = Haversine(0.1, 0.5, 200.0)
    total = sum(pulse.velocity((index + 0.5) * 1e-4) * 1e-4 for index in range(12_000))
    assert total == pytest.approx(pulse.travel(1.2), rel=1e-4)


def test_the_truth_of_a_square_pulse_by_hand() -> None:
    """15 km/h in 80 ms: 0.8 km/h after 4.27 ms, plus what 1 s of braking at 2.5 m/s² takes back in 15.7 ms."""
    event = true_events(SCENARIOS["square"], load_profile("part563-2024"))[0]
    assert event.time_zero_s - IMPACT_S == pytest.approx(-0.0155, abs=0.001)
    assert change_kmh(SCENARIOS["square"], "x", IMPACT_S, IMPACT_S + 0.08) == pytest.approx(15.0)


def test_the_truth_of_two_impacts() -> None:
    events = true_events(SCENARIOS["double"], load_profile("un-r160"))
    assert [event.trigger for event in events] == ["delta_v", "restraint"]
    assert events[1].time_zero_s - events[0].time_zero_s == pytest.approx(0.6, abs=0.005)

"""A turbine is one piece of physics: power curve, cut-in and cut-out, heat with inertia, yaw."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.signals import catalogue
from simulators.turbine import (
    AIR_DENSITY,
    AREA_M2,
    CHANNELS,
    CUT_IN_MPS,
    CUT_OUT_MPS,
    GEAR_RATIO,
    PRODUCTION,
    RATED_KW,
    RATED_RPM,
    STOPPED,
    STOPPING,
    TWIST_LIMIT_TURNS,
    Turbine,
    power_coefficient,
)
from simulators.wind import Wind

BETZ = 16 / 27


def settled(wind_mps: float, steps: int = 4_000) -> Turbine:
    turbine = Turbine(1, wind=Wind(0, 1, wind_mps, steady=True), ambient_c=10.0)
    for step in range(steps):
        turbine.step(step * 100)
    return turbine


@given(st.floats(0, 40), st.floats(0, 90))
def test_no_rotor_beats_betz(tip_ratio: float, pitch: float) -> None:
    assert 0 <= power_coefficient(tip_ratio, pitch) < BETZ


@given(st.floats(0.5, 13.5), st.floats(0, 80), st.floats(0.1, 9))
def test_pitching_only_takes_power_away(tip_ratio: float, pitch: float, more: float) -> None:
    assert power_coefficient(tip_ratio, pitch + more) <= power_coefficient(tip_ratio, pitch)


def test_power_curve_rises_to_rated_and_holds() -> None:
    winds = (4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 17, 20, 24)
    turbines = [settled(wind) for wind in winds]
    powers = [turbine.kw for turbine in turbines]
    below = [kw for wind, kw in zip(winds, powers, strict=True) if wind < 12]
    assert all(low < high for low, high in pairwise(below))
    for wind, turbine in zip(winds, turbines, strict=True):
        assert turbine.state == PRODUCTION
        assert 0 < turbine.kw * 1_000 < 0.5 * AIR_DENSITY * AREA_M2 * wind**3 * BETZ
        assert turbine.rotor_rpm <= RATED_RPM * 1.02
        if wind >= 12:
            assert turbine.kw == pytest.approx(RATED_KW, rel=0.01)
    pitches = [turbine.pitch for wind, turbine in zip(winds, turbines, strict=True) if wind >= 12]
    assert pitches == sorted(pitches)


@pytest.mark.parametrize("wind_mps", [0.5, CUT_IN_MPS - 1.0, CUT_OUT_MPS + 1.5])
def test_out_of_its_winds_it_stands_and_draws(wind_mps: float) -> None:
    turbine = settled(wind_mps)
    assert turbine.state == STOPPED and turbine.rotor_rpm < 1 and turbine.kw < 0


def test_a_storm_stops_a_running_turbine_and_it_returns_only_well_below() -> None:
    wind = Wind(0, 1, 15.0, steady=True)
    turbine = Turbine(1, wind=wind)
    states = []
    for mean_mps in (15.0, 27.0, 23.0, 18.0):
        wind.slow = mean_mps
        for step in range(3_000):
            turbine.step(step * 100)
        states.append(turbine.state)
    assert states == [PRODUCTION, STOPPED, STOPPED, PRODUCTION]


def test_heat_has_inertia() -> None:
    """A load step moves no temperature at once; it moves them all, the right way, with time."""
    wind = Wind(0, 1, 5.0, steady=True)
    turbine = Turbine(1, wind=wind, ambient_c=10.0)
    for step in range(20_000):
        turbine.step(step * 100)
    temperatures = (1006, 1007, 1010, 1011)
    cool = [value or 0 for value in turbine.measure(temperatures)]
    wind.slow = 13.0
    for step in range(50):
        turbine.step(step * 100)
    assert [value or 0 for value in turbine.measure(temperatures)] == pytest.approx(cool, abs=0.5)
    for step in range(15_000):
        turbine.step(step * 100)
    assert all((hot or 0) > was + 5 for hot, was in zip(turbine.measure(temperatures), cool, strict=True))
    wind.slow = 2.0
    for step in range(40_000):
        turbine.step(step * 100)
    resting = [value or 0 for value in turbine.measure(temperatures)]
    assert all(10 < value < 30 for value in resting)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 100))
def test_sensors_agree_and_stay_in_range(seed: int, weather: int) -> None:
    turbine = Turbine(seed, weather)
    signals = [channel.signal for channel in CHANNELS]
    energy = turbine.energy_kwh
    for step in range(1_500):
        turbine.step(step * 100)
        assert turbine.energy_kwh >= energy
        energy = turbine.energy_kwh
        measured = turbine.measure(signals)
        values = {number: value for number, value in zip(signals, measured, strict=True) if value is not None}
        assert values[1009] == pytest.approx(values[1004] * GEAR_RATIO)
        assert values[1001] in (PRODUCTION, STOPPING) or values[1002] <= 0
        for number, value in values.items():
            signal = catalogue().by_number(number)
            assert signal.minimum <= value <= signal.maximum, signal.path


def test_vibration_follows_load_and_is_none_at_rest() -> None:
    def level(turbine: Turbine) -> float:
        return sum(turbine.measure((1008,))[0] or 0 for _ in range(200)) / 200

    assert level(settled(1.0)) == 0
    assert 0 < level(settled(6.0)) < level(settled(9.0)) < level(settled(14.0))


def test_the_nacelle_follows_the_wind_and_untwists_its_cable() -> None:
    wind = Wind(0, 1, 9.0, steady=True)
    turbine = Turbine(1, wind=wind)
    wind.direction = (wind.direction + 60) % 360
    for step in range(4_000):
        turbine.step(step * 100)
    assert abs(turbine.error_degrees) < 8
    turbine.twist_turns = TWIST_LIMIT_TURNS + 0.2
    states = set()
    for step in range(60_000):
        turbine.step(step * 100)
        states.add(turbine.state)
    assert abs(turbine.twist_turns) < TWIST_LIMIT_TURNS
    assert {STOPPED, PRODUCTION} <= states and turbine.state == PRODUCTION


def test_the_same_seed_lives_the_same_life_under_one_weather() -> None:
    one, two, neighbour = Turbine(3, 7), Turbine(3, 7), Turbine(4, 7)
    for turbine in (one, two, neighbour):
        for step in range(600):
            turbine.step(step * 100)
    signals = [channel.signal for channel in CHANNELS]
    assert one.measure(signals) == two.measure(signals)
    assert one.wind.slow == neighbour.wind.slow and one.wind.gust != neighbour.wind.gust

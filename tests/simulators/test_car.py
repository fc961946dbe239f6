"""A car is one piece of physics: its sensors agree with each other whatever the seed."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.signals import catalogue
from simulators import engine
from simulators.car import CHANNELS, STEP_S, Car
from simulators.roads import METRES_PER_DEGREE, ORIGIN, build_circuit, geographic, tour

START_MS = 1_790_000_000_000
seeds = st.integers(0, 10_000)


def drive(car: Car, steps: int) -> None:
    for step in range(steps):
        car.step(START_MS + step * 100)


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_speed_integrates_to_odometer_and_position(seed: int) -> None:
    car = Car(seed)
    begun_m, way_m, straight_m, before = car.odometer_m, 0.0, 0.0, car.circuit.pose(car.at_m)
    for step in range(1_200):
        last = car.speed
        car.step(START_MS + step * 100)
        way_m += (last + car.speed) / 2 * STEP_S
        here = car.circuit.pose(car.at_m)
        moved_m = math.dist(here[:2], before[:2])
        assert moved_m <= (last + car.speed) / 2 * STEP_S + 1e-6
        straight_m, before = straight_m + moved_m, here
    assert car.odometer_m - begun_m == pytest.approx(way_m, abs=1e-5)
    assert straight_m == pytest.approx(way_m, rel=0.01, abs=0.01)


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_acceleration_is_the_change_of_speed_and_stays_human(seed: int) -> None:
    car = Car(seed)
    for step in range(1_200):
        last = car.speed
        car.step(START_MS + step * 100)
        assert car.acceleration == pytest.approx((car.speed - last) / STEP_S)
        assert -10 < car.acceleration < 4
        assert 0 <= car.speed < 30


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_crankshaft_follows_speed_and_gear(seed: int) -> None:
    car = Car(seed)
    for step in range(1_200):
        car.step(START_MS + step * 100)
        per_mps = engine.RATIOS[car.gear] * engine.FINAL_DRIVE / engine.WHEEL_M * 30 / math.pi
        assert car.running.rpm == pytest.approx(max(engine.IDLE_RPM, car.speed * per_mps))
        assert (car.gear == 0) == (car.speed < 0.1)
        assert car.running.rpm < engine.TOP_RPM


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_energy_has_the_right_sign(seed: int) -> None:
    """What the fuel gives covers shaft and friction; brakes and drag never push; the tank only empties."""
    car = Car(seed)
    car.fuel_l = 40.0
    for step in range(1_200):
        fuel = car.fuel_l
        car.step(START_MS + step * 100)
        run = car.running
        shaft_w = run.torque_nm * run.rpm * math.pi / 30
        assert run.fuel_g_per_s * engine.FUEL_J_PER_G * engine.INDICATED_EFFICIENCY >= shaft_w - 1e-6
        assert run.brake_n >= 0 and run.fuel_g_per_s >= 0
        assert run.torque_nm >= -engine.friction_torque(run.rpm) - 1e-9
        assert fuel - car.fuel_l == pytest.approx(run.fuel_g_per_s * STEP_S / engine.FUEL_G_PER_L)
        assert run.air_g_per_s >= run.fuel_g_per_s * engine.STOICHIOMETRIC - 1e-9


def test_a_cold_engine_warms_to_its_thermostat_and_stays() -> None:
    car = Car(5, ambient_c=5.0)
    readings = []
    for minute in range(40):
        drive(car, 600)
        readings.append((minute, car.coolant_c))
    assert readings[0][1] < 40
    assert all(80 < coolant < 103 for minute, coolant in readings if minute > 20)
    assert all(coolant >= 5 for _, coolant in readings)


def test_cornering_agrees_with_yaw_and_speed() -> None:
    """Lateral acceleration is speed times yaw rate, positive to the left (ISO 8855)."""
    car, seen = Car(3), set()
    for step in range(6_000):
        car.step(START_MS + step * 100)
        speed_kmh, lateral, yaw, steering = car.measure((1, 11, 13, 42))
        assert speed_kmh is not None and lateral is not None and yaw is not None and steering is not None
        assert lateral == pytest.approx(speed_kmh / 3.6 * math.radians(yaw), abs=0.25)
        curvature = car.circuit.pose(car.at_m).curvature_per_m
        assert steering * curvature >= 0
        seen.add(curvature > 0)
    assert seen == {True, False}


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_every_sensor_stays_in_its_range(seed: int) -> None:
    car = Car(seed)
    signals = [channel.signal for channel in CHANNELS]
    assert len(set(signals)) == len(signals)
    for step in range(600):
        car.step(START_MS + step * 100)
        for number, value in zip(signals, car.measure(signals), strict=True):
            signal = catalogue().by_number(number)
            assert value is None or signal.minimum <= value <= signal.maximum, signal.path


def test_the_same_seed_lives_the_same_life() -> None:
    one, two, other = Car(9), Car(9), Car(10)
    for car in (one, two, other):
        drive(car, 500)
    signals = [channel.signal for channel in CHANNELS]
    assert one.measure(signals) == two.measure(signals) != other.measure(signals)


def test_a_restart_goes_on_with_the_same_car() -> None:
    car, heir = Car(4), Car(4)
    drive(car, 700)
    heir.restore(car.snapshot())
    assert heir.snapshot() == car.snapshot()
    assert heir.measure((2, 4, 5, 33)) == car.measure((2, 4, 5, 33))


def test_an_empty_tank_is_filled_only_while_standing() -> None:
    car = Car(2)
    car.fuel_l = 0.05 * engine.TANK_L
    filled = False
    for step in range(12_000):
        before = car.fuel_l
        car.step(START_MS + step * 100)
        if car.fuel_l > before:
            assert car.speed == 0
            filled = True
    assert filled


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_circuits_close_and_are_smooth(seed: int) -> None:
    """The end meets the beginning in place and heading; no joint bends; geography agrees with metres."""
    circuit = build_circuit(tour(random.Random(seed)))
    for first, second in zip(circuit.pieces, circuit.pieces[1:] + circuit.pieces[:1], strict=True):
        end, begin = first.pose(first.length_m), second.pose(0.0)
        assert math.dist(end[:2], begin[:2]) < 1e-6
        assert math.cos(end.heading_rad - begin.heading_rad) == pytest.approx(1.0)
        assert first.length_m > 0
    here = circuit.pose(10.0)
    latitude, longitude = geographic(here.x_m, here.y_m)
    north_m = (latitude - ORIGIN[0]) * METRES_PER_DEGREE
    east_m = (longitude - ORIGIN[1]) * METRES_PER_DEGREE * math.cos(math.radians(ORIGIN[0]))
    assert (east_m, north_m) == pytest.approx((here.x_m, here.y_m), abs=1e-3)

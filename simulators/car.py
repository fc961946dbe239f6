"""A car: driver, engine, gearbox, road and thermal masses in one state that every sensor looks at.

Speed integrates to odometer and position (trapezoid, exactly); crankshaft speed follows from speed and gear; lateral
acceleration is speed times yaw rate; fuel burnt is what the shaft, friction and accessories took. Axes are those of
ISO 8855: x forward, y left, z up.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from typing import Final

from simulators import engine
from simulators.driver import Driver
from simulators.engine import Running
from simulators.machine import STEP_MS, Channel
from simulators.roads import build_circuit, compass_degrees, geographic, height_m, slope, tour

STEP_S: Final = STEP_MS / 1_000
HARDER_PER_S: Final = 3.0
BRAKE_JERK_PER_S: Final = 14.0
"""How fast acceleration can rise and fall, in m/s^3."""
FULL_BRAKE_N: Final = engine.MASS_KG * 8.5
SHIFT_PAUSE_S: Final = 0.8
REFUEL_BELOW: Final = 0.08
WHEELBASE_M: Final = 2.636
STEERING_RATIO: Final = 14.6
UNDERSTEER: Final = 0.0022
"""Additional steering angle per m/s^2 of lateral acceleration, in radians at the wheels."""
COLD_TYRE_KPA: Final = 235.0
KELVIN: Final = 273.15
ACCELEROMETER_NOISE: Final = 0.03

CHANNELS: Final = (
    *(Channel(number, 100) for number in (10, 11, 12, 13)),
    *(Channel(number, 500) for number in (1, 20, 25, 28, 30, 40, 41, 42)),
    *(Channel(number, 1_000) for number in (2, 3, 4, 5, 6, 7, 23, 24, 26, 34, 50)),
    *(Channel(number, 5_000) for number in (21, 22, 31, 32, 33, 52, 100)),
    *(Channel(number, 60_000) for number in (29, 44, 45, 46, 47)),
)


class Car:
    """One car's life, told by its seed."""

    channels = CHANNELS

    def __init__(self, seed: int, ambient_c: float | None = None) -> None:
        chance = random.Random(f"car {seed}")
        self._noise = random.Random(f"car noise {seed}")
        self.circuit = build_circuit(tour(chance))
        self.driver = Driver.born(chance)
        self.ambient_c = chance.uniform(-4.0, 27.0) if ambient_c is None else ambient_c
        self.at_m = chance.uniform(0.0, self.circuit.length_m)
        self.odometer_m = chance.uniform(2e6, 1.8e8)
        self.fuel_l = chance.uniform(0.25, 1.0) * engine.TANK_L
        self.hours = self.odometer_m / 1_000 / 38
        self.tyres_kpa = [COLD_TYRE_KPA + chance.uniform(-8, 8) for _ in range(4)]
        self.coolant_c = self.oil_c = self.gearbox_c = self.intake_c = self.tyre_c = self.ambient_c
        self.speed = self.acceleration = self.bump = 0.0
        self.gear = 0
        self.since_shift_s = SHIFT_PAUSE_S
        self.running: Running = engine.run(0.0, 0.0, 0, 0.0)

    def step(self, at_ms: int) -> None:
        pose = self.circuit.pose(self.at_m)
        climb = slope(pose.x_m, pose.y_m, pose.heading_rad)
        before = self.speed
        self.speed = max(0.0, before + STEP_S * self._next_acceleration(at_ms / 1_000, climb))
        if before < 0.3 and self.speed <= before:
            self.speed = 0.0
        self.acceleration = (self.speed - before) / STEP_S
        moved_m = (before + self.speed) / 2 * STEP_S
        self.at_m = (self.at_m + moved_m) % self.circuit.length_m
        self.odometer_m += moved_m
        self._shift()
        self.running = engine.run(self.speed, self.acceleration, self.gear, climb)
        self._burn()
        self._warm()
        self.bump = 0.6 * self.bump + self._noise.gauss(0.0, 0.012 * self.speed)

    def measure(self, signals: Iterable[int]) -> list[float | None]:
        pose = self.circuit.pose(self.at_m)
        latitude, longitude = geographic(pose.x_m, pose.y_m)
        run, noise = self.running, self._noise.gauss
        yaw = self.speed * pose.curvature_per_m
        lateral = self.speed * yaw
        steering = math.atan(WHEELBASE_M * pose.curvature_per_m) + UNDERSTEER * lateral
        litres_per_s = run.fuel_g_per_s / engine.FUEL_G_PER_L
        warmth = (self.tyre_c + KELVIN) / (self.ambient_c + KELVIN)
        values: dict[int, float | None] = {
            1: self.speed * 3.6, 2: self.odometer_m, 3: float(self.speed > 0), 4: latitude, 5: longitude,
            6: compass_degrees(pose.heading_rad), 7: height_m(pose.x_m, pose.y_m),
            10: self.acceleration + noise(0, ACCELEROMETER_NOISE), 11: lateral + noise(0, ACCELEROMETER_NOISE),
            12: self.bump + noise(0, ACCELEROMETER_NOISE), 13: math.degrees(yaw) + noise(0, 0.05),
            20: run.rpm, 21: self.coolant_c, 22: self.oil_c, 23: run.manifold_kpa, 24: run.air_g_per_s,
            25: 13.7 + 75.3 * run.load, 26: 1.0, 28: run.torque_nm, 29: self.hours, 30: float(self.gear),
            31: self.gearbox_c, 32: 100 * self.fuel_l / engine.TANK_L, 33: self.fuel_l,
            34: min(1_000.0, litres_per_s / self.speed * 1e5) if self.speed > 1 else None,
            40: 14.1 + 63.5 * run.load, 41: self.brake_percent, 42: math.degrees(steering) * STEERING_RATIO,
            44: self.tyres_kpa[0] * warmth, 45: self.tyres_kpa[1] * warmth, 46: self.tyres_kpa[2] * warmth,
            47: self.tyres_kpa[3] * warmth, 50: 14.2 - 0.25 * (run.rpm < 900) + noise(0, 0.01),
            52: self.ambient_c, 100: self.intake_c,
        }  # fmt: skip
        return [values[signal] for signal in signals]

    @property
    def brake_percent(self) -> float:
        """Brake pedal; a standing car is held by it."""
        return 22.0 if self.speed == 0 else min(100.0, 100 * self.running.brake_n / FULL_BRAKE_N)

    def snapshot(self) -> list[float]:
        return [self.at_m, self.odometer_m, self.fuel_l, self.hours, self.coolant_c, self.oil_c, self.gearbox_c,
                self.intake_c, self.tyre_c, self.ambient_c]  # fmt: skip

    def restore(self, state: list[float]) -> None:
        (self.at_m, self.odometer_m, self.fuel_l, self.hours, self.coolant_c, self.oil_c, self.gearbox_c,
         self.intake_c, self.tyre_c, self.ambient_c) = state  # fmt: skip

    def _next_acceleration(self, at_s: float, climb: float) -> float:
        wish = self.driver.wish(self.circuit, self.at_m, self.speed, at_s)
        wish = min(wish, engine.most_acceleration(self.speed, self.gear or 1, climb))
        lowest = self.acceleration - BRAKE_JERK_PER_S * STEP_S
        return max(lowest, min(self.acceleration + HARDER_PER_S * STEP_S, wish))

    def _shift(self) -> None:
        self.since_shift_s += STEP_S
        gear = engine.next_gear(self.gear, self.speed, self.running.load)
        standing_or_starting = gear == 0 or self.gear == 0
        if gear != self.gear and (standing_or_starting or self.since_shift_s >= SHIFT_PAUSE_S):
            self.gear, self.since_shift_s = gear, 0.0

    def _burn(self) -> None:
        self.fuel_l = max(0.0, self.fuel_l - self.running.fuel_g_per_s * STEP_S / engine.FUEL_G_PER_L)
        self.hours += STEP_S / 3_600
        if self.speed == 0 and self.fuel_l < REFUEL_BELOW * engine.TANK_L:
            self.fuel_l = engine.TANK_L

    def _warm(self) -> None:
        fuel = self.running.fuel_g_per_s
        watts = engine.coolant_watts(self.coolant_c, self.ambient_c, self.speed, fuel)
        self.coolant_c += watts * STEP_S / engine.BLOCK_J_PER_K
        self.oil_c += STEP_S / 240 * (self.coolant_c + 14 * self.running.load - self.oil_c)
        self.gearbox_c += STEP_S / 900 * (self.ambient_c + 0.75 * (self.oil_c - self.ambient_c) - self.gearbox_c)
        still = 16.0 / (1.0 + self.speed / 4)
        under_hood = self.ambient_c + 3 + still * max(0.0, self.coolant_c - self.ambient_c) / 70
        self.intake_c += STEP_S / 45 * (under_hood - self.intake_c)
        self.tyre_c += STEP_S / 600 * (self.ambient_c + 0.9 * self.speed - self.tyre_c)

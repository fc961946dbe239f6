"""Many cars at once, a second a step: healthy vehicle-months for whoever must not raise a false alarm on them.

One NumPy array per quantity, a car in each place; engine, gearbox and heat are those of ``engine``, written for
arrays. A car drives trips of some minutes and is silent between them: it cools, the weather goes on, tyres lose a
little air and are filled. What healthy cars differ in is here: climate from -20 to 40 degrees, jams, hills, a sagging
idle voltage, sensors that are off by a few units. Roads have no geometry here: a trip is a run of stretches with a
limit, some of them ending at a red light. ``car`` has the roads; this has the numbers of cars.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from simulators import engine

Floats = NDArray[np.float64]
STEP_S: Final = 1.0
TRIP_S: Final = 1_500.0
"""Mean length of a trip."""
SOAK_S: Final = 6.0 * 3_600
"""Mean time between two trips."""
STRETCH_S: Final = 45.0
"""Mean time on a stretch of road with one limit."""
LIMITS_MPS: Final = np.array([0.0, 2.0, 8.3, 13.9, 13.9, 19.4, 27.8, 36.1])
"""What the next stretch allows: a red light, a jam, 30, 50, 50, 70, 100 and 130 km/h."""
STEEPEST: Final = 0.08
HILL_S: Final = 60.0
COLD_TYRE_KPA: Final = 235.0
LOSS_KPA_PER_S: Final = 5.0 / (30.4 * 86_400)
"""A healthy tyre loses some 2 % of its pressure a month."""
FILL_BELOW_KPA: Final = 222.0
KELVIN: Final = 273.15
EVERY_S: Final = {20: 1, 50: 1, 21: 5, 44: 60, 45: 60, 46: 60, 47: 60}
"""Signals that are told, and how often, as ``car.CHANNELS`` has them (a second at the fastest)."""


class Herd:
    """``count`` cars told by one seed. Times are milliseconds, each car its own clock."""

    def __init__(self, seed: int, count: int, start_ms: int = 1_790_000_000_000) -> None:
        rng = self._rng = np.random.default_rng(seed)
        self.count = count
        self.second = 0
        self.at_ms = np.full(count, start_ms, np.int64)
        self.driven_s = np.zeros(count)
        self._climate_c = rng.uniform(-12.0, 30.0, count)
        self.ambient_c = self._climate_c.copy()
        self.speed = np.zeros(count)
        self.gear = np.zeros(count, np.int64)
        self.limit = np.full(count, 13.9)
        self.climb = np.zeros(count)
        self.load = np.zeros(count)
        self.rpm = np.full(count, engine.IDLE_RPM)
        self.coolant_c = self.ambient_c.copy()
        self.tyre_c = self.ambient_c.copy()
        self.tyres_kpa = COLD_TYRE_KPA + rng.uniform(-8.0, 8.0, (4, count))
        self._coolant_off_c = rng.normal(0.0, 1.0, count)
        self._idle_sag_v = rng.uniform(0.1, 0.9, count)
        self._regulated_v = rng.uniform(13.9, 14.5, count)
        self._spirit = rng.uniform(0.8, 1.1, count)

    def step(self) -> None:
        """A second of driving for every car; those that arrived begin their next trip, after a pause."""
        self.second += 1
        self.at_ms += int(STEP_S * 1_000)
        self.driven_s += STEP_S
        self._drive()
        self._warm()
        self._park(self._rng.random(self.count) < STEP_S / TRIP_S)

    def measure(self) -> Mapping[int, Floats]:
        """What was read in this second, by signal; signals that were not read are absent."""
        noise, count = self._rng.normal, self.count
        due = {signal for signal, every in EVERY_S.items() if self.second % every == 0}
        told: dict[int, Floats] = {20: np.round(self.rpm, 1)}
        sag = self._idle_sag_v * (self.rpm < 900)
        told[50] = np.round(self._regulated_v - sag + noise(0.0, 0.03, count), 2)
        if 21 in due:
            told[21] = np.round(self.coolant_c + self._coolant_off_c + noise(0.0, 0.2, count), 1)
        if 44 in due:
            warmth = (self.tyre_c + KELVIN) / (self.ambient_c + KELVIN)
            for number in range(4):
                told[44 + number] = np.round(self.tyres_kpa[number] * warmth + noise(0.0, 0.5, count), 1)
        return told

    def _drive(self) -> None:
        rng, count = self._rng, self.count
        turns = rng.random(count) < STEP_S / STRETCH_S
        changed = np.flatnonzero(turns)
        self.limit[changed] = rng.choice(LIMITS_MPS, len(changed)) * self._spirit[changed]
        pull = STEP_S / HILL_S
        self.climb += -pull * self.climb + 0.02 * np.sqrt(2 * pull) * rng.standard_normal(count)
        self.climb = np.clip(self.climb, -STEEPEST, STEEPEST)
        most = most_acceleration(self.speed, np.maximum(self.gear, 1), self.climb)
        wish = np.clip((self.limit - self.speed) / 3.0, -3.0, 2.2)
        before = self.speed
        self.speed = np.maximum(0.0, before + STEP_S * np.minimum(wish, most))
        self.speed[self.speed < 0.3] = 0.0
        self.gear = next_gear(self.gear, self.speed, self.load)
        self.rpm, self.load, self.fuel_g_per_s = run(self.speed, self.speed - before, self.gear, self.climb)

    def _warm(self) -> None:
        watts = coolant_watts(self.coolant_c, self.ambient_c, self.speed, self.fuel_g_per_s)
        self.coolant_c += watts * STEP_S / engine.BLOCK_J_PER_K
        self.tyre_c += STEP_S / 600 * (self.ambient_c + 0.9 * self.speed - self.tyre_c)
        self.tyres_kpa -= LOSS_KPA_PER_S * STEP_S

    def _park(self, arrived: NDArray[np.bool_]) -> None:
        here = np.flatnonzero(arrived)
        if not len(here):
            return
        rng = self._rng
        pause_s = rng.exponential(SOAK_S, len(here)) + 60.0
        self.at_ms[here] += 1_000 * np.ceil(pause_s).astype(np.int64)
        self._climate_c[here] = np.clip(self._climate_c[here] + rng.normal(0, 0.4, len(here)), -15.0, 33.0)
        self.ambient_c[here] = self._climate_c[here] + rng.uniform(-5.0, 7.0, len(here))
        cooled = np.exp(-pause_s / 7_200.0)
        self.coolant_c[here] = self.ambient_c[here] + cooled * (self.coolant_c[here] - self.ambient_c[here])
        self.tyre_c[here] = self.ambient_c[here] + cooled * (self.tyre_c[here] - self.ambient_c[here])
        self.tyres_kpa[:, here] -= LOSS_KPA_PER_S * pause_s
        flat = self.tyres_kpa.min(axis=0) < FILL_BELOW_KPA
        self.tyres_kpa[:, flat] = COLD_TYRE_KPA
        self.speed[here], self.gear[here], self.limit[here], self.climb[here] = 0.0, 0, 8.3, 0.0


def rpm_at(speed: Floats, gear: NDArray[np.int64]) -> Floats:
    """``engine.rpm_at`` for arrays."""
    ratio = np.asarray(engine.RATIOS)[gear]
    turning: Floats = speed / engine.WHEEL_M * ratio * engine.FINAL_DRIVE * 30 / np.pi
    return np.maximum(engine.IDLE_RPM, turning)


def full_torque(rpm: Floats) -> Floats:
    """``engine.full_torque`` for arrays."""
    rising = 95 + 105 * (rpm - engine.IDLE_RPM) / (1_500 - engine.IDLE_RPM)
    falling = np.maximum(0.0, 200 - 60 * (rpm - 4_000) / 2_200)
    return np.where(rpm < 1_500, rising, np.where(rpm < 4_000, 200.0, falling))


def resistance_n(speed: Floats, climb: Floats) -> Floats:
    """``engine.resistance_n`` for arrays."""
    air = 0.5 * engine.AIR_DENSITY * engine.DRAG_AREA_M2 * speed * speed
    weight = engine.MASS_KG * engine.GRAVITY
    return np.asarray(air + engine.ROLLING * weight * (speed > 0) + weight * climb)


def most_acceleration(speed: Floats, gear: NDArray[np.int64], climb: Floats) -> Floats:
    """``engine.most_acceleration`` for arrays."""
    lever = np.asarray(engine.RATIOS)[gear] * engine.FINAL_DRIVE * engine.DRIVELINE / engine.WHEEL_M
    return np.asarray((full_torque(rpm_at(speed, gear)) * lever - resistance_n(speed, climb)) / engine.MASS_KG)


def run(speed: Floats, acceleration: Floats, gear: NDArray[np.int64], climb: Floats) -> tuple[Floats, Floats, Floats]:
    """``engine.run`` for arrays: crankshaft speed, load, and fuel in grams a second."""
    rpm = rpm_at(speed, gear)
    wheel_n = np.where(speed > 0, engine.MASS_KG * acceleration + resistance_n(speed, climb), 0.0)
    friction, most = 13.0 + 0.0042 * rpm, full_torque(rpm)
    lever = np.maximum(np.asarray(engine.RATIOS)[gear] * engine.FINAL_DRIVE / engine.WHEEL_M, 1e-9)
    asked = np.where(wheel_n > 0, wheel_n / (lever * engine.DRIVELINE), wheel_n * engine.DRIVELINE / lever)
    torque = np.where(gear > 0, np.minimum(most, np.maximum(-friction, asked)), 0.0)
    cut = (torque <= -friction * 0.98) & (rpm > 1_100)
    work = np.maximum(0.0, torque + friction) * rpm * np.pi / 30 + engine.ACCESSORIES_W
    fuel = np.where(cut, 0.0, work / (engine.INDICATED_EFFICIENCY * engine.FUEL_J_PER_G))
    load = np.maximum(0.0, np.divide(torque, most, out=np.zeros_like(torque), where=most > 0))
    return rpm, load, fuel


def next_gear(gear: NDArray[np.int64], speed: Floats, load: Floats) -> NDArray[np.int64]:
    """``engine.next_gear`` for arrays."""
    rpm = rpm_at(speed, gear)
    up = (gear < len(engine.RATIOS) - 1) & (rpm > 1_950 + 2_300 * load)
    down = (gear > 1) & (rpm < 1_200 + 600 * load)
    moved = gear + up - (down & ~up)
    return np.where(speed < 0.1, 0, np.where(gear == 0, 1, moved)).astype(np.int64)


def coolant_watts(coolant_c: Floats, ambient_c: Floats, speed: Floats, fuel_g_per_s: Floats) -> Floats:
    """``engine.coolant_watts`` for arrays."""
    shut, wide = engine.THERMOSTAT_C
    opening = np.clip((coolant_c - shut) / (wide - shut), 0.0, 1.0)
    wind = 0.35 + np.minimum(1.0, speed / 25)
    out = (opening * engine.RADIATOR_W_PER_K * wind + engine.CASE_W_PER_K) * (coolant_c - ambient_c)
    return np.asarray(engine.COOLANT_SHARE * fuel_g_per_s * engine.FUEL_J_PER_G - out)

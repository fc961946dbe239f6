"""The accelerometer that lies: mounted askew, offset, noisy, saturating; and the vehicle's other channels.

The mounting is undone nowhere here: what comes out is what a device would read, in its own axes, gravity included.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from simulators.crashes.pulses import acceleration, velocity
from simulators.crashes.scenarios import IMPACT_S, KMH, LAUNCH_S, Scenario

GRAVITY_MPS2: Final = 9.80665
CHANNEL_STEP_S: Final = 0.1
ROLL_STEP_S: Final = 0.05
STATE_STEP_US: Final = 1_000_000
"""Belts and lamps are told once a second, as the ordinary readings of a vehicle are."""

Vector = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Sensor:
    """How wrong the sensor is: noise (m/s², one sigma), offset (m/s²), limit (g), mounting angles (degrees)."""

    rate_hz: int = 500
    noise_mps2: float = 0.2
    offset_mps2: Vector = (0.25, -0.2, 0.15)
    limit_g: Vector = (50.0, 50.0, 16.0)
    roll_deg: float = 0.0
    pitch_deg: float = 0.0
    yaw_deg: float = 0.0


@dataclass(frozen=True, slots=True)
class Reading:
    """One thing that the device sees: ``name`` is "motion", a channel or "restraint:<name>"."""

    at_us: int
    name: str
    value: float | str | Vector | None


def roll_angle_deg(scenario: Scenario, at_s: float) -> float:
    """The true roll angle."""
    return sum(pulse.travel(at_s) for pulse in scenario.roll)


def speed_kmh(scenario: Scenario, at_s: float) -> float:
    """What the speedometer shows: never below zero, exactly zero before the launch."""
    return 0.0 if at_s <= LAUNCH_S else max(0.0, velocity(scenario.longitudinal, at_s) / KMH)


def braking(scenario: Scenario, at_s: float) -> bool:
    """Whether the brake is on: at the standstill, before the impact when the driver brakes, and after it."""
    return at_s <= LAUNCH_S or at_s >= IMPACT_S - scenario.brake_s


def channel_values(scenario: Scenario, at_s: float) -> dict[str, float | str | None]:
    """The vehicle's channels at an instant, in the units of the profiles; what is not fitted is not here."""
    speed = speed_kmh(scenario, at_s)
    on = braking(scenario, at_s)
    hard = on and scenario.brake_mps2 >= 8 and at_s < IMPACT_S
    return {
        "speed": speed,
        "accelerator": 0.0 if on else 22.0 + 4 * math.sin(at_s / 3),
        "service_brake": "on" if on else "off",
        "engine_rpm": 800.0 + 32 * speed,
        "steering": 12 * math.sin(at_s / 4),
        "yaw_rate": 3 * math.sin(at_s / 4),
        "abs_activity": "on" if hard else "off",
        "stability_control": "on",
    }


def readings(scenario: Scenario, sensor: Sensor, seed: int, end_s: float, begin_s: float = 0.0) -> Iterator[Reading]:
    """Everything that the device sees, in the order of time. The same arguments give the same readings."""
    noise = random.Random(seed)
    phase_us = noise.randrange(5_000, 95_000)
    streams = [*_channels(scenario, noise, phase_us, end_s, begin_s), *_restraints(scenario)]
    streams.sort(key=lambda reading: reading.at_us)
    pending = iter(streams)
    waiting = next(pending, None)
    for motion in _motion(scenario, sensor, noise, end_s, begin_s):
        while waiting is not None and waiting.at_us <= motion.at_us:
            yield waiting
            waiting = next(pending, None)
        yield motion
    while waiting is not None:
        yield waiting
        waiting = next(pending, None)


def _restraints(scenario: Scenario) -> Iterator[Reading]:
    for name, after_s in scenario.restraints:
        yield Reading(round((IMPACT_S + after_s) * 1e6), f"restraint:{name}", None)


def _channels(
    scenario: Scenario, noise: random.Random, phase_us: int, end_s: float, begin_s: float
) -> Iterator[Reading]:
    begin_us = round(begin_s * 1e6)
    for at_us in range(begin_us + 1_000, round(end_s * 1e6), STATE_STEP_US):
        for name, state in (("belt_driver", "on"), ("belt_passenger", "on"), ("airbag_lamp", "off")):
            yield Reading(at_us, name, state)
    at_us = phase_us + begin_us
    while at_us < end_s * 1e6:
        values = channel_values(scenario, at_us / 1e6)
        for name, value in values.items():
            if isinstance(value, float) and name == "speed" and value > 0:
                value = max(0.1, value + noise.gauss(0, 0.1))
            yield Reading(at_us, name, value)
        at_us += round(CHANNEL_STEP_S * 1e6)
    at_us = phase_us + begin_us
    while at_us < end_s * 1e6:
        at_s = at_us / 1e6
        yield Reading(at_us, "roll_angle", roll_angle_deg(scenario, at_s))
        yield Reading(at_us, "roll_rate", velocity(scenario.roll, at_s) + noise.gauss(0, 0.3))
        at_us += round(ROLL_STEP_S * 1e6)


def _motion(
    scenario: Scenario, sensor: Sensor, noise: random.Random, end_s: float, begin_s: float
) -> Iterator[Reading]:
    into_sensor = _vehicle_to_sensor(sensor)
    limits = [limit * GRAVITY_MPS2 for limit in sensor.limit_g]
    step_us = 1_000_000 // sensor.rate_hz
    drive, side, vertical = scenario.longitudinal, scenario.y, scenario.z
    for index in range(round(begin_s * sensor.rate_hz), int(end_s * sensor.rate_hz)):
        at_s = index * step_us / 1e6
        roll = math.radians(roll_angle_deg(scenario, at_s)) if scenario.roll else 0.0
        y, z = acceleration(side, at_s), acceleration(vertical, at_s)
        # an accelerometer feels acceleration minus gravity; gravity points along +z (down) and leans into +y with roll
        x = acceleration(drive, at_s)
        felt = (x, -(y - GRAVITY_MPS2 * math.sin(roll)), -(z - GRAVITY_MPS2 * math.cos(roll)))
        raw = []
        for axis in range(3):
            row = into_sensor[axis]
            value = row[0] * felt[0] + row[1] * felt[1] + row[2] * felt[2]
            value += sensor.offset_mps2[axis] + noise.gauss(0, sensor.noise_mps2)
            raw.append(max(-limits[axis], min(limits[axis], value)))
        yield Reading(index * step_us, "motion", (raw[0], raw[1], raw[2]))


def _vehicle_to_sensor(sensor: Sensor) -> tuple[Vector, Vector, Vector]:
    """Turns the vehicle's axes (ISO 8855) by yaw about z, pitch about the new y, roll about the newest x."""
    rows: tuple[Vector, Vector, Vector] = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    for axis, degrees in ((2, sensor.yaw_deg), (1, sensor.pitch_deg), (0, sensor.roll_deg)):
        rows = _turned(rows, axis, math.radians(degrees))
    return rows


def _turned(rows: tuple[Vector, Vector, Vector], axis: int, angle: float) -> tuple[Vector, Vector, Vector]:
    """The base vectors after turning the frame about one of its own axes."""
    first, second = (axis + 1) % 3, (axis + 2) % 3
    cosine, sine = math.cos(angle), math.sin(angle)
    a, b = rows[first], rows[second]
    turned = list(rows)
    turned[first] = (cosine * a[0] + sine * b[0], cosine * a[1] + sine * b[1], cosine * a[2] + sine * b[2])
    turned[second] = (cosine * b[0] - sine * a[0], cosine * b[1] - sine * a[1], cosine * b[2] - sine * a[2])
    return turned[0], turned[1], turned[2]

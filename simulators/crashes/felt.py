"""What each element of a table should say in a scenario: the true values.

Written from the scenario's closed forms; the recorder's own code is not used.
"""

from __future__ import annotations

import math

from simulators.crashes.pulses import acceleration, velocity
from simulators.crashes.scenarios import Scenario
from simulators.crashes.sensor import GRAVITY_MPS2, Sensor, channel_values, roll_angle_deg


def felt_g(scenario: Scenario, axis: str, at_s: float) -> float:
    """What a perfect accelerometer in the record's axes feels, in g, zero at rest: gravity leans in when it rolls."""
    roll = math.radians(roll_angle_deg(scenario, at_s))
    if axis == "x":
        return acceleration(scenario.longitudinal, at_s) / GRAVITY_MPS2
    if axis == "y":
        return acceleration(scenario.y, at_s) / GRAVITY_MPS2 - math.sin(roll)
    return acceleration(scenario.z, at_s) / GRAVITY_MPS2 + 1 - math.cos(roll)


def first_saturation_s(scenario: Scenario, sensor: Sensor, axis: str, from_s: float, to_s: float) -> float | None:
    """When a straight-mounted sensor's limit on an axis is first reached (its offset and noise left aside)."""
    limit_g = sensor.limit_g["xyz".index(axis)]
    count = round((to_s - from_s) * 10_000)
    instants = (from_s + index / 10_000 for index in range(count + 1))
    return next((at_s for at_s in instants if abs(felt_g(scenario, axis, at_s)) >= limit_g), None)


def channel_truth(scenario: Scenario, name: str, at_s: float) -> float | str | None:
    """A channel's true value at an instant."""
    if name == "roll_angle":
        return roll_angle_deg(scenario, at_s)
    if name == "roll_rate":
        return velocity(scenario.roll, at_s)
    return channel_values(scenario, at_s).get(name)

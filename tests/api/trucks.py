"""Trucks like those of the benchmark suite TSBS (use case iot), seeded: who they are and what they tell.

The suite's walks, with what its trucks lack and the questions are about: stops, hours of silence, an engine and a lamp
of their own. Values are integers of their signal's resolution, so that what is sent is what is measured.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

FLEETS: Final = ("East", "West", "North", "South")
DRIVERS: Final = ("Ada", "Bela", "Cem", "Dora", "Emil", "Fay")
MODELS: Final = (("F-150", 2_000.0, 200.0, 15.0), ("G-2000", 5_000.0, 300.0, 19.0), ("H-2", 1_500.0, 150.0, 12.0))
"""Name, load capacity (kg), tank (l), nominal consumption (l/100 km): the suite's three."""

LATITUDE, LONGITUDE = "Vehicle.CurrentLocation.Latitude", "Vehicle.CurrentLocation.Longitude"
SPEED, RUNNING = "Vehicle.Speed", "Vehicle.Powertrain.CombustionEngine.IsRunning"
FUEL, CONSUMPTION = (
    "Vehicle.Powertrain.FuelSystem.RelativeLevel", "Vehicle.Powertrain.FuelSystem.InstantConsumption",
)  # fmt: skip
LOAD, LAMP = "Fleetstream.Cargo.Weight", "Fleetstream.Diagnostics.IsMalfunctionLampOn"
SCALES: Final = {
    LATITUDE: 10**7, LONGITUDE: 10**7, SPEED: 100, RUNNING: 1, FUEL: 10, CONSUMPTION: 100, LOAD: 1, LAMP: 1
}  # fmt: skip
"""Units of the resolution in one of the signal's unit."""


@dataclass(frozen=True, slots=True)
class Truck:
    """What is known of a truck beside what it tells."""

    name: str
    fleet: str | None
    driver: str | None
    model: str | None
    capacity_kg: float | None
    tank_l: float | None
    nominal_l_100km: float | None


class Told(NamedTuple):
    """One reading: ``units`` of the signal's resolution."""

    truck: str
    path: str
    ms: int
    units: int

    @property
    def value(self) -> float:
        return self.units / SCALES[self.path]


Tick = tuple[Told, ...]
"""What a truck tells at one moment."""


def trucks(count: int, seed: int = 1) -> list[Truck]:
    """The first ones lack a tag each, as one in a hundred of the suite's rows does."""
    dice = random.Random(seed)
    made = []
    for number in range(count):
        model, capacity, tank, nominal = dice.choice(MODELS)
        tags = [dice.choice(FLEETS), dice.choice(DRIVERS), model, capacity, tank, nominal]
        if number < len(tags):
            tags[number] = None  # type: ignore[call-overload]
        made.append(Truck(f"truck_{number}", *tags))  # type: ignore[arg-type]
    return made


def ticks(truck: Truck, start_ms: int, end_ms: int, step_ms: int, seed: int = 1) -> Iterator[Tick]:
    """What the truck tells in [start, end); one field in ten moments is missing, some hours are silent."""
    dice = random.Random(f"{seed} {truck.name}")
    speed, consumption, load = 0.0, 25.0, dice.uniform(0, 5_000)
    latitude, longitude, fuel = dice.uniform(-89, 89), dice.uniform(-179, 179), dice.uniform(0.05, 1)
    lamp, resting, silent, rests = 2.0, 0, 0, dice.choice((0.02, 0.15, 0.3))
    hour = 3_600_000 // step_ms
    for ms in range(start_ms, end_ms, step_ms):
        resting = dice.randint(1, 3 * hour) if dice.random() < rests / hour else max(0, resting - 1)
        silent = dice.randint(1, 2 * hour) if dice.random() < 0.05 / hour else max(0, silent - 1)
        speed = 0.0 if resting else _clamp(speed + dice.uniform(-10, 10), 0, 100)
        consumption = _clamp(consumption + dice.uniform(-5, 5), 0, 50)
        latitude = _clamp(latitude + dice.uniform(-0.005, 0.005), -90, 90)
        longitude = _clamp(longitude + dice.uniform(-0.005, 0.005), -180, 180)
        fuel = fuel - dice.uniform(0, 0.02) if fuel > 0.02 else 1.0
        load = dice.uniform(0, 5_000) if dice.random() < 0.05 else load
        lamp = _clamp(lamp + dice.gauss(0, 0.5), 0, 5)
        values = {
            LATITUDE: latitude, LONGITUDE: longitude, SPEED: speed, FUEL: fuel * 100, LOAD: load,
            RUNNING: float(speed > 0 or dice.random() < 0.4), LAMP: float(lamp < 1),
        }  # fmt: skip
        if speed > 0:
            values[CONSUMPTION] = consumption
        if dice.random() < 0.1:
            del values[dice.choice(sorted(values))]
        if not silent:
            yield tuple(Told(truck.name, path, ms, round(value * SCALES[path])) for path, value in values.items())


def _clamp(value: float, low: float, high: float) -> float:
    return min(high, max(low, value))

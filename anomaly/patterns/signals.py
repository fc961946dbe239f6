"""Signals of the catalogue by name, as rules speak of them; a law compares each with the catalogue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Named:
    """Number, path and unit of one row of the catalogue."""

    number: int
    path: str
    unit: str


SPEED: Final = Named(1, "Vehicle.Speed", "km/h")
BRAKING: Final = Named(10, "Vehicle.Acceleration.Longitudinal", "m/s^2")
ENGINE_SPEED: Final = Named(20, "Vehicle.Powertrain.CombustionEngine.Speed", "rpm")
COOLANT: Final = Named(21, "Vehicle.Powertrain.CombustionEngine.EngineCoolant.Temperature", "Celsius")
THROTTLE: Final = Named(25, "Vehicle.Powertrain.CombustionEngine.TPS", "percent")
BATTERY: Final = Named(50, "Vehicle.LowVoltageBattery.CurrentVoltage", "V")
AIRBAG: Final = Named(63, "Vehicle.Cabin.Seat.Row1.DriverSide.Airbag.IsDeployed", "")
GENERATOR_SPEED: Final = Named(1009, "WindTurbine.WGEN.RotSpd", "rpm")
BEARING: Final = Named(1011, "WindTurbine.WGEN.BrgDETmp", "Celsius")
GENERATOR_VIBRATION: Final = Named(1017, "WindTurbine.WGEN.Vbr", "mm/s")

ALL: Final = (
    SPEED, BRAKING, ENGINE_SPEED, COOLANT, THROTTLE, BATTERY, AIRBAG, GENERATOR_SPEED, BEARING, GENERATOR_VIBRATION,
)  # fmt: skip

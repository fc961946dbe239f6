"""A small turbocharged petrol engine with a six-speed gearbox: torque, speed, air, fuel, heat. Pure.

Typical figures of a 1.4 l compact car, from textbook relations (Guzzella and Sciarretta, Vehicle Propulsion
Systems): a Willans line for fuel, speed-density for air, one heat capacity for the block and its coolant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

MASS_KG: Final = 1_340.0
GRAVITY: Final = 9.81
DRAG_AREA_M2: Final = 0.65
AIR_DENSITY: Final = 1.2
ROLLING: Final = 0.011
WHEEL_M: Final = 0.316
FINAL_DRIVE: Final = 3.65
RATIOS: Final = (0.0, 3.78, 2.12, 1.36, 1.03, 0.84, 0.69)
"""Indexed by gear; 0 is neutral."""
DRIVELINE: Final = 0.93
IDLE_RPM: Final = 780.0
TOP_RPM: Final = 6_200.0
DISPLACEMENT_M3: Final = 1.4e-3
FILLING: Final = 0.85
STOICHIOMETRIC: Final = 14.7
"""Kilograms of air that one kilogram of petrol needs."""
FUEL_J_PER_G: Final = 42_700.0
INDICATED_EFFICIENCY: Final = 0.38
ACCESSORIES_W: Final = 900.0
FUEL_G_PER_L: Final = 745.0
TANK_L: Final = 50.0
BLOCK_J_PER_K: Final = 62_000.0
COOLANT_SHARE: Final = 0.30
"""Share of the fuel's power that goes into the coolant."""
THERMOSTAT_C: Final = (86.0, 97.0)
RADIATOR_W_PER_K: Final = 850.0
CASE_W_PER_K: Final = 11.0


@dataclass(frozen=True, slots=True)
class Running:
    """The engine at one moment. ``torque_nm`` is at the crankshaft, ``brake_n`` at the wheels, never negative."""

    rpm: float
    torque_nm: float
    load: float
    fuel_g_per_s: float
    air_g_per_s: float
    manifold_kpa: float
    brake_n: float


def rpm_at(speed_mps: float, gear: int) -> float:
    """Crankshaft speed: locked to the wheels, never below idle (the clutch slips), idle in neutral."""
    return max(IDLE_RPM, speed_mps / WHEEL_M * RATIOS[gear] * FINAL_DRIVE * 30 / math.pi)


def full_torque(rpm: float) -> float:
    """Most torque in Nm: a plateau of 200 Nm between 1,500 and 4,000 rpm, falling on both sides."""
    if rpm < 1_500:
        return 95 + 105 * (rpm - IDLE_RPM) / (1_500 - IDLE_RPM)
    return 200.0 if rpm < 4_000 else max(0.0, 200 - 60 * (rpm - 4_000) / 2_200)


def friction_torque(rpm: float) -> float:
    """What turning the engine costs, in Nm."""
    return 13.0 + 0.0042 * rpm


def resistance_n(speed_mps: float, climb: float) -> float:
    """Air, rolling and slope force against the motion, in newtons; rolling resists only a rolling car."""
    air = 0.5 * AIR_DENSITY * DRAG_AREA_M2 * speed_mps * speed_mps
    rolling = ROLLING * MASS_KG * GRAVITY if speed_mps > 0 else 0.0
    return air + rolling + MASS_KG * GRAVITY * climb


def most_acceleration(speed_mps: float, gear: int, climb: float) -> float:
    """What full torque gives in this gear, in m/s^2."""
    force = full_torque(rpm_at(speed_mps, gear)) * RATIOS[gear] * FINAL_DRIVE * DRIVELINE / WHEEL_M
    return (force - resistance_n(speed_mps, climb)) / MASS_KG


def run(speed_mps: float, acceleration: float, gear: int, climb: float) -> Running:
    """The engine and brakes that make this acceleration in this gear on this slope."""
    rpm = rpm_at(speed_mps, gear)
    wheel_n = MASS_KG * acceleration + resistance_n(speed_mps, climb) if speed_mps > 0 else 0.0
    friction, most = friction_torque(rpm), full_torque(rpm)
    torque, brake_n = 0.0, 0.0
    if gear:
        lever = RATIOS[gear] * FINAL_DRIVE / WHEEL_M
        asked = wheel_n / (lever * DRIVELINE) if wheel_n > 0 else wheel_n * DRIVELINE / lever
        torque = min(most, max(-friction, asked))
        brake_n = max(0.0, -wheel_n - friction * lever / DRIVELINE)
    elif wheel_n < 0:
        brake_n = -wheel_n
    omega = rpm * math.pi / 30
    cut = torque <= -friction * 0.98 and rpm > 1_100
    indicated_w = 0.0 if cut else max(0.0, torque + friction) * omega + ACCESSORIES_W
    fuel = indicated_w / (INDICATED_EFFICIENCY * FUEL_J_PER_G)
    swept = DISPLACEMENT_M3 * rpm / 120 * AIR_DENSITY * 1_000 * FILLING
    air = max(fuel * STOICHIOMETRIC, 0.24 * swept)
    return Running(rpm, torque, max(0.0, torque / most) if most else 0.0, fuel, air, 100 * air / swept, brake_n)


def next_gear(gear: int, speed_mps: float, load: float) -> int:
    """The automatic gearbox: up early at small load, down before the engine labours; neutral when standing."""
    if speed_mps < 0.1:
        return 0
    if gear == 0:
        return 1
    rpm = rpm_at(speed_mps, gear)
    if gear < len(RATIOS) - 1 and rpm > 1_950 + 2_300 * load:
        return gear + 1
    if gear > 1 and rpm < 1_200 + 600 * load:
        return gear - 1
    return gear


def coolant_watts(coolant_c: float, ambient_c: float, speed_mps: float, fuel_g_per_s: float) -> float:
    """Net heat flow into block and coolant, in watts: fuel in; thermostat, radiator and case out."""
    shut, wide = THERMOSTAT_C
    opening = min(1.0, max(0.0, (coolant_c - shut) / (wide - shut)))
    wind = 0.35 + min(1.0, speed_mps / 25)
    out = (opening * RADIATOR_W_PER_K * wind + CASE_W_PER_K) * (coolant_c - ambient_c)
    return COOLANT_SHARE * fuel_g_per_s * FUEL_J_PER_G - out

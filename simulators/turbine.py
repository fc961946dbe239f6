"""A 2 MW wind turbine: rotor aerodynamics, torque and pitch control, yaw, heat and vibration in one state.

The rotor accelerates by aerodynamic minus generator torque; the generator follows the optimum below rated speed and
holds rated power above it, where the pitch limits the rotor; it runs between cut-in and cut-out wind with hysteresis.
Heat flows from losses into masses that cool to the nacelle. The figures are typical of the class.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from typing import Final

from simulators.machine import STEP_MS, Channel
from simulators.wind import Wind

STEP_S: Final = STEP_MS / 1_000
STOPPED, STARTING, PRODUCTION, STOPPING = 0, 1, 2, 3
RADIUS_M: Final = 41.0
AREA_M2: Final = math.pi * RADIUS_M**2
AIR_DENSITY: Final = 1.225
INERTIA: Final = 6.0e6
"""Rotor and generator seen from the slow shaft, kg m^2."""
RATED_KW: Final = 2_000.0
RATED_RPM: Final = 17.0
GRID_RPM: Final = 8.5
GEAR_RATIO: Final = 98.0
BEST_TIP_RATIO: Final = 7.0
BEST_COEFFICIENT: Final = 0.44
PITCH_EFFECT: Final = 40.0
"""Chosen so that rated power is held with about 5, 14 and 22 degrees at 15, 20 and 24 m/s, as such machines do."""
CUT_IN_MPS, CUT_OUT_MPS, RESTART_MPS = 3.5, 25.0, 21.0
AVERAGE_S: Final = 30.0
"""Wind is averaged this long before it starts or stops the turbine."""
PITCH_RATE: Final = 8.0
FEATHERED: Final = 88.0
OWN_USE_KW: Final = 8.0
GEARBOX_EFFICIENCY, GENERATOR_EFFICIENCY = 0.975, 0.965
YAW_RATE: Final = 0.4
YAW_DEADBAND, YAW_DONE = 8.0, 0.5
YAW_PATIENCE_S: Final = 30.0
VANE_S: Final = 20.0
"""The yaw controller averages the wind vane this long."""
TWIST_LIMIT_TURNS: Final = 2.5

CHANNELS: Final = (
    *(Channel(number, 1_000) for number in (1001, 1002, 1003, 1004, 1005, 1008, 1009, 1012, 1013, 1015, 1017, 1018)),
    *(Channel(number, 5_000) for number in (1006, 1007, 1010, 1011, 1014, 1016, 1019)),
)


def power_coefficient(tip_ratio: float, pitch: float) -> float:
    """Share of the wind's power that the rotor takes; ``pitch`` in degrees. Never above Betz's limit, never below 0.

    A parabola over the tip ratio with its top at BEST_TIP_RATIO; pitch takes power away, the more the faster the
    blade moves against the wind, and a feathered blade takes none.
    """
    off = tip_ratio / BEST_TIP_RATIO - 1
    still = max(0.0, math.cos(math.radians(pitch))) ** 2
    return max(0.0, BEST_COEFFICIENT * (1 - off * off) * math.exp(-pitch * tip_ratio / PITCH_EFFECT) * still)


TORQUE_GAIN: Final = 0.5 * AIR_DENSITY * AREA_M2 * RADIUS_M**3 * BEST_COEFFICIENT / BEST_TIP_RATIO**3
"""Generator torque = gain times rotor speed squared keeps the tip ratio at its best."""
RATED_OMEGA: Final = RATED_RPM * math.pi / 30
RATED_WATTS: Final = (RATED_KW + OWN_USE_KW) * 1_000 / (GEARBOX_EFFICIENCY * GENERATOR_EFFICIENCY)
RAMP: Final = (0.90, 0.985)
"""Shares of rated speed between which the torque rises from the optimum to rated."""


def generator_torque(omega: float) -> float:
    """Torque in Nm that the converter asks for: optimum, a steep ramp, then constant power."""
    low, high = RAMP[0] * RATED_OMEGA, RAMP[1] * RATED_OMEGA
    if omega >= high:
        return RATED_WATTS / omega
    if omega <= low:
        return TORQUE_GAIN * omega**2
    foot = TORQUE_GAIN * low**2
    return foot + (omega - low) / (high - low) * (RATED_WATTS / high - foot)


class Turbine:
    """One turbine's life, told by its seed and its weather."""

    channels = CHANNELS

    def __init__(self, seed: int, weather: int = 0, wind: Wind | None = None, ambient_c: float | None = None) -> None:
        chance = random.Random(f"turbine {seed}")
        self._noise = random.Random(f"turbine noise {seed}")
        self.wind = wind or Wind(weather, seed)
        self.ambient_c = chance.uniform(-2.0, 22.0) if ambient_c is None else ambient_c
        self.energy_kwh = chance.uniform(1e6, 5e7)
        self.roughness = chance.uniform(0.8, 1.25)
        self.average = self.wind.speed
        self.direction = self.wind.direction
        self.nacelle = self.wind.direction
        self.twist_turns = chance.uniform(-1.0, 1.0)
        self.yawing, self.misaligned_s = 0, 0.0
        self.hertz = 50.0
        self.state, self.pitch, self.omega, self.kw = STOPPED, FEATHERED, 0.0, -OWN_USE_KW
        if CUT_IN_MPS < self.average < CUT_OUT_MPS:
            self.state, self.pitch, self.omega = (
                PRODUCTION,
                0.0,
                min(RATED_OMEGA, BEST_TIP_RATIO * self.average / RADIUS_M),
            )
        self.over = self.omega / RATED_OMEGA - 1
        self.gearbox_c = self.shaft_c = self.bearing_c = self.stator_c = self.inside_c = self.ambient_c + 4

    @property
    def rotor_rpm(self) -> float:
        return self.omega * 30 / math.pi

    @property
    def error_degrees(self) -> float:
        """Wind direction against nacelle, -180 .. 180."""
        return (self.direction - self.nacelle + 180) % 360 - 180

    def aerodynamic_watts(self) -> float:
        """What the rotor takes from the wind now."""
        along = self.wind.speed * math.cos(math.radians(self.error_degrees))
        if along <= 0.1:
            return 0.0
        coefficient = power_coefficient(self.omega * RADIUS_M / along, self.pitch)
        return 0.5 * AIR_DENSITY * AREA_M2 * along**3 * coefficient

    def step(self, at_ms: int) -> None:
        self.wind.step()
        self.average += STEP_S / AVERAGE_S * (self.wind.speed - self.average)
        self.direction = (
            self.direction + STEP_S / 20 * ((self.wind.direction - self.direction + 180) % 360 - 180)
        ) % 360
        self._decide()
        self._turn_blades()
        self._turn_rotor()
        self._turn_nacelle()
        self._warm()
        self.hertz += STEP_S / 60 * (50.0 - self.hertz) + self._noise.gauss(0.0, 0.0009)

    def measure(self, signals: Iterable[int]) -> list[float | None]:
        noise = self._noise.gauss
        values: dict[int, float | None] = {
            1001: float(self.state), 1002: self.kw, 1003: self.energy_kwh, 1004: self.rotor_rpm,
            1005: self.pitch, 1006: self.gearbox_c, 1007: self.shaft_c, 1008: self._vibration(0.55, 1.5, 0.9),
            1009: self.rotor_rpm * GEAR_RATIO, 1010: self.stator_c, 1011: self.bearing_c,
            1012: max(0.0, self.wind.speed + noise(0, 0.1)), 1013: (self.wind.direction + noise(0, 1.5)) % 360,
            1014: self.ambient_c, 1015: self.nacelle, 1016: self.inside_c, 1017: self._vibration(0.4, 1.1, 0.5),
            1018: self.hertz, 1019: self.twist_turns,
        }  # fmt: skip
        return [values[signal] for signal in signals]

    def snapshot(self) -> list[float]:
        return [self.energy_kwh, self.nacelle, self.twist_turns, self.gearbox_c, self.shaft_c, self.bearing_c,
                self.stator_c, self.inside_c]  # fmt: skip

    def restore(self, state: list[float]) -> None:
        (self.energy_kwh, self.nacelle, self.twist_turns, self.gearbox_c, self.shaft_c, self.bearing_c,
         self.stator_c, self.inside_c) = state  # fmt: skip

    def _decide(self) -> None:
        """Cut-in, cut-out and cable untwisting, with hysteresis."""
        windy = CUT_IN_MPS < self.average < RESTART_MPS
        twisted = abs(self.twist_turns) > TWIST_LIMIT_TURNS
        if self.state == STOPPED and windy and abs(self.twist_turns) < 1 and abs(self.error_degrees) < 2 * YAW_DEADBAND:
            self.state = STARTING
        elif self.state == STARTING and self.rotor_rpm >= GRID_RPM:
            self.state = PRODUCTION
        elif self.state in (STARTING, PRODUCTION):
            if self.average > CUT_OUT_MPS or self.average < CUT_IN_MPS - 0.7 or twisted:
                self.state = STOPPING
        elif self.state == STOPPING and self.rotor_rpm < 0.5:
            self.state = STOPPED

    def _turn_blades(self) -> None:
        if self.state in (STOPPED, STOPPING):
            target = FEATHERED
        elif self.state == STARTING:
            target = 20.0 if self.rotor_rpm < 1.5 else 4.0
        else:
            over = self.omega / RATED_OMEGA - 1
            change, self.over = over - self.over, over
            target = self.pitch + (40.0 * over * STEP_S + 160.0 * change) / (1 + self.pitch / 10)
        move = max(-PITCH_RATE * STEP_S, min(PITCH_RATE * STEP_S, target - self.pitch))
        self.pitch = min(FEATHERED, max(0.0, self.pitch + move))

    def _turn_rotor(self) -> None:
        generator = generator_torque(self.omega) if self.state == PRODUCTION else 0.0
        drive = self.aerodynamic_watts() / max(self.omega, 0.05)
        if self.state == STARTING:
            drive = max(drive, 6e4 * (self.wind.speed / CUT_IN_MPS) ** 2 * (1 - self.rotor_rpm / RATED_RPM))
        drag = 9e3 + 2.5e4 * self.omega + (6e5 * self.omega if self.state == STOPPING else 0.0)
        self.omega = max(0.0, self.omega + STEP_S * (drive - generator - drag) / INERTIA)
        shaft_kw = generator * self.omega / 1_000
        self.kw = shaft_kw * GEARBOX_EFFICIENCY * GENERATOR_EFFICIENCY - OWN_USE_KW
        self.energy_kwh += max(0.0, self.kw) * STEP_S / 3_600

    def _turn_nacelle(self) -> None:
        error = self.error_degrees
        self.misaligned_s = self.misaligned_s + STEP_S if abs(error) > YAW_DEADBAND else 0.0
        if self.state == STOPPED and abs(self.twist_turns) > 1:
            self.yawing = -1 if self.twist_turns > 0 else 1
        elif self.yawing and (abs(error) < YAW_DONE or self.yawing * error < 0):
            self.yawing = 0
        elif not self.yawing and self.misaligned_s > YAW_PATIENCE_S and self.average > CUT_IN_MPS - 1:
            self.yawing = 1 if error > 0 else -1
        move = self.yawing * YAW_RATE * STEP_S
        self.nacelle = (self.nacelle + move) % 360
        self.twist_turns += move / 360

    def _warm(self) -> None:
        share, turning = max(0.0, self.kw) / RATED_KW, self.omega / RATED_OMEGA
        self.inside_c += STEP_S / 1_800 * (self.ambient_c + 5 + 9 * share - self.inside_c)
        fan = 1.0 + 1.8 * min(1.0, max(0.0, (self.gearbox_c - 55) / 8))
        self.gearbox_c = self._towards(self.gearbox_c, 14 * turning + 52 * share, 1_500, fan)
        self.shaft_c = self._towards(self.shaft_c, 17 * turning + 6 * share, 3_000, 1.0)
        self.bearing_c = self._towards(self.bearing_c, 26 * turning + 12 * share, 900, 1.0)
        self.stator_c = self._towards(self.stator_c, 8 * turning + 78 * share * share, 700, 1.0)

    def _towards(self, now_c: float, rise_c: float, inertia_s: float, cooling: float) -> float:
        """First-order warming: heat worth ``rise_c`` in, ``cooling`` times the excess over the nacelle out."""
        return now_c + STEP_S / inertia_s * (rise_c - cooling * (now_c - self.inside_c))

    def _vibration(self, floor: float, by_speed: float, by_power: float) -> float:
        """Velocity RMS in mm/s: none at rest, growing with speed squared and power, scattered by a few per cent."""
        turning = self.omega / RATED_OMEGA
        level = floor * min(1.0, 4 * turning) + by_speed * turning**2 + by_power * max(0.0, self.kw) / RATED_KW
        return max(0.0, self.roughness * level * (1 + self._noise.gauss(0, 0.05)))

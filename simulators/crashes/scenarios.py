"""The menu of scenarios: how the vehicle drove, what hit it, which restraints fired.

Every drive begins with a standstill (there the recorder learns its sensor's zero), speeds up, cruises, brakes or not,
and meets its pulse at `IMPACT_S`. Longitudinal deceleration is negative x; a push from the left is positive y.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from simulators.crashes.pulses import Haversine, Pulse, Ripple, Square, Triangle

IMPACT_S: Final = 23.0
END_S: Final = 29.2
KMH: Final = 1 / 3.6
LAUNCH_S: Final = 1.5
LAUNCH_MPS2: Final = 2.5
SETTLE_MPS2: Final = 4.0
"""After an impact tyres and bent metal push back against the motion that it left: this makes the peak a peak."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One drive. ``x``, ``y``, ``z``: pulses in m/s²; ``roll``: pulses of the roll rate's derivative (deg/s²).

    ``brake_s`` is how long before the impact the driver brakes; ``restraints`` are (name, seconds after the impact).
    """

    name: str
    title: str
    crash: bool
    cruise_kmh: float
    brake_s: float
    brake_mps2: float
    x: tuple[Pulse, ...] = ()
    y: tuple[Pulse, ...] = ()
    z: tuple[Pulse, ...] = ()
    roll: tuple[Haversine, ...] = ()
    restraints: tuple[tuple[str, float], ...] = ()

    @property
    def drive(self) -> tuple[Pulse, ...]:
        """The driver's own part of the longitudinal acceleration: speeding up, then braking until the impact."""
        launch = Square(LAUNCH_S, self.cruise_kmh * KMH / LAUNCH_MPS2, self.cruise_kmh * KMH)
        if not self.brake_s:
            return (launch,)
        return (launch, Square(IMPACT_S - self.brake_s, self.brake_s, -self.brake_mps2 * self.brake_s))

    @property
    def longitudinal(self) -> tuple[Pulse, ...]:
        """Everything that acts along x."""
        return (*self.drive, *self.x)


def _settle(after_s: float, seconds: float, sign: float) -> Square:
    return Square(IMPACT_S + after_s, seconds, sign * SETTLE_MPS2 * seconds)


_ALL: Final = (
    Scenario(
        "haversine", "frontal impact at 45 km/h velocity change, air bags", True, 60, 1.5, 5.0,
        x=(Haversine(IMPACT_S, 0.100, -45 * KMH), _settle(0.100, 0.4, +1)),
        restraints=(
            ("frontal_airbag_time_driver", 0.024),
            ("frontal_airbag_time_passenger", 0.024),
            ("frontal_airbag_stage2_time_driver", 0.034),
            ("pretensioner_time_driver", 0.020),
        ),
    ),
    Scenario(
        "triangle", "frontal impact at 20 km/h velocity change, nothing deployed", True, 50, 0.0, 0.0,
        x=(Triangle(IMPACT_S, 0.090, -20 * KMH), _settle(0.090, 0.4, +1)),
    ),
    Scenario(
        "square", "struck from behind, 15 km/h velocity change, hard edge", True, 40, 1.0, 2.5,
        x=(Square(IMPACT_S, 0.080, 15 * KMH), _settle(0.080, 0.4, -1)),
    ),
    Scenario(
        "double", "two frontal impacts, 20 and 30 km/h, 0.6 s apart", True, 70, 1.5, 5.0,
        x=(
            Haversine(IMPACT_S, 0.080, -20 * KMH),
            _settle(0.080, 0.2, +1),
            Haversine(IMPACT_S + 0.6, 0.090, -30 * KMH),
            _settle(0.690, 0.4, +1),
        ),
        restraints=(("frontal_airbag_time_driver", 0.622),),
    ),
    Scenario(
        "rollover", "tripped sideways, then one and a quarter turns", True, 60, 0.0, 0.0,
        y=(Haversine(IMPACT_S, 0.110, -20 * KMH), _settle(0.110, 0.3, +1)),
        roll=(Haversine(IMPACT_S + 0.05, 0.5, 230.0), Haversine(IMPACT_S + 1.6, 0.8, -230.0)),
        restraints=(("curtain_airbag_time_driver_side", 0.120), ("curtain_airbag_time_right_side", 0.120)),
    ),
    Scenario(
        "side", "struck from the left, 25 km/h velocity change, side air bag", True, 45, 0.0, 0.0,
        y=(Haversine(IMPACT_S, 0.060, 25 * KMH), _settle(0.060, 0.4, -1)),
        restraints=(("side_airbag_time_driver", 0.014),),
    ),
    Scenario(
        "minor_bump", "parking bump, 4 km/h velocity change", False, 30, 0.0, 0.0,
        x=(Haversine(IMPACT_S, 0.080, -4 * KMH), _settle(0.080, 0.2, +1)),
    ),
    Scenario(
        "kerb_strike", "over a kerb: high peaks, no velocity change to speak of", False, 35, 0.0, 0.0,
        x=(Haversine(IMPACT_S, 0.020, -2.5 * KMH), Ripple(IMPACT_S + 0.02, 0.012, 4, 25.0)),
        y=(Haversine(IMPACT_S, 0.015, 1.5 * KMH), Ripple(IMPACT_S + 0.02, 0.010, 3, 20.0)),
        z=(Ripple(IMPACT_S, 0.020, 3, 70.0),),
    ),
    Scenario(
        "emergency_braking", "full braking with ABS from 70 km/h, no impact", False, 70, 2.0, 9.0,
        x=(Ripple(IMPACT_S - 2.0, 0.08, 25, 1.5),),
    ),
)  # fmt: skip

SCENARIOS: Final = {scenario.name: scenario for scenario in _ALL}

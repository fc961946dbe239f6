"""The declared set: the detectors that judge the stream, with frozen parameters. A new one is one entry here.

Changing an entry changes its version, so its findings are others; the stream then begins a run of its own over the
topics from their start. Limits of the rules are typical of the class of machine and stand beside their source.
"""

from __future__ import annotations

from typing import Final

from anomaly.accumulate import Accumulator
from anomaly.deployment import Deployment, Regime, check_set
from anomaly.detectors.ewma_cusum import EwmaCusum
from anomaly.detectors.faults import Faults
from anomaly.detectors.limits import Limits
from anomaly.patterns import PATTERNS
from contracts.finding import Severity

ANY: Final = float("inf")
VEHICLES: Final = ("car", "truck")
IDLE_RPM: Final = 500.0
"""Below this an engine does not run, whatever its sensor says."""

_COOLANT = Deployment(
    name="car-coolant",
    detector=Limits(low=(-50.0,), high=(112.0,), rate=(2.0,)),  # thermostats open wide at 97, caps boil over at 120
    signals=(21,),
    kinds=VEHICLES,
    cause="coolant",
    advice="Stop when it is safe and let the engine cool; then check coolant level, thermostat, fan and water pump.",
    severity=Severity.ALARM,
    accumulator=Accumulator(call_at=2, ceiling=12),
    worse=1.1,
)
_CHARGING = Deployment(
    name="car-charging",
    detector=Limits(low=(12.2,), high=(15.5,), rate=(ANY,)),  # a charging 12 V system holds 13.2 to 14.8
    signals=(50, 20),
    kinds=("car",),
    cause="charging",
    advice="Check the drive belt, the alternator and its regulator before the battery is empty.",
    severity=Severity.WARNING,
    accumulator=Accumulator(call_at=5, ceiling=30),
    hold_ms=2_000,
    worse=1.3,
    regime=Regime(1, (IDLE_RPM,)),
)
_TYRES = Deployment(
    name="car-tyres",
    detector=Limits(low=(180.0,) * 4, high=(350.0,) * 4, rate=(5.0,) * 4),  # cold target 230; warnings start 20 % below
    signals=(44, 45, 46, 47),
    kinds=("car",),
    cause="tyre",
    advice="Check the tyre for a puncture and set its pressure.",
    severity=Severity.WARNING,
    accumulator=Accumulator(call_at=2, ceiling=6),
    awaits=(0, 1, 2, 3),
)
_CODES = Deployment(
    name="vehicle-codes",
    detector=Faults(),
    signals=(53, 102),
    kinds=VEHICLES,
    cause="diagnosis",
    advice="Read the stored trouble codes.",
    severity=Severity.NOTE,
    accumulator=Accumulator(call_at=1, ceiling=1),
    awaits=(0, 1),
)
_BEARING = Deployment(
    name="turbine-bearing",
    detector=Limits(low=(-40.0,), high=(95.0,), rate=(0.5,)),  # generator bearings trip at 95; some 40 kg of steel
    signals=(1011,),
    kinds=("turbine",),
    cause="generator bearing",
    advice="Stop the turbine; check lubrication and look for wear on the drive end bearing of the generator.",
    severity=Severity.ALARM,
    accumulator=Accumulator(call_at=2, ceiling=12),
    worse=1.5,
)
_GEARBOX = Deployment(
    name="turbine-gearbox-oil",
    detector=Limits(low=(-40.0,), high=(82.0,), rate=(0.5,)),  # oil coolers hold 55 to 70; trips are at 80 to 85
    signals=(1006,),
    kinds=("turbine",),
    cause="gearbox",
    advice="Check the oil cooler and its fan, the oil level and the filter.",
    severity=Severity.WARNING,
    accumulator=Accumulator(call_at=2, ceiling=12),
    worse=1.5,
)
_VIBRATION = Deployment(
    name="turbine-generator-vibration",
    detector=EwmaCusum(signals=1, regimes=6, alpha=0.0005, slack=1.5, floor=40.0, warm=300),
    signals=(1017, 1009),
    kinds=("turbine",),
    cause="generator bearing",
    advice="Compare the vibration with the bearing's temperature; have the bearing inspected at the next visit.",
    severity=Severity.WARNING,
    accumulator=Accumulator(call_at=30, ceiling=60),
    hold_ms=2_000,
    regime=Regime(1, (850.0, 1_000.0, 1_150.0, 1_300.0, 1_450.0, 1_600.0)),
)

DEPLOYED: Final = check_set((_COOLANT, _CHARGING, _TYRES, _CODES, _BEARING, _GEARBOX, _VIBRATION, *PATTERNS))

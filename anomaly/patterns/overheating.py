"""An engine that gets hot and is driven hard all the same: the cooling does not keep up, and nobody has noticed."""

from __future__ import annotations

from typing import Final

from anomaly.patterns import signals as of
from anomaly.patterns.base import above, begins, below, deployed, holds, rises
from contracts.finding import Severity

# Thermostats open wide at 97 and fans run from 100 on: 104 after 6 K in five minutes is a rise that nothing stops.
OVERHEATING: Final = deployed(
    "pattern-overheating-under-load",
    (begins(rises(of.COOLANT, 6.0, 300_000), above(of.COOLANT, 104.0)), holds(above(of.THROTTLE, 70.0))),
    600_000,
    without=(below(of.COOLANT, 100.0), below(of.SPEED, 3.0)),
    kinds=("car", "truck"),
    cause="coolant",
    advice="Take load off and stop when it is safe; check fan, thermostat, water pump and coolant level.",
    severity=Severity.ALARM,
    hold_ms=15_000,
)

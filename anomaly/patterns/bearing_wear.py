"""A generator's bearing gets warm, then it shakes, at work: the order in which wear shows itself."""

from __future__ import annotations

from typing import Final

from anomaly.patterns import signals as of
from anomaly.patterns.base import above, begins, below, deployed, holds, rises
from contracts.finding import Severity

# Ambient and load move such a bearing by about 1 K a minute; zone B of ISO 10816-21 for generators ends at 10 mm/s.
BEARING_WEAR: Final = deployed(
    "pattern-bearing-wear",
    (begins(rises(of.BEARING, 12.0, 600_000), above(of.BEARING, 80.0)), holds(above(of.GENERATOR_VIBRATION, 10.0))),
    1_800_000,
    without=(below(of.BEARING, 70.0), below(of.GENERATOR_SPEED, 850.0)),
    kinds=("turbine",),
    cause="generator bearing",
    advice="Stop the turbine and inspect the generator's drive end bearing: heat came first, vibration followed.",
    severity=Severity.ALARM,
    hold_ms=15_000,
)

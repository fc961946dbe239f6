"""A battery that was low before the engine started, again and again: the next start may fail."""

from __future__ import annotations

from typing import Final

from anomaly.patterns import signals as of
from anomaly.patterns.base import above, begins, below, deployed, holds, within
from contracts.finding import Severity

# 11.8 V at rest is a lead battery at about a tenth of its charge; once the engine runs, the alternator lifts it.
_LOW = holds(within(of.BATTERY, 6.0, 11.8), below(of.ENGINE_SPEED, 50.0))
_START = begins(above(of.ENGINE_SPEED, 500.0))
WEAK_STARTS: Final = deployed(
    "pattern-weak-starts",
    (_LOW, _START) * 3,
    7 * 86_400_000,
    kinds=("car", "truck"),
    cause="charging",
    advice="Test the battery and look for what drains it while the vehicle is parked.",
    severity=Severity.WARNING,
    hold_ms=5_000,
)

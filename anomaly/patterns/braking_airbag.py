"""Hard braking, then an airbag: somebody may need help."""

from __future__ import annotations

from typing import Final

from anomaly.patterns import signals as of
from anomaly.patterns.base import above, begins, below, deployed
from contracts.finding import Severity

# 6 m/s^2 is an emergency braking on a dry road. The airbag's state is sent when it changes, so it is held.
BRAKING_AIRBAG: Final = deployed(
    "pattern-braking-then-airbag",
    (begins(below(of.BRAKING, -6.0)), begins(above(of.AIRBAG, 1.0))),
    15_000,
    kinds=("car", "truck"),
    cause="collision",
    advice="Call the driver; if nobody answers, send help to the last position. Keep the vehicle's crash record.",
    severity=Severity.CRITICAL,
    hold_ms=60_000,
)

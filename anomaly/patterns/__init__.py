"""The menu of event patterns: "A then B within T without C" over several signals, in order of event time.

A new rule is a new file and one line at the end here; ``tests/laws`` examines every entry. The name of a rule is never
given to another: findings, alerts and the precision of detectors are counted by it. ``base`` says what a rule is,
``detectors/sequence`` follows it.
"""

from __future__ import annotations

from typing import Final

from anomaly.deployment import Deployment
from anomaly.patterns.bearing_wear import BEARING_WEAR
from anomaly.patterns.braking_airbag import BRAKING_AIRBAG
from anomaly.patterns.overheating import OVERHEATING
from anomaly.patterns.weak_starts import WEAK_STARTS

PATTERNS: Final[tuple[Deployment, ...]] = (OVERHEATING, BRAKING_AIRBAG, WEAK_STARTS, BEARING_WEAR)

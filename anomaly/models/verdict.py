"""Which of two models is worse on the same rows; without a live one, whether a candidate may be the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from anomaly.models.trial import Score

LATER: Final = 1.25
"""A median delay this many times the live model's, and LATER_S more, is worse."""
LATER_S: Final = 10.0
LESS_KNOWN: Final = 0.9
"""A model that knows less than this share of what the live one knows is quiet because it does not look."""
FIRST_PER_MONTH: Final = 30.0
"""Without a live model: more than one false alarm a device and day is worse than none at all."""


def worse(candidate: Score, live: Score | None) -> Sequence[str]:
    """Why the candidate should not be promoted, in words; empty: it may."""
    reasons = [f"the injected fault {one.name!r} could not be tried" for one in candidate.faults if not one.tried]
    if not candidate.hours:
        return ["nothing was held back that it could be judged on"]
    if live is None:
        rate = candidate.per_device_month or 0.0
        if candidate.false_alarms > 1 and rate > FIRST_PER_MONTH:
            reasons.append(f"{rate:.1f} false alarms per device-month, a first model may give {FIRST_PER_MONTH:.0f}")
        halves = [one for one in candidate.faults if 2 * one.found < one.tried]
        reasons += [f"{one.name!r} is found in {one.found} of {one.tried}" for one in halves]
        return reasons
    if candidate.hours < LESS_KNOWN * live.hours:
        reasons.append(f"it knows how to judge {candidate.hours:.1f} device-hours of {live.hours:.1f}")
    if candidate.false_alarms > live.false_alarms:
        reasons.append(f"{candidate.false_alarms} false alarms against {live.false_alarms}")
    others = {one.name: one for one in live.faults}
    for one in candidate.faults:
        other = others.get(one.name)
        if other is None or not other.tried:
            continue
        if one.found * other.tried < other.found * one.tried:
            reasons.append(
                f"{one.name!r} is found in {one.found} of {one.tried} against {other.found} of {other.tried}"
            )
        elif _later(one.median_delay_s, other.median_delay_s):
            reasons.append(
                f"{one.name!r} is found after {one.median_delay_s:.0f} s against {other.median_delay_s:.0f} s"
            )
    return reasons


def _later(mine: float | None, other: float | None) -> bool:
    return mine is not None and other is not None and mine > LATER * other + LATER_S

"""One alert per cause: where a finding belongs, and what a change of its findings means for an alert.

A cause is an asset and what is wrong with it, whatever detector says so. While an alert of the cause is open, findings
join it. After it was resolved there is hysteresis: an excursion that had begun before belongs to it all the same, and
what a person called false is not said again for a while; what comes back after a repair reopens it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from anomaly.alerts.life import CLOSED, OPEN
from contracts.alert import AlertState, Resolution, StepKind
from contracts.finding import Severity


@dataclass(frozen=True, slots=True)
class Hysteresis:
    """``forget_ms``: how long after a resolution as true or unclear the same cause opens its alert again rather than
    another one. ``trust_ms``: how long a resolution as false is taken as an answer to the same cause."""

    forget_ms: int = 7 * 86_400_000
    trust_ms: int = 86_400_000


class Place(StrEnum):
    """Where a finding goes."""

    OPEN = "open"
    JOIN = "join"
    REOPEN = "reopen"


@dataclass(frozen=True, slots=True)
class Standing:
    """The newest alert of a cause; ``resolved_ms``: when it was closed."""

    state: AlertState
    resolution: Resolution | None = None
    resolved_ms: int = 0


def place(begun_ms: int, newest: Standing | None, rule: Hysteresis) -> Place:
    """Where a finding that began at ``begun_ms`` (event time) goes."""
    if newest is None:
        return Place.OPEN
    if newest.state in OPEN:
        return Place.JOIN
    if newest.state is AlertState.RETRACTED:
        return Place.REOPEN
    since_ms = begun_ms - newest.resolved_ms
    if since_ms <= 0:
        return Place.JOIN
    if newest.resolution is Resolution.FALSE:
        return Place.JOIN if since_ms <= rule.trust_ms else Place.OPEN
    return Place.REOPEN if since_ms <= rule.forget_ms else Place.OPEN


@dataclass(frozen=True, slots=True)
class Facts:
    """What one finding says; times are Unix epoch milliseconds of the readings. ``lost``: readings of its time came too
    late to be judged. ``holds`` false: it is not said any more."""

    severity: Severity
    since_ms: int
    last_seen_ms: int
    closed: bool
    lost: bool = False
    holds: bool = True


def contradicts(before: Facts, after: Facts) -> bool:
    """Whether a finding takes something back that it had said. Longer, worse and over are news, not corrections."""
    if before.holds != after.holds:
        return True
    if before.since_ms != after.since_ms or after.last_seen_ms < before.last_seen_ms:
        return True
    return after.severity < before.severity or (before.closed and not after.closed) or (after.lost and not before.lost)


@dataclass(frozen=True, slots=True)
class Ground:
    """What an alert stands on: those of its findings that still hold, taken together."""

    holding: int
    severity: Severity
    since_ms: int
    last_seen_ms: int
    running: bool


def ground_of(findings: Iterable[Facts]) -> Ground | None:
    """None: nothing of it holds."""
    holding = [one for one in findings if one.holds]
    if not holding:
        return None
    return Ground(
        len(holding),
        max(one.severity for one in holding),
        min(one.since_ms for one in holding),
        max(one.last_seen_ms for one in holding),
        any(not one.closed for one in holding),
    )


def step_for(state: AlertState, severity: Severity, ground: Ground | None, corrected: bool) -> StepKind | None:
    """What the change of an alert's ground is called; None: nothing that anybody has to hear of.

    ``severity`` is what its findings said before, ``corrected``: one of them contradicts what it had said. What loses
    all ground is retracted, whoever works on it; what was resolved keeps its resolution, because a person has looked.
    """
    if ground is None:
        return StepKind.AMENDED if state is AlertState.RESOLVED else None if state in CLOSED else StepKind.RETRACTED
    if state is AlertState.RETRACTED:
        return StepKind.REOPENED
    if corrected:
        return StepKind.AMENDED
    return StepKind.WORSENED if ground.severity > severity and state in OPEN else None

"""Deadlines and pauses: when nobody's notice is escalated, when a message may disturb, when it is tried again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from anomaly.alerts.life import WAITING
from contracts.alert import AlertState
from contracts.finding import Severity

MINUTE_MS: Final = 60_000
NOTICE_MS: Final = {
    Severity.WARNING: 24 * 60 * MINUTE_MS, Severity.ALARM: 60 * MINUTE_MS, Severity.CRITICAL: 15 * MINUTE_MS,
}  # fmt: skip
"""How long an alert may wait for somebody to take notice. A note waits for the next service and for nobody."""

IDLE_FACTOR: Final = 8
"""What was acknowledged or assigned may wait so many times longer for work to begin: taking notice is no repair."""

LEVELS: Final = 3
"""So often an alert is escalated; then it stays where it is, at the top of the list."""

FIRST_PAUSE_MS: Final = 5_000
LONGEST_PAUSE_MS: Final = 3_600_000
ATTEMPTS: Final = 20
"""Attempts of one message: with doubling pauses about 10 hours; then it is dead, which raises an alarm counter."""


def escalates_at(state: AlertState, severity: Severity, level: int, since_ms: int) -> int | None:
    """When an alert that is in ``state`` since ``since_ms`` is escalated (again); None: never."""
    limit_ms = NOTICE_MS.get(severity)
    if limit_ms is None or level >= LEVELS:
        return None
    if state in WAITING:
        return since_ms + limit_ms
    if state in (AlertState.ACKNOWLEDGED, AlertState.ASSIGNED):
        return since_ms + limit_ms * IDLE_FACTOR
    return None


@dataclass(frozen=True, slots=True)
class QuietHours:
    """Local hours, in whole minutes, in which only what is at least ``through`` disturbs. Equal ends: none."""

    begin: time
    end: time
    zone: ZoneInfo
    through: Severity = Severity.CRITICAL

    def covers(self, at_ms: int) -> bool:
        local = _moment(at_ms).astimezone(self.zone).time()
        if self.begin <= self.end:
            return self.begin <= local < self.end
        return local >= self.begin or local < self.end


def may_disturb_at(at_ms: int, severity: Severity, quiet: QuietHours | None) -> int:
    """The first moment, not before ``at_ms``, at which a message may be sent."""
    if quiet is None or severity >= quiet.through or not quiet.covers(at_ms):
        return at_ms
    here = _moment(at_ms).astimezone(quiet.zone)
    for days in range(3):  # the end may fall into an hour that a change of clocks takes away; then the day after it
        day = (here + timedelta(days=days)).date()
        for fold in (0, 1):
            end = datetime.combine(day, quiet.end, quiet.zone).replace(fold=fold).astimezone(UTC)
            end_ms = int(end.timestamp() * 1000)
            if end_ms > at_ms and not quiet.covers(end_ms):
                return end_ms
    raise AssertionError("quiet hours without an end")


def pause_ms(attempts: int) -> int:
    """How long to wait after so many failed attempts (at least one): doubling, bounded."""
    return min(FIRST_PAUSE_MS << max(0, min(attempts - 1, 20)), LONGEST_PAUSE_MS)


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)

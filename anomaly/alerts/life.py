"""The life of an alert as a pure function: which moves a person may make, and what each of them leaves behind.

Machines open, amend, group, escalate, reopen and retract (``gathering``, ``storm``, ``waiting``); people do the rest.
A resolution always says what was found, since that is what the detector's precision is counted from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from contracts.alert import AlertState, Resolution
from contracts.errors import Rejected

WAITING: Final = (AlertState.NEW, AlertState.REOPENED)
"""Nobody has taken notice yet."""

WORKED: Final = (AlertState.ACKNOWLEDGED, AlertState.ASSIGNED, AlertState.IN_PROGRESS)
OPEN: Final = (*WAITING, *WORKED, AlertState.SUPPRESSED)
"""What may still gather findings: one alert of a cause at most is in one of these."""

CLOSED: Final = (AlertState.RESOLVED, AlertState.RETRACTED)

_FORWARD: Final = (*WORKED, AlertState.RESOLVED, AlertState.SUPPRESSED)
MOVES: Final[dict[AlertState, tuple[AlertState, ...]]] = {
    AlertState.NEW: _FORWARD,
    AlertState.REOPENED: _FORWARD,
    AlertState.ACKNOWLEDGED: (
        AlertState.ASSIGNED, AlertState.IN_PROGRESS, AlertState.RESOLVED, AlertState.SUPPRESSED,
    ),
    AlertState.ASSIGNED: _FORWARD,
    AlertState.IN_PROGRESS: (
        AlertState.ACKNOWLEDGED, AlertState.ASSIGNED, AlertState.RESOLVED, AlertState.SUPPRESSED,
    ),
    AlertState.SUPPRESSED: (AlertState.REOPENED, AlertState.RESOLVED),
    AlertState.RESOLVED: (AlertState.REOPENED,),
    AlertState.RETRACTED: (),
}  # fmt: skip
"""From a state, where a person may move it. ``assigned`` to ``assigned`` hands it to somebody else."""

MAX_ASSIGNEE: Final = 100
MAX_NOTE: Final = 2_000
LONGEST_SUPPRESSION_MS: Final = 90 * 86_400_000
DEFAULT_SUPPRESSION_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Held:
    """What of an alert decides about moves."""

    state: AlertState
    assignee: str | None = None
    resolution: Resolution | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """What a person wants. ``suppress_until_ms`` (Unix epoch) belongs to suppressed, ``resolution`` to resolved."""

    to_state: AlertState
    assignee: str | None = None
    resolution: Resolution | None = None
    suppress_until_ms: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Moved:
    """How the alert stands after a move."""

    state: AlertState
    assignee: str | None
    resolution: Resolution | None
    suppressed_until_ms: int | None


def moved(held: Held, move: Move, now_ms: int) -> Moved | None:
    """What the move makes of it; None: it stands like that already, so a request that is repeated changes nothing.

    Raises Rejected: ``not_allowed`` (from this state not there), ``bad_move`` (something is missing or too much).
    """
    _check(move, now_ms)
    if _repeats(held, move):
        return None
    if move.to_state not in MOVES[held.state]:
        allowed = ", ".join(MOVES[held.state]) or "none: it is final"
        raise Rejected("not_allowed", f"from {held.state} an alert goes to {allowed}; not to {move.to_state}")
    until_ms = None
    if move.to_state is AlertState.SUPPRESSED:
        until_ms = now_ms + DEFAULT_SUPPRESSION_MS if move.suppress_until_ms is None else move.suppress_until_ms
    keeps = move.to_state is not AlertState.REOPENED
    return Moved(move.to_state, move.assignee or (held.assignee if keeps else None), move.resolution, until_ms)


def _repeats(held: Held, move: Move) -> bool:
    if held.state is not move.to_state or move.to_state is AlertState.SUPPRESSED:
        return False
    return (move.assignee or held.assignee, move.resolution) == (held.assignee, held.resolution)


def _check(move: Move, now_ms: int) -> None:
    to, until_ms = move.to_state, move.suppress_until_ms
    if (to is AlertState.RESOLVED) != (move.resolution is not None):
        raise Rejected("bad_move", "a resolution (true, false or unclear) belongs to resolved, and to it alone")
    if to is AlertState.ASSIGNED and not move.assignee:
        raise Rejected("bad_move", "assigned needs an assignee")
    if move.assignee is not None and to not in (AlertState.ASSIGNED, AlertState.IN_PROGRESS):
        raise Rejected("bad_move", "an assignee belongs to assigned or in_progress")
    if move.assignee is not None and not 0 < len(move.assignee) <= MAX_ASSIGNEE:
        raise Rejected("bad_move", f"an assignee is a name of 1 to {MAX_ASSIGNEE} characters")
    if len(move.note) > MAX_NOTE:
        raise Rejected("bad_move", f"a note has at most {MAX_NOTE} characters")
    if until_ms is not None and (
        to is not AlertState.SUPPRESSED or not now_ms < until_ms <= now_ms + LONGEST_SUPPRESSION_MS
    ):
        days = LONGEST_SUPPRESSION_MS // 86_400_000
        raise Rejected("bad_move", f"a time until belongs to suppressed and lies within the next {days} days")

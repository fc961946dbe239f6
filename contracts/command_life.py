"""The life of a command as a pure function: queued, sent, and then one of four ends.

``queued`` waits for the dispatcher, ``sent`` for the device. ``done``, ``refused`` and ``expired`` are final: a command
that reached one of them never changes again. ``unknown`` is an end that still listens: the time ran out without an
answer (or the device was cut off while it worked), so nobody knows whether it was carried out; an answer that comes
late settles it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from contracts.commands import Outcome

FIRST_PAUSE_MS: Final = 5_000
LONGEST_PAUSE_MS: Final = 600_000
ANSWER_GRACE_MS: Final = 60_000
"""How long after its expiry a command that was sent still waits for its answer."""

DEVICE_SILENT_MS: Final = 60_000
"""A device not heard for longer is off: it gets one copy by the broker's session, the next when it is heard again."""


class State(StrEnum):
    """Where a command stands."""

    QUEUED = "queued"
    SENT = "sent"
    DONE = "done"
    REFUSED = "refused"
    EXPIRED = "expired"
    UNKNOWN = "unknown"


OPEN: Final = (State.QUEUED, State.SENT)
FINAL: Final = (State.DONE, State.REFUSED, State.EXPIRED)


def on_send(state: State) -> State | None:
    """The dispatcher puts it (again) into the outbox; None: it must not."""
    return State.SENT if state in OPEN else None


def on_answer(state: State, outcome: Outcome) -> State | None:
    """The device answered; None: nothing changes. An answer may even overtake the mark that it was sent."""
    told = State(outcome.value)
    return None if state in FINAL or told is state else told


def on_time(state: State, now_ms: int, expires_ms: int) -> State | None:
    """What the passing of time alone does; None: nothing yet."""
    if state is State.QUEUED and now_ms >= expires_ms:
        return State.EXPIRED
    if state is State.SENT and now_ms >= expires_ms + ANSWER_GRACE_MS:
        return State.UNKNOWN
    return None


def may_send(state: State, now_ms: int, expires_ms: int) -> bool:
    """Whether another copy may leave."""
    return state in OPEN and now_ms < expires_ms


def pause_ms(attempts: int) -> int:
    """How long to wait for an answer after so many copies (at least one): doubling, bounded."""
    doublings = max(0, min(attempts - 1, 20))
    return min(FIRST_PAUSE_MS << doublings, LONGEST_PAUSE_MS)

"""What late readings change: findings as they were said against those of the ordered history. Pure.

Nothing is compared that either side cannot know yet: what the stream has judged further than the history, or has not
said yet of an excursion that both see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

BEHIND_MS = 120_000
"""The stream tells an open excursion once a minute; when it is silent for two it does not see it."""

SURE_MS = 600_000
"""Ten minutes after its first alarm an excursion is called or it is none."""


class Change(StrEnum):
    """What becomes of a finding."""

    ADDED = "added"
    AMENDED = "amended"
    RESTORED = "restored"
    RETRACTED = "retracted"


REASONS = {
    Change.ADDED: "found when readings that came late were judged in order",
    Change.AMENDED: "readings that came late changed what it says",
    Change.RESTORED: "readings that came late show it after all",
    Change.RETRACTED: "readings that came late contradict it",
}


@dataclass(frozen=True, slots=True)
class Said:
    """What a finding says, as far as it is compared; times are event times in milliseconds."""

    started_ms: int
    at_ms: int
    closed_ms: int | None
    severity: int
    score: float
    observed: float | None
    readings: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A finding of the store. ``corrections``: how often judging again has written it."""

    said: Said
    corrections: int = 0
    retracted: bool = False


def changes(
    stored: Mapping[str, Stored], judged: Mapping[str, Said], from_ms: int, to_ms: int,
    trusted: Callable[[str], bool],
) -> dict[str, Change]:  # fmt: skip
    """By finding id. ``judged``: what was said of excursions while [from_ms, to_ms) was judged in order; ``trusted``:
    whether the ordered history can speak about a finding."""
    told = {name: _told(stored.get(name), said, to_ms) for name, said in judged.items() if trusted(name)}
    gone = {
        name: Change.RETRACTED
        for name, one in stored.items()
        if name not in judged and not one.retracted and trusted(name) and _seen(one.said, from_ms, to_ms)
    }
    return gone | {name: change for name, change in told.items() if change is not None}


def _told(before: Stored | None, said: Said, to_ms: int) -> Change | None:
    if before is None:
        return Change.ADDED
    if before.retracted:
        return Change.RESTORED
    if before.said == said or (not before.corrections and _only_time(before.said, said, to_ms)):
        return None
    return Change.AMENDED


def _only_time(stream: Said, said: Said, to_ms: int) -> bool:
    """Whether the two may differ only because one has judged further than the other."""
    if stream.at_ms > to_ms:
        return True
    return stream.closed_ms is None and stream.at_ms < said.at_ms and to_ms - stream.at_ms < BEHIND_MS


def _seen(said: Said, from_ms: int, to_ms: int) -> bool:
    """Whether the ordered history would have told of it."""
    return said.started_ms >= from_ms and (said.at_ms <= to_ms or said.started_ms <= to_ms - SURE_MS)

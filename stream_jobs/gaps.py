"""When a hole in the ledger becomes an event, and when that is over: pure.

A number is missing for as long as it was seen missing, look after look. What was missing at two looks becomes a gap
that waits; a gap that outlives the limit opens, once; it ends, once, when none of its numbers is missing any more. A
hole that grows at its edge (packets of one device that keep not arriving) stays one gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from contracts.gap_event import CLOSED, EXPLAINED, OPENED
from contracts.ranges import Range, meet, normalise, without

MOST_GAPS = 200
"""Gaps that stand at once in one boot epoch of a device; further holes wait until one of them ends."""

Ranges = tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """``numbers``: all it ever covered; ``missing``: what is missing now. ``gap_id`` 0: not written yet."""

    gap_id: int
    numbers: Ranges
    missing: Ranges
    since_ms: int
    opened_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """What the ledger says of one boot epoch. ``before``: missing at the look before, None when there was none."""

    missing: Ranges
    stored: Ranges
    now_ms: int
    before: Ranges | None = None
    before_ms: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """One gap to write. ``event`` is told to others, None: nothing is. ``gone``: it ended before it was old enough."""

    gap: Gap
    event: str | None = None
    gone: bool = False


def advance(standing: Sequence[Gap], look: Look, limit_ms: int) -> list[Change]:
    """What this look changes among the gaps that stand in this epoch."""
    left = normalise(look.missing)
    opened: dict[int, Gap] = {}
    waiting: list[Gap] = []
    for gap in sorted(standing, key=lambda one: (one.opened_ms is None, one.gap_id)):
        still = meet(gap.missing, left)
        left = without(left, still)
        seen = replace(gap, missing=still)
        if gap.opened_ms is not None:
            opened[gap.gap_id] = seen
        else:
            waiting.append(seen)
    room = MOST_GAPS - len(standing)
    if look.before is not None:
        waiting += [Gap(0, (one,), (one,), look.before_ms) for one in meet(left, look.before)[: max(room, 0)]]
    old = {gap.gap_id: gap for gap in standing}
    changes = [change for gap in waiting if (change := _ripen(gap, old, opened, look, limit_ms)) is not None]
    for gap in opened.values():
        if not gap.missing:
            changes.append(Change(gap, _outcome(gap, look.stored)))
        elif gap != old[gap.gap_id]:
            changes.append(Change(gap))
    return changes


def _ripen(gap: Gap, old: dict[int, Gap], opened: dict[int, Gap], look: Look, limit_ms: int) -> Change | None:
    """A waiting gap goes, waits on, opens, or (``opened`` is changed) becomes part of one that is open beside it."""
    if not gap.missing:
        return Change(gap, gone=True)
    if look.now_ms - gap.since_ms < limit_ms:
        return None if gap == old.get(gap.gap_id) else Change(gap)
    for beside in opened.values():
        if _touch(beside.missing, gap.missing):
            opened[beside.gap_id] = replace(
                beside,
                numbers=normalise((*beside.numbers, *gap.missing)),
                missing=normalise((*beside.missing, *gap.missing)),
            )
            return Change(gap, gone=True) if gap.gap_id else None
    return Change(replace(gap, numbers=gap.missing, opened_ms=look.now_ms), OPENED)


def _outcome(gap: Gap, stored: Ranges) -> str:
    return EXPLAINED if without(gap.numbers, stored) else CLOSED


def _touch(left: Iterable[Range], right: Iterable[Range]) -> bool:
    """Whether some number of one stands beside some number of the other."""
    return bool(meet([(first - 1, last + 1) for first, last in left], right))

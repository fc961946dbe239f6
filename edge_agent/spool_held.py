"""Which numbers the spool still holds, as few ranges: what the heartbeat tells, so that the ledger can say where a
missing packet is.

A chunk that is full needs no look into the file, and a spool is mostly full chunks or nearly empty; the number of
looks is bounded all the same, and what was not looked at is told as held as a whole. The ranges always cover
everything held.
"""

from __future__ import annotations

from itertools import pairwise

from contracts.ranges import Range, normalise, ranges_of
from edge_agent.database import Database
from edge_agent.spool_index import SpoolIndex, split_id

MAX_LOOKS = 16
"""Chunks read per heartbeat: at most 16 x 1,024 rows."""

Held = tuple[tuple[int, int, int], ...]


def held(db: Database, index: SpoolIndex, limit: int) -> Held | None:
    """(boot epoch, first, last), at most ``limit``; None when there are more epochs than that."""
    by_epoch: dict[int, list[Range]] = {}
    looks = 0
    for first, last, packets in index.chunks():
        epoch, low = split_id(first)
        ranges: tuple[Range, ...] = ((max(low, 1), split_id(last)[1]),)
        if packets <= last - first and looks < MAX_LOOKS:
            looks += 1
            rows = db.execute("SELECT id FROM packets WHERE id BETWEEN ? AND ?", (first, last))
            ranges = ranges_of(split_id(row[0])[1] for row in rows)
        by_epoch.setdefault(epoch, []).extend(ranges)
    return narrow({epoch: normalise(ranges) for epoch, ranges in by_epoch.items()}, limit)


def narrow(by_epoch: dict[int, tuple[Range, ...]], limit: int) -> Held | None:
    """At most ``limit`` ranges that cover the same numbers and as few others as can be: the narrowest holes close."""
    if len(by_epoch) > limit:
        return None
    holes = [
        (right[0] - left[1], epoch, left[1]) for epoch, ranges in by_epoch.items() for left, right in pairwise(ranges)
    ]
    excess = max(0, len(by_epoch) + len(holes) - limit)
    closed = {(epoch, end) for _, epoch, end in sorted(holes)[:excess]}
    told: list[tuple[int, int, int]] = []
    for epoch, ranges in sorted(by_epoch.items()):
        for first, last in ranges:
            if told and told[-1][0] == epoch and (epoch, told[-1][2]) in closed:
                told[-1] = (epoch, told[-1][1], last)
            else:
                told.append((epoch, first, last))
    return tuple(told)

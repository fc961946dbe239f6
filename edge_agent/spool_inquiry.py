"""What a device can say about numbers that the cloud misses: still held, or why not. Reads, changes nothing.

``freed``: this spool gave them up on an acknowledgement (or told them as dropped, and that was acknowledged): the
cloud had them. ``dropped``: its report is on the way. ``forgotten``: the spool that held them is lost. ``never_given``:
this device never used such a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from contracts.ranges import Range, holes, normalise, ranges_of
from edge_agent.spool import Spool
from edge_agent.spool_index import id_bounds, split_id

MAX_CHUNKS = 64
"""Chunks read per inquiry, 1,024 packets each; what lies beyond counts as held and is asked for again."""

MAX_TOLD = 300
"""Ranges in an answer; the rest is told when it is asked for again."""

Asked = tuple[int, int, int]
"""(boot epoch, first, last)."""


@dataclass(slots=True)
class Found:
    """(boot epoch, numbers) that are held; (boot epoch, numbers, reason) that are not."""

    held: list[tuple[int, Range]] = field(default_factory=list)
    not_held: list[tuple[int, Range, str]] = field(default_factory=list)


def inquire(spool: Spool, asked: Sequence[Asked]) -> Found:
    """Look the numbers up."""
    found = Found()
    looks = MAX_CHUNKS
    for epoch, first, last in asked:
        if len(found.held) + len(found.not_held) >= MAX_TOLD:
            break
        given = spool.last_given(epoch)
        if given is None:
            found.not_held.append((epoch, (first, last), _why_unknown(spool, epoch)))
            continue
        if last > given:
            found.not_held.append((epoch, (max(first, given + 1), last), "never_given"))
            last = given
        if first > last:
            continue
        held, looks = _held(spool, epoch, (first, last), looks)
        found.held += [(epoch, numbers) for numbers in held]
        dropped = _untold_drops(spool, epoch)
        for start, end in holes(held, first, last):
            found.not_held += [(epoch, numbers, reason) for numbers, reason in _split(start, end, dropped)]
    del found.held[MAX_TOLD:], found.not_held[MAX_TOLD:]
    return found


def _held(spool: Spool, epoch: int, numbers: Range, looks: int) -> tuple[tuple[Range, ...], int]:
    ranges: list[Range] = []
    for low, high in spool.index.chunks_between(*id_bounds(epoch, numbers)):
        bounds = split_id(low)[1], split_id(high)[1]
        if looks > 0:
            looks -= 1
            ranges += ranges_of(split_id(identity)[1] for identity in _ids(spool, low, high))
        else:
            ranges.append(bounds)
    return normalise(ranges), looks


def _ids(spool: Spool, first_id: int, last_id: int) -> list[int]:
    rows = spool.database.execute("SELECT id FROM packets WHERE id BETWEEN ? AND ?", (first_id, last_id))
    return [row[0] for row in rows]


def _untold_drops(spool: Spool, epoch: int) -> tuple[Range, ...]:
    rows = spool.database.execute("SELECT first_seq, last_seq FROM drops WHERE boot_epoch = ?", (epoch,))
    return normalise((first, last) for first, last in rows)


def _why_unknown(spool: Spool, epoch: int) -> str:
    if epoch > spool.epoch.boot_epoch:
        return "never_given"
    return "freed" if epoch >= spool.first_epoch else "forgotten"


def _split(first: int, last: int, dropped: tuple[Range, ...]) -> list[tuple[Range, str]]:
    """Parts of a hole: dropped and untold, or freed."""
    freed = [(numbers, "freed") for numbers in holes(dropped, first, last)]
    told = [
        ((max(first, start), min(last, end)), "dropped") for start, end in dropped if start <= last and end >= first
    ]
    return sorted([*freed, *told])

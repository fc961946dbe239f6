"""Which packets must go when there is no room or they are too old: oldest of the lowest class first. Only chooses.

Rows are (id, lane, retention, samples, frame bytes); the spool deletes them in its transaction and writes down why.
"""

from __future__ import annotations

from collections.abc import Iterator

from contracts.signals import Retention
from edge_agent.database import Database
from edge_agent.spool_index import ROW_BYTES, SpoolIndex

PacketRow = tuple[int, int, int, int, int]
_COLUMNS = "SELECT id, lane, retention, samples, length(frame) FROM packets"
_LAST_ID = (1 << 63) - 1


def too_old(db: Database, index: SpoolIndex, before_ms: int) -> Iterator[list[PacketRow]]:
    """Chunk by chunk, what was accepted by a trusted clock before ``before_ms``, up to the first chunk without any."""
    for first, last in index.chunks_between(0, _LAST_ID):
        rows = db.execute(
            f"{_COLUMNS} WHERE id BETWEEN ? AND ? AND accepted_ms BETWEEN 1 AND ? AND retention < ?",
            (first, min(last, _LAST_ID), before_ms, int(Retention.PRIORITY)),
        )
        if not rows:
            return
        yield rows


def victims(
    db: Database, index: SpoolIndex, need_bytes: int, highest_class: int, fresh: set[int]
) -> Iterator[list[PacketRow]]:
    """The oldest of the lowest class, then of the next, up to ``highest_class``, until ``need_bytes`` are free.

    ``fresh`` came in with the same transaction and stays.
    """
    left = need_bytes
    for retention in index.classes():
        if retention > highest_class:
            return
        for bounds in index.chunks_of_class(retention):
            if left <= 0:
                return
            doomed = _oldest(db, bounds, retention, left, fresh)
            left -= sum(row[4] + ROW_BYTES for row in doomed)
            yield doomed


def _oldest(db: Database, bounds: tuple[int, int], retention: int, need_bytes: int, fresh: set[int]) -> list[PacketRow]:
    doomed: list[PacketRow] = []
    for row in db.execute(f"{_COLUMNS} WHERE id BETWEEN ? AND ? AND retention = ? ORDER BY id", (*bounds, retention)):
        if need_bytes <= 0:
            break
        if row[0] not in fresh:
            doomed.append(row)
            need_bytes -= row[4] + ROW_BYTES
    return doomed

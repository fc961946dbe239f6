"""Drops of accepted packets: written in the transaction that drops, told upstream as gaps, bounded in number.

A row is a ``contracts.packet.Gap`` with its boot epoch. What was never accepted has no numbers and is no gap; the
heartbeat counts it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from contracts.packet import Gap
from edge_agent.database import Database

MAX_ROWS = 2_000
"""More rows than this are merged to wider ranges that still name how many packets fell. 2,000 fill half a frame."""


class Dropped(NamedTuple):
    """One packet that left the spool without an acknowledgement."""

    boot_epoch: int
    seq: int
    reason: int
    retention: int
    samples: int


_COLUMNS = "boot_epoch, first_seq, last_seq, reason, retention, packets, samples"
_INSERT = f"INSERT INTO drops ({_COLUMNS}) VALUES (?,?,?,?,?,?,?)"


def runs(dropped: Iterable[Dropped]) -> list[tuple[int, Gap]]:
    """(boot epoch, gap) for each run of consecutive numbers of one epoch, class and reason."""
    found: list[tuple[int, Gap]] = []
    for epoch, seq, reason, retention, samples in sorted(
        dropped, key=lambda d: (d.boot_epoch, d.retention, d.reason, d.seq)
    ):
        if found:
            last_epoch, gap = found[-1]
            if (last_epoch, gap.retention, gap.reason, gap.last_seq + 1) == (epoch, retention, reason, seq):
                found[-1] = epoch, Gap(gap.first_seq, seq, reason, retention, gap.packets + 1, gap.samples + samples)
                continue
        found.append((epoch, Gap(seq, seq, reason, retention, 1, samples)))
    return found


def record(db: Database, gaps: Iterable[tuple[int, Gap]]) -> None:
    """Write gaps down; belongs into the transaction that drops."""
    db.execute_many(
        _INSERT,
        [(e, g.first_seq, g.last_seq, g.reason, g.retention, g.packets, g.samples) for e, g in gaps],
    )
    if int(db.execute("SELECT count(*) FROM drops")[0][0]) > MAX_ROWS:
        _coarsen(db)


def take(db: Database) -> dict[int, tuple[Gap, ...]]:
    """All recorded gaps by boot epoch, removed; belongs into the transaction that accepts the packets telling them."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM drops ORDER BY boot_epoch, first_seq")
    db.execute("DELETE FROM drops")
    by_epoch: dict[int, tuple[Gap, ...]] = {}
    for epoch, *gap in rows:
        by_epoch[epoch] = (*by_epoch.get(epoch, ()), Gap(*gap))
    return by_epoch


def _coarsen(db: Database) -> None:
    """One row per epoch, class, reason and 1/16 of the numbers' span: the packets' number stays exact."""
    rows = db.execute(
        """SELECT boot_epoch, min(first_seq), max(last_seq), reason, retention, sum(packets), sum(samples)
           FROM (SELECT *, ntile(16) OVER (PARTITION BY boot_epoch, reason, retention ORDER BY first_seq) AS part
                 FROM drops)
           GROUP BY boot_epoch, reason, retention, part"""
    )
    db.execute("DELETE FROM drops")
    db.execute_many(
        _INSERT,
        rows,
    )

"""What the spool is made of: its tables, a stored packet, and what one transaction is about to change."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

from contracts.ranges import Range
from edge_agent.database import Database
from edge_agent.packing import Draft
from edge_agent.spool_drops import Dropped

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS epochs (
        boot_epoch INTEGER PRIMARY KEY, nonce INTEGER NOT NULL, last_seq INTEGER NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS packets (
        id INTEGER PRIMARY KEY, lane INTEGER NOT NULL, retention INTEGER NOT NULL, samples INTEGER NOT NULL,
        accepted_ms INTEGER NOT NULL, frame BLOB NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS drops (
        boot_epoch INTEGER NOT NULL, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL, reason INTEGER NOT NULL,
        retention INTEGER NOT NULL, packets INTEGER NOT NULL, samples INTEGER NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS rejected (
        boot_epoch INTEGER NOT NULL, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL,
        packets INTEGER NOT NULL)""",
    "CREATE TABLE IF NOT EXISTS state (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)


DISOWNED = "disowned_epochs"
"""State key: epochs that the cloud knows as another run's, whose packets have still to move."""

FIRST_EPOCH = "first_epoch"
"""State key: the epoch with which this file began; it never knew an earlier one."""


def read_disowned(db: Database) -> set[int]:
    rows = db.execute("SELECT value FROM state WHERE key = ?", (DISOWNED,))
    return {int(epoch) for epoch in json.loads(rows[0][0])} if rows else set()


class Stored(NamedTuple):
    """A packet as it lies in the spool; ``identity`` is ``spool_index.packet_id``."""

    identity: int
    lane: int
    retention: int
    samples: int
    frame: bytes


@dataclass(slots=True)
class Counters:
    """Of this epoch, for the heartbeat."""

    accepted_packets: int = 0
    accepted_samples: int = 0
    acked_packets: int = 0
    rejected_packets: int = 0
    dropped_packets: int = 0
    dropped_samples: int = 0
    strange_acks: int = 0


class Batch:
    """What one transaction is about to change; memory follows it only after the commit."""

    def __init__(self, last_seq: dict[int, int], pending: dict[tuple[int, bool], tuple[Range, ...]]) -> None:
        self.last_seq = last_seq
        self.added_bytes = 0
        self.stored: list[Stored] = []
        self.refused: list[Draft] = []
        self.removed: list[tuple[int, int, int, int, int]] = []
        self.dropped: list[Dropped] = []
        self.freed_through: dict[int, int] = {}
        self.pending = pending
        self.acked = 0
        self.rejected = 0

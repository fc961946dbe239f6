"""The history of everything accepted, for those who check the line from outside.

The agent calls its journal after the fsynced commit and before the packets may be sent. A kill between commit and
journal loses no history: at the next start the agent journals all that its spool holds, so an entry may be told
twice, byte-identical; readers treat the history as a set.

A packet that moves to another identity (``spool_move``) ends with an entry of lane ``MOVED``, told before the move; the
packet's new name follows as an entry of its own. Was the move cut off, the next start tells the old name again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from edge_agent.spool_index import split_id
from edge_agent.spool_model import Stored

JOURNAL_BATCH = 500
MOVED = -1
"""In place of a lane: from here on this identity is nobody's."""


class AcceptedPacket(NamedTuple):
    """One accepted packet: its identity, what it weighs, and the SHA-256 (hex) of its frame."""

    device: str
    boot_epoch: int
    seq: int
    sha256: str
    samples: int
    lane: int


Journal = Callable[[Sequence[AcceptedPacket]], None]


def journal_all(journal: Journal, device: str, packets: Iterable[Stored]) -> None:
    """Tell of packets in batches of bounded size, so that a full spool is journalled in little memory."""
    batch: list[AcceptedPacket] = []
    for stored in packets:
        epoch, seq = split_id(stored.identity)
        digest = hashlib.sha256(stored.frame).hexdigest()
        batch.append(AcceptedPacket(device, epoch, seq, digest, stored.samples, stored.lane))
        if len(batch) >= JOURNAL_BATCH:
            journal(batch)
            batch = []
    if batch:
        journal(batch)


class FileJournal:
    """Appends one JSON array per packet; many agents of one process may share it."""

    def __init__(self, path: Path) -> None:
        self._lock = Lock()
        self._file = path.open("ab", buffering=0)

    def __call__(self, packets: Sequence[AcceptedPacket]) -> None:
        lines = "".join(json.dumps(packet, separators=(",", ":")) + "\n" for packet in packets)
        with self._lock:
            self._file.write(lines.encode())

    def close(self) -> None:
        self._file.close()


def read_journal(path: Path) -> dict[tuple[str, int, int], AcceptedPacket]:
    """Every accepted packet by (device, boot_epoch, seq); a torn last line is not an entry yet."""
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    history: dict[tuple[str, int, int], AcceptedPacket] = {}
    for entry in (AcceptedPacket(*json.loads(line)) for line in whole.splitlines()):
        if entry.lane == MOVED:
            history.pop((entry.device, entry.boot_epoch, entry.seq), None)
        else:
            history[entry.device, entry.boot_epoch, entry.seq] = entry
    return history

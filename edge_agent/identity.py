"""Who this run of the agent is: a boot epoch that never repeats and a random nonce, kept beside the spool file.

Every process start opens a new epoch whose sequence numbers begin at 1, so no counter has to be written per
commit. The small file here outlives a lost or damaged spool. It also keeps, per epoch that may still have unsent
packets, how far its numbers were reserved: should the spool be lost, the agent can say which range is in doubt.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

RESERVE_STEP = 100_000
"""Sequence numbers reserved per write of the file: one write a day at one packet a second."""


@dataclass(slots=True)
class Epoch:
    """One run's identity; ``reserved_seq`` is an upper bound of the sequence numbers it gave out."""

    boot_epoch: int
    nonce: int
    reserved_seq: int = 0


@dataclass(slots=True)
class IdentityFile:
    """Epochs by number; the highest is the current one after ``begin``."""

    path: Path
    epochs: dict[int, Epoch] = field(default_factory=dict)

    def begin(self, at_least: int) -> Epoch:
        """Open a new epoch above all that the file and the spool (``at_least``) know, and write it down."""
        number = max([at_least, *self.epochs]) + 1
        epoch = Epoch(number, secrets.randbits(62) + 1)
        self.epochs[number] = epoch
        self.reserve(epoch, RESERVE_STEP)
        return epoch

    def reserve(self, epoch: Epoch, through_seq: int) -> None:
        """Make ``through_seq`` the new upper bound, durably, before any number above the old one is used."""
        epoch.reserved_seq = through_seq
        self.save()

    def forget_except(self, keep: set[int]) -> None:
        """Drop epochs that have nothing left to send."""
        self.epochs = {number: epoch for number, epoch in self.epochs.items() if number in keep}
        self.save()

    def save(self) -> None:
        """Write beside, flush, rename: a power cut leaves the old file or the new one. Raises OSError."""
        body = {"v": 1, "epochs": [[e.boot_epoch, e.nonce, e.reserved_seq] for e in self.epochs.values()]}
        beside = self.path.with_suffix(self.path.suffix + ".new")
        with beside.open("w", encoding="ascii") as file:
            json.dump(body, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path)
        sync_folder(self.path.parent)


def read_identity(path: Path) -> IdentityFile:
    """The file's epochs; an absent or unreadable file knows none (the spool and a new nonce then decide)."""
    try:
        body = json.loads(path.read_text(encoding="ascii"))
        return IdentityFile(path, {int(row[0]): Epoch(*map(int, row)) for row in body["epochs"]})
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return IdentityFile(path)


def sync_folder(folder: Path) -> None:
    """Make a rename durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

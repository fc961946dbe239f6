"""The history checker: what agents accepted, packet by packet and hash by hash, against what the store holds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg

from edge_agent.journal import read_journal


@dataclass(frozen=True, slots=True)
class Verdict:
    """Packets by identity: ``lost`` accepted and neither stored nor reported dropped; ``doubled`` stored twice."""

    accepted: int
    stored: int
    lost: tuple[tuple[str, int, int], ...]
    doubled: tuple[tuple[str, int, int], ...]
    altered: tuple[tuple[str, int, int], ...]
    foreign: tuple[tuple[str, int, int], ...]

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.altered or self.foreign)


def compare(journal: Path, dsn: str) -> Verdict:
    """Read both sides and decide. Only devices that the journal names are looked at."""
    accepted = {identity: entry.sha256 for identity, entry in read_journal(journal).items()}
    devices = list({device for device, _, _ in accepted})
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "SELECT device, boot_epoch, seq, sha256 FROM packets WHERE device = ANY(%s)", [devices]
        ).fetchall()
        dropped = set(
            connection.execute(
                "SELECT d.device, g.boot_epoch, s FROM agent_gaps g JOIN devices d USING (device_key),"
                " generate_series(g.first_seq, g.last_seq) s WHERE d.device = ANY(%s)",
                [devices],
            ).fetchall()
        )
    times = Counter((device, epoch, seq) for device, epoch, seq, _ in rows)
    hashes = {(device, epoch, seq): sha256 for device, epoch, seq, sha256 in rows}
    return Verdict(
        accepted=len(accepted),
        stored=len(hashes),
        lost=tuple(sorted(accepted.keys() - hashes.keys() - dropped)),
        doubled=tuple(sorted(identity for identity, n in times.items() if n > 1)),
        altered=tuple(sorted(i for i in accepted.keys() & hashes.keys() if accepted[i] != hashes[i])),
        foreign=tuple(sorted(hashes.keys() - accepted.keys())),
    )


def wait_for(what: str, condition: Callable[[], bool], timeout_s: float, every_s: float = 0.2) -> None:
    """Return when the condition holds. Raises AssertionError naming what did not happen in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:.0f} s: {what}")
        time.sleep(every_s)

"""The proof: what the agents say they accepted, packet by packet and hash by hash, against what SQL returns.

The two sides share nothing but the identity (device, boot epoch, sequence number): the history is written by the
agents' own process after each fsynced commit, the other side is read through the stable view ``packets``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import psycopg

from edge_agent.journal import AcceptedPacket

Identity = tuple[str, int, int]
FETCH_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Proof:
    """Packets and samples on both sides; the sets hold identities. ``foreign``: stored and never accepted."""

    accepted_packets: int
    accepted_samples: int
    stored_packets: int
    stored_samples: int
    lost_samples: int
    doubled_samples: int
    lost: frozenset[Identity]
    doubled: frozenset[Identity]
    altered: frozenset[Identity]
    foreign: frozenset[Identity]

    @property
    def complete(self) -> bool:
        """Everything accepted is stored, once, with its own bytes."""
        return not (self.lost or self.doubled or self.altered or self.foreign)


def compare(history: Mapping[Identity, AcceptedPacket], stored: Iterable[tuple[str, int, int, int, str]]) -> Proof:
    """``stored``: rows (device, boot_epoch, seq, samples, sha256), repeated as often as the store holds them.

    A row is foreign when it is not in the history although its epoch is: the device's newest one, with sequence
    number 1. Rows of older epochs belong to earlier histories.
    """
    newest: dict[str, int] = {}
    for device, epoch, _ in history:
        newest[device] = max(epoch, newest.get(device, 0))
    times: Counter[Identity] = Counter()
    altered: set[Identity] = set()
    foreign: set[Identity] = set()
    samples = 0
    for device, epoch, seq, count, sha256 in stored:
        identity = (device, epoch, seq)
        accepted = history.get(identity)
        if accepted is None:
            if epoch == newest.get(device) and (device, epoch, 1) in history:
                foreign.add(identity)
            continue
        times[identity] += 1
        samples += count if times[identity] == 1 else 0
        if accepted.sha256 != sha256 or accepted.samples != count:
            altered.add(identity)
    lost = frozenset(history.keys() - times.keys())
    doubled = frozenset(identity for identity, n in times.items() if n > 1)
    return Proof(
        accepted_packets=len(history),
        accepted_samples=sum(packet.samples for packet in history.values()),
        stored_packets=len(times),
        stored_samples=samples,
        lost_samples=sum(history[identity].samples for identity in lost),
        doubled_samples=sum(history[identity].samples * (times[identity] - 1) for identity in doubled),
        lost=lost,
        doubled=doubled,
        altered=frozenset(altered),
        foreign=frozenset(foreign),
    )


def prove(history: Mapping[Identity, AcceptedPacket], dsn: str) -> Proof:
    """Compare a history with the store behind ``dsn`` (read-only role). Raises psycopg.Error."""
    least = {device: min(epoch for name, epoch, _ in history if name == device) for device in _devices(history)}
    with psycopg.connect(dsn) as connection, connection.cursor("proof") as cursor:
        cursor.itersize = FETCH_ROWS
        cursor.execute(
            "SELECT p.device, p.boot_epoch, p.seq, p.samples, p.sha256 FROM packets p"
            " JOIN unnest(%s::text[], %s::bigint[]) AS k (device, boot_epoch)"
            " ON p.device = k.device AND p.boot_epoch >= k.boot_epoch",
            (list(least), list(least.values())),
        )
        return compare(history, cursor)


def _devices(history: Mapping[Identity, AcceptedPacket]) -> set[str]:
    return {device for device, _, _ in history}

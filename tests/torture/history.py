"""What the harness heard: every accepted packet and heartbeat with its hash, every acknowledgement a device saw."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

Identity = tuple[str, int, int]
"""(device, boot epoch, sequence number)"""
Numbered = tuple[str, int, int, int]
"""(device, boot epoch, nonce, sequence number)"""
DeviceRun = tuple[str, int, int]
"""(device, boot epoch, nonce): one process of a device, as its packets and heartbeats name it."""


@dataclass(slots=True)
class History:
    """Filled by the threads that read the devices' pipes; the judge reads it when they are done."""

    accepted: dict[Identity, set[str]] = field(default_factory=dict)
    """Hashes per identity: two only when a device was cloned."""
    moved: set[str] = field(default_factory=set)
    movers: set[str] = field(default_factory=set)
    """Hashes of packets that got another identity afterwards: their device learnt that its epoch was another run's."""
    acked: set[Numbered] = field(default_factory=set)
    rejected: set[Numbered] = field(default_factory=set)
    heartbeats: dict[str, DeviceRun] = field(default_factory=dict)
    """Hash of each heartbeat to the run that says it is its own."""
    waiting: dict[Identity, float] = field(default_factory=dict)
    """Accepted and not yet seen in the store, with the moment in which the harness heard of it."""
    latencies: list[tuple[float, str, float]] = field(default_factory=list)
    """(moment of acceptance, device, seconds until the store explained it, on the poll's raster)"""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def accept(self, device: str, epoch: int, seq: int, digest: str) -> None:
        with self.lock:
            known = self.accepted.setdefault((device, epoch, seq), set())
            if digest not in known:
                known.add(digest)
                self.waiting[device, epoch, seq] = time.monotonic()

    def move(self, device: str, epoch: int, seq: int, digest: str) -> None:
        """This identity is nobody's from here on; its packet follows under another one."""
        with self.lock:
            self.moved.add(digest)
            self.movers.add(device)
            known = self.accepted.get((device, epoch, seq), set())
            known.discard(digest)
            if not known:
                self.accepted.pop((device, epoch, seq), None)
                self.waiting.pop((device, epoch, seq), None)

    def ack(
        self, device: str, epoch: int, nonce: int, confirmed: Iterable[list[int]], rejected: Iterable[list[int]]
    ) -> None:
        with self.lock:
            for ranges, told in ((confirmed, self.acked), (rejected, self.rejected)):
                told.update((device, epoch, nonce, seq) for first, last in ranges for seq in range(first, last + 1))

    def heartbeat(self, device: str, epoch: int, nonce: int, digest: str) -> None:
        with self.lock:
            self.heartbeats[digest] = device, epoch, nonce

    def explained(self, identities: Iterable[Identity]) -> None:
        """The store accounts for these."""
        now_s = time.monotonic()
        with self.lock:
            for identity in identities:
                since_s = self.waiting.pop(identity, None)
                if since_s is not None:
                    self.latencies.append((since_s, identity[0], now_s - since_s))

    def latencies_since(self, moment_s: float) -> list[tuple[float, str, float]]:
        """Of packets that the store explained after this moment."""
        with self.lock:
            return [one for one in self.latencies if one[0] + one[2] >= moment_s]

    def oldest_wait_s(self) -> float:
        """Age of the longest waiting packet, 0 when none waits."""
        with self.lock:
            return time.monotonic() - min(self.waiting.values()) if self.waiting else 0.0

    def lag(self) -> int:
        """Packets accepted and not yet explained."""
        with self.lock:
            return len(self.waiting)

"""A journal that also counts, so that a running fleet can say how far it is. The journal file is the truth."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from edge_agent.journal import AcceptedPacket, Journal


class Tally:
    """Passes everything on to ``journal``; the counts are of this process."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self.packets = 0
        self.samples = 0

    def __call__(self, packets: Sequence[AcceptedPacket]) -> None:
        self._journal(packets)
        with self._lock:
            self.packets += len(packets)
            self.samples += sum(packet.samples for packet in packets)

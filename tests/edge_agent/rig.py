"""An agent on a real spool file, with the cloud in memory and the clock moved by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contracts.packet import decode_packet
from edge_agent.agent import Agent
from edge_agent.clock import ManualClock
from edge_agent.commands import Handler
from edge_agent.journal import AcceptedPacket
from edge_agent.sources import Reading
from edge_agent.wiring import build_agent
from tests.edge_agent.doubles import NOW_MS, Cloud, agent_settings


class Sensor:
    """Never ends, cannot wait: one reading of signal 1 every 100 ms."""

    can_wait = False
    cursor: str | None = None
    finished = False

    def __init__(self) -> None:
        self.told = 0

    def seek(self, cursor: str) -> None:
        """A sensor has no past."""

    def read(self, now_ms: int, limit: int) -> Sequence[Reading]:
        wanted = (now_ms - NOW_MS) // 100
        readings = [Reading(1, NOW_MS + n * 100, float(n % 200)) for n in range(self.told, wanted)]
        self.told = max(self.told, wanted)
        return readings

    def close(self) -> None:
        """Nothing to give back."""


class Rig:
    """An agent, its cloud, its clock and its history."""

    def __init__(
        self,
        folder: Path,
        source: Any = None,
        clock: ManualClock | None = None,
        on_receipt: Handler | None = None,
        **parts: Any,
    ) -> None:
        self.clock = clock or ManualClock(NOW_MS)
        self.cloud = Cloud()
        self.source = source or Sensor()
        self.history: dict[tuple[int, int], AcceptedPacket] = {}
        self.agent: Agent = build_agent(
            agent_settings(folder, **parts),
            self.source,
            self.clock,
            self.remember,
            link=self.cloud,
            on_receipt=on_receipt,
        )

    def remember(self, packets: Sequence[AcceptedPacket]) -> None:
        for packet in packets:
            assert self.history.setdefault((packet.boot_epoch, packet.seq), packet) == packet

    def run(self, for_ms: int) -> None:
        for _ in range(for_ms // 50):
            self.agent.tick()
            self.clock.advance(50)

    def samples_in_cloud(self) -> int:
        return sum(decode_packet(frame).header.samples for frame in self.cloud.stored.values())

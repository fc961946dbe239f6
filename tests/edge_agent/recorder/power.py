"""A file that the power can fail under: what was not synced survives whole, not at all, or torn, sector by sector."""

from __future__ import annotations

import random

from edge_agent.recorder.blockfile import SECTOR_BYTES


class PowerCut(Exception):
    """The supply failed during this call."""


class FailingFile:
    """Obeys ``BlockFile``; the power fails during operation number ``cut_at`` (writes and syncs count)."""

    def __init__(self, data: bytearray, cut_at: int, generator: random.Random) -> None:
        self._durable = data
        self._versions: dict[int, list[bytes]] = {}
        self._cut_at = cut_at
        self._generator = generator
        self.operations = 0

    @property
    def size_bytes(self) -> int:
        return len(self._durable)

    def read(self, offset: int, count: int) -> bytes:
        first, last = offset // SECTOR_BYTES, (offset + count + SECTOR_BYTES - 1) // SECTOR_BYTES
        window = b"".join(self._sector(index) for index in range(first, last))
        return window[offset - first * SECTOR_BYTES :][:count]

    def write(self, offset: int, data: bytes) -> None:
        failing = self._count()
        if failing:  # a part of this write reached the drive
            data = data[: self._generator.randrange(len(data) + 1)]
        at = offset
        while data:
            index, inside = divmod(at, SECTOR_BYTES)
            piece = data[: SECTOR_BYTES - inside]
            old = self._sector(index)
            self._versions.setdefault(index, []).append(old[:inside] + piece + old[inside + len(piece) :])
            data, at = data[len(piece) :], at + len(piece)
        if failing:
            raise PowerCut

    def sync(self) -> None:
        if self._count():
            raise PowerCut
        for index, versions in self._versions.items():
            self._durable[index * SECTOR_BYTES : (index + 1) * SECTOR_BYTES] = versions[-1]
        self._versions.clear()

    def after_the_cut(self) -> bytearray:
        """What the drive holds when the power is back: any mix of old, new and torn for every unsynced sector."""
        survived = bytearray(self._durable)
        for index, versions in self._versions.items():
            base = index * SECTOR_BYTES
            for version in versions:
                fate = self._generator.random()
                torn = self._generator.randrange(1, SECTOR_BYTES)
                if fate < 0.4:
                    survived[base : base + SECTOR_BYTES] = version
                elif fate < 0.6:
                    survived[base : base + torn] = version[:torn]
                elif fate < 0.7:
                    survived[base + torn : base + SECTOR_BYTES] = version[torn:]
        return survived

    def _sector(self, index: int) -> bytes:
        if index in self._versions:
            return self._versions[index][-1]
        return bytes(self._durable[index * SECTOR_BYTES : (index + 1) * SECTOR_BYTES])

    def _count(self) -> bool:
        self.operations += 1
        return self.operations == self._cut_at

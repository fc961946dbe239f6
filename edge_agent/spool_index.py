"""Where in the spool each lane and class lies: a count per chunk of 1,024 packet ids, in memory. Pure.

It replaces secondary indexes in the file: those would write another page of flash per commit. A spool of a million
packets needs about a thousand entries.

A packet's id is ``boot_epoch << 40 | seq``: ordered as accepted, found by identity, one B-tree.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass

from contracts.ranges import Range

SEQ_BITS = 40
CHUNK_BITS = 10
ROW_BYTES = 40
"""What SQLite keeps per packet beside its frame: keys, lengths, page overhead."""


def packet_id(boot_epoch: int, seq: int) -> int:
    return boot_epoch << SEQ_BITS | seq


def split_id(identity: int) -> tuple[int, int]:
    """(boot_epoch, seq)."""
    return identity >> SEQ_BITS, identity & (1 << SEQ_BITS) - 1


def id_bounds(boot_epoch: int, numbers: Range) -> tuple[int, int]:
    """First and last id of a range of an epoch's numbers, cut to numbers that exist."""
    first, last = (min(max(0, number), (1 << SEQ_BITS) - 1) for number in numbers)
    return packet_id(boot_epoch, first), packet_id(boot_epoch, last)


@dataclass(slots=True)
class Tally:
    """Packets, their bytes in the file, their samples."""

    packets: int = 0
    size_bytes: int = 0
    samples: int = 0

    def add(self, packets: int, size_bytes: int, samples: int) -> None:
        self.packets += packets
        self.size_bytes += size_bytes
        self.samples += samples


class SpoolIndex:
    """Tallies per chunk, lane and class, and their total."""

    def __init__(self) -> None:
        self._chunks: dict[int, dict[tuple[int, int], Tally]] = {}
        self._order: list[int] = []
        self.total = Tally()

    def add(self, identity: int, lane: int, retention: int, frame_bytes: int, samples: int) -> None:
        """Count one packet in."""
        self.load(identity >> CHUNK_BITS, lane, retention, Tally(1, frame_bytes + ROW_BYTES, samples))

    def remove(self, identity: int, lane: int, retention: int, frame_bytes: int, samples: int) -> None:
        """Count one packet out."""
        self.load(identity >> CHUNK_BITS, lane, retention, Tally(-1, -frame_bytes - ROW_BYTES, -samples))

    def load(self, chunk: int, lane: int, retention: int, change: Tally) -> None:
        """Add ``change`` to one cell; a cell without packets is forgotten."""
        if chunk not in self._chunks:
            self._chunks[chunk] = {}
            insort(self._order, chunk)
        cell = self._chunks[chunk].setdefault((lane, retention), Tally())
        for tally in (cell, self.total):
            tally.add(change.packets, change.size_bytes, change.samples)
        if cell.packets == 0:
            self._forget(chunk, (lane, retention))

    def classes(self) -> list[int]:
        """Retention classes present, lowest first."""
        return sorted({retention for cells in self._chunks.values() for _, retention in cells})

    def chunks_of_class(self, retention: int) -> Iterator[tuple[int, int]]:
        """(first id, last id) of each chunk that holds the class, oldest first."""
        for chunk in list(self._order):
            if any(kept == retention for _, kept in self._chunks.get(chunk, ())):
                yield _bounds(chunk)

    def chunks_of_lane(self, lane: int, after_id: int) -> Iterator[tuple[int, int]]:
        """(first id, last id) of each chunk that holds the lane and ids above ``after_id``, oldest first."""
        start = bisect_left(self._order, (after_id + 1) >> CHUNK_BITS)
        for chunk in self._order[start:]:
            if any(kept == lane for kept, _ in self._chunks.get(chunk, ())):
                yield _bounds(chunk)

    def chunks_between(self, first_id: int, last_id: int) -> list[tuple[int, int]]:
        """(first id, last id), cut to the bounds given, of each chunk that may hold ids between them."""
        start = bisect_left(self._order, first_id >> CHUNK_BITS)
        end = bisect_right(self._order, last_id >> CHUNK_BITS)
        bounds = map(_bounds, self._order[start:end])
        return [(max(low, first_id), min(high, last_id)) for low, high in bounds]

    def chunks(self) -> Iterator[tuple[int, int, int]]:
        """(first id, last id, packets held between them) of each chunk, oldest first."""
        for chunk in self._order:
            yield *_bounds(chunk), sum(tally.packets for tally in self._chunks[chunk].values())

    def lane_packets(self, lane: int) -> int:
        """How many packets a lane holds."""
        cells = (cell for cells in self._chunks.values() for cell in cells.items())
        return sum(tally.packets for (kept, _), tally in cells if kept == lane)

    def _forget(self, chunk: int, cell: tuple[int, int]) -> None:
        cells = self._chunks[chunk]
        del cells[cell]
        if not cells:
            del self._chunks[chunk]
            del self._order[bisect_left(self._order, chunk)]


def _bounds(chunk: int) -> tuple[int, int]:
    return chunk << CHUNK_BITS, ((chunk + 1) << CHUNK_BITS) - 1

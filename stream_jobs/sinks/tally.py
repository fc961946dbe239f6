"""What one transaction counts per Kafka partition: for its receipt, its ledger row and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from stream_jobs.arithmetic import Bools
from stream_jobs.records import Records, Refusal, Source
from stream_jobs.sinks.base import Receipt


@dataclass(slots=True)
class Tally:
    """Counts of one partition, by the names of ``Receipt``'s fields."""

    source: Source
    next_offset: int
    max_received_ms: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, **counts: int) -> None:
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def receipt(self, spent_ms: int) -> Receipt:
        source = self.source
        return Receipt(source.topic, source.partition, self.next_offset, transaction_ms=spent_ms, **self.counts)


def open_tally(part: Records, index: int, fresh: Bools) -> Tally:
    """The tally of a part's partition, with what was read and what of it was there already."""
    mine = part.source == index
    tally = Tally(part.sources[index], int(part.offset[mine].max()) + 1)
    tally.add(records=int(np.count_nonzero(mine)), replayed=int(np.count_nonzero(mine & ~fresh)))
    return tally


def count_refusals(part: Records, refusals: Sequence[Refusal], tallies: Sequence[Tally]) -> None:
    for refusal in refusals:
        tallies[int(part.source[refusal.row])].add(quarantined=1)

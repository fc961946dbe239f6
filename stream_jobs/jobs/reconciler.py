"""The reconciliation's order of questions, which is what makes its verdicts sound.

First what agents say they let go of, then how far the log reaches, then, when the store has come that far, the store.
So whatever was let go of at the first question was in the log at the second and must be stored at the third.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from contracts.ranges import RangeSet
from contracts.topics import Topics
from stream_jobs.log import Extent, LogReader, LogState
from stream_jobs.reconcile import (
    Logged,
    Partition,
    Ranges,
    Report,
    Verdict,
    judge_epoch,
    judge_partition,
    judge_skipped,
)
from stream_jobs.recount import LoggedPacket
from stream_jobs.sinks.facts import EpochKey, FactReader, Facts

LOOK_S = 0.2
MOST_EXAMPLES = 5
ReadLog = Callable[[Mapping[tuple[str, int], Extent], str | None], Iterable[LoggedPacket]]


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Asks the three witnesses; changes nothing."""

    store: FactReader
    log: LogReader
    read_log: ReadLog
    topics: Topics
    clock_ms: Callable[[], int]

    @property
    def taken_topics(self) -> tuple[str, ...]:
        """What ingest reads, and what the evidence consumer reads."""
        topics = self.topics
        return (*self._packet_topics, topics.status.name, topics.dead_letters.name)

    def run(self, device: str | None, *, deep: bool, wait_s: float) -> Report:
        """Ask, wait up to ``wait_s`` for the store to catch up, judge. Raises TryLater."""
        before = self.store.accounts(device)
        state = self.log.state()
        caught_up = self._wait(state, wait_s)
        facts = self.store.facts(device, aside=deep)
        verdicts = [one for place in self._partitions(state, facts) for one in judge_partition(place)]
        logged: dict[EpochKey, Ranges] = {}
        if deep:
            skipped, logged = self._recount(state, facts, device)
            verdicts += skipped
        whole = all(extent.begin == 0 for name in self._packet_topics for extent in state.extents[name].values())
        for key in sorted(facts.epochs):
            in_log = Logged(logged.get(key, ()), whole) if deep else None
            verdicts += judge_epoch(facts.epochs[key], before.get(key), caught_up, in_log)
        return Report(self.clock_ms(), deep, caught_up, tuple(verdicts))

    @property
    def _packet_topics(self) -> tuple[str, ...]:
        """Topics whose records use sequence numbers of their device."""
        return self.topics.live.name, self.topics.backlog.name, self.topics.priority.name

    def _wait(self, state: LogState, wait_s: float) -> bool:
        deadline_s = time.monotonic() + wait_s
        while not self._caught_up(state):
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(LOOK_S)
        return True

    def _caught_up(self, state: LogState) -> bool:
        taken = self.store.taken()
        return all(
            taken.get((state.ids[name], number), 0) >= extent.end or extent.begin == extent.end
            for name in self.taken_topics
            for number, extent in state.extents[name].items()
        )

    def _partitions(self, state: LogState, facts: Facts) -> Iterable[Partition]:
        for name in self.taken_topics:
            for number, extent in sorted(state.extents[name].items()):
                place = state.ids[name], number
                taker = "evidence" if name == self.topics.priority.name else "ingest"
                takers: list[tuple[str, int | None]] = [(taker, facts.taken.get(place))]
                if name in self._packet_topics:
                    takers.append(("archive", facts.archived.get(place)))
                yield Partition(name, number, extent.begin, extent.end, tuple(takers))

    def _recount(
        self, state: LogState, facts: Facts, device: str | None
    ) -> tuple[list[Verdict], dict[EpochKey, Ranges]]:
        """Records that their consumer passed over, and the numbers that the log holds per boot epoch."""
        stores = _Stores(facts)
        found: dict[EpochKey, RangeSet] = {}
        passed: dict[tuple[str, int], list[LoggedPacket]] = {}
        names = (*self._packet_topics, self.topics.dead_letters.name)
        extents = {(name, number): extent for name in names for number, extent in state.extents[name].items()}
        letters, priority = self.topics.dead_letters.name, self.topics.priority.name
        for record in self.read_log(extents, device):
            place = state.ids[record.topic], record.partition
            if record.identity is not None and record.topic != letters:
                name, epoch, seq = record.identity
                found.setdefault((name, epoch), RangeSet()).add(seq)
            if record.topic == priority:
                stored = stores.has_parcel(record)
            else:
                stored = record.topic != letters and stores.has_packet(record)
            if stored or record.offset >= facts.taken.get(place, 0):
                continue
            if record.offset not in facts.aside.get(place, RangeSet()):
                passed.setdefault((record.topic, record.partition), []).append(record)
        verdicts = [one for place, records in sorted(passed.items()) for one in _skipped(*place, records)]
        return verdicts, {key: numbers.as_tuple() for key, numbers in found.items()}


class _Stores:
    """What the store says of single records: which it has."""

    def __init__(self, facts: Facts) -> None:
        self._seen = {key: RangeSet(epoch.seen) for key, epoch in facts.epochs.items()}
        self._parcels = {key: RangeSet(ranges) for key, ranges in facts.parcels.items()}
        self._nonces = {key: epoch.nonce for key, epoch in facts.epochs.items()}

    def has_packet(self, record: LoggedPacket) -> bool:
        if record.identity is None:
            return False
        name, epoch, seq = record.identity
        known = self._nonces.get((name, epoch))
        return known == record.nonce and seq in self._seen.get((name, epoch), RangeSet())

    def has_parcel(self, record: LoggedPacket) -> bool:
        """Also of what the evidence consumer keeps aside without counting it (unreadable, another nonce): nobody but
        its own role may read where that lies."""
        if record.identity is None:
            return True
        name, epoch, seq = record.identity
        known = self._nonces.get((name, epoch))
        return known not in (None, record.nonce) or seq in self._parcels.get((name, epoch), RangeSet())


def _skipped(topic: str, partition: int, records: list[LoggedPacket]) -> list[Verdict]:
    examples = [
        f"offset {one.offset}: {one.identity[0]} epoch {one.identity[1]} seq {one.identity[2]}"
        if one.identity
        else f"offset {one.offset}: not readable"
        for one in records[:MOST_EXAMPLES]
    ]
    return judge_skipped(topic, partition, (one.offset for one in records), examples)

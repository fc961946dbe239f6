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
        """What ingest reads."""
        topics = self.topics
        return topics.live.name, topics.backlog.name, topics.status.name, topics.dead_letters.name

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
        return self.topics.live.name, self.topics.backlog.name

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
        archived = (*self._packet_topics, self.topics.priority.name)
        for name in dict.fromkeys((*self.taken_topics, *archived)):
            for number, extent in sorted(state.extents[name].items()):
                place = state.ids[name], number
                takers: list[tuple[str, int | None]] = []
                if name in self.taken_topics:
                    takers.append(("ingest", facts.taken.get(place)))
                if name in archived:
                    takers.append(("archive", facts.archived.get(place)))
                yield Partition(name, number, extent.begin, extent.end, tuple(takers))

    def _recount(
        self, state: LogState, facts: Facts, device: str | None
    ) -> tuple[list[Verdict], dict[EpochKey, Ranges]]:
        """Records that ingest passed over, and the numbers that the log holds per boot epoch."""
        seen = {key: RangeSet(epoch.seen) for key, epoch in facts.epochs.items()}
        nonces = {key: epoch.nonce for key, epoch in facts.epochs.items()}
        found: dict[EpochKey, RangeSet] = {}
        passed: dict[tuple[str, int], list[LoggedPacket]] = {}
        names = (*self._packet_topics, self.topics.dead_letters.name)
        extents = {(name, number): extent for name in names for number, extent in state.extents[name].items()}
        letters = self.topics.dead_letters.name
        for record in self.read_log(extents, device):
            place = state.ids[record.topic], record.partition
            stored = False
            if record.identity is not None and record.topic != letters:
                name, epoch, seq = record.identity
                found.setdefault((name, epoch), RangeSet()).add(seq)
                known = nonces.get((name, epoch))
                stored = known == record.nonce and seq in seen.get((name, epoch), RangeSet())
            if stored or record.offset >= facts.taken.get(place, 0):
                continue
            if record.offset not in facts.aside.get(place, RangeSet()):
                passed.setdefault((record.topic, record.partition), []).append(record)
        verdicts = [one for place, records in sorted(passed.items()) for one in _skipped(*place, records)]
        return verdicts, {key: numbers.as_tuple() for key, numbers in found.items()}


def _skipped(topic: str, partition: int, records: list[LoggedPacket]) -> list[Verdict]:
    examples = [
        f"offset {one.offset}: {one.identity[0]} epoch {one.identity[1]} seq {one.identity[2]}"
        if one.identity
        else f"offset {one.offset}: not readable"
        for one in records[:MOST_EXAMPLES]
    ]
    return judge_skipped(topic, partition, (one.offset for one in records), examples)

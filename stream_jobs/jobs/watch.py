"""The gap watch: looks at the ledger now and then, and says when something accepted stays missing.

It runs beside ingest, in a process of its own, because it matters most when ingest does not run. It keeps the last
look in memory: after a restart a hole is a gap one look later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from contracts.errors import TryLater
from contracts.gap_event import OPENED
from contracts.ranges import count
from stream_jobs.gaps import Change, Look, Ranges, advance
from stream_jobs.metrics import WatchMetrics
from stream_jobs.sinks.gaps import EpochGaps, GapStore, Key

log = logging.getLogger(__name__)


@dataclass(slots=True)
class GapWatch:
    """Looks every ``interval_s`` until told to stop; ``limit_ms`` is the age at which a hole is an event."""

    store: GapStore
    interval_s: float
    limit_ms: int
    clock_ms: Callable[[], int]
    metrics: WatchMetrics
    _before: dict[Key, Ranges] | None = None
    _before_ms: int = 0
    _changes: dict[Key, list[Change]] = field(default_factory=dict)

    def run(self, stop: threading.Event) -> None:
        """Until ``stop``; a store that is away is asked again."""
        while True:
            try:
                self.once()
            except TryLater as error:
                log.warning('event=watch_waits reason="%s"', error)
            if stop.wait(self.interval_s):
                break
        self.store.disconnect()

    def once(self) -> list[Change]:
        """One look; what it changed. Raises TryLater."""
        now_ms = self.clock_ms()
        epochs = self.store.look(lambda found: self._decide(found, now_ms), now_ms)
        if epochs is None:
            return []
        self._before = {key: epoch.missing for key, epoch in epochs.items() if epoch.missing}
        self._before_ms = now_ms
        changes = [change for some in self._changes.values() for change in some]
        self._report(epochs, changes)
        return changes

    def _decide(self, epochs: Mapping[Key, EpochGaps], now_ms: int) -> Mapping[Key, list[Change]]:
        self._changes = {
            key: advance(epoch.standing, self._look(key, epoch, now_ms), self.limit_ms) for key, epoch in epochs.items()
        }
        return self._changes

    def _look(self, key: Key, epoch: EpochGaps, now_ms: int) -> Look:
        before = None if self._before is None else self._before.get(key, ())
        return Look(epoch.missing, epoch.stored, now_ms, before, self._before_ms)

    def _report(self, epochs: Mapping[Key, EpochGaps], changes: list[Change]) -> None:
        opened = sum(gap.opened_ms is not None for epoch in epochs.values() for gap in epoch.standing)
        events = [change for change in changes if change.event is not None]
        opened += sum(1 if change.event == OPENED else -1 for change in events)
        self.metrics.looked(sum(count(epoch.missing) for epoch in epochs.values()), opened)
        for change in events:
            self.metrics.told(str(change.event))
            log.warning(
                "event=ledger_gap state=%s gap_id=%d packets=%d",
                change.event, change.gap.gap_id, count(change.gap.missing or change.gap.numbers),
            )  # fmt: skip

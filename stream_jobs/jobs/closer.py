"""Calls windows closed and has them published: the only place where a watermark decides anything.

The watermark is the smallest receive time up to which every live partition is stored: now for a partition that is
caught up, else the newest receive time stored from it. The backlog never delays the living; what it brings later
changes windows that are published again. Only finality waits for the backlog too, and for a receive stamp that is as
new: this machine's clock alone, jumping ahead, must not end what cannot be begun again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from contracts.errors import TryLater
from contracts.limits import FINAL_MARGIN_MS
from stream_jobs.log import Extent, LogState, lag
from stream_jobs.metrics import IngestMetrics
from stream_jobs.sinks.ledger import Progress, StoreLedger, Taken

log = logging.getLogger(__name__)
FINAL_STEP_MS = 60_000
"""Finality moves in steps, because moving it waits for the running transactions. A refused step waits for the next."""

_NOTHING = Taken(0, 0)


def watermark_ms(now_ms: int, extents: Mapping[int, Extent], taken: Mapping[int, Taken]) -> int:
    """Everything received before this is stored. ``now_ms`` was read before the extents, those before ``taken``."""
    return min(
        now_ms if taken.get(partition, _NOTHING).next_offset >= extent.end or extent.begin == extent.end
        else min(now_ms, taken.get(partition, _NOTHING).max_received_ms)
        for partition, extent in extents.items()
    )  # fmt: skip


@dataclass(slots=True)
class Closer:
    """Looks every ``interval_s`` until told to stop; what is not ready is asked again."""

    read_log: Callable[[], LogState]
    store: StoreLedger
    live_topic: str
    backlog_topic: str
    rows: int
    interval_s: float
    clock_ms: Callable[[], int]
    metrics: IngestMetrics
    _final_ms: int = 0

    def run(self, stop: threading.Event) -> None:
        """Loop for a thread."""
        try:
            while not stop.wait(self.interval_s):
                self._round(stop)
        finally:
            self.store.disconnect()

    def once(self) -> int:
        """One round; how many windows were closed. Raises TryLater."""
        now_ms = self.clock_ms()
        state = self.read_log()
        progress = self.store.progress()
        self._report(state, progress)
        live_ms = self._watermark_ms(self.live_topic, now_ms, state, progress)
        closed = self.store.close_windows(live_ms, self.rows)
        self.metrics.closed(closed)
        if closed < self.rows:
            backlog_ms = self._watermark_ms(self.backlog_topic, now_ms, state, progress)
            newest_ms = max((one.max_received_ms for one in progress.values()), default=0)
            self._move_finality(min(live_ms, backlog_ms, newest_ms) - FINAL_MARGIN_MS)
        return closed

    def _move_finality(self, before_ms: int) -> None:
        if before_ms >= self._final_ms + FINAL_STEP_MS:
            self._final_ms = before_ms
            self.store.move_finality(before_ms)

    def _watermark_ms(self, topic: str, now_ms: int, state: LogState, progress: Progress) -> int:
        taken = {partition: one for (topic_id, partition), one in progress.items() if topic_id == state.ids[topic]}
        return watermark_ms(now_ms, state.extents[topic], taken)

    def _round(self, stop: threading.Event) -> None:
        try:
            while self.once() >= self.rows and not stop.is_set():
                pass
        except TryLater as error:
            log.warning('event=closer_waits reason="%s"', error)

    def _report(self, state: LogState, progress: Progress) -> None:
        offsets = {key: taken.next_offset for key, taken in progress.items()}
        for topic, records in lag(state, offsets).items():
            self.metrics.lag(topic, records)

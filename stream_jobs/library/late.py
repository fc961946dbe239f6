"""Rows that came too late for a library job: heard from Spark after each batch, logged and counted."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from uuid import UUID

from prometheus_client import CollectorRegistry, Counter
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

log = logging.getLogger(__name__)


class JobMetrics:
    """What library jobs count."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._late = Counter(
            "fleetstream_job_rows_too_late", "rows that a job left out, they came too late", ("job",), registry=registry
        )

    def late(self, job: str, rows: int) -> None:
        self._late.labels(job).inc(rows)


@dataclass(eq=False)
class LateRows(StreamingQueryListener):
    """Hears one run of one job; to be registered before it starts. Spark calls it from a thread of its own."""

    session: SparkSession
    job: str
    metrics: JobMetrics | None = None
    _run: UUID | None = field(default=None, init=False)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        if self._run is None and event.name == self.job:
            self._run = event.runId

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        if event.progress.runId != self._run:
            return
        rows = sum(operator.numRowsDroppedByWatermark for operator in event.progress.stateOperators)
        if rows:
            log.warning("event=rows_too_late job=%s rows=%d batch=%d", self.job, rows, event.progress.batchId)
            if self.metrics is not None:
                self.metrics.late(self.job, rows)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing came, so nothing came late."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if event.runId == self._run:
            self.session.streams.removeListener(self)

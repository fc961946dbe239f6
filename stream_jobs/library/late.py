"""Rows that came too late for a library job: heard from Spark after each batch, logged and counted."""

from __future__ import annotations

import logging

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


class LateRows(StreamingQueryListener):
    """Hears every run of the jobs it watches, one for a whole session: Spark hands each event to each listener, and
    what PySpark makes of an event costs many calls. Spark calls it from a thread of its own."""

    def __init__(self, session: SparkSession, metrics: JobMetrics | None = None) -> None:
        """Listens from now on, until ``close``."""
        self._streams = session.streams
        self._metrics = metrics
        self._jobs: set[str] = set()
        self._streams.addListener(self)

    def watch(self, job: str) -> None:
        """Before the job starts."""
        self._jobs.add(job)

    def close(self) -> None:
        self._streams.removeListener(self)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing came yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if progress.name not in self._jobs:
            return
        rows = sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators)
        if rows:
            log.warning("event=rows_too_late job=%s rows=%d batch=%d", progress.name, rows, progress.batchId)
            if self._metrics is not None:
                self._metrics.late(progress.name, rows)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing came, so nothing came late."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The job may start again."""

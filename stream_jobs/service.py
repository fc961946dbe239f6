"""Run ingest until told to stop: the query, the closer beside it, the probes; stop between two batches."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from contracts.errors import TryLater
from stream_jobs.errors import QueryFailed
from stream_jobs.jobs.closer import Closer
from stream_jobs.metrics import HealthServer, IngestMetrics

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S = 0.25
START_PATIENCE_S = 60.0
"""How long a start waits for Kafka's topics and the database, which may be coming up beside it."""

_POLL_S = 0.005
Answer = TypeVar("Answer")
log = logging.getLogger(__name__)


@dataclass(slots=True)
class IngestService:
    """Everything that runs in the ingest process, already wired."""

    start_query: Callable[[], tuple[SparkSession, StreamingQuery]]
    closer: Closer
    metrics: IngestMetrics
    make_health: Callable[[Callable[[], bool]], HealthServer]
    stop_timeout_s: float
    _running: bool = False

    def run(self, stop: threading.Event) -> None:
        """Return when ``stop`` is set and the running batch is done. Raises QueryFailed."""
        health = self.make_health(lambda: self._running)
        health.start()
        closer = threading.Thread(target=self.closer.run, args=(stop,), name="closer", daemon=True)
        try:
            session, query = self.start_query()
            closer.start()
            self._running = True
            log.info("event=ingest_started metrics_port=%d", health.port)
            self._watch(query, closer, stop)
            stop_between_batches(query, self.stop_timeout_s)
            closer.join(self.stop_timeout_s)
            session.stop()
            log.info("event=ingest_stopped")
        finally:
            self._running = False
            stop.set()
            health.stop()

    def _watch(self, query: StreamingQuery, closer: threading.Thread, stop: threading.Event) -> None:
        while not stop.wait(LOOK_S):
            if not query.isActive:
                raise QueryFailed(f"the ingest query ended: {_reason(query)}")
            if not closer.is_alive():
                raise QueryFailed("the closer ended; its error is above")
            progress = query.lastProgress
            if progress is not None and progress["numInputRows"]:
                self.metrics.batch(progress["durationMs"]["triggerExecution"] / 1000)


def stop_between_batches(query: StreamingQuery, timeout_s: float) -> None:
    """Wait for a moment without a running batch; at the deadline interrupt it, which loses nothing either."""
    deadline_s = time.monotonic() + timeout_s
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
    query.stop()


def patiently(ask: Callable[[], Answer], stop: threading.Event, limit_s: float = START_PATIENCE_S) -> Answer:
    """The first answer; TryLater is asked again until ``limit_s`` or ``stop``, then raised. For starting only."""
    deadline_s = time.monotonic() + limit_s
    while True:
        try:
            return ask()
        except TryLater as error:
            if time.monotonic() > deadline_s or stop.wait(error.retry_after_ms / 1000):
                raise
            log.info('event=waiting reason="%s"', error)


def stop_on_signals() -> threading.Event:
    """An event that SIGTERM and SIGINT set."""
    stop = threading.Event()

    def ask(number: int, _: FrameType | None) -> None:
        log.info("event=stop_asked signal=%s", signal.Signals(number).name)
        stop.set()

    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, ask)
    return stop


def _reason(query: StreamingQuery) -> str:
    error = query.exception()
    return str(error)[:2000] if error is not None else "no reason given"

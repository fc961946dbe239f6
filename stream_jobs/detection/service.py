"""Run detection until told to stop: the query, its sink, the probes; stop between two batches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stream_jobs.detection.query import Said, ended_by_reporting
from stream_jobs.detection.runs import Run, committed_offsets
from stream_jobs.errors import ModelsChanged, QueryFailed
from stream_jobs.metrics import DetectMetrics, HealthServer
from stream_jobs.service import LOOK_S, stop_between_batches
from stream_jobs.sinks.findings import Adrift, FindingStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)


@dataclass(slots=True)
class FindingSink:
    """Takes each batch into the store, counts it, says what came too late.

    ``changed`` tells whether other models judge now than when the query was started; its batch is not stored then.
    """

    store: FindingStore
    run: Run
    metrics: DetectMetrics
    batches: int = 0
    failed: bool = False
    changed: Callable[[], bool] = lambda: False
    outdated: bool = False

    def __call__(self, said: Said) -> None:
        try:
            if self.changed():
                self.outdated = True
                raise ModelsChanged("other models judge now; nothing of this batch was stored, it is judged again")
            written = self.store.write(
                self.run.run_id, said.batch, said.told, said.readings, said.late, self._adrift(said)
            )
        except BaseException:
            self.failed = True
            raise
        self.batches += 1
        self.metrics.batch(said.readings, said.late, written.changed, said.state_bytes)
        if said.late:
            log.warning(
                'event=readings_too_late readings=%d batch=%d note="judged again in order from the store"',
                said.late,
                said.batch,
            )
        if written.changed or written.strange:
            log.info(
                "event=findings batch=%d changed=%d repeated=%d other_kind=%d unknown_device=%d",
                said.batch, written.changed, written.unchanged, written.elsewhere, written.strange,
            )  # fmt: skip

    def _adrift(self, said: Said) -> Adrift | None:
        if not len(said.astray):
            return None
        read_to = committed_offsets(self.run.checkpoint / "offsets")
        return Adrift(said.astray, {f"{topic}/{number}": at for (topic, number), at in read_to.items()})


def _nothing(stop: threading.Event) -> None:
    """Beside a service that judges nothing again."""


@dataclass(slots=True)
class DetectService:
    """Everything that runs in the detection process, already wired."""

    prepare: Callable[[], tuple[SparkSession, FindingSink, Callable[[], StreamingQuery]]]
    """Session, sink, and what starts the query."""
    metrics: DetectMetrics
    make_health: Callable[[Callable[[], bool]], HealthServer]
    stop_timeout_s: float
    beside: Callable[[threading.Event], None] = _nothing
    """Judges late readings again until told to stop, in a thread; what it leaves undone waits in the store."""
    _running: bool = False

    def run(self, stop: threading.Event) -> None:
        """Return when ``stop`` is set and the running batch is done. Raises QueryFailed."""
        health = self.make_health(lambda: self._running)
        health.start()
        try:
            session, sink, start = self.prepare()
            query = start()
            self._running = True
            log.info(
                "event=detect_started run=%s resumed=%s metrics_port=%d", sink.run.run_id, sink.run.resumed, health.port
            )
            again = threading.Thread(target=self.beside, args=(stop,), name="rejudge", daemon=True)
            again.start()
            query = self._watch(query, sink, start, stop)
            stop_between_batches(query, self.stop_timeout_s)
            again.join(self.stop_timeout_s)
            session.stop()
            log.info("event=detect_stopped")
        finally:
            self._running = False
            health.stop()

    def _watch(
        self, query: StreamingQuery, sink: FindingSink, start: Callable[[], StreamingQuery], stop: threading.Event
    ) -> StreamingQuery:
        """Until ``stop``; the query that runs then."""
        again = True
        while not stop.wait(LOOK_S):
            if not query.isActive and sink.outdated:
                again, sink.outdated = True, False
                log.info('event=query_started_again reason="models were promoted or taken back"')
                query = start()
            elif not query.isActive and again and ended_by_reporting(query):
                again = False
                log.info('event=query_started_again reason="the batch that was planned before a crash is done"')
                query = start()
            elif not query.isActive:
                self._give_up(query, sink)
            progress = query.lastProgress
            if progress is not None and progress["numInputRows"]:
                self.metrics.seconds(progress["durationMs"]["triggerExecution"] / 1000)
        return query

    def _give_up(self, query: StreamingQuery, sink: FindingSink) -> None:
        reason = str(query.exception())[:2000]
        if sink.run.resumed and not sink.batches and not sink.failed:
            sink.run.give_up()  # a checkpoint that cannot be read: a power cut may leave one
            reason = f"its checkpoint could not be continued and was given up, the next start begins anew: {reason}"
        raise QueryFailed(f"the detection query ended: {reason}")

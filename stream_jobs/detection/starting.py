"""How the detection query begins, and begins again: its run, the models that hold, its sink."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from anomaly.deployed import DEPLOYED
from anomaly.models.recipe import SIGNALS
from anomaly.shard import Shard
from stream_jobs.detection import query
from stream_jobs.detection.runs import Run, open_run, run_key
from stream_jobs.detection.samples import Plan
from stream_jobs.detection.service import FindingSink
from stream_jobs.jobs.ingest import kafka_options
from stream_jobs.log import LogReader
from stream_jobs.metrics import DetectMetrics
from stream_jobs.models.serving import Serving, serve
from stream_jobs.models.shelf import Shelf
from stream_jobs.records import Kind
from stream_jobs.service import patiently
from stream_jobs.session import build_session
from stream_jobs.settings import StreamSettings
from stream_jobs.sinks.base import Topic
from stream_jobs.sinks.findings import FindingStore
from stream_jobs.sinks.models import ModelStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(slots=True)
class Starter:
    """Everything that a start needs; ``lanes``: topic name to lane."""

    settings: StreamSettings
    scratch: Path
    stop: threading.Event
    metrics: DetectMetrics
    lanes: Mapping[str, int]
    held: Serving = field(init=False)
    topics: dict[str, Topic] = field(init=False)

    def prepare(self) -> tuple[SparkSession, FindingSink, Callable[[], StreamingQuery]]:
        """Session, sink, and what starts the query, also again. Raises what opening a run raises."""
        self.held = serve(self._models(), self._shelf())
        sink = FindingSink(FindingStore(self._dsn, ()), self._begin(self.held), self.metrics)
        session = build_session(self.settings, self.scratch, "detect")
        return session, sink, lambda: self._start(session, sink)

    def shard(self, now: Serving) -> Shard:
        """The declared set and the models. What is taken in never depends on which of these are live."""
        return Shard((*DEPLOYED, *now.deployments), self.settings.detect_wait_ms, SIGNALS)

    def _start(self, session: SparkSession, sink: FindingSink) -> StreamingQuery:
        """With the models that hold now; a change that reaches back begins a new run."""
        models = self._models()
        now = serve(models, self._shelf())
        if now.era != self.held.era:
            sink.run = self._begin(now)
        self.held = now
        self.metrics.models(now.models, len(now.broken))
        shard, settings = self.shard(now), self.settings
        sink.store = FindingStore(self._dsn, shard.deployments)
        sink.changed = lambda: models.number() != now.number
        plan = Plan(shard, settings.detect_shards, self.topics, self.lanes)
        options = kafka_options(settings.kafka_bootstrap, self.topics, "earliest", settings.max_offsets_per_trigger)
        trigger = {"processingTime": f"{settings.detect_interval_ms} milliseconds"}
        return query.start(session, plan, options, sink.run.checkpoint, trigger, sink)

    def _begin(self, now: Serving) -> Run:
        log = patiently(LogReader(self.settings.kafka_bootstrap, list(self.lanes)).state, self.stop)
        store = FindingStore(self._dsn, ())
        version = f"{self.shard(now).version}-{now.era}"
        key = run_key(version, self.settings.detect_shards, log)
        run = open_run(self.settings.detect_folder.absolute() / "runs", key, store.knows, log)
        store.begin(run.run_id, version)
        self.topics = {name: Topic(log.ids[name], Kind.PACKETS) for name in self.lanes}
        return run

    @property
    def _dsn(self) -> str:
        return self.settings.dsn.get_secret_value()

    def _models(self) -> ModelStore:
        return ModelStore(self._dsn)

    def _shelf(self) -> Shelf:
        return Shelf(self.settings.model_folder.absolute())

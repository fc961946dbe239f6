"""Where concrete classes meet: settings in, running services out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Consumer
from prometheus_client import CollectorRegistry

from contracts.errors import Fatal
from contracts.topics import Topics
from stream_jobs.jobs.archive import Archiver, Guarded, consumer_options
from stream_jobs.jobs.closer import Closer
from stream_jobs.jobs.reconciler import Reconciler
from stream_jobs.jobs.watch import GapWatch
from stream_jobs.log import LogReader, LogState, refuse_lost_store, starting_offsets
from stream_jobs.metrics import ArchiveMetrics, DetectMetrics, HealthServer, IngestMetrics, TrimMetrics, WatchMetrics
from stream_jobs.parquet import Place
from stream_jobs.records import Kind
from stream_jobs.recount import read_log
from stream_jobs.scratch import fresh_folder
from stream_jobs.service import IngestService, patiently
from stream_jobs.session import build_session
from stream_jobs.settings import StreamSettings
from stream_jobs.sinks import SINKS
from stream_jobs.sinks.base import Sink, Target, Topic
from stream_jobs.sinks.connection import drop_all
from stream_jobs.sinks.facts import FactReader
from stream_jobs.sinks.gaps import GapStore
from stream_jobs.sinks.ledger import StoreLedger
from stream_jobs.sinks.manifest import Manifest
from stream_jobs.sinks.trimming import TrimLedger
from stream_jobs.trim import LogLimit, Trimmer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from stream_jobs.detection.service import DetectService


def topic_kinds(prefix: str) -> dict[str, Kind]:
    """What the ingest query reads."""
    topics = Topics(prefix)
    return {
        topics.live.name: Kind.PACKETS,
        topics.backlog.name: Kind.PACKETS,
        topics.status.name: Kind.STATUS,
        topics.dead_letters.name: Kind.DEAD_LETTERS,
    }


def make_topics(prefix: str, log: LogState) -> dict[str, Topic]:
    return {name: Topic(log.ids[name], kind) for name, kind in topic_kinds(prefix).items()}


def make_sink(settings: StreamSettings, topics: dict[str, Topic]) -> Sink:
    """Raises Fatal for a name that is not on the menu."""
    if settings.sink not in SINKS:
        raise Fatal(f"there is no sink named {settings.sink!r}; choose one of {', '.join(SINKS)}")
    return SINKS[settings.sink](Target(settings.dsn.get_secret_value(), topics, settings.chunk_bytes))


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


def run_ingest(settings: StreamSettings, stop: threading.Event) -> None:
    """Run the ingest query and the closer until ``stop``. Raises Fatal or TryLater."""
    with fresh_folder(settings.checkpoint_folder) as scratch:
        service = make_ingest(settings, scratch, stop)
        try:
            service.run(stop)
        finally:
            drop_all()


def make_ingest(settings: StreamSettings, scratch: Path, stop: threading.Event) -> IngestService:
    """Wire the ingest process. Nothing is started but Spark's JVM, when the service runs."""
    from stream_jobs.jobs import ingest  # Spark is slow to import; the archive does without

    registry = CollectorRegistry()
    metrics = IngestMetrics(registry)
    reader = LogReader(settings.kafka_bootstrap, list(topic_kinds(settings.topic_prefix)))
    store = StoreLedger(settings.dsn.get_secret_value())

    def start_query() -> tuple[SparkSession, StreamingQuery]:
        log = patiently(reader.state, stop)
        topics = make_topics(settings.topic_prefix, log)
        ledger = {key: taken.next_offset for key, taken in patiently(store.progress, stop).items()}
        refuse_lost_store(log, ledger)
        options = ingest.kafka_options(
            settings.kafka_bootstrap, topics, starting_offsets(log, ledger), settings.max_offsets_per_trigger
        )
        trigger = {"processingTime": f"{settings.trigger_interval_ms} milliseconds"}
        session = build_session(settings, scratch)
        sink = make_sink(settings, topics)
        query = ingest.start(session, sink, topics, options, scratch / "checkpoint", trigger, metrics.receipts)
        return session, query

    closer = Closer(
        reader.state, store, Topics(settings.topic_prefix).live.name, Topics(settings.topic_prefix).backlog.name,
        settings.close_rows, settings.close_interval_ms / 1000, clock_ms, metrics,
    )  # fmt: skip

    def make_health(ready: Callable[[], bool]) -> HealthServer:
        return HealthServer(settings.metrics_host, settings.metrics_port, registry, lambda: True, ready)

    return IngestService(start_query, closer, metrics, make_health, settings.stop_timeout_s)


def run_detect(settings: StreamSettings, stop: threading.Event) -> None:
    """Judge the stream until ``stop``. Raises Fatal or TryLater."""
    from stream_jobs.detection.runs import only_one

    with only_one(settings.detect_folder.absolute()), fresh_folder(settings.detect_folder / "scratch") as scratch:
        try:
            make_detect(settings, scratch, stop).run(stop)
        finally:
            drop_all()


def make_detect(settings: StreamSettings, scratch: Path, stop: threading.Event) -> DetectService:
    """Wire detection. Nothing is started but Spark's JVM, when the service runs."""
    from stream_jobs.detection.rejudge import Reach, Rejudge
    from stream_jobs.detection.service import DetectService
    from stream_jobs.detection.starting import Starter
    from stream_jobs.sinks.judgements import JudgementStore

    registry = CollectorRegistry()
    metrics = DetectMetrics(registry)
    names = Topics(settings.topic_prefix)
    starter = Starter(settings, scratch, stop, metrics, {names.live.name: 0, names.backlog.name: 1})

    def make_health(ready: Callable[[], bool]) -> HealthServer:
        return HealthServer(settings.metrics_host, settings.metrics_port, registry, lambda: True, ready)

    again = Rejudge(
        JudgementStore(settings.dsn.get_secret_value()), lambda: starter.shard(starter.held),
        Reach(round(settings.detect_late_h * 3_600_000)), settings.detect_late_look_s, metrics.corrected,
    )  # fmt: skip
    return DetectService(starter.prepare, metrics, make_health, settings.stop_timeout_s, again.run)


def run_train(settings: StreamSettings, stop: threading.Event) -> None:
    """Train every recipe from the archive, once. Raises Fatal or TryLater."""
    from stream_jobs.models import registry

    registry.run_train(settings, stop)


def run_archive(settings: StreamSettings, stop: threading.Event) -> None:
    """Archive raw topics until ``stop``. Raises Fatal or TryLater."""
    topics = Topics(settings.topic_prefix)
    raw = [*topic_kinds(settings.topic_prefix), topics.priority.name]
    state = patiently(LogReader(settings.kafka_bootstrap, raw).state, stop)
    places = {
        Place(name, state.ids[name], partition): extent.begin
        for name in raw
        for partition, extent in state.extents[name].items()
    }
    registry = CollectorRegistry()
    archiver = Archiver(
        Consumer(consumer_options(settings.kafka_bootstrap)), Manifest(settings.dsn.get_secret_value()),
        settings.archive_folder.absolute(), settings.archive_file_bytes, settings.archive_roll_s, time.monotonic,
        ArchiveMetrics(registry), Guarded(topics.priority.name, topics.dead_letters.name),
    )  # fmt: skip
    patiently(lambda: archiver.assign(places, places), stop)
    trimmer = make_trimmer(settings, registry)
    trimming = threading.Thread(target=trimmer.run, args=(stop,), name="trimmer", daemon=True)
    health = HealthServer(settings.metrics_host, settings.metrics_port, registry, lambda: True, trimming.is_alive)
    health.start()
    trimming.start()
    try:
        archiver.run(stop)
    finally:
        health.stop()


def make_trimmer(settings: StreamSettings, registry: CollectorRegistry) -> Trimmer:
    """Wire the trimmer of what ingest reads and a restore can read again (crash records stay in the log)."""
    return Trimmer(
        LogReader(settings.kafka_bootstrap, list(topic_kinds(settings.topic_prefix))),
        TrimLedger(settings.dsn.get_secret_value()),
        settings.archive_folder.absolute(), round(settings.trim_after_h * 3_600_000),
        LogLimit(settings.log_folder, settings.topic_prefix, settings.log_limit_bytes), settings.trim_interval_s,
        clock_ms, TrimMetrics(registry),
    )  # fmt: skip


def make_watch(settings: StreamSettings, registry: CollectorRegistry) -> GapWatch:
    """Wire the gap watch; nothing is opened yet."""
    store = GapStore(settings.dsn.get_secret_value())
    limit_ms = round(settings.gap_limit_s * 1000)
    return GapWatch(store, settings.gap_look_s, limit_ms, clock_ms, WatchMetrics(registry))


def run_watch(settings: StreamSettings, stop: threading.Event) -> None:
    """Look for holes in the ledger until ``stop``."""
    registry = CollectorRegistry()
    watch = make_watch(settings, registry)
    health = HealthServer(settings.metrics_host, settings.metrics_port, registry, lambda: True, lambda: True)
    health.start()
    try:
        watch.run(stop)
    finally:
        health.stop()


def make_reconciler(bootstrap: str, prefix: str, dsn: str) -> Reconciler:
    """``dsn``: a role that may read every tenant; nothing is opened yet."""
    topics = Topics(prefix)
    names = [*topic_kinds(prefix), topics.priority.name]
    return Reconciler(FactReader(dsn), LogReader(bootstrap, names), partial(read_log, bootstrap), topics, clock_ms)

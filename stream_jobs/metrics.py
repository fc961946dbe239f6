"""What the jobs count, and the small HTTP server that tells: /metrics, /livez, /readyz on one loopback port."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from anomaly.corrections import Change
from stream_jobs.sinks.base import Receipt

BATCH_BUCKETS_S = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30)
LATENESS_BUCKETS_S = (0.5, 1, 2, 5, 10, 30, 60, 600, 3600, 86_400, 1_209_600)


class IngestMetrics:
    """Metrics of the ingest query and of the closer."""

    def __init__(self, registry: CollectorRegistry) -> None:
        topic = ("topic",)
        prefix = "fleetstream_ingest_"
        self._records = Counter(f"{prefix}records", "records read from Kafka", topic, registry=registry)
        self._replayed = Counter(f"{prefix}replayed_records", "records below next_offset", topic, registry=registry)
        self._packets = Counter(f"{prefix}packets", "packets stored", topic, registry=registry)
        self._samples = Counter(f"{prefix}samples", "samples stored", topic, registry=registry)
        self._duplicates = Counter(f"{prefix}duplicates", "copies suppressed", topic, registry=registry)
        self._quarantined = Counter(f"{prefix}quarantined", "records set aside", topic, registry=registry)
        self._windows = Counter(f"{prefix}window_upserts", "partial windows merged", registry=registry)
        self._late = Counter(f"{prefix}late_window_upserts", "of these by late packets", registry=registry)
        self._too_late = Counter(
            f"{prefix}too_late_samples", "samples beyond their signal's lateness class", registry=registry
        )
        self._retries = Counter(f"{prefix}transaction_retries", "transactions repeated", registry=registry)
        self._transaction = Histogram(
            f"{prefix}transaction_seconds", "one transaction", buckets=BATCH_BUCKETS_S, registry=registry
        )
        self._lateness = Histogram(
            f"{prefix}lateness_seconds", "receive time minus event time, the oldest packet of each transaction",
            buckets=LATENESS_BUCKETS_S, registry=registry,
        )  # fmt: skip
        self._batch = Gauge(f"{prefix}batch_seconds", "the last micro-batch, trigger to commit", registry=registry)
        self._lag = Gauge(f"{prefix}lag_records", "records not yet stored", topic, registry=registry)
        self._closed = Counter(f"{prefix}windows_closed", "windows closed and published", registry=registry)

    def receipts(self, receipts: Iterable[Receipt]) -> None:
        """Count what a batch committed."""
        for one in receipts:
            for counter, count in (
                (self._records, one.records), (self._replayed, one.replayed), (self._packets, one.packets),
                (self._samples, one.samples), (self._duplicates, one.duplicates),
                (self._quarantined, one.quarantined),
            ):  # fmt: skip
                counter.labels(one.topic).inc(count)
            self._windows.inc(one.windows)
            self._late.inc(one.late_windows)
            self._too_late.inc(one.too_late)
            self._retries.inc(one.retries)
            self._transaction.observe(one.transaction_ms / 1000)
            if one.packets:
                self._lateness.observe(one.lateness_ms / 1000)

    def batch(self, seconds: float) -> None:
        self._batch.set(seconds)

    def lag(self, topic: str, records: int) -> None:
        self._lag.labels(topic).set(records)

    def closed(self, windows: int) -> None:
        self._closed.inc(windows)


class DetectMetrics:
    """Metrics of detection."""

    def __init__(self, registry: CollectorRegistry) -> None:
        prefix = "fleetstream_detect_"
        self._readings = Counter(f"{prefix}readings", "readings taken in for judging", registry=registry)
        self._late = Counter(f"{prefix}late_readings", "too far behind to be judged", registry=registry)
        self._findings = Counter(f"{prefix}findings", "findings written, new or changed", registry=registry)
        self._batches = Counter(f"{prefix}batches", "micro-batches", registry=registry)
        self._state = Gauge(f"{prefix}state_bytes", "state of the shards of the last batch", registry=registry)
        self._batch = Gauge(f"{prefix}batch_seconds", "the last micro-batch, trigger to commit", registry=registry)
        self._corrections = Counter(
            f"{prefix}corrections", "findings that late readings changed", ("kind",), registry=registry
        )
        self._models = Gauge(f"{prefix}models", "trained models in the schedule", ("state",), registry=registry)

    def models(self, judging: int, unusable: int) -> None:
        """``unusable``: their file is missing, altered, or not understood; what they would judge is not judged."""
        self._models.labels("judging").set(judging)
        self._models.labels("unusable").set(unusable)

    def batch(self, readings: int, late: int, findings: int, state_bytes: int) -> None:
        self._batches.inc()
        self._readings.inc(readings)
        self._late.inc(late)
        self._findings.inc(findings)
        self._state.set(state_bytes)

    def seconds(self, seconds: float) -> None:
        self._batch.set(seconds)

    def corrected(self, kinds: Mapping[Change, int]) -> None:
        """Findings that late readings changed."""
        for kind in Change:
            self._corrections.labels(kind.value).inc(kinds.get(kind, 0))


class ArchiveMetrics:
    """Metrics of the archive consumer."""

    def __init__(self, registry: CollectorRegistry) -> None:
        prefix = "fleetstream_archive_"
        self._files = Counter(f"{prefix}files", "Parquet files written", registry=registry)
        self._records = Counter(f"{prefix}records", "records archived", registry=registry)
        self._bytes = Counter(f"{prefix}bytes", "bytes of Parquet written", registry=registry)
        self._held = Gauge(f"{prefix}held_records", "records in memory, not yet in a file", registry=registry)

    def wrote(self, files: int, records: int, size_bytes: int) -> None:
        self._files.inc(files)
        self._records.inc(records)
        self._bytes.inc(size_bytes)

    def held(self, records: int) -> None:
        self._held.set(records)


class WatchMetrics:
    """Metrics of the gap watch; no device is ever a label."""

    def __init__(self, registry: CollectorRegistry) -> None:
        prefix = "fleetstream_ledger_"
        self._missing = Gauge(
            f"{prefix}missing_packets", "accepted by agents, neither stored nor accounted for yet", registry=registry
        )
        self._open = Gauge(f"{prefix}open_gaps", "holes older than the limit", registry=registry)
        self._events = Counter(f"{prefix}gap_events", "gaps told on the events topic", ("state",), registry=registry)
        self._looks = Counter(f"{prefix}looks", "looks at the whole ledger", registry=registry)

    def looked(self, missing: int, open_gaps: int) -> None:
        self._looks.inc()
        self._missing.set(missing)
        self._open.set(open_gaps)

    def told(self, state: str) -> None:
        self._events.labels(state).inc()


class TrimMetrics:
    """Metrics of trimming, and of the log's size where it is watched."""

    def __init__(self, registry: CollectorRegistry) -> None:
        prefix = "fleetstream_log_"
        self._trimmed = Counter(f"{prefix}trimmed_records", "records trimmed", ("topic",), registry=registry)
        self._bytes = Gauge(f"{prefix}bytes", "size of the raw log's files", registry=registry)
        self._limit = Gauge(f"{prefix}limit_bytes", "size at which the alarm is raised", registry=registry)
        self._alarm = Gauge(f"{prefix}alarm", "1 while the alarm stands", ("alarm",), registry=registry)

    def trimmed(self, topic: str, records: int) -> None:
        self._trimmed.labels(topic).inc(records)

    def log_bytes(self, size: int, limit: int) -> None:
        self._bytes.set(size)
        self._limit.set(limit)

    def alarms(self, standing: Iterable[str]) -> None:
        names = set(standing)
        for name in ("log_size", "archive_damaged", "archive_incomplete"):
            self._alarm.labels(name).set(name in names)


class HealthServer:
    """Answers in threads of its own; ``alive`` and ``ready`` are asked at each request."""

    def __init__(
        self, host: str, port: int, registry: CollectorRegistry, alive: Callable[[], bool], ready: Callable[[], bool]
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            """Three paths, no logs."""

            def do_GET(self) -> None:
                probes = {"/livez": alive, "/readyz": ready}
                if self.path == "/metrics":
                    self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
                elif self.path in probes:
                    good = probes[self.path]()
                    self._answer(200 if good else 503, b"ok\n" if good else b"not now\n", "text/plain")
                else:
                    self._answer(404, b"no such path\n", "text/plain")

            def _answer(self, code: int, body: bytes, kind: str) -> None:
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                """Probes are not news."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

"""Run the evidence consumer until told to stop: roots read, topic found, loop and probes."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from confluent_kafka import Consumer
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from prometheus_client import CollectorRegistry

from contracts.edr.x509 import X509Checks
from contracts.errors import Fatal
from contracts.topics import Topics
from stream_jobs.evidence.consumer import EvidenceConsumer, consumer_options
from stream_jobs.evidence.metrics import EvidenceMetrics
from stream_jobs.evidence.roots import RootMaker
from stream_jobs.evidence.store import EvidenceStore
from stream_jobs.evidence.waiting import Sweeper
from stream_jobs.evidence.writer import Rules
from stream_jobs.log import Extent, LogReader
from stream_jobs.metrics import HealthServer
from stream_jobs.service import patiently
from stream_jobs.settings import StreamSettings
from stream_jobs.sinks.connection import drop_all


def read_roots(files: Iterable[Path]) -> frozenset[bytes]:
    """SHA-256 of each root certificate (PEM). Raises Fatal naming the file."""
    roots = set()
    for file in files:
        try:
            found = x509.load_pem_x509_certificates(file.read_bytes())
        except (OSError, ValueError) as error:
            raise Fatal(
                f"evidence_roots: {file} cannot be read as PEM certificates ({error}); no record is judged"
            ) from error
        roots |= {hashlib.sha256(one.public_bytes(Encoding.DER)).digest() for one in found}
    return frozenset(roots)


def build_consumer(
    settings: StreamSettings, registry: CollectorRegistry, clock_ms: Callable[[], int]
) -> EvidenceConsumer:
    """Wire the consumer; it reads nothing before ``assign``."""
    dsn = settings.dsn.get_secret_value()
    rules = Rules(read_roots(settings.evidence_roots), X509Checks(), settings.evidence_pending_bytes)
    sweeper = Sweeper(dsn, round(settings.evidence_pending_days * 86_400_000))
    return EvidenceConsumer(
        Consumer(consumer_options(settings.kafka_bootstrap)), EvidenceStore(dsn, rules), RootMaker(dsn), sweeper,
        EvidenceMetrics(registry), clock_ms, time.monotonic,
    )  # fmt: skip


def run_evidence(settings: StreamSettings, stop: threading.Event) -> None:
    """Take crash records in until ``stop``. Raises Fatal or TryLater."""
    registry = CollectorRegistry()
    consumer = build_consumer(settings, registry, lambda: time.time_ns() // 1_000_000)
    topic = Topics(settings.topic_prefix).priority.name
    state = patiently(LogReader(settings.kafka_bootstrap, [topic]).state, stop)
    extents: dict[int, Extent] = dict(state.extents[topic])
    patiently(lambda: consumer.assign(topic, state.ids[topic], extents), stop)
    health = HealthServer(settings.metrics_host, settings.metrics_port, registry, lambda: True, lambda: True)
    health.start()
    try:
        consumer.run(stop)
    finally:
        health.stop()
        drop_all()

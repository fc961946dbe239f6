"""Kafka to store alone, by each sink; and how soon a sample can be queried at a tenth of the line's load."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import psycopg
from confluent_kafka import Producer
from psycopg.conninfo import make_conninfo

from contracts.packet import Block, Header, Packet, encode_packet
from contracts.stamp import STAMP_HEADER, Stamp, encode_stamp
from contracts.tables import ROLE_SINK
from contracts.topics import Topics
from infra.backends import Backends, Ports
from infra.kafka import create_topics
from infra.migrate import create_roles, maintain, migrate
from infra.paths import default_cache
from infra.processes import free_port
from infra.spark import spark_environment, spark_jars
from stream_jobs.jobs import ingest
from stream_jobs.log import LogReader, starting_offsets
from stream_jobs.service import patiently, stop_between_batches
from stream_jobs.session import build_session
from stream_jobs.settings import StreamSettings
from stream_jobs.sinks import SINKS
from stream_jobs.sinks.base import Receipt, Target
from stream_jobs.sinks.connection import drop_all
from stream_jobs.wiring import make_topics, topic_kinds
from tests.bench.figures import Figure, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SIGNALS = (1, 20, 21, 25, 40, 41, 10, 11, 12, 50)
DEVICES, SECONDS, HERTZ = 200, 400, 5
BATCH_PACKETS = 20_000
LATENCY_DEVICES, LATENCY_SECONDS, LATENCY_SAMPLES = 100, 20, 4
ROUNDS = 3
WARM_S, FIRST_PACKET_S = 20, 120
NEWS = """
SELECT device_key, seq, first_at, last_at FROM packet_rows
WHERE stored_at > now() - interval '10 s' AND received_at > now() - interval '60 s'"""
FLOOD = (
    f"{DEVICES * SECONDS:,} packets of {len(SIGNALS) * HERTZ} samples, {DEVICES} devices, {len(SIGNALS)} signals, "
    f"{BATCH_PACKETS:,} packets a batch, warm; windows of 10 s and 60 s, latest values and ledger included"
)
PACED = (
    f"{LATENCY_DEVICES} devices, packets of 250 ms, {LATENCY_DEVICES * 4 * len(SIGNALS) * LATENCY_SAMPLES:,} "
    "samples/s, both ends of every packet, without the device's radio"
)
TABLES = "packet_rows, window_aggregates, latest_values, seen_ranges, ingest_offsets, quarantined"


@dataclass(slots=True)
class Bench:
    """A stack of its own with enrolled devices."""

    stack: Backends
    spark: SparkSession
    dsn: str
    owner_dsn: str
    keys: list[int]
    scratch: Path
    runs: int = 0
    settings: StreamSettings = field(kw_only=True)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.stack.ports.kafka}"

    def start(
        self, prefix: str, sink: str, trigger: dict[str, str | bool], heard: Callable[[list[Receipt]], None]
    ) -> StreamingQuery:
        """The query as production starts it, on an empty store."""
        with psycopg.connect(self.owner_dsn, autocommit=True) as owner:
            owner.execute(f"TRUNCATE {TABLES}")
            owner.execute("CHECKPOINT")
        log = patiently(LogReader(self.bootstrap, list(topic_kinds(prefix))).state, threading.Event())
        topics = make_topics(prefix, log)
        self.runs += 1
        options = ingest.kafka_options(self.bootstrap, topics, starting_offsets(log, {}), BATCH_PACKETS)
        made = SINKS[sink](Target(self.dsn, topics))
        checkpoint = self.scratch / f"checkpoint-{self.runs}"
        return ingest.start(self.spark, made, topics, options, checkpoint, trigger, heard)


def run() -> Report:
    """Both parts on one stack. The sinks take turns, after one turn each that warms the JVM up and does not count."""
    report = Report("Kafka to store")
    with bench() as b:
        fill(b, "flood")
        turns = [{name: throughput(b, name) for name in SINKS} for _ in range(1 + ROUNDS)][1:]
        for name in SINKS:
            ours = name == b.settings.sink
            rates, spent = ([getattr(turn[name], what) for turn in turns] for what in ("samples_per_s", "cpu_s"))
            least = 400_000 if ours else None
            report.figures += [
                Figure(f"samples stored, sink {name}", "samples/s", tuple(rates), least, True, FLOOD),
                Figure(f"CPU for them, sink {name}", "CPU-s per million samples", tuple(spent), None, False, FLOOD),
            ]
        report.figures.append(
            Figure("hot store", "bytes/sample", (stored_bytes(b),), 24, False, "packet rows with their index")
        )
        for name in SINKS:
            middle, high = latency(b, name)
            targets = (1_000, 2_000) if name == b.settings.sink else (None, None)
            for what, value, target in (("p50", middle, targets[0]), ("p95", high, targets[1])):
                figure = Figure(f"event time to queryable, {what}, sink {name}", "ms", (value,), target, False, PACED)
                report.figures.append(figure)
    report.notes.append("Kafka, Spark, PostgreSQL and the measuring process share the cores; CPU counts all of them.")
    return report


@dataclass(frozen=True, slots=True)
class Speed:
    """One turn of one sink."""

    samples_per_s: float
    cpu_s: float
    """CPU seconds of the whole process tree per million samples."""


@contextmanager
def bench() -> Iterator[Bench]:
    home = Path(tempfile.mkdtemp(prefix="fleetstream-bench-"))
    ports = Ports(postgres=free_port(), kafka=free_port(), kafka_controller=free_port(), mqtt=free_port())
    stack = Backends(home, default_cache(), ports)
    stack.start()
    try:
        create_roles(stack.postgres.dsn(), stack.postgres.passwords())
        migrate(stack.postgres.dsn(), "fleetstream")
        maintain(stack.postgres.dsn(), "fleetstream")
        dsn, owner = (
            make_conninfo(stack.postgres.dsn(role), options="-csearch_path=fleetstream")
            for role in (ROLE_SINK, "postgres")
        )
        os.environ.update(spark_environment(default_cache()))
        settings = StreamSettings(dsn=dsn, jars=spark_jars(default_cache()))  # type: ignore[arg-type]
        spark = build_session(settings, home)
        try:
            yield Bench(stack, spark, dsn, owner, enrol(owner), home, settings=settings)
        finally:
            spark.stop()
            drop_all()
    finally:
        stack.stop()
        shutil.rmtree(home, ignore_errors=True)


def enrol(dsn: str) -> list[int]:
    with psycopg.connect(dsn) as connection:
        connection.execute("INSERT INTO tenants (name) VALUES ('north')")
        rows = connection.execute(
            "INSERT INTO devices (device, tenant_id) SELECT 'd' || n, 1 FROM generate_series(0, %s) n"
            " ORDER BY n RETURNING device_key",
            (DEVICES - 1,),
        )
        return [int(row[0]) for row in rows]


def packet(device: int, seq: int, base_ms: int, samples: int, step_ms: int, dice: random.Random) -> bytes:
    offsets = tuple(n * step_ms for n in range(samples))
    blocks = tuple(
        Block(signal, -1, 400, offsets, tuple(dice.randrange(-200, 200) for _ in offsets)) for signal in SIGNALS
    )
    header = Header("north", f"d{device}", 1, device, seq, 0, base_ms, 0, True, samples * len(SIGNALS))
    return encode_packet(Packet(header, blocks))


def make_producer(b: Bench) -> Producer:
    return Producer(
        {
            "bootstrap.servers": b.bootstrap, "partitioner": "murmur2_random", "acks": "all", "linger.ms": 5,
            "compression.type": "zstd", "queue.buffering.max.messages": 200_000,
        }
    )  # fmt: skip


def fill(b: Bench, prefix: str) -> None:
    """A log of ``SECONDS`` seconds, every device one packet a second."""
    create_topics(b.bootstrap, Topics(prefix).all())
    producer, topic, dice = make_producer(b), Topics(prefix).live.name, random.Random(1)
    began_ms = time.time_ns() // 1_000_000 - SECONDS * 1000
    for second in range(SECONDS):
        base_ms = began_ms + second * 1000
        for device in range(DEVICES):
            frame = packet(device, second + 1, base_ms, HERTZ, 1000 // HERTZ, dice)
            stamp = encode_stamp(Stamp(base_ms + 1_100, b.keys[device], 1))
            producer.produce(topic, frame, f"d{device}".encode(), headers=[(STAMP_HEADER, stamp)])
        producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("Kafka did not take the log")


def throughput(b: Bench, sink: str) -> Speed:
    """Store the whole log; the first batch (planning, first connections) does not count."""
    marks: list[tuple[float, float, int]] = []

    def heard(receipts: list[Receipt]) -> None:
        marks.append((time.monotonic(), tree_cpu_s(), sum(one.samples for one in receipts)))

    query = b.start("flood", sink, {"availableNow": True}, heard)
    if not query.awaitTermination(600) or sum(one[2] for one in marks) != DEVICES * SECONDS * HERTZ * len(SIGNALS):
        raise RuntimeError("not every sample was stored")
    samples = sum(one[2] for one in marks[1:])
    return Speed(samples / (marks[-1][0] - marks[0][0]), (marks[-1][1] - marks[0][1]) * 1e6 / samples)


def tree_cpu_s() -> float:
    """CPU seconds of this process and everything below it (broker, database, JVM, workers)."""
    me = psutil.Process()
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            spent = process.cpu_times()
            total += spent.user + spent.system
    return total


def stored_bytes(b: Bench) -> float:
    with psycopg.connect(b.owner_dsn, autocommit=True) as owner:
        row = owner.execute(
            "SELECT sum(pg_total_relation_size(inhrelid)) / (SELECT sum(samples) FROM packet_rows)"
            " FROM pg_inherits WHERE inhparent = 'packet_rows'::regclass"
        ).fetchone()
    return float(row[0]) if row else 0.0


def latency(b: Bench, sink: str) -> tuple[float, float]:
    """p50 and p95 of (first moment at which a query sees a sample) - (its event time), milliseconds."""
    create_topics(b.bootstrap, Topics(f"paced-{sink}").all())
    trigger: dict[str, str | bool] = {"processingTime": f"{b.settings.trigger_interval_ms} milliseconds"}
    query = b.start(f"paced-{sink}", sink, trigger, _ignore)
    stop = threading.Event()
    pacer = threading.Thread(target=pace, args=(b, f"paced-{sink}", stop))
    pacer.start()
    try:
        delays = watch(b)
    finally:
        stop.set()
        pacer.join()
        stop_between_batches(query, 30)
    delays.sort()
    return delays[len(delays) // 2], delays[len(delays) * 95 // 100]


def _ignore(_: list[Receipt]) -> None:
    """Receipts are for metrics."""


def pace(b: Bench, prefix: str, stop: threading.Event) -> None:
    """Every device's packet when its 250 ms are over, spread over the quarter second as a fleet's are."""
    producer, topic, dice = make_producer(b), Topics(prefix).live.name, random.Random(2)
    began_s, seq = time.time(), 0
    while not stop.is_set():
        seq += 1
        for device in range(LATENCY_DEVICES):
            due_s = began_s + seq * 0.25 + device * 0.25 / LATENCY_DEVICES
            stop.wait(max(0.0, due_s - time.time()))
            base_ms = int(due_s * 1000) - 250
            frame = packet(device, seq, base_ms, LATENCY_SAMPLES, 60, dice)
            stamp = encode_stamp(Stamp(time.time_ns() // 1_000_000, b.keys[device], 1))
            producer.produce(topic, frame, f"d{device}".encode(), headers=[(STAMP_HEADER, stamp)])
            producer.poll(0)
    producer.flush(30)


def watch(b: Bench) -> list[float]:
    """Look every 10 ms for what became visible, after ``WARM_S`` from the first packet on."""
    delays: list[float] = []
    seen: dict[int, int] = {}
    with psycopg.connect(b.owner_dsn, autocommit=True) as eyes:
        count_from_s, end_s = float("inf"), time.time() + FIRST_PACKET_S
        while time.time() < end_s:
            rows = eyes.execute(NEWS).fetchall()
            now_s = time.time()
            if rows and not seen:
                count_from_s, end_s = now_s + WARM_S, now_s + WARM_S + LATENCY_SECONDS
            news = [row for row in rows if row[1] > seen.get(row[0], 0)]
            if now_s > count_from_s:
                delays += [(now_s - at.timestamp()) * 1000 for row in news for at in row[2:]]
            for device, seq, _, _ in news:
                seen[device] = max(seq, seen.get(device, 0))
            time.sleep(0.01)
    if not delays:
        raise RuntimeError("no packet became visible")
    return delays

"""Detection: readings judged per second and the CPU they cost, 10,000 devices with 10 signals at 1 Hz, alone and beside
ingest; and what it needs in memory over a simulated week.

Rules over every signal and each signal against its own past, in the query as production starts it, state in RocksDB,
findings stored; the log is read from its start, batch by batch. The process that measures is not the one that fills.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import psutil
import psycopg
from confluent_kafka import Producer

from anomaly.accumulate import Accumulator
from anomaly.deployment import Deployment
from anomaly.detectors.ewma_cusum import EwmaCusum
from anomaly.detectors.limits import Limits
from anomaly.shard import Shard
from contracts.finding import Severity
from contracts.packet import Block, Header, Packet, encode_packet
from contracts.stamp import STAMP_HEADER, Stamp, encode_stamp
from contracts.topics import Topics
from infra.kafka import create_topics
from simulators.kafka_load import PRODUCER
from stream_jobs.detection import query
from stream_jobs.detection.query import Said
from stream_jobs.detection.samples import Plan
from stream_jobs.jobs.ingest import kafka_options
from stream_jobs.log import LogReader
from stream_jobs.records import Kind
from stream_jobs.sinks.base import Receipt, Topic
from stream_jobs.sinks.findings import FindingStore
from tests.bench import bench_ingest
from tests.bench.bench_ingest import Bench, bench, tree_cpu_s
from tests.bench.figures import Figure, Report

SIGNALS = (1, 20, 21, 22, 25, 28, 31, 32, 40, 41)
"""All of them believe the values that ``fill`` makes."""

DEVICES, PACKET_S, PACKETS = 10_000, 5, 24
SHARDS, WAIT_MS, BATCH_PACKETS, FLEETS = 8, 5_000, 20_000, 8
ROUNDS = 3
"""Turns over the same log, each with a fresh state; the first batch of each (planning, fresh state) does not count."""

FREE = (float("inf"),) * len(SIGNALS)
RULES = Deployment(
    "rules", Limits(low=(-90.0,) * len(SIGNALS), high=(4_000.0,) * len(SIGNALS), rate=FREE), SIGNALS, ("car",), "range",
    "", Severity.NOTE, Accumulator(call_at=3, ceiling=9), awaits=tuple(range(len(SIGNALS))),
)  # fmt: skip
OWN_PAST = [
    Deployment(
        f"own-past-{half}", EwmaCusum(signals=5, warm=20), SIGNALS[5 * half : 5 * half + 5], ("car",), "drift", "",
        Severity.NOTE, Accumulator(call_at=30, ceiling=60), awaits=tuple(range(5)),
    )
    for half in range(2)
]  # fmt: skip
SHARD = Shard((RULES, *OWN_PAST), WAIT_MS)
WHAT = (
    f"{DEVICES:,} devices x {len(SIGNALS)} signals at 1 Hz, packets of {PACKET_S} s; limits over all signals, EWMA and "
    f"CUSUM over each; {SHARDS} shards, {BATCH_PACKETS:,} packets a batch; from Kafka to findings in the store"
)
WEEK_DEVICES, WEEK_PACKET_MS = 200, 600_000
WEEK_PACKETS = 7 * 86_400_000 // WEEK_PACKET_MS
WEEK = (
    f"{WEEK_DEVICES} devices x {len(SIGNALS)} signals, a reading a minute, seven days of event time; Spark and its "
    "workers after each batch"
)


def run() -> Report:
    report = Report("Detection in the stream")
    with bench() as b:
        keys = enrol_more(b.owner_dsn)
        fill(b, keys)
        turns = [judge(b, f"alone-{turn}") for turn in range(ROUNDS)]
        bench_ingest.fill(b, "flood")
        bench_ingest.throughput(b, b.settings.sink)
        beside = [judged_beside_ingest(b, turn) for turn in range(ROUNDS)]
        week = simulated_week(b, keys[:WEEK_DEVICES])
    rates, spent, sizes = (tuple(turn[at] for turn in turns) for at in range(3))
    report.figures += [
        Figure("readings judged, alone", "readings/s", rates, DEVICES * len(SIGNALS), True, WHAT),
        Figure("CPU for them", "CPU-s per million readings", spent, None, False, WHAT),
        Figure("state", "bytes/device", sizes, None, False, "after the last batch, waiting readings included"),
    ]
    together = f"the same; ingest of {bench_ingest.FLOOD} goes on in the same Spark session meanwhile"
    grown = tuple(later / earlier for earlier, later in zip(week[:3], week[-3:], strict=True))
    report.figures += [
        Figure("readings judged, beside ingest", "readings/s", tuple(one for one, _ in beside), DEVICES * len(SIGNALS),
               True, together),
        Figure("samples stored meanwhile", "samples/s", tuple(one for _, one in beside), None, True, together),
        Figure("memory over a week", "MiB", tuple(week), None, False, WEEK),
        Figure("memory at the week's end over its beginning", "times", grown, 1.1, False, "of three batches each"),
    ]  # fmt: skip
    report.notes.append("Kafka, Spark, PostgreSQL and the measuring process share the cores; CPU counts all of them.")
    return report


def enrol_more(dsn: str) -> list[int]:
    """Devices beside those of the common bench."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "INSERT INTO devices (device, tenant_id) SELECT 'w' || n, 1 FROM generate_series(0, %s) n"
            " ORDER BY n RETURNING device_key",
            (DEVICES - 1,),
        )
        return [int(row[0]) for row in rows]


def fill(b: Bench, keys: list[int]) -> None:
    """Every device one packet each ``PACKET_S`` seconds, with one of ``FLEETS`` sets of values."""
    create_topics(b.bootstrap, Topics("watch").all())
    producer = Producer({"bootstrap.servers": b.bootstrap, **PRODUCER})  # idempotent, so in order, as the gateway
    topic, dice = Topics("watch").live.name, random.Random(3)
    began_ms = time.time_ns() // 1_000_000 - PACKETS * PACKET_S * 1_000
    offsets = tuple(1_000 * n for n in range(PACKET_S))
    for number in range(PACKETS):
        base_ms = began_ms + number * PACKET_S * 1_000
        kinds = [
            tuple(
                Block(signal, -1, 400, offsets, tuple(dice.randrange(-50, 50) for _ in offsets)) for signal in SIGNALS
            )
            for _ in range(FLEETS)
        ]
        for device, key in enumerate(keys):
            header = Header("north", f"w{device}", 1, device, number + 1, 0, base_ms, 0, True, PACKET_S * len(SIGNALS))
            frame = encode_packet(Packet(header, kinds[device % FLEETS]))
            stamp = encode_stamp(Stamp(base_ms + PACKET_S * 1_000 + 100, key, 1))
            producer.produce(topic, frame, f"w{device}".encode(), headers=[(STAMP_HEADER, stamp)])
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("Kafka did not take the log")


def noise(dice: random.Random) -> tuple[int, ...]:
    return tuple(dice.randrange(-50, 50) for _ in range(PACKET_S))


def judge(b: Bench, name: str) -> tuple[float, float, float]:
    """Readings a second, CPU seconds per million readings, bytes of state per device."""
    marks = judged(b, name, "watch", DEVICES * PACKETS * PACKET_S * len(SIGNALS))
    readings = sum(said.readings for _, _, said in marks[1:])
    wall, cpu = marks[-1][0] - marks[0][0], marks[-1][1] - marks[0][1]
    return readings / wall, cpu * 1e6 / readings, marks[-1][2].state_bytes / DEVICES


def judged_beside_ingest(b: Bench, turn: int) -> tuple[float, float]:
    """(readings judged a second, samples stored a second) while both are at work."""
    stored: list[tuple[float, int]] = []
    over = threading.Event()

    def heard(receipts: list[Receipt]) -> None:
        stored.append((time.monotonic(), sum(one.samples for one in receipts)))

    def ingest() -> None:
        while not over.is_set():
            b.start("flood", b.settings.sink, {"availableNow": True}, heard).awaitTermination(600)

    worker = threading.Thread(target=ingest)
    worker.start()
    try:
        marks = judged(b, f"beside-{turn}", "watch", DEVICES * PACKETS * PACKET_S * len(SIGNALS))
    finally:
        over.set()
        worker.join()
    begin, end = marks[0][0], marks[-1][0]
    readings = sum(said.readings for _, _, said in marks[1:])
    return readings / (end - begin), sum(n for at, n in stored if begin < at <= end) / (end - begin)


def simulated_week(b: Bench, keys: list[int]) -> list[float]:
    """MiB that Spark and its workers hold after each batch of seven days of readings."""
    create_topics(b.bootstrap, Topics("week").all())
    producer = Producer({"bootstrap.servers": b.bootstrap, **PRODUCER})
    topic, dice, span = Topics("week").live.name, random.Random(5), WEEK_PACKET_MS // 10
    began_ms = time.time_ns() // 1_000_000 - WEEK_PACKETS * WEEK_PACKET_MS
    offsets = tuple(span * n for n in range(10))
    for number in range(WEEK_PACKETS):
        base_ms = began_ms + number * WEEK_PACKET_MS
        blocks = tuple(Block(one, -1, 400, offsets, tuple(dice.randrange(-50, 50) for _ in offsets)) for one in SIGNALS)
        for device, key in enumerate(keys):
            header = Header("north", f"w{device}", 1, device, number + 1, 0, base_ms, 0, True, 10 * len(SIGNALS))
            stamp = encode_stamp(Stamp(base_ms + WEEK_PACKET_MS + 100, key, 1))
            frame = encode_packet(Packet(header, blocks))
            producer.produce(topic, frame, f"w{device}".encode(), headers=[(STAMP_HEADER, stamp)])
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("Kafka did not take the log")
    held: list[float] = []
    judged(b, "week", "week", len(keys) * WEEK_PACKETS * 10 * len(SIGNALS), lambda: held.append(resident_mib()))
    return held[1:]


def resident_mib() -> float:
    """Of Spark's JVM and its Python workers."""
    held = 0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any("pyspark" in part for part in process.cmdline()):
                held += process.memory_info().rss
    return held / 2**20


def judged(
    b: Bench, name: str, prefix: str, wanted: int, heard: Callable[[], None] = lambda: None
) -> list[tuple[float, float, Said]]:
    """(when, CPU seconds by then, what) of each batch of the whole log. Raises RuntimeError unless all was judged."""
    lanes = {Topics(prefix).live.name: 0, Topics(prefix).backlog.name: 1}
    log = LogReader(b.bootstrap, list(lanes)).state()
    topics = {name: Topic(log.ids[name], Kind.PACKETS) for name in lanes}
    store, run_id = FindingStore(b.dsn, SHARD.deployments), uuid4()
    store.begin(run_id, SHARD.version)
    marks: list[tuple[float, float, Said]] = []

    def sink(said: Said) -> None:
        store.write(run_id, said.batch, said.told, said.readings, said.late)
        marks.append((time.monotonic(), tree_cpu_s(), said))
        heard()

    plan = Plan(SHARD, SHARDS, topics, lanes)
    options = kafka_options(b.bootstrap, topics, "earliest", BATCH_PACKETS)
    checkpoint = Path(b.scratch) / f"detect-{name}"
    running = query.start(b.spark, plan, options, checkpoint, {"availableNow": True}, sink)
    ended = running.awaitTermination(1_200)
    found, late = sum(one[2].readings for one in marks), sum(one[2].late for one in marks)
    if not ended or found != wanted:
        raise RuntimeError(f"not every reading was judged: {found:,} of {wanted:,}, {late:,} late, ended: {ended}")
    return marks

"""Detection alone: readings judged per second and the CPU they cost, 10,000 devices with 10 signals at 1 Hz.

Rules over every signal and each signal against its own past, in the query as production starts it, state in RocksDB,
findings stored; the log is read from its start, batch by batch. The process that measures is not the one that fills.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from uuid import uuid4

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
from stream_jobs.sinks.base import Topic
from stream_jobs.sinks.findings import FindingStore
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


def run() -> Report:
    report = Report("Detection in the stream")
    with bench() as b:
        keys = enrol_more(b.owner_dsn)
        fill(b, keys)
        turns = [judge(b, turn) for turn in range(ROUNDS)]
    rates, spent, sizes = (tuple(turn[at] for turn in turns) for at in range(3))
    report.figures += [
        Figure("readings judged, alone", "readings/s", rates, DEVICES * len(SIGNALS), True, WHAT),
        Figure("CPU for them", "CPU-s per million readings", spent, None, False, WHAT),
        Figure("state", "bytes/device", sizes, None, False, "after the last batch, waiting readings included"),
    ]
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


def judge(b: Bench, turn: int) -> tuple[float, float, float]:
    """Readings a second, CPU seconds per million readings, bytes of state per device."""
    lanes = {Topics("watch").live.name: 0, Topics("watch").backlog.name: 1}
    log = LogReader(b.bootstrap, list(lanes)).state()
    topics = {name: Topic(log.ids[name], Kind.PACKETS) for name in lanes}
    store, run_id = FindingStore(b.dsn, SHARD.deployments), uuid4()
    store.begin(run_id, SHARD.version)
    marks: list[tuple[float, float, Said]] = []

    def sink(said: Said) -> None:
        store.write(run_id, said.batch, said.told, said.readings, said.late)
        marks.append((time.monotonic(), tree_cpu_s(), said))

    plan = Plan(SHARD, SHARDS, topics, lanes)
    options = kafka_options(b.bootstrap, topics, "earliest", BATCH_PACKETS)
    checkpoint = Path(b.scratch) / f"watch-{turn}"
    running = query.start(b.spark, plan, options, checkpoint, {"availableNow": True}, sink)
    ended, wanted = running.awaitTermination(1_200), DEVICES * PACKETS * PACKET_S * len(SIGNALS)
    found, late = sum(one[2].readings for one in marks), sum(one[2].late for one in marks)
    if not ended or found != wanted:
        raise RuntimeError(f"not every reading was judged: {found:,} of {wanted:,}, {late:,} late, ended: {ended}")
    readings = sum(said.readings for _, _, said in marks[1:])
    wall, cpu = marks[-1][0] - marks[0][0], marks[-1][1] - marks[0][1]
    return readings / wall, cpu * 1e6 / readings, marks[-1][2].state_bytes / DEVICES

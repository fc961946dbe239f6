"""The line against the job that people write first (``naive_job``), and against plain COPY, on one machine.

Samples per CPU-second, CPU of broker, JVM, workers and database together. FLEETSTREAM_BENCH_MESSAGES sets how many
samples the naive job gets; what starting costs is left out by running it on a tenth of them, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from contracts.signals import catalogue
from contracts.topics import Topics
from infra.kafka import create_topics
from tests.bench import bench_ingest, naive_job
from tests.bench.bench_ingest import Bench, bench, make_producer
from tests.bench.bench_questions import tree_cpu_s
from tests.bench.figures import Figure, Report

MESSAGES = "FLEETSTREAM_BENCH_MESSAGES"
DEFAULT_MESSAGES = 400_000
ROUNDS = 3
DEVICES = 200
LEAST_TIMES = 5.0
COPY = "COPY naive_readings FROM STDIN"


def run() -> Report:
    """Naive, COPY and the line take turns on one stack."""
    messages = int(os.environ.get(MESSAGES, DEFAULT_MESSAGES))
    report = Report("The line against a naive job")
    naive, copied, line = [], [], []
    with bench() as b:
        small, large = topic(b, "naive-small", messages // 10), topic(b, "naive-large", messages)
        bench_ingest.fill(b, "flood")
        bench_ingest.throughput(b, b.settings.sink)  # warms the JVM up and does not count
        for turn in range(ROUNDS):
            few, many = stored_by_naive(b, small, turn, messages // 10), stored_by_naive(b, large, turn, messages)
            naive.append((messages - messages // 10) / (many - few))
            copied.append(messages / copy_cpu_s(b, messages))
            line.append(1e6 / bench_ingest.throughput(b, b.settings.sink).cpu_s)
    text = hashlib.sha256(Path(naive_job.__file__).read_bytes()).hexdigest()[:12]
    alone = f"{messages:,} JSON messages of one sample; inserts by foreachBatch, Spark's defaults; job's text {text}"
    times = tuple(ours / theirs for ours, theirs in zip(line, naive, strict=True))
    report.figures += [
        Figure("naive job", "samples per CPU-s", tuple(naive), None, True, alone),
        Figure("the line, Kafka to store", "samples per CPU-s", tuple(line), None, True, bench_ingest.FLOOD),
        Figure("the line against the naive job", "times", times, LEAST_TIMES, True, "the same runs"),
        Figure(
            "plain COPY, one connection", "samples per CPU-s", tuple(copied), None, True,
            "the naive job's table and index, rows made before; no log, no identity, no windows: a limit, no line",
        ),
    ]  # fmt: skip
    report.notes += [
        "the naive job keeps no identity (a repeated batch is stored twice), no windows and no latest values; the line "
        "does all of that in one transaction",
        "the naive job's start is left out: its figure is the difference of a run on all messages and one on a tenth",
    ]
    return report


def topic(b: Bench, name: str, messages: int) -> str:
    """A topic of JSON messages, as many partitions as the line's own."""
    create_topics(b.bootstrap, [replace(Topics("naive").live, name=name)])
    producer = make_producer(b)
    for device, signal, at, value in samples(messages):
        body = json.dumps({"device": device, "signal": signal, "measured_at": at, "value": value})
        producer.produce(name, body, device)
        producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("Kafka did not take the messages")
    return name


def samples(count: int) -> Iterator[tuple[str, str, str, float]]:
    """As the line's flood: the same signals, devices and values, sample by sample."""
    dice, paths = random.Random(1), [catalogue().by_number(number).path for number in bench_ingest.SIGNALS]
    began_ms = time.time_ns() // 1_000_000 - 1_000_000
    for n in range(count):
        device, at_ms = f"d{n % DEVICES}", began_ms + n // (DEVICES * len(paths)) * 200
        at = datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
        yield device, paths[n // DEVICES % len(paths)], at, (400 + dice.randrange(-200, 200)) / 10


def stored_by_naive(b: Bench, name: str, turn: int, messages: int) -> float:
    """CPU seconds of everything while the job starts, stores the topic and waits."""
    fresh_table(b)
    jars = ",".join(map(str, b.settings.jars))
    checkpoint = str(b.scratch / f"naive-{name}-{turn}")
    command = [sys.executable, "-m", "tests.bench.naive_job", b.bootstrap, name, b.owner_dsn, checkpoint, jars]
    before_s = tree_cpu_s()
    with naive(command) as job:
        assert job.stdout is not None
        if job.stdout.readline().strip() != "stored":
            raise RuntimeError("the naive job ended without storing")
        spent_s = tree_cpu_s() - before_s
    with psycopg.connect(b.owner_dsn) as owner:
        row = owner.execute("SELECT count(*), count(value) FROM naive_readings").fetchone()
    if row != (messages, messages):
        raise RuntimeError(f"the naive job stored {row} of {messages}")
    return spent_s


@contextmanager
def naive(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    job = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield job
        job.communicate("\n", timeout=60)
    finally:
        if job.poll() is None:
            job.kill()
            job.wait(30)


def copy_cpu_s(b: Bench, count: int) -> float:
    """CPU seconds of COPY of the same samples; they are made before."""
    fresh_table(b)
    rows = list(samples(count))
    before_s = tree_cpu_s()
    with psycopg.connect(b.owner_dsn) as owner, owner.cursor().copy(COPY) as copy:
        for row in rows:
            copy.write_row(row)
    return tree_cpu_s() - before_s


def fresh_table(b: Bench) -> None:
    with psycopg.connect(b.owner_dsn, autocommit=True) as owner:
        owner.execute("DROP TABLE IF EXISTS naive_readings")
        owner.execute(naive_job.TABLE.encode())
        owner.execute("CHECKPOINT")

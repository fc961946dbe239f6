"""What this machine can do at all: a producer with and without batches, and windows without a line around them.

Limits, not rivals: neither keeps an identity, survives a kill or corrects a window. Plain COPY is in ``bench_naive``.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psutil
import pyarrow as pa
from confluent_kafka import Producer

from contracts.topics import Topics
from infra.backends import Backends
from infra.kafka import create_topics
from tests.bench.bench_gateway import backends
from tests.bench.bench_ingest import DEVICES, HERTZ, SECONDS, SIGNALS
from tests.bench.figures import Figure, Report

ROUNDS = 3
RECORDS, RECORD_BYTES = 1_000_000, 100
PRODUCERS = {
    "no lingering, 16 kB batches": {"linger.ms": 0, "batch.size": 16_384},
    "10 ms linger, 1 MB batches": {"linger.ms": 10, "batch.size": 1_000_000},
}
WINDOWS = """
CREATE OR REPLACE TABLE windows_{width} AS
SELECT device, signal, at_ms // {width}000 AS starts, count(*) AS n, sum(units) AS total, min(units) AS low,
  max(units) AS high, arg_min(units, at_ms) AS first, arg_max(units, at_ms) AS last
FROM samples GROUP BY device, signal, starts"""


def run() -> Report:
    report = Report("Limits of the machine")
    with backends() as stack:
        rates: dict[str, list[tuple[float, float]]] = {name: [] for name in PRODUCERS}
        for turn in range(ROUNDS):
            for name in PRODUCERS:
                rates[name].append(produced(stack, f"limit-{turn}-{len(rates[name])}-{name[:2]}", PRODUCERS[name]))
    text = f"{RECORDS:,} records of {RECORD_BYTES} B, acks=all, one partition, until the last is acknowledged"
    for name, read in rates.items():
        report.figures += [
            Figure(f"producer, {name}", "records/s", tuple(one for one, _ in read), None, True, text),
            Figure(f"producer, {name}, CPU", "CPU-s", tuple(cpu for _, cpu in read), None, False, "producer alone"),
        ]
    report.figures += windows()
    report.notes.append("DuckDB: no log, no identity, all samples at once: what windows alone cost.")
    return report


def produced(stack: Backends, topic: str, settings: dict[str, int]) -> tuple[float, float]:
    """(records per second, CPU seconds of the producer)."""
    bootstrap, topic = f"127.0.0.1:{stack.ports.kafka}", topic.replace(" ", "")
    create_topics(bootstrap, [replace(Topics("limit").live, name=topic, partitions=1)])
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "queue.buffering.max.messages": RECORDS, **settings}
    )
    body = random.Random(1).randbytes(RECORD_BYTES)
    with spent() as took:
        for number in range(RECORDS):
            while True:
                try:
                    producer.produce(topic, body)
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % 1_000 == 0:
                producer.poll(0)
        if producer.flush(180):
            raise RuntimeError("Kafka did not take the records")
    return RECORDS / took["wall_s"], took["cpu_s"]


def windows() -> list[Figure]:
    """The flood of ``bench_ingest`` as columns in memory: windows of 10 s and 60 s, then all samples into a file."""
    home = Path(tempfile.mkdtemp(prefix="fleetstream-limits-"))
    samples = flood()
    try:
        with duckdb.connect(str(home / "limits.duckdb")) as database:
            database.execute("SET threads TO 2")
            database.register("samples", samples)

            def aggregate() -> None:
                for width in (10, 60):
                    database.execute(WINDOWS.format(width=width))

            def keep() -> None:
                database.execute("CREATE OR REPLACE TABLE kept AS SELECT * FROM samples")
                database.execute("CHECKPOINT")

            text = f"{samples.num_rows:,} samples of {DEVICES} devices, {len(SIGNALS)} signals, in memory; two threads"
            return [
                figure for name, work in (("windows of 10 s and 60 s", aggregate), ("all samples into a file", keep))
                for figure in timed(f"DuckDB, {name}", samples.num_rows, work, text)
            ]  # fmt: skip
    finally:
        shutil.rmtree(home, ignore_errors=True)


def timed(name: str, samples: int, work: Callable[[], None], text: str) -> list[Figure]:
    work()  # the first one warms the caches up
    rates, cpu = [], []
    for _ in range(ROUNDS):
        with spent() as took:
            work()
        rates.append(samples / took["wall_s"])
        cpu.append(samples / took["cpu_s"])
    return [
        Figure(name, "samples/s", tuple(rates), None, True, text),
        Figure(f"{name}, CPU", "samples per CPU-s", tuple(cpu), None, True, "the same"),
    ]


def flood() -> pa.Table:
    """As many samples as the line's flood has."""
    dice = np.random.default_rng(1)
    device, signal, at = np.meshgrid(
        np.arange(DEVICES, dtype=np.int32), np.array(SIGNALS, dtype=np.int32),
        np.arange(SECONDS * HERTZ, dtype=np.int64) * (1_000 // HERTZ), indexing="ij",
    )  # fmt: skip
    units = dice.integers(200, 600, device.size)
    columns: dict[str, Any] = {"device": device.ravel(), "signal": signal.ravel(), "at_ms": at.ravel(), "units": units}
    return pa.table({name: pa.array(column) for name, column in columns.items()})


@contextmanager
def spent() -> Iterator[dict[str, float]]:
    """Wall and CPU seconds of this process, threads included."""
    me, took = psutil.Process(os.getpid()), dict[str, float]()
    wall_s, before = time.perf_counter(), me.cpu_times()
    yield took
    after = me.cpu_times()
    took["wall_s"] = time.perf_counter() - wall_s
    took["cpu_s"] = after.user + after.system - before.user - before.system

"""What late data costs: 1, 100 and 10,000 late packets into a store that has published, and one device after 15 days.

Two parts are told apart: storing (the ingest transaction) and correcting (the closer: close again, publish, roll up).
The packets are decoded before the clock starts; Spark and Kafka are not in these figures, PostgreSQL is.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psycopg
import pyarrow as pa
from psycopg.conninfo import make_conninfo

from contracts.packet import Block
from contracts.tables import ROLE_SINK
from infra.backends import Backends, Ports
from infra.migrate import create_roles, maintain, migrate
from infra.paths import default_cache
from infra.processes import free_ports
from stream_jobs.sinks.connection import drop_all
from stream_jobs.sinks.driver import store_table
from stream_jobs.sinks.ledger import StoreLedger
from tests.bench.bench_ingest import tree_cpu_s
from tests.bench.figures import Figure, Report
from tests.stream_jobs.build import BACKLOG, LIVE, Device, Frame, add_devices, in_log_order, table, target

SIGNALS = (1, 20)
SAMPLES, STEP_MS = 10, 60_000
PACKET_MS, DAY_MS = SAMPLES * STEP_MS, 86_400_000
DEVICES, PUBLISHED = 10, 72
BATCH, CLOSE_ROWS = 500, 5_000
LATE = (1, 100, 10_000)
AWAY_DAYS = 15
MIDNIGHT_MS = 1_790_035_200_000
NOW_MS = MIDNIGHT_MS + 3 * DAY_MS
FLEET = (
    f"packets of {len(SIGNALS)} signals, a sample a minute, ten minutes; {DEVICES} devices, 12 h published before; "
    "late ones fall anywhere in them; roll-ups of 1 h and 1 day included"
)


@dataclass(slots=True)
class Bench:
    """A store of its own, without Kafka and Spark."""

    dsn: str
    ledger: StoreLedger
    """Keeps its connection, or its server process would take the CPU seconds that it spent with it."""

    devices: list[Device]
    dice: random.Random
    offset: dict[str, int]
    seq: int = 0

    def packets(
        self, device: Device, base_ms: Sequence[int], received_ms: Sequence[int], topic: str
    ) -> Iterator[pa.Table]:
        """Batches of packets as the sink gets them."""
        frames: list[Frame] = []
        for base, received in zip(base_ms, received_ms, strict=True):
            self.seq += 1
            offsets = tuple(n * STEP_MS for n in range(SAMPLES))
            blocks = [
                Block(signal, -1, 400, offsets, tuple(self.dice.randrange(-200, 200) for _ in offsets))
                for signal in SIGNALS
            ]
            frames.append((device.packet(self.seq, *blocks, base_ms=base), device.stamp(received)))
        for at in range(0, len(frames), BATCH):
            part = frames[at : at + BATCH]
            yield table(in_log_order(part, topic, self.offset[topic]))
            self.offset[topic] += len(part)


@dataclass(frozen=True, slots=True)
class Cost:
    """One part of one reading."""

    wall_s: float
    cpu_s: float
    rows: int


def run() -> Report:
    report = Report("Late data")
    with store() as bench:
        fill(bench)
        for count in LATE:
            stored, corrected = late(bench, count)
            name = f"{count:,} late packet{'s' if count > 1 else ''}"
            report.figures += figures(name, stored, corrected, count, FLEET)
        stored, corrected, packets = returning(bench)
        report.figures += figures(
            f"a device back after {AWAY_DAYS} days", stored, corrected, packets,
            f"{len(SIGNALS)} signals, a sample a minute, {packets:,} packets, batches of {BATCH:,}, "
            "corrected after each",
        )  # fmt: skip
    report.notes += [
        "Storing: the ingest transaction. Correcting: windows closed again and published, roll-ups made again.",
        "Rows: windows merged by the transaction; windows closed and roll-ups made by the closer.",
        "CPU counts PostgreSQL and the measuring process.",
    ]
    return report


def figures(name: str, stored: Cost, corrected: Cost, packets: int, conditions: str) -> list[Figure]:
    rows = []
    for what, cost in (("storing", stored), ("correcting", corrected)):
        rows += [
            Figure(f"{name}, {what}", "s", (cost.wall_s,), None, False, conditions),
            Figure(f"{name}, {what}, CPU", "CPU-s", (cost.cpu_s,), None, False, conditions),
            Figure(f"{name}, {what}, rows", "rows", (float(cost.rows),), None, False, conditions),
        ]
    whole = (stored.cpu_s + corrected.cpu_s) * 1000 / packets
    return [*rows, Figure(f"{name}, CPU per packet", "CPU-ms", (whole,), None, False, conditions)]


@contextmanager
def store() -> Iterator[Bench]:
    home = Path(tempfile.mkdtemp(prefix="fleetstream-bench-"))
    stack = Backends(home, default_cache(), Ports(*free_ports(4)))
    try:
        stack.revive("postgres")  # of the three servers only this one is asked
        create_roles(stack.postgres.dsn(), stack.postgres.passwords())
        migrate(stack.postgres.dsn(), "fleetstream")
        maintain(stack.postgres.dsn(), "fleetstream")
        dsn = make_conninfo(stack.postgres.dsn(ROLE_SINK), options="-csearch_path=fleetstream")
        names = [f"d{n}" for n in range(DEVICES + 1)]
        devices = list(add_devices(dsn, {"north": names}).values())
        ledger = StoreLedger(dsn)
        yield Bench(dsn, ledger, devices, random.Random(1), {LIVE: 0, BACKLOG: 0})
        ledger.disconnect()
    finally:
        drop_all()
        stack.stop()
        shutil.rmtree(home, ignore_errors=True)


def fill(bench: Bench) -> None:
    """Half a day of every device but the last, in time, closed and published, the day too."""
    bases = [MIDNIGHT_MS + n * PACKET_MS for n in range(PUBLISHED)]
    for device in bench.devices[:-1]:
        for batch in bench.packets(device, bases, [base + PACKET_MS + 500 for base in bases], LIVE):
            store_table(target(bench.dsn), batch)
    correct(bench)
    with psycopg.connect(bench.dsn, autocommit=True) as connection:
        connection.execute("ANALYZE")


def late(bench: Bench, count: int) -> tuple[Cost, Cost]:
    """``count`` packets spread over all devices and the whole half day, received days later."""
    batches = []
    for n, device in enumerate(bench.devices[:-1]):
        mine = count // DEVICES + (n < count % DEVICES)
        bases = [MIDNIGHT_MS + bench.dice.randrange(PUBLISHED - 1) * PACKET_MS + 1_500 for _ in range(mine)]
        batches += list(bench.packets(device, bases, [NOW_MS] * mine, BACKLOG))
    return measured(partial(keep, bench, batches)), measured(partial(correct, bench))


def returning(bench: Bench) -> tuple[Cost, Cost, int]:
    """Everything the last device measured while it was away, oldest first, the closer beside it."""
    packets = AWAY_DAYS * DAY_MS // PACKET_MS
    bases = [NOW_MS - (packets - n) * PACKET_MS for n in range(packets)]
    stored, corrected = Cost(0, 0, 0), Cost(0, 0, 0)
    for batch in bench.packets(bench.devices[-1], bases, [NOW_MS] * packets, BACKLOG):
        stored = plus(stored, measured(partial(keep, bench, [batch])))
        corrected = plus(corrected, measured(partial(correct, bench)))
    return stored, corrected, packets


def keep(bench: Bench, batches: Sequence[pa.Table]) -> int:
    """Store batches; how many partial windows they merged."""
    return sum(one.windows for batch in batches for one in store_table(target(bench.dsn), batch))


def correct(bench: Bench) -> int:
    """Run the closer until nothing is left; how many windows it closed and roll-ups it made."""
    rows = 0
    while closed := bench.ledger.close_windows(NOW_MS, CLOSE_ROWS):
        rows += closed
    return rows


def measured(work: Callable[[], int]) -> Cost:
    wall, cpu = time.perf_counter(), tree_cpu_s()
    rows = work()
    return Cost(time.perf_counter() - wall, tree_cpu_s() - cpu, rows)


def plus(a: Cost, b: Cost) -> Cost:
    return Cost(a.wall_s + b.wall_s, a.cpu_s + b.cpu_s, a.rows + b.rows)

"""History: bytes per sample as rows and as blocks, and how fast the API answers with so much stored.

The store is filled by hand (``fill_history``: synthetic packets, COPY in the sink's row shape), compacted by the real
compactor, asked over HTTP on a real server in a process of its own. FLEETSTREAM_BENCH_SAMPLES sets the size.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psycopg

from api.wiring import new_key
from contracts.signals import catalogue
from contracts.tables import ROLE_API, ROLE_SINK
from infra.postgres import Postgres
from infra.processes import free_port
from stream_jobs.sinks.compactor import Compactor
from tests.bench import fill_history
from tests.bench.figures import Figure, Report, spent
from tests.bench.fill_history import DAY_S, SIGNALS, TENANT, Filled, dsn

SAMPLES = "FLEETSTREAM_BENCH_SAMPLES"
DEFAULT_SAMPLES = 100_000_000
STATE_ASSETS = 10_000
DELAY_S = 3_600
ASKED = 30
READY_S = 60.0


def run() -> Report:
    """Fill, compact, ask."""
    samples = int(os.environ.get(SAMPLES, DEFAULT_SAMPLES))
    home = Path(tempfile.mkdtemp(prefix="fleetstream-history-"))
    try:
        with fill_history.store(home) as postgres:
            filled = fill_history.fill(postgres, samples, int(time.time()) // 600 * 600)
            fill_history.fill_windows(postgres, filled)
            whole = samples >= DEFAULT_SAMPLES
            assets = STATE_ASSETS if whole else 100
            fill_history.fill_states(postgres, assets)
            return measure(postgres, filled, ASKED if whole else 3, assets)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def measure(postgres: Postgres, filled: Filled, asked: int, assets: int) -> Report:
    """Sizes before and after a compaction, and the API's answers after it."""
    report = Report("History")
    stored = (
        f"{filled.samples:,} samples of {len(filled.devices)} devices, {len(SIGNALS)} signals at 1 Hz, packets of one "
        "second, filled by COPY in the sink's row shape, not through Kafka"
    )
    hot = fill_history.sizes(postgres)["hot"] / filled.samples
    report.figures.append(Figure("bytes per sample, packet rows", "B", (hot,), 24, False, stored))
    with spent() as cost:
        done = Compactor(dsn(postgres, ROLE_SINK)).run(filled.end_s * 1_000, DELAY_S)
    blocks = fill_history.sizes(postgres)["blocks"] / max(1, done.samples)
    report.figures.append(Figure("bytes per sample, blocks", "B", (blocks,), 8, False, "indexes and TOAST included"))
    rate = done.samples / cost.wall_s
    report.figures.append(Figure("compaction", "samples/s", (rate,), None, True, "one connection, rows to blocks"))
    if done.samples:
        cpu = cost.cpu_s / done.samples * 1e6
        report.figures.append(
            Figure("compaction, its own CPU", "CPU-s per 1M samples", (cpu,), None, False, "no server")
        )
    _vacuum(postgres)
    with serving(postgres) as client:
        report.figures += answers(client, filled, asked, assets, stored)
    report.notes.append(
        f"{done.packets:,} of {filled.samples // len(SIGNALS):,} packets lay in blocks, the newest {DELAY_S} s in rows"
    )
    return report


def answers(client: httpx.Client, filled: Filled, asked: int, assets: int, stored: str) -> list[Figure]:
    """Latencies over HTTP: one question after the other, another car, signal and time each."""
    chance = random.Random(1)
    longest_s = min(DAY_S, filled.end_s - filled.start_s)

    def question(signal: int, **more: Any) -> tuple[str, dict[str, Any]]:
        end_s = filled.end_s - chance.randint(0, filled.end_s - filled.start_s - longest_s)
        times = {"from": _time(end_s - longest_s), "to": _time(end_s)}
        path = catalogue().by_number(signal).path
        return f"/api/v1/assets/bench-{chance.randrange(len(filled.devices))}", {"signal": path, **times, **more}

    def day(kind: str, **more: Any) -> Callable[[], httpx.Response]:
        def ask() -> httpx.Response:
            asset, parameters = question(
                SIGNALS[0] if kind == "series" and not more else chance.choice(SIGNALS), **more
            )
            return client.get(f"{asset}/{kind}", params=parameters)

        return ask

    def states(**more: Any) -> Callable[[], httpx.Response]:
        return lambda: client.get("/api/v1/assets", params={"limit": 10_000, "search": "state-", **more})

    speed = catalogue().by_number(SIGNALS[0]).path
    figures: list[Figure] = []
    for name, ask, target in (
        ("a vehicle-day of one signal, every reading", day("readings", form="columns", limit=200_000), 200),
        ("a vehicle-day as a chart of 1,000 points from readings", day("series", source="readings"), 200),
        ("a vehicle-day as a chart from windows", day("series"), 200),
        (f"state of {assets:,} assets", states(), 500),
        (f"state of {assets:,} assets with a signal's latest value", states(signal=speed), 500),
    ):
        took, size = _time_answers(ask, asked)
        conditions = f"{asked} questions over HTTP, one at a time, cold in the API, {size:,} bytes; {stored}"
        figures += [
            Figure(f"{name}, p50", "ms", (statistics.median(took),), None, False, conditions),
            Figure(
                f"{name}, p95", "ms", (sorted(took)[max(0, -(-len(took) * 95 // 100) - 1)],), target, False, "the same"
            ),
        ]
    return figures


def _time_answers(ask: Callable[[], httpx.Response], times: int) -> tuple[list[float], int]:
    ask().raise_for_status()
    took, size = [], 0
    for _ in range(times):
        began = time.perf_counter()
        answer = ask()
        took.append((time.perf_counter() - began) * 1_000)
        size = max(size, len(answer.raise_for_status().content))
    return took, size


@contextmanager
def serving(postgres: Postgres) -> Iterator[httpx.Client]:
    """The API as its own process, with a key of the filled tenant."""
    key, port = new_key(), free_port()
    with psycopg.connect(dsn(postgres)) as connection:
        connection.execute(
            "INSERT INTO api_keys (key_id, key_sha256, tenant_id, role)"
            " SELECT %s, %s, tenant_id, 'operator' FROM tenants WHERE name = %s",
            (key.key_id, key.sha256, TENANT),
        )
    told = {"DSN": dsn(postgres, ROLE_API), "PORT": str(port), "RATE_PER_S": "1000", "RATE_BURST": "10000"}
    environment = {**os.environ, **{f"FLEETSTREAM__API__{name}": value for name, value in told.items()}}
    server = subprocess.Popen([sys.executable, "-m", "api", "serve"], env=environment, stderr=subprocess.DEVNULL)
    try:
        headers = {"Authorization": f"Bearer {key.text}"}
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60, trust_env=False) as client:
            _wait(client, server)
            yield client
    finally:
        server.terminate()
        server.wait(30)


def _wait(client: httpx.Client, server: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + READY_S
    while server.poll() is None and time.monotonic() < deadline_s:
        try:
            if client.get("/api/v1/whoami").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise RuntimeError("the API did not come up")


def _vacuum(postgres: Postgres) -> None:
    with psycopg.connect(dsn(postgres), autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE packet_rows, packet_blocks, reading_blocks")


def _time(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z")

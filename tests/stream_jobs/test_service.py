"""The ingest process: ready, fast, killed in the middle, started again, stopped politely."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from contracts.limits import ALL_WIDTHS_S
from contracts.tables import ROLE_SINK
from contracts.topics import Topics
from tests.stream_jobs.build import Device, add_devices, speed
from tests.stream_jobs.fix_ingest import send
from tests.stream_jobs.fix_process import Job, wait_for


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    """Jobs that the test started; all are ended."""
    started: list[Job] = []
    yield started
    for job in started:
        job.end()


def rows(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(statement.encode()).fetchall()


def _reached(dsn: str, statement: str, least: int) -> bool:
    return bool(rows(dsn, statement)[0][0] >= least)


def frames(device: Device, first: int, last: int, now_ms: int) -> list[tuple[str, bytes, bytes]]:
    return [
        (device.name, device.packet(n, speed(n, n + 1), base_ms=now_ms), device.stamp(now_ms))
        for n in range(first, last + 1)
    ]


def test_killed_in_the_middle_and_without_its_checkpoint_nothing_is_lost_or_doubled(
    kafka_bootstrap: str, topic_prefix: str, role_dsn: Callable[[str], str], tmp_path: Path, jobs: list[Job]
) -> None:
    dsn = role_dsn(ROLE_SINK)
    devices = add_devices(dsn, {"north": [f"car{n}" for n in range(8)]})
    live, now_ms = Topics(topic_prefix).live.name, 1_790_000_000_000
    for device in devices.values():
        send(kafka_bootstrap, live, frames(device, 1, 400, now_ms))
    settings = {
        "KAFKA_BOOTSTRAP": kafka_bootstrap, "TOPIC_PREFIX": topic_prefix, "DSN": dsn,
        "MAX_OFFSETS_PER_TRIGGER": 50, "TRIGGER_INTERVAL_MS": 0,
    }  # fmt: skip
    stored = "SELECT coalesce(sum(packets), 0) FROM seen_ranges"
    for least, sink in ((1, "tasks"), (200, "driver")):
        job = Job.start("ingest", tmp_path, settings | {"SINK": sink})
        jobs.append(job)
        wait_for(partial(_reached, dsn, stored, least))
        job.kill()
    assert rows(dsn, stored)[0][0] < 3_200, "the kills came too late to mean anything"
    shutil.rmtree(tmp_path / "checkpoints")
    last = Job.start("ingest", tmp_path, settings | {"MAX_OFFSETS_PER_TRIGGER": 20_000})
    jobs.append(last)
    wait_for(lambda: rows(dsn, stored)[0][0] >= 3_200)
    assert rows(dsn, "SELECT count(*), sum(duplicates), min(ranges::text), max(ranges::text) FROM seen_ranges") == [
        (8, 0, "{[1,401)}", "{[1,401)}")
    ]
    assert rows(dsn, "SELECT count(*), sum(cardinality(vals)) FROM packet_rows") == [(3_200, 6_400)]
    assert rows(dsn, "SELECT sum(n), sum(sum_units) FROM window_aggregates WHERE width_s = 10") == [
        (6_400, 8 * sum(2 * n + 1 for n in range(1, 401)))
    ]
    wait_for(last.ready)
    closed = "SELECT count(*) FROM outbox WHERE topic = 'windows'"
    windows = 8 * len(ALL_WIDTHS_S)  # one of each width per device; the roll-ups follow the windows they are made of
    wait_for(lambda: rows(dsn, closed)[0][0] == windows)
    assert rows(dsn, "SELECT count(*) FROM window_aggregates WHERE state = 1")[0][0] == windows
    metrics = last.get("/metrics")
    assert "fleetstream_ingest_samples_total" in metrics
    wait_for(lambda: f'fleetstream_ingest_lag_records{{topic="{live}"}} 0.0' in last.get("/metrics"))
    assert last.stop() == 0, last.log_file.read_text()[-3000:]
    assert not list((tmp_path / "checkpoints").glob("run-*"))

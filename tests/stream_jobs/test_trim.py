"""The log is trimmed below what is archived, verified, stored and old enough; never otherwise."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from contracts.stamp import DeadLetter, encode_dead_letter
from contracts.status import AgentStatus, encode_status
from contracts.topics import Topics
from infra.backends import Backends
from infra.versions import drop_version, find_version
from stream_jobs.errors import LogLost
from stream_jobs.jobs.archive import Archiver, Guarded, consumer_options
from stream_jobs.log import LogReader
from stream_jobs.metrics import ArchiveMetrics, TrimMetrics
from stream_jobs.parquet import Place
from stream_jobs.service import patiently
from stream_jobs.sinks.manifest import KeptFile, Manifest
from stream_jobs.sinks.trimming import TrimLedger
from stream_jobs.trim import Extents, LogLimit, Trimmer, intact, plan_trim, rolls, spared
from stream_jobs.wiring import topic_kinds
from tests.stream_jobs.build import T0
from tests.stream_jobs.fix_ingest import Line
from tests.stream_jobs.fix_rebuild import Versions
from tests.stream_jobs.test_heart_replay import fill

HOUR_MS = 3_600_000


def archive_all(line: Line, folder: Path, file_bytes: int = 20_000) -> None:
    """Run an archiver until everything in the log is in files."""
    raw = list(topic_kinds(line.prefix))
    state = patiently(LogReader(line.bootstrap, raw).state, threading.Event())
    manifest = Manifest(line.dsn)
    archiver = Archiver(
        Consumer(consumer_options(line.bootstrap)), manifest, folder, file_bytes, 0.0, lambda: 0.0,
        ArchiveMetrics(CollectorRegistry()),
        Guarded(Topics(line.prefix).priority.name, Topics(line.prefix).dead_letters.name),
    )  # fmt: skip
    archiver.assign(Place(name, state.ids[name], number) for name in raw for number in state.extents[name])
    wanted = {(state.ids[name], number): one.end for name in raw for number, one in state.extents[name].items()}
    while any(manifest.offsets().get(place, 0) < end for place, end in wanted.items()):
        archiver.step()
    archiver.consumer.close()
    manifest.disconnect()


@contextmanager
def trimming(line: Line, folder: Path, window_ms: int = 0, limit: LogLimit | None = None) -> Iterator[Trimmer]:
    """A trimmer whose clock stands an hour ahead, so that everything in the log is older."""
    made = Trimmer(
        LogReader(line.bootstrap, list(topic_kinds(line.prefix))), TrimLedger(line.dsn), folder, window_ms,
        limit or LogLimit(None, line.prefix, 0), 1.0, lambda: now_ms() + HOUR_MS, TrimMetrics(CollectorRegistry()),
    )  # fmt: skip
    yield made
    made.store.disconnect()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def versions(heart: Line, stack: Backends, schema: str, tmp_path: Path) -> Iterator[Versions]:
    made = Versions(heart, stack, schema, tmp_path / "archive")
    yield made
    name = f"{schema}_v2"
    if find_version(made.stack.postgres.dsn(), name):
        drop_version(made.stack.postgres.dsn(), schema, name)


def begins(line: Line) -> dict[tuple[str, int], int]:
    state = LogReader(line.bootstrap, list(topic_kinds(line.prefix))).state()
    return {(name, number): one.begin for name, parts in state.extents.items() for number, one in parts.items()}


def ends(line: Line) -> dict[tuple[str, int], int]:
    state = LogReader(line.bootstrap, list(topic_kinds(line.prefix))).state()
    return {(name, number): one.end for name, parts in state.extents.items() for number, one in parts.items()}


def events(line: Line) -> list[Any]:
    return [
        (row[0]["alarm"], row[0]["state"])
        for row in line.rows(
            "SELECT convert_from(kafka_value, 'UTF8')::jsonb FROM outbox WHERE kafka_key = '$log' ORDER BY outbox_id"
        )
    ]


def test_trimmed_log_and_archive_together_are_the_whole_log(versions: Versions, heart: Line) -> None:
    name, car = f"{versions.schema}_v2", heart.devices["car1"]
    fill(heart, 80)
    status = AgentStatus("car1", 1, 77, T0 + 5, 10, 9, 8, 0, 0, 0, 1, 9, 5, 0, 4, "1.0")
    heart.send_from(car, [(encode_status(status), car.stamp(T0))], heart.topics.status.name)
    letter = DeadLetter("bad_crc", "x", "v1/car1/up/live", "car1", T0, car.tenant_id, 1, 3)
    heart.send_letter("car1", b"bytes", encode_dead_letter(letter))
    archive_all(heart, versions.archive)
    with trimming(heart, versions.archive) as early:
        assert early.once() == 0 and set(begins(heart).values()) == {0}, "archived, but not stored"
    heart.drain()
    with trimming(heart, versions.archive, window_ms=2 * HOUR_MS) as patient:
        assert patient.once() == 0, "not old enough"

    # a file that rots stops the trimming of its partition before it, and says so once
    rotten = Path(heart.rows("SELECT path FROM archive_files ORDER BY packets DESC, path LIMIT 1")[0][0])
    (place,) = heart.rows("SELECT topic, kafka_partition, first_offset FROM archive_files WHERE path = %s", str(rotten))
    good = (versions.archive / rotten).read_bytes()
    (versions.archive / rotten).write_bytes(good[:-9] + bytes(9))
    with trimming(heart, versions.archive) as trimmer:
        trimmed = trimmer.once()
        assert trimmed > 100 and begins(heart)[place[:2]] <= place[2]
        assert trimmer.once() == 0 and events(heart) == [("archive_damaged", "raised")]
        (versions.archive / rotten).write_bytes(good)
        while trimmer.once():
            pass
    assert begins(heart) == ends(heart) and events(heart)[1:] == [("archive_damaged", "cleared")]
    assert heart.rows("SELECT count(*) FROM archive_files WHERE verified_at IS NULL") == [(0,)]
    assert heart.rows("SELECT sum(trimmed_to) FROM trimmed_offsets") == [(sum(ends(heart).values()),)]

    # the log alone is no longer enough, and says where the rest is; archive and log are
    fill(heart, 20)
    heart.drain()
    with pytest.raises(LogLost, match="use --from archive"):
        versions.rebuilds.rebuild(name, "kafka")
    drop_version(versions.stack.postgres.dsn(), versions.schema, name)
    versions.rebuilds.rebuild(name, "archive")
    results = {one.table: one for one in versions.rebuilds.compare(name)}
    assert {table: one.first for table, one in results.items() if one.differences} == {}
    assert results["dead_letters"].rebuilt_rows == results["accounts"].rebuilt_rows == 1
    assert results["packets"].rebuilt_rows > 200


def test_a_gap_in_the_manifest_and_a_full_log_are_alarms(versions: Versions, heart: Line, tmp_path: Path) -> None:
    car = heart.devices["car1"]
    heart.send_from(car, [(b"rubbish", car.stamp(T0 + n)) for n in range(30)])
    archive_all(heart, versions.archive, file_bytes=10**9)
    heart.drain()
    with_gap = "WITH gone AS (DELETE FROM archive_files RETURNING *) SELECT count(*) FROM gone"
    assert heart.rows(with_gap)[0][0] >= 1
    broker = tmp_path / "broker"
    (broker / f"{heart.prefix}.telemetry.live.v1-0").mkdir(parents=True)
    segment = broker / f"{heart.prefix}.telemetry.live.v1-0" / "0.log"
    segment.write_bytes(bytes(1_000))
    with trimming(heart, versions.archive, limit=LogLimit(broker, heart.prefix, 1_000)) as limited:
        assert limited.once() == 0 and set(begins(heart).values()) == {0}
        assert sorted(events(heart)) == [("archive_incomplete", "raised"), ("log_size", "raised")]
        segment.write_bytes(bytes(950))
        limited.once()
        assert len(events(heart)) == 2, "still near the limit"
        segment.write_bytes(bytes(10))
        limited.once()
    assert events(heart)[2:] == [("log_size", "cleared")]
    assert heart.rows("SELECT alarm FROM log_alarms WHERE cleared_at IS NULL") == [("archive_incomplete",)]


def kept(first: int, last: int, records: int) -> KeptFile:
    return KeptFile(f"{first}-{last}", "t", UUID(int=1), 0, first, last, date(2026, 1, 1), records, 1, b"", False)


@st.composite
def archived_files(draw: st.DrawFn) -> list[KeptFile]:
    """What the archiver writes: rolls of consecutive offsets, each split among tenants."""
    files, at = [], 0
    for size in draw(st.lists(st.integers(1, 6), max_size=6)):
        owner = [draw(st.integers(0, 2)) for _ in range(size)]
        for tenant in set(owner):
            mine = [at + n for n, one in enumerate(owner) if one == tenant]
            files.append(kept(mine[0], mine[-1], len(mine)))
        at += size
    return files


OFFSET = st.integers(0, 40)


@given(files=archived_files(), archived=OFFSET, stored=OFFSET, aged=OFFSET, most=st.integers(1, 5), data=st.data())
def test_nothing_goes_that_is_not_allowed_to(
    files: list[KeptFile], archived: int, stored: int, aged: int, most: int, data: st.DataObject
) -> None:
    end = max((one.last_offset + 1 for one in files), default=0)
    extents = Extents(0, min(archived, end), stored, aged)
    while True:  # rounds, as the trimmer makes them
        plan = plan_trim(extents, files, most)
        assert extents.begin <= plan.to <= max(extents.begin, min(extents.archived, stored, aged))
        assert sum(one.records for one in plan.files) == plan.to - extents.begin and not plan.missing
        assert len(plan.files) <= most or len(rolls(plan.files)) == 1
        assert not any(one.first_offset < plan.to <= one.last_offset for one in files), "no file is cut"
        damaged = data.draw(st.lists(st.sampled_from(plan.files), max_size=1)) if plan.files else []
        to = spared(plan, extents.begin, damaged)
        assert extents.begin <= to <= plan.to and all(one.first_offset >= to for one in damaged)
        if to == extents.begin:
            break
        extents = Extents(to, extents.archived, stored, aged)


def test_a_missing_file_is_not_intact(tmp_path: Path) -> None:
    file = KeptFile("a", "t", UUID(int=1), 0, 0, 1, date(2026, 1, 1), 2, 3, hashlib.sha256(b"abc").digest(), False)
    assert not intact(tmp_path, file)
    (tmp_path / "a").write_bytes(b"abc")
    assert intact(tmp_path, file)


@given(files=archived_files(), data=st.data())
def test_a_record_that_is_in_no_file_is_never_trimmed(files: list[KeptFile], data: st.DataObject) -> None:
    end = max((one.last_offset + 1 for one in files), default=0)
    left = [one for one in files if data.draw(st.booleans())]
    plan = plan_trim(Extents(0, end, end, end), left, most=100)
    held = {one for one in files if one.last_offset < plan.to}
    assert held <= set(left) and not any(one.first_offset < plan.to <= one.last_offset for one in files)
    assert (plan.missing > 0) == (plan.to < end)

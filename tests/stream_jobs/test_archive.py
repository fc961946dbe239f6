"""Every raw record is in exactly one Parquet file, also after a crash between file and manifest."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer
from prometheus_client import CollectorRegistry

from contracts.errors import Fatal
from contracts.stamp import Stamp, encode_stamp
from contracts.tables import ROLE_SINK
from contracts.topics import Topics
from stream_jobs.jobs.archive import Archiver, Guarded, consumer_options
from stream_jobs.log import LogReader
from stream_jobs.metrics import ArchiveMetrics
from stream_jobs.parquet import Place
from stream_jobs.service import patiently
from stream_jobs.sinks.manifest import Manifest
from stream_jobs.withheld import stand_in
from tests.stream_jobs import test_withheld as withheld
from tests.stream_jobs.fix_ingest import send
from tests.stream_jobs.fix_process import Job, wait_for

DAY = 1_790_000_000_000


class Archive:
    """Archivers over one folder, and what is in it."""

    def __init__(self, bootstrap: str, prefix: str, dsn: str, folder: Path) -> None:
        self.bootstrap, self.dsn, self.folder = bootstrap, dsn, folder
        self.topics = Topics(prefix)
        self.now_s = 0.0

    def start(self, file_bytes: int = 10**9) -> Archiver:
        raw = [one.name for one in (self.topics.live, self.topics.backlog, self.topics.priority)]
        raw.append(self.topics.dead_letters.name)
        state = patiently(LogReader(self.bootstrap, raw).state, threading.Event())
        archiver = Archiver(
            Consumer(consumer_options(self.bootstrap)), Manifest(self.dsn), self.folder, file_bytes, 60.0,
            lambda: self.now_s, ArchiveMetrics(CollectorRegistry()),
            Guarded(self.topics.priority.name, self.topics.dead_letters.name),
        )  # fmt: skip
        archiver.assign(Place(name, state.ids[name], number) for name in raw for number in state.extents[name])
        return archiver

    def run_until(self, archiver: Archiver, records: int) -> None:
        """Poll until so many records are in the manifest."""
        while self.rows("SELECT coalesce(sum(packets), 0) FROM archive_files")[0][0] < records:
            archiver.step()
            self.now_s += 30
        archiver.consumer.close()
        archiver.manifest.disconnect()

    def send(self, first: int, last: int, topic: str = "") -> None:
        rows = [
            (f"car{n % 5}", f"payload {n}".encode(), encode_stamp(Stamp(DAY + (n % 3) * 86_400_000, n, 1 + n % 2)))
            for n in range(first, last + 1)
        ]
        send(self.bootstrap, topic or self.topics.live.name, rows)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(statement.encode()).fetchall()

    def values(self) -> list[bytes]:
        return sorted(
            value.as_py() for path in self.folder.rglob("*.parquet") for value in pq.read_table(path)["bytes"]
        )


@pytest.fixture
def archive(kafka_bootstrap: str, topic_prefix: str, role_dsn: Callable[[str], str], tmp_path: Path) -> Archive:
    return Archive(kafka_bootstrap, topic_prefix, role_dsn(ROLE_SINK), tmp_path / "archive")


def payloads(first: int, last: int) -> list[bytes]:
    return sorted(f"payload {n}".encode() for n in range(first, last + 1))


def test_records_lie_by_tenant_and_day_with_their_hash_in_the_manifest(archive: Archive) -> None:
    archive.send(1, 60)
    archive.send(61, 70, archive.topics.backlog.name)
    archive.run_until(archive.start(), 70)
    assert archive.values() == payloads(1, 70)
    for path, tenant, day, count, size, digest in archive.rows(
        "SELECT path, tenant_id, received_day, packets, size_bytes, sha256 FROM archive_files"
    ):
        file = archive.folder / path
        assert path.startswith(f"tenant={tenant}/day={day}/")
        assert (file.stat().st_size, hashlib.sha256(file.read_bytes()).digest()) == (size, digest)
        table = pq.read_table(file, partitioning=None)
        assert table.num_rows == count and set(table["tenant_id"].to_pylist()) == {tenant}
        assert pq.ParquetFile(file).metadata.row_group(0).column(9).compression == "ZSTD"
    assert archive.rows("SELECT sum(next_offset) FROM archive_offsets") == [(70,)]


def test_what_nobody_can_read_is_archived_all_the_same(archive: Archive) -> None:
    """No stamp, half a stamp, no value: of no tenant, from 1970, with their bytes."""
    rows: list[tuple[str, bytes | None, bytes | None]] = [("x", b"a", None), ("x", b"b", b"\x01"), ("x", b"", b"")]
    send(archive.bootstrap, archive.topics.live.name, rows)
    archive.run_until(archive.start(), len(rows))
    assert archive.values() == [b"", b"a", b"b"]
    assert archive.rows("SELECT DISTINCT tenant_id, received_day::text FROM archive_files") == [(0, "1970-01-01")]


def test_files_roll_by_size(archive: Archive) -> None:
    archive.send(1, 200)
    archiver = archive.start(file_bytes=500)
    archive.run_until(archiver, 150)
    assert archive.rows("SELECT max(size) < 100 FROM (SELECT sum(packets) AS size FROM archive_files"
                        " GROUP BY topic_id, kafka_partition, last_offset) s") == [(True,)]  # fmt: skip


def test_a_crash_between_file_and_manifest_leaves_no_record_twice(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.send(1, 20)
    archive.run_until(archive.start(), 20)
    archive.send(21, 40)
    crashed = archive.start()
    with monkeypatch.context() as broken:
        broken.setattr(Manifest, "add", _power_cut)
        with pytest.raises(KeyboardInterrupt):
            archive.run_until(crashed, 40)
    crashed.consumer.close()
    crashed.manifest.disconnect()
    assert len(archive.values()) > 20, "the crash came after a file was written"
    archive.send(41, 50)
    archive.run_until(archive.start(), 50)
    assert archive.values() == payloads(1, 50)


def _power_cut(*_: object) -> bool:
    raise KeyboardInterrupt


def test_two_archivers_do_not_write_the_same_records(archive: Archive) -> None:
    archive.send(1, 20)
    first, second = archive.start(), archive.start()
    archive.run_until(first, 20)
    with pytest.raises(Fatal, match="another archiver"):
        while True:
            second.step()
            archive.now_s += 30
    second.consumer.close()
    second.manifest.disconnect()


def test_the_process_archives_and_stops(archive: Archive, tmp_path: Path) -> None:
    archive.send(1, 30)
    job = Job.start(
        "archive", tmp_path,
        {"KAFKA_BOOTSTRAP": archive.bootstrap, "TOPIC_PREFIX": archive.topics.prefix, "DSN": archive.dsn},
    )  # fmt: skip
    try:
        wait_for(job.ready)
        wait_for(lambda: "fleetstream_archive_held_records 30.0" in job.get("/metrics"))
        assert job.stop() == 0, job.log_file.read_text()[-3000:]
    finally:
        job.end()
    assert archive.values() == payloads(1, 30)
    assert archive.rows("SELECT sum(packets) FROM archive_files") == [(30,)]


def test_who_was_in_a_crash_is_in_no_file(archive: Archive) -> None:
    stamp = encode_stamp(Stamp(DAY, 7, 1))
    named, told = withheld.parcel(withheld.LINKAGE), [withheld.parcel(one) for one in withheld.OTHERS]
    send(archive.bootstrap, archive.topics.priority.name, [("car-1", one, stamp) for one in (named, *told)])
    send(archive.bootstrap, archive.topics.live.name, [("car-1", b"live", stamp)])
    archive.run_until(archive.start(), len(told) + 2)
    assert archive.values() == sorted([stand_in(named), *told, b"live"])
    for path in archive.folder.rglob("*.parquet"):
        assert withheld.VIN.encode() not in path.read_bytes()
        assert (path.stat().st_mode & 0o077 == 0) is (archive.topics.priority.name in path.name)

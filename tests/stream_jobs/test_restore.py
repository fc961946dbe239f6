"""The database is really gone; archive, log and book bring it back with the same keys, rows and hashes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql

from contracts.book import BOOK_TABLES
from infra.backends import Backends
from infra.errors import RebuildRefused
from infra.migrate import maintain, migrate
from infra.restore import COUNTS, LOST, MADE_AGAIN, Restore, read_book
from infra.versions import OWN, REBUILT, Version, carried_tables, drop_version, find_version
from stream_jobs.adopt import Adopted, adopt, manifest_rows
from stream_jobs.errors import LogLost
from stream_jobs.log import LogReader, refuse_lost_store
from stream_jobs.parquet import Place
from stream_jobs.refill import adopt_archive
from stream_jobs.service import patiently
from stream_jobs.sinks.manifest import ArchivedFile, KeptFile
from stream_jobs.wiring import topic_kinds
from tests.stream_jobs.build import T0, speed
from tests.stream_jobs.fix_ingest import Line
from tests.stream_jobs.fix_plain import PlainLine, plain
from tests.stream_jobs.fix_rebuild import Versions
from tests.stream_jobs.test_heart_replay import SEEN, everything, fill
from tests.stream_jobs.test_trim import archive_all, kept, trimming

REGISTRY = (
    "SELECT to_jsonb(t) FROM tenants t ORDER BY tenant_id",
    "SELECT to_jsonb(a) FROM assets a ORDER BY asset_id",
    "SELECT to_jsonb(d) FROM devices d ORDER BY device_key",
    "SELECT to_jsonb(b) FROM bindings b ORDER BY device_key, lower(valid)",
    "SELECT to_jsonb(o) FROM epoch_owners o ORDER BY device_key, boot_epoch",
)
__all__ = ["plain"]
PLACE = Place("t", UUID(int=1), 0)
FILES = "SELECT to_jsonb(f) - 'written_at' - 'verified_at' FROM archive_files f ORDER BY path"


@pytest.fixture
def versions(plain: PlainLine, stack: Backends, schema: str, tmp_path: Path) -> Iterator[Versions]:
    made = Versions(plain, stack, schema, tmp_path / "archive")
    yield made
    if find_version(made.stack.postgres.dsn(), f"{schema}_restored"):
        drop_version(made.stack.postgres.dsn(), schema, f"{schema}_restored")


class Killed(BaseException):
    """Stands for a SIGKILL: nothing of ours may catch it."""


def tell_book(line: Line) -> None:
    """What the relay does."""
    producer = Producer({"bootstrap.servers": line.bootstrap, "acks": "all"})
    for key, page in line.rows("SELECT kafka_key, kafka_value FROM registry_book"):
        producer.produce(line.topics.book.name, bytes(page), str(key).encode())
    assert producer.flush(180) == 0


def restore_of(versions: Versions, after_slice: Callable[[], object] = int) -> Restore:
    line = versions.line
    assert isinstance(line, PlainLine)

    def prepare(schema: str) -> Mapping[tuple[UUID, int], tuple[str, int]]:
        found = adopt_archive(versions.settings(schema))
        return {(place.topic_id, place.partition): (place.topic, end) for place, end in found.items()}

    def refill(schema: str, version: Version, until: Mapping[tuple[UUID, int], tuple[str, int]]) -> int:
        return line.fill(versions.dsn(schema), until, versions.archive, after_slice)

    return Restore(
        replace(versions.rebuilds, fill=refill), lambda: read_book(line.bootstrap, line.topics.book.name), prepare
    )


def facts(versions: Versions) -> tuple[Any, ...]:
    statement = sql.SQL(COUNTS).format(name=sql.Identifier(versions.schema)).as_string()
    return versions.line.rows(statement)[0]


def lose_the_store(versions: Versions) -> None:
    dsn = versions.stack.postgres.dsn()
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(versions.schema)))
    migrate(dsn, versions.schema)  # what a start of the stack does
    maintain(dsn, versions.schema)


def test_a_lost_store_comes_back_whole(versions: Versions, plain: PlainLine) -> None:
    heart = plain
    car = heart.devices["car1"]
    fill(heart, 60)
    heart.drain()
    archive_all(heart, versions.archive)
    with trimming(heart, versions.archive) as trimmer:
        while trimmer.once():
            pass
    heart.send_from(car, [(car.packet(seq, speed(seq), epoch=9), car.stamp(T0 + seq)) for seq in range(1, 21)])
    heart.drain()
    tell_book(heart)
    before = (everything(heart), heart.rows(SEEN), [heart.rows(one) for one in REGISTRY], heart.rows(FILES))
    counts = facts(versions)
    assert counts[1] > 150 and counts[6] and len(before[2][4]) >= 1
    with pytest.raises(RebuildRefused, match="it is not lost"):
        restore_of(versions).run()

    lose_the_store(versions)
    log = patiently(LogReader(heart.bootstrap, list(topic_kinds(heart.prefix))).state, threading.Event())
    with pytest.raises(LogLost, match="run `fleetstream restore`"):
        refuse_lost_store(log, {})
    missing = max(versions.archive.rglob("*live*.parquet"))
    missing.rename(missing.with_suffix(".elsewhere"))
    with pytest.raises(LogLost, match="put the missing files back"):
        restore_of(versions).run()
    missing.with_suffix(".elsewhere").rename(missing)

    def die() -> None:
        raise Killed

    with pytest.raises(Killed):
        restore_of(versions, die).run()
    assert facts(versions)[0] == 0, "the live tables are as they were"
    done = restore_of(versions).run()
    assert (done.devices, done.packets, done.samples, done.packet_rows, done.windows, done.quarantined) == counts[:6]
    assert done.digest == counts[6]
    after = (everything(heart), heart.rows(SEEN), [heart.rows(one) for one in REGISTRY], heart.rows(FILES))
    for mine, theirs in zip(after, before, strict=True):
        assert mine == theirs

    # life goes on: ingest, new keys, the archive
    heart.send_from(car, [(car.packet(seq, speed(seq), epoch=9), car.stamp(T0 + seq)) for seq in range(15, 31)])
    heart.drain()
    assert heart.rows("SELECT packets, duplicates FROM seen_ranges WHERE boot_epoch = 9") == [(30, 6)]
    with psycopg.connect(heart.dsn) as enrolling:
        row = enrolling.execute(
            "INSERT INTO devices (device, tenant_id) VALUES ('next', %s) RETURNING device_key", (car.tenant_id,)
        ).fetchone()
    assert row == (max(one.key for one in heart.devices.values()) + 1,)
    archive_all(heart, versions.archive)
    assert heart.rows("SELECT sum(packets) FROM archive_files") == heart.rows(
        "SELECT sum(next_offset)::numeric FROM archive_offsets"
    )


def test_a_kill_while_the_archive_is_adopted_leaves_no_half_manifest(
    versions: Versions, plain: PlainLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run takes the whole archive, not what the first one came to."""
    fill(plain, 20)
    archive_all(plain, versions.archive)
    whole = plain.rows(FILES)
    assert len({(row[0]["topic"], row[0]["kafka_partition"]) for row in whole}) > 1
    lose_the_store(versions)
    adopted: list[Adopted] = []

    def die_at_the_second(one: Adopted) -> list[ArchivedFile]:
        adopted.append(one)
        if sum(bool(before.files) for before in adopted) == 2:
            raise Killed
        return manifest_rows(one)

    with monkeypatch.context() as fault, pytest.raises(Killed):
        fault.setattr("stream_jobs.refill.manifest_rows", die_at_the_second)
        adopt_archive(versions.settings())
    assert plain.rows("SELECT count(*) FROM archive_files") == [(0,)]
    adopt_archive(versions.settings())
    assert plain.rows(FILES) == whole


@given(sizes=st.lists(st.integers(1, 5), max_size=8), data=st.data())
def test_files_are_adopted_up_to_the_first_that_is_missing(sizes: list[int], data: st.DataObject) -> None:
    """Some files are gone, one was written twice."""
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    files = [kept(start, start + size - 1, size) for start, size in zip(starts, sizes, strict=True)]
    left = [one for one in files if data.draw(st.booleans())]
    held = {offset for one in left for offset in offsets(one)}
    prefix = next(n for n in range(sum(sizes) + 1) if n not in held)
    begin = data.draw(st.integers(0, sum(sizes)))
    if prefix < begin:
        with pytest.raises(LogLost, match=f"whole up to offset {prefix}"):
            adopt(PLACE, left, offsets, begin)
    else:
        adopted = adopt(PLACE, left + left[:1], offsets, begin)
        assert (adopted.end, sum(one.records for one in adopted.files)) == (prefix, prefix)


def test_every_table_is_restored_or_named_as_lost(schema: str, schema_dsn: str) -> None:
    """A table that is added later has to say here what a restore makes of it."""
    with psycopg.connect(schema_dsn) as connection:
        tables = {*carried_tables(connection, schema), *REBUILT} - set(OWN)
    lost = {table for of_text in LOST.values() for table in of_text}
    crash_records = {table for table in tables if table.startswith("evidence_")}
    assert tables == lost | {*REBUILT, *BOOK_TABLES, *MADE_AGAIN} | crash_records
    assert lost & {*REBUILT} == {"agent_gaps"}, "the clerk's part of it"


def test_half_a_roll_is_left_to_the_log() -> None:
    first, even, odd = kept(0, 9, 10), kept(10, 18, 5), kept(11, 19, 5)
    held = {first.path: range(10), even.path: range(10, 20, 2), odd.path: range(11, 20, 2)}

    def listed(file: KeptFile) -> frozenset[int]:
        return frozenset(held[file.path])

    assert adopt(PLACE, [first, even, odd], listed, 10).end == 20
    cut = adopt(PLACE, [first, even], listed, 10)
    assert (cut.end, cut.files) == (10, (first,))
    with pytest.raises(LogLost, match="up to offset 10, the log begins at 11"):
        adopt(PLACE, [first, even], listed, 11)
    with pytest.raises(LogLost, match="its topic is gone"):
        adopt(PLACE, [first, even], listed, None)


def offsets(file: KeptFile) -> frozenset[int]:
    return frozenset(range(file.first_offset, file.last_offset + 1))

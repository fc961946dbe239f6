"""Compaction on a real PostgreSQL: views say the same before, after, in the middle and after a kill."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from contracts.locks import COMPACTOR_LOCK
from contracts.tables import ROLE_API, ROLE_READER, ROLE_SINK
from stream_jobs.compaction import SLOT_MS
from stream_jobs.sinks import compactor
from stream_jobs.sinks.compactor import Compacted, Compactor
from stream_jobs.sinks.gaps import GapStore
from tests.stream_jobs.history_rows import START_MS, RowOfPacket, awkward_rows, enrol_car, insert_rows

DAY_MS = 86_400_000
LATER_MS = START_MS + 30 * DAY_MS


@dataclass(frozen=True, slots=True)
class Store:
    """A schema with one car."""

    dsn: str
    sink_dsn: str
    device: int
    tenant: int

    def compact(self, now_ms: int = LATER_MS, packets: int = 70) -> Compacted:
        return Compactor(self.sink_dsn, packets).run(now_ms, 3600)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(statement.encode()).fetchall()

    def remember(self) -> None:
        with psycopg.connect(self.dsn) as connection:
            for view in ("readings", "packets"):
                connection.execute(f"DROP TABLE IF EXISTS was_{view}".encode())
                connection.execute(f"CREATE TABLE was_{view} AS SELECT * FROM {view}".encode())

    def differences(self) -> list[tuple[Any, ...]]:
        """Rows that are not told any more, and rows that were not told before, with their number."""
        found = []
        for view in ("readings", "packets"):
            for one, other in ((view, f"was_{view}"), (f"was_{view}", view)):
                found += self.ask(f"SELECT '{one}', r.* FROM (TABLE {one} EXCEPT ALL TABLE {other}) r")
        return found


@pytest.fixture
def store(schema_dsn: str, role_dsn: Callable[[str], str]) -> Iterator[Store]:
    device, tenant = enrol_car(schema_dsn, "car-1")
    yield Store(schema_dsn, role_dsn(ROLE_SINK), device, tenant)


def fill(store: Store, seed: int, count: int = 260) -> list[RowOfPacket]:
    rows = awkward_rows(random.Random(seed), count)
    insert_rows(store.sink_dsn, store.device, store.tenant, rows)
    store.remember()
    return rows


def test_every_reading_and_packet_is_told_the_same(store: Store, role_dsn: Callable[[str], str]) -> None:
    rows = fill(store, 1)
    done = store.compact()
    assert (done.packets, done.samples) == (len(rows), sum(len(row.samples) for row in rows))
    assert done.transactions > 2 and done.blocks
    assert store.ask("SELECT count(*) FROM packet_rows") == [(0,)]
    assert store.ask("SELECT count(*), sum(samples) FROM packets") == store.ask(
        "SELECT count(*), sum(samples) FROM was_packets"
    )
    assert not store.differences()
    kinds = "count(steps2), count(steps4), count(units2), count(units4), count(raw), count(qualities)"
    assert all(store.ask(f"SELECT {kinds} FROM reading_blocks")[0])
    with psycopg.connect(role_dsn(ROLE_READER)) as reader, psycopg.connect(role_dsn(ROLE_API)) as nobody:
        count = "SELECT count(*) FROM readings"
        assert reader.execute(count).fetchone() == (done.samples,)
        assert nobody.execute(count).fetchone() == (0,)  # no tenant, no rows: blocks are under the same rights
    assert store.compact() == Compacted()


def test_what_comes_late_for_compacted_minutes_is_one_more_block(store: Store) -> None:
    rows = fill(store, 2, 120)
    store.compact()
    blocks = store.ask("SELECT count(*) FROM reading_blocks")[0][0]
    late = [
        RowOfPacket(row.seq + 100_000, row.base_ms + 1, row.samples, row.epoch, LATER_MS - 3_000_000)
        for row in rows[:40]
    ]
    insert_rows(store.sink_dsn, store.device, store.tenant, late)
    store.remember()  # rows and blocks together
    assert store.compact(LATER_MS - 2_000_000).packets == 0  # it waits for what may come with it
    assert store.compact().packets == 40
    assert store.ask("SELECT count(*) FROM reading_blocks")[0][0] > blocks
    assert not store.differences()


def test_the_newest_minutes_stay_rows(store: Store) -> None:
    rows = [RowOfPacket(seq, START_MS + seq * 1_000, [(1, 0, 1.0, 0)]) for seq in range(1, 1300)]
    insert_rows(store.sink_dsn, store.device, store.tenant, rows)
    done = store.compact(START_MS + 2 * SLOT_MS + 3_600_000 + 5_000, 5_000)
    assert done.packets == 1199  # two whole ten minutes, not a part of the third
    assert store.ask("SELECT count(*), min(n), max(n) FROM reading_blocks") == [(2, 599, 600)]


def test_readers_beside_a_compaction_see_every_reading_once(store: Store) -> None:
    fill(store, 3, 400)
    stop, seen = threading.Event(), set[Any]()

    def read() -> None:
        question = (
            "SELECT count(*), count(DISTINCT (boot_epoch, seq)), sum(extract(epoch FROM measured_at)) FROM readings"
        )
        while not stop.is_set():
            seen.update(store.ask(question))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        store.compact(packets=20)
    finally:
        stop.set()
        reader.join()
    assert len(seen) == 1
    assert not store.differences()


def test_ingest_goes_on_beside_a_compaction(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = fill(store, 4, 100)
    real = compactor.compact  # type: ignore[attr-defined]
    told: list[RowOfPacket] = []

    def slow(*arguments: Any) -> Any:
        fresh = RowOfPacket(500_000 + len(told), rows[len(told)].base_ms, rows[len(told)].samples)
        insert_rows(store.sink_dsn, store.device, store.tenant, [fresh])  # commits while rows are taken away
        told.append(fresh)
        return real(*arguments)

    monkeypatch.setattr(compactor, "compact", slow)
    store.compact(packets=30)
    assert told
    kept = store.ask("SELECT count(*) FROM packets")
    assert kept == [(len(rows) + len(told),)]
    samples = sum(len(row.samples) for row in [*rows, *told])
    assert store.ask("SELECT count(*) FROM readings") == [(samples,)]


@pytest.mark.parametrize("at", ["packet_blocks", "reading_blocks"])
def test_a_compactor_killed_in_the_middle_changes_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    fill(store, 5, 90)
    real = compactor._copy

    def dies(cursor: Any, table: str, *rest: Any) -> None:
        if table == at:
            with psycopg.connect(store.dsn, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s)", (cursor.connection.info.backend_pid,))
        real(cursor, table, *rest)

    monkeypatch.setattr(compactor, "_copy", dies)
    with pytest.raises(Exception, match="store did not answer"):
        store.compact(packets=1_000)
    assert store.ask("SELECT count(*) FROM reading_blocks") == store.ask("SELECT count(*) FROM packet_blocks") == [(0,)]
    assert not store.differences()
    monkeypatch.undo()
    assert store.compact().packets == 90
    assert not store.differences()


def test_one_compactor_at_a_time(store: Store) -> None:
    fill(store, 6, 10)
    with psycopg.connect(store.sink_dsn, autocommit=True) as other:
        other.execute(compactor.TRY_LOCK, (COMPACTOR_LOCK,))
        assert store.compact().busy
    assert store.compact().packets == 10


def test_a_compactor_at_work_keeps_no_gap_watch_out(store: Store) -> None:
    watch = GapStore(store.sink_dsn)
    with psycopg.connect(store.sink_dsn, autocommit=True) as other:
        other.execute(compactor.TRY_LOCK, (COMPACTOR_LOCK,))
        assert watch.look(lambda epochs: {}, LATER_MS) is not None
    watch.disconnect()

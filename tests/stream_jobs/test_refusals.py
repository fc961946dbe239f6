"""A refused record is set aside with its bytes and the others flow; a store that refuses all stops the job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from contracts.stamp import DeadLetter, encode_dead_letter
from contracts.status import AgentStatus, encode_status
from contracts.tables import ROLE_SINK
from stream_jobs.errors import StoreRefuses
from stream_jobs.sinks.base import Receipt
from stream_jobs.sinks.connection import drop_all
from stream_jobs.sinks.driver import store_table
from stream_jobs.sinks.refusals import blames_a_record
from tests.stream_jobs.build import DEAD, STATUS, T0, Device, Record, add_devices, in_log_order, speed, table, target

TABLES = "packet_rows, window_aggregates, latest_values, seen_ranges, ingest_offsets, quarantined"


class Fussy:
    """A store that can be told what it does not take."""

    def __init__(self, dsn: str, owner_dsn: str, devices: dict[str, Device]) -> None:
        self.dsn, self.owner_dsn, self.devices = dsn, owner_dsn, devices

    def put(self, records: list[Record]) -> list[Receipt]:
        return store_table(target(self.dsn), table(records))

    def owner(self, statement: str) -> None:
        with psycopg.connect(self.owner_dsn, autocommit=True) as connection:
            connection.execute(statement.encode())

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(statement.encode()).fetchall()


@pytest.fixture
def fussy(role_dsn: Callable[[str], str], schema_dsn: str) -> Iterator[Fussy]:
    dsn = role_dsn(ROLE_SINK)
    yield Fussy(dsn, schema_dsn, add_devices(dsn, {"north": ["car1", "car2"], "south": ["wtg1"]}))
    drop_all()


def test_refused_records_are_found_and_the_rest_of_the_batch_is_stored(fussy: Fussy) -> None:
    cars = list(fussy.devices.values())
    frames = [(car.packet(n, speed(n)), car.stamp(T0 + n)) for n in range(1, 14) for car in cars]
    fussy.owner("ALTER TABLE packet_rows ADD CONSTRAINT no_sevens CHECK (seq % 7 <> 0)")
    receipts = fussy.put(in_log_order(frames))
    assert [(one.packets, one.quarantined, one.next_offset) for one in receipts] == [(36, 3, 39)]
    found = fussy.rows("SELECT kafka_offset, seq, reason, samples, detail ->> 'constraint', bytes FROM quarantine")
    assert sorted(found) == [
        (18 + n, 7, "store_refused", 1, "no_sevens", frames[18 + n][0]) for n in range(3)
    ]  # fmt: skip
    assert fussy.rows("SELECT DISTINCT stored_packets, missing::text, quarantined_packets FROM ledger") == [
        (12, "{}", 1)
    ]
    assert fussy.rows("SELECT sum(n), sum(sum_units) FROM window_aggregates WHERE width_s = 60") == [(36, 3 * (91 - 7))]


def test_the_same_records_are_refused_whatever_the_batch(fussy: Fussy) -> None:
    car = fussy.devices["car1"]
    frames = [(car.packet(n, speed(n)), car.stamp(T0 + n)) for n in range(1, 30)]
    fussy.owner("ALTER TABLE packet_rows ADD CONSTRAINT fussy CHECK (seq NOT IN (1, 15, 16, 29))")
    aside = "SELECT kafka_offset FROM quarantine ORDER BY 1"
    records = in_log_order(frames)
    fussy.put(records)
    whole = (fussy.rows(aside), fussy.rows("SELECT n, sum_units FROM window_aggregates ORDER BY 1, 2"))
    fussy.owner(f"TRUNCATE {TABLES}")
    for at in range(0, 29, 4):
        fussy.put(records[at : at + 4])
    assert whole[0] == [(0,), (14,), (15,), (28,)]
    assert (fussy.rows(aside), fussy.rows("SELECT n, sum_units FROM window_aggregates ORDER BY 1, 2")) == whole


def test_a_record_that_is_refused_only_together_with_others_is_found_too(fussy: Fussy) -> None:
    car = fussy.devices["car1"]
    fussy.owner("ALTER TABLE window_aggregates ADD CONSTRAINT few CHECK (n <= 5)")
    frames = [(car.packet(n, speed(n), base_ms=T0), car.stamp(T0 + n)) for n in range(1, 8)]
    fussy.put(in_log_order(frames))
    assert fussy.rows("SELECT seq, reason, detail ->> 'together' FROM quarantine ORDER BY seq") == [
        (6, "store_refused", "true"), (7, "store_refused", "true"),
    ]  # fmt: skip
    assert fussy.rows("SELECT DISTINCT n FROM window_aggregates") == [(5,)]


def test_heartbeats_and_dead_letters_that_are_refused_do_not_stop_the_packets(fussy: Fussy) -> None:
    car = fussy.devices["car1"]
    fussy.owner("ALTER TABLE agent_status ADD CONSTRAINT a CHECK (next_seq < 9)")
    fussy.owner("ALTER TABLE refused ADD CONSTRAINT b CHECK (detail <> 'bad')")
    status = [
        encode_status(AgentStatus("car1", 1, 77, T0 + n, n, 9, 8, 0, 0, 0, 1, 9, 5, 0, 4, "1.0")) for n in (4, 9, 5)
    ]
    letters = [
        encode_dead_letter(DeadLetter("bad_crc", text, "v1/car1/up/live", "car1", T0, car.tenant_id, 1, 3))
        for text in ("bad", "good")
    ]
    fussy.put(
        [
            *(Record(one, car.stamp(T0), n, STATUS) for n, one in enumerate(status)),
            *(Record(b"bytes", one, n, DEAD) for n, one in enumerate(letters)),
            *in_log_order([(car.packet(1, speed(1)), car.stamp(T0))]),
        ]
    )
    assert fussy.rows("SELECT topic, kafka_offset, reason, bytes FROM quarantine ORDER BY topic") == [
        ("t.dead", 0, "store_refused", b"bytes"), ("t.status", 1, "store_refused", status[1]),
    ]  # fmt: skip
    assert fussy.rows("SELECT next_seq FROM agent_status") == [(5,)]
    assert fussy.rows("SELECT detail FROM dead_letters") == [("good",)]
    assert fussy.rows("SELECT packets FROM seen_ranges") == [(1,)]
    assert fussy.rows("SELECT topic, next_offset FROM ingest_offsets ORDER BY 1") == [
        ("t.dead", 2), ("t.live", 1), ("t.status", 3),
    ]  # fmt: skip


def test_a_store_that_takes_nothing_from_anybody_stops_the_job_and_sets_nothing_aside(fussy: Fussy) -> None:
    frames = [(car.packet(1, speed(1)), car.stamp(T0)) for car in fussy.devices.values()]
    fussy.owner("ALTER TABLE packet_rows ADD CONSTRAINT never CHECK (seq < 0)")
    with pytest.raises(StoreRefuses, match="never"):
        fussy.put(in_log_order(frames))
    assert fussy.rows("SELECT count(*) FROM quarantined") == [(0,)]
    assert fussy.rows("SELECT count(*) FROM ingest_offsets") == [(0,)]
    fussy.owner("ALTER TABLE packet_rows DROP CONSTRAINT never")
    assert sum(one.packets for one in fussy.put(in_log_order(frames))) == 3


def test_a_real_data_error_inside_a_batch_is_one_record_s(fussy: Fussy) -> None:
    """A trigger stands for the column type that one day turns out too narrow."""
    car = fussy.devices["car1"]
    fussy.owner(
        "CREATE FUNCTION narrow() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM (NEW.last_units * 1000)::smallint; RETURN NEW; END'"
    )
    fussy.owner("CREATE TRIGGER narrow BEFORE INSERT ON window_aggregates FOR EACH ROW EXECUTE FUNCTION narrow()")
    frames = [(car.packet(n, speed(n), base_ms=T0 + n * 60_000), car.stamp(T0 + n * 60_000)) for n in (1, 40, 2)]
    fussy.put(in_log_order(frames))
    assert fussy.rows("SELECT seq, reason, detail ->> 'error' FROM quarantine") == [
        (40, "store_refused", "NumericValueOutOfRange")
    ]
    assert fussy.rows("SELECT ranges::text FROM seen_ranges") == [("{[1,3)}",)]


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (psycopg.errors.NumericValueOutOfRange(), True), (psycopg.errors.CheckViolation(), True),
        (psycopg.errors.CardinalityViolation(), True), (psycopg.errors.ProgramLimitExceeded(), True),
        (psycopg.ProgrammingError("cannot adapt"), True), (UnicodeEncodeError("utf-8", "", 0, 1, ""), True),
        (psycopg.errors.UndefinedColumn(), False), (psycopg.errors.InsufficientPrivilege(), False),
        (psycopg.errors.DeadlockDetected(), False), (psycopg.errors.DiskFull(), False),
        (psycopg.OperationalError("connection lost"), False), (psycopg.InterfaceError(), False),
    ],
)  # fmt: skip
def test_whom_an_error_blames(error: Exception, verdict: bool) -> None:
    assert blames_a_record(error) is verdict

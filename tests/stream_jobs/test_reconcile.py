"""The reconciliation on real Kafka and PostgreSQL: quiet when all is well, and it names every gap cut by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from contracts.ranges import count, normalise, ranges_of, without
from contracts.stamp import STAMP_HEADER
from contracts.status import AgentStatus, encode_status
from contracts.tables import ROLE_READER, ROLE_SINK
from contracts.topics import Topics
from infra.cli import reconcile as command
from infra.migrate import maintain
from stream_jobs.log import LogReader
from stream_jobs.reconcile import (
    EXPLAINED,
    IN_STEP,
    UNEXPLAINED,
    Epoch,
    Partition,
    Report,
    judge_epoch,
    judge_partition,
)
from stream_jobs.scales import catalogue_scales
from stream_jobs.sinks.assemble import assemble
from stream_jobs.sinks.connection import connect
from stream_jobs.sinks.transaction import Batch
from stream_jobs.wiring import make_reconciler, make_topics, topic_kinds
from tests.stream_jobs.build import Device, Record, add_devices, speed, table
from tests.stream_jobs.fix_ingest import send

NOW = datetime.now(UTC)
NOW_MS = int(NOW.timestamp() * 1000)
sets = st.sets(st.integers(1, 40)).map(ranges_of)


@dataclass
class Line:
    """Devices, log and store without Spark: ``take`` runs the sink's own transaction over what the log holds."""

    bootstrap: str
    prefix: str
    dsn: str
    reader: str
    superuser: str
    devices: dict[str, Device]
    sent: dict[str, int] = field(default_factory=dict)

    @property
    def topics(self) -> Topics:
        return Topics(self.prefix)

    def send(self, device: str, seqs: range, topic: str = "") -> None:
        one = self.devices[device]
        frames = [(device, one.packet(seq, speed(seq), base_ms=NOW_MS), one.stamp(NOW_MS)) for seq in seqs]
        send(self.bootstrap, topic or self.topics.live.name, frames)

    def heartbeat(
        self, device: str, next_seq: int, held: tuple[tuple[int, int, int], ...] | None = (), at_ms: int = 0
    ) -> None:
        one = self.devices[device]
        at_ms = at_ms or NOW_MS + next_seq
        status = AgentStatus(device, 1, 77, at_ms, next_seq, next_seq, 0, 0, 0, 0, 0, 0, 0, 0, 0, "0.1.0", held=held)
        send(self.bootstrap, self.topics.status.name, [(device, encode_status(status), one.stamp(NOW_MS))])

    def take(self, only: str = "") -> None:
        """Store everything that the log holds, as ingest does."""
        log = LogReader(self.bootstrap, list(topic_kinds(self.prefix))).state()
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "t"})
        places = {
            (name, number): extent
            for name, parts in log.extents.items()
            for number, extent in parts.items()
            if extent.end > extent.begin and only in ("", name)
        }
        consumer.assign([TopicPartition(*place, extent.begin) for place, extent in places.items()])
        records: list[Record] = []
        while len(records) < sum(extent.end - extent.begin for extent in places.values()):
            records += [_record(message) for message in consumer.consume(500, 1.0)]
        consumer.close()
        batch = Batch(assemble(table(records), make_topics(self.prefix, log)), catalogue_scales())
        with connect(self.dsn) as connection:
            batch.commit(connection)

    def archive(self) -> None:
        """Say that the archive has written everything that the log holds."""
        names = [self.topics.live.name, self.topics.backlog.name, self.topics.priority.name]
        log = LogReader(self.bootstrap, names).state()
        for name, parts in log.extents.items():
            for number, extent in parts.items():
                self.execute(
                    "INSERT INTO archive_offsets VALUES (%s, %s, %s, %s) ON CONFLICT (topic_id, kafka_partition)"
                    " DO UPDATE SET next_offset = excluded.next_offset", log.ids[name], number, name, extent.end,
                )  # fmt: skip

    def execute(self, statement: str, *values: object) -> int:
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(statement.encode(), values).rowcount

    def place_of(self, device: str) -> tuple[int, int]:
        """Partition of the live topic where a device lies, and its end."""
        log = LogReader(self.bootstrap, [self.topics.live.name]).state()
        [(number, extent)] = [(n, e) for n, e in log.extents[self.topics.live.name].items() if e.end > e.begin]
        return number, extent.end

    def trim(self, before: int) -> int:
        """Remove the live topic's records below an offset, as the archiver would; the partition."""
        number, _ = self.place_of("car1")
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        place = TopicPartition(self.topics.live.name, number, before)
        for answer in admin.delete_records([place]).values():
            answer.result(180)
        return number

    def reconcile(self, *, deep: bool = False, device: str | None = None, wait_s: float = 0.0) -> Report:
        return make_reconciler(self.bootstrap, self.prefix, self.reader).run(device, deep=deep, wait_s=wait_s)


def _record(message: Any) -> Record:
    stamp = next(value for name, value in message.headers() if name == STAMP_HEADER)
    return Record(message.value(), stamp, message.offset(), message.topic(), message.partition())


def named(report: Report) -> set[tuple[str, str, tuple[tuple[int, int], ...]]]:
    """(verdict, of whom, which) of everything unexplained."""
    return {(one.verdict, one.name, one.ranges) for one in report.verdicts if not one.explained}


@pytest.fixture
def line(kafka_bootstrap: str, topic_prefix: str, role_dsn: Callable[[str], str], schema_dsn: str) -> Iterator[Line]:
    """Twenty packets of car1 stored and archived, its heartbeat heard."""
    dsn = role_dsn(ROLE_SINK)
    devices = add_devices(dsn, {"north": ["car1"]})
    made = Line(kafka_bootstrap, topic_prefix, dsn, role_dsn(ROLE_READER), schema_dsn, devices)
    made.send("car1", range(1, 21))
    made.heartbeat("car1", 21)
    made.take()
    made.archive()
    yield made


def test_when_all_is_well_it_is_quiet(line: Line) -> None:
    for deep in (False, True):
        report = line.reconcile(deep=deep)
        assert report.caught_up and {one.verdict for one in report.verdicts} == {IN_STEP}
        assert report.unexplained == 0 and any(one.scope == "device" for one in report.verdicts)


def test_rows_deleted(line: Line) -> None:
    assert line.execute("DELETE FROM packet_rows WHERE seq IN (3, 4, 9)") == 3
    assert named(line.reconcile()) == {("rows_missing", "car1", ((3, 4), (9, 9)))}


def test_a_range_cut_out_of_the_ledger(line: Line) -> None:
    line.execute("UPDATE seen_ranges SET ranges = ranges - '{[5,8)}'")
    assert named(line.reconcile()) == {
        ("rows_not_in_ledger", "car1", ((5, 7),)),
        ("ledger_count", "car1", ()),
        ("confirmed_not_stored", "car1", ((5, 7),)),
    }


def test_an_offset_moved_forward(line: Line) -> None:
    line.send("car1", range(21, 26))
    partition, end = line.place_of("car1")
    line.heartbeat("car1", 26)
    line.take(only=line.topics.status.name)
    line.archive()
    assert named(line.reconcile()) == set(), "the log is not taken to its end: they may still come"
    line.execute(
        "UPDATE ingest_offsets SET next_offset = %s WHERE kafka_partition = %s AND topic = %s",
        end, partition, line.topics.live.name,
    )  # fmt: skip
    assert named(line.reconcile()) == {("confirmed_not_stored", "car1", ((21, 25),))}
    deep = line.reconcile(deep=True, device="car1")
    assert named(deep) == {
        ("confirmed_not_stored", "car1", ((21, 25),)),
        ("skipped", line.topics.live.name, ((20, 24),)),
    }
    [skipped] = [one for one in deep.verdicts if one.verdict == "skipped"]
    assert skipped.part == partition and "offset 20: car1 epoch 1 seq 21" in skipped.detail


def test_an_offset_beyond_the_log(line: Line) -> None:
    line.execute("UPDATE ingest_offsets SET next_offset = 50 WHERE topic = %s AND packets > 0", line.topics.live.name)
    assert named(line.reconcile()) == {("ahead_of_log", line.topics.live.name, ((20, 49),))}


def test_records_removed_before_they_were_taken(line: Line) -> None:
    line.trim(20)
    assert named(line.reconcile(deep=True)) == set(), "stored and archived: trimmed as it should be"
    line.send("car1", range(21, 31))
    line.heartbeat("car1", 31)
    line.take(only=line.topics.status.name)
    line.trim(24)
    assert named(line.reconcile()) == {
        ("removed_before_stored", line.topics.live.name, ((20, 23),)),
        ("removed_before_archived", line.topics.live.name, ((20, 23),)),
    }


def test_a_doubled_row(line: Line) -> None:
    assert line.execute("INSERT INTO packet_rows SELECT * FROM packet_rows WHERE seq = 7") == 1
    assert named(line.reconcile()) == {("rows_doubled", "car1", ((7, 7),))}


def test_what_was_confirmed_and_never_was_in_the_log(line: Line) -> None:
    line.heartbeat("car1", 23, at_ms=NOW_MS + 100)
    line.take(only=line.topics.status.name)
    assert named(line.reconcile()) == {("confirmed_not_stored", "car1", ((21, 22),))}
    assert named(line.reconcile(deep=True)) == {("not_in_log", "car1", ((21, 22),))}


def test_a_crash_record_is_looked_for_where_the_evidence_consumer_reads(line: Line) -> None:
    priority = line.topics.priority.name
    line.send("car1", range(21, 22), priority)
    line.heartbeat("car1", 22)
    line.take(only=line.topics.status.name)
    line.archive()
    waits = line.reconcile(deep=True)
    assert not waits.caught_up and named(waits) == set(), "in the log, and the evidence consumer has not taken it yet"
    assert ("behind", priority, ((0, 0),)) in {(one.verdict, one.name, one.ranges) for one in waits.verdicts}
    topic_id = LogReader(line.bootstrap, [priority]).state().ids[priority]
    with psycopg.connect(line.superuser) as connection:
        connection.execute("INSERT INTO evidence_offsets VALUES (%s, 0, %s, 1)", (topic_id, priority))
    assert named(line.reconcile(deep=True)) == {
        ("confirmed_not_stored", "car1", ((21, 21),)), ("skipped", priority, ((0, 0),)),
    }, "an offset moved over it"  # fmt: skip
    line.execute(
        "INSERT INTO evidence_ranges VALUES (%s, 1, %s, '{[21,22)}')",
        line.devices["car1"].key, line.devices["car1"].tenant_id,
    )  # fmt: skip
    done = line.reconcile(deep=True)
    assert done.caught_up and {one.verdict for one in done.verdicts} == {IN_STEP}


def test_what_the_device_still_holds_is_explained(line: Line) -> None:
    line.heartbeat("car1", 25, held=((1, 21, 24),), at_ms=NOW_MS + 100)
    line.take(only=line.topics.status.name)
    report = line.reconcile()
    assert [(one.verdict, one.ranges) for one in report.verdicts if one.scope == "device"] == [
        ("held_by_device", ((21, 24),))
    ]
    assert report.unexplained == 0


def test_an_agent_that_tells_nothing_is_given_time(line: Line) -> None:
    line.heartbeat("car1", 23, held=None, at_ms=NOW_MS + 100)
    line.take(only=line.topics.status.name)
    assert [one.verdict for one in line.reconcile().verdicts if one.scope == "device"] == ["not_told"]
    line.execute(
        "INSERT INTO ledger_gaps (device_key, boot_epoch, tenant_id, numbers, missing, since, opened_at)"
        " VALUES (%s, 1, %s, '{[21,23)}', '{[21,23)}', now(), now())",
        line.devices["car1"].key, line.devices["car1"].tenant_id,
    )  # fmt: skip
    assert named(line.reconcile()) == {("overdue", "car1", ((21, 22),))}


def test_what_retention_took_is_stored_all_the_same(line: Line) -> None:
    assert line.reconcile().unexplained == 0
    with psycopg.connect(line.superuser) as connection:
        row = connection.execute("SELECT current_schema()").fetchone()
    assert row is not None
    maintain(line.superuser, str(row[0]), NOW + timedelta(days=40))
    with psycopg.connect(line.dsn) as connection:
        assert connection.execute("SELECT count(*) FROM packet_rows").fetchone() == (0,)
    assert named(line.reconcile()) == set()


def test_the_command_names_what_differs_and_ends_with_1(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = SimpleNamespace(topic_prefix=line.prefix)
    monkeypatch.setattr(command, "load_settings", lambda: settings)
    monkeypatch.setattr(command, "open_stack", lambda _: SimpleNamespace(bootstrap=line.bootstrap))
    monkeypatch.setattr(command, "reader_dsn", lambda _: line.reader)
    monkeypatch.setenv("COLUMNS", "200")
    done = CliRunner().invoke(command.app, ["--deep", "--wait", "0"])
    assert done.exit_code == 0 and done.stdout.endswith(", 0 explained, 0 unexplained\n"), done.output
    line.execute("DELETE FROM packet_rows WHERE seq IN (3, 4, 9)")
    done = CliRunner().invoke(command.app, ["--wait", "0"])
    assert done.exit_code == 1 and "! rows_missing" in done.stdout and "3-4, 9" in done.stdout
    told = json.loads(CliRunner().invoke(command.app, ["--json"]).stdout)
    [bad] = [one for one in told["verdicts"] if not one["explained"]]
    assert told["unexplained"] == 1 and (bad["verdict"], bad["ranges"]) == ("rows_missing", [[3, 4], [9, 9]])


@given(sets, sets, sets, sets, st.booleans(), st.booleans())
def test_everything_missing_is_in_a_verdict_once(
    missing: tuple[tuple[int, int], ...], held: tuple[tuple[int, int], ...], before: tuple[tuple[int, int], ...],
    rows: tuple[tuple[int, int], ...], tells: bool, caught_up: bool,
) -> None:  # fmt: skip
    now = Epoch("car1", 1, missing, without(missing, held) if tells else None, rows=rows, seen=rows)
    earlier = Epoch("car1", 1, before, before)
    found = judge_epoch(now, earlier, caught_up)
    told = [one.ranges for one in found if one.verdict not in (IN_STEP, "ledger_count")]
    assert normalise(r for ranges in told for r in ranges) == missing
    assert sum(map(count, told)) == count(missing)
    if not caught_up:
        assert all(one.explained or one.verdict == "ledger_count" for one in found)


@given(st.integers(0, 20), st.integers(0, 20), st.one_of(st.none(), st.integers(0, 50)))
def test_a_partition_is_in_step_only_at_its_end(begin: int, more: int, taken: int | None) -> None:
    [verdict] = judge_partition(Partition("t", 0, begin, begin + more, (("ingest", taken),)))
    assert (verdict.verdict == IN_STEP) == ((taken or 0) == begin + more)
    assert verdict.explained == (begin <= (taken or 0) <= begin + more)
    assert set(EXPLAINED) & set(UNEXPLAINED) == set()

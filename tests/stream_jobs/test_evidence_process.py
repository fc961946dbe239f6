"""The evidence consumer as a process on a real log: killed in the middle of its work it neither loses nor doubles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

from contracts.edr.ledger import EVIDENCE, Entry, chain_breaks
from contracts.stamp import STAMP_HEADER
from contracts.tables import ROLE_EVIDENCE
from contracts.topics import Topics
from tests.stream_jobs.evidence_kit import Recorder, make_recorders
from tests.stream_jobs.fix_process import Job, wait_for

EVENTS, KILLS = 6, 3
WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name = 'fleetstream_sink' AND query LIKE '%evidence_heads%' AND wait_event_type = 'Lock'"""


class Log:
    """The priority topic as the gateway fills it."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        self._topic = Topics(prefix).priority.name
        self.records = 0

    def write(self, recorder: Recorder, *frames: bytes) -> None:
        for frame in frames:
            headers: list[tuple[str, str | bytes | None]] = [(STAMP_HEADER, recorder.stamp())]
            self._producer.produce(self._topic, frame, recorder.device.encode(), headers=headers)
            self.records += 1
        assert self._producer.flush(180) == 0

    def crash(self, recorder: Recorder) -> None:
        """Notice, linkage and capsule of one event; the capsule twice, as a device does that heard no receipt."""
        capsule = recorder.capsule()
        messages = (recorder.notice(capsule.event_id), recorder.linkage(capsule.event_id), capsule, capsule)
        self.write(recorder, *(recorder.parcel(message) for message in messages))


@pytest.fixture
def recorder(role_dsn: Callable[[str], str]) -> Recorder:
    return next(make_recorders(role_dsn, {"north-1": "simulated"}))


@pytest.fixture
def start(
    role_dsn: Callable[[str], str], kafka_bootstrap: str, topic_prefix: str, tmp_path: Path
) -> Iterator[Callable[[], Job]]:
    jobs: list[Job] = []
    settings = {"DSN": role_dsn(ROLE_EVIDENCE), "KAFKA_BOOTSTRAP": kafka_bootstrap, "TOPIC_PREFIX": topic_prefix}

    def run() -> Job:
        jobs.append(Job.start("evidence", tmp_path, settings))
        return jobs[-1]

    yield run
    for job in jobs:
        job.end()


def test_killed_in_the_middle_and_between_it_neither_loses_nor_doubles(
    start: Callable[[], Job], recorder: Recorder, kafka_bootstrap: str, topic_prefix: str, schema_dsn: str
) -> None:
    log = Log(kafka_bootstrap, topic_prefix)
    with psycopg.connect(schema_dsn, autocommit=True) as store:
        for kill in range(KILLS):
            for _ in range(EVENTS // KILLS):
                log.crash(recorder)
            if kill % 2:
                job = start()
                wait_for(lambda: taken(store) == log.records)
                job.kill()
            else:
                kill_in_the_middle(start, store, schema_dsn, recorder)
        log.write(recorder, b"not a parcel")
        job = start()
        wait_for(lambda: taken(store) == log.records)
        wait_for(job.ready)
        assert 'fleetstream_evidence_refused_total{reason="not_a_packet"} 1.0' in job.get("/metrics")
        assert job.stop() == 0
        for table in ("records", "capsules", "notices", "linkage"):
            assert one(store, f"SELECT count(*) FROM evidence_{table}") == EVENTS
        assert one(store, "SELECT count(*) FROM outbox WHERE topic = 'commands'") == 3 * EVENTS
        assert one(store, "SELECT count(*) FROM outbox WHERE topic = 'events'") == 2 * EVENTS + 1
        assert one(store, "SELECT ranges::text FROM evidence_ranges") == f"{{[1,{4 * EVENTS + 1})}}"
        rows = store.execute(
            "SELECT entry_no, at_ms, kind, subject, content_sha256, previous_sha256, sha256"
            " FROM evidence_log ORDER BY entry_no"
        ).fetchall()
    entries = [Entry(row[0], row[1], (row[2], row[3], row[4].hex()), row[5], row[6]) for row in rows]
    assert len(entries) == 3 * EVENTS + 1
    assert chain_breaks(EVIDENCE, recorder.tenant_id, entries, entries[-1]) == []


def kill_in_the_middle(
    start: Callable[[], Job], store: psycopg.Connection[Any], schema_dsn: str, recorder: Recorder
) -> None:
    """A job killed in the middle of its transaction: it has its offset's lock and waits for the log's head."""
    before = taken(store)
    tenant = (recorder.tenant_id,)
    store.execute(
        "INSERT INTO evidence_heads (tenant_id, ledger) VALUES (%s, 'evidence') ON CONFLICT DO NOTHING", tenant
    )
    with psycopg.connect(schema_dsn) as holder:
        holder.execute("SELECT FROM evidence_heads WHERE tenant_id = %s AND ledger = 'evidence' FOR UPDATE", tenant)
        job = start()
        wait_for(lambda: one(store, WAITING))
        job.kill()
    assert taken(store) == before


def one(store: psycopg.Connection[Any], query: str) -> Any:
    row = store.execute(query.encode()).fetchone()
    return row and row[0]


def taken(store: psycopg.Connection[Any]) -> int:
    return int(one(store, "SELECT coalesce(sum(next_offset), 0) FROM evidence_offsets"))

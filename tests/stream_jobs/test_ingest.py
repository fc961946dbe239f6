"""The ingest query end to end: real Kafka, real ``from_avro``, real transactions."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro

from contracts.packet import MARKER, PREFIX_BYTES, current_fingerprint, seal
from contracts.stamp import DeadLetter, encode_dead_letter
from contracts.status import AgentStatus, encode_status
from stream_jobs.jobs import ingest
from stream_jobs.sinks.tasks import TaskSink
from tests.stream_jobs.build import T0, TOPICS, speed, target
from tests.stream_jobs.fix_ingest import Line


def forged(device: str, tenant: str, count: int) -> bytes:
    """A frame with a right checksum whose first array claims ``count`` items and holds none."""
    body = io.BytesIO()
    header = [("string", tenant), ("string", device)] + [("long", n) for n in (1, 77, 1, 0, T0, 5)]
    for kind, value in [*header, ("boolean", True), ("int", 1), ("long", count)]:
        fastavro.schemaless_writer(body, kind, value)
    return seal(MARKER + current_fingerprint() + body.getvalue())


def test_from_kafka_to_readings(heart: Line) -> None:
    car, wtg = heart.devices["car1"], heart.devices["wtg1"]
    heart.send_from(car, [(car.packet(n, speed(n, n + 1, n + 2)), car.stamp(T0 + 500)) for n in range(1, 51)])
    heart.send_from(wtg, [(wtg.packet(n, speed(n)), wtg.stamp(T0 + 500)) for n in range(1, 11)])
    heart.send_from(car, [(car.packet(51, speed(5)), car.stamp(T0 + 900))], heart.topics.backlog.name)
    heart.drain()
    assert heart.rows("SELECT device, stored_packets, stored_samples, missing::text FROM ledger ORDER BY device") == [
        ("car1", 51, 151, "{}"), ("wtg1", 10, 10, "{}"),
    ]  # fmt: skip
    assert heart.rows("SELECT count(*), sum(value) FROM readings WHERE tenant = 'south'") == [(10, 0.55)]
    assert sum(one.samples for one in heart.receipts) == 161


def test_a_backlog_is_taken_in_batches_of_the_bound(heart: Line) -> None:
    car = heart.devices["car1"]
    heart.send_from(car, [(car.packet(n, speed(n)), car.stamp(T0)) for n in range(1, 61)])
    heart.drain(max_offsets=25)
    assert sum(one.records for one in heart.receipts) == 60
    assert max(one.records for one in heart.receipts) <= 25
    assert heart.rows("SELECT packets FROM seen_ranges") == [(60,)]


def test_a_fresh_start_goes_on_where_the_store_is(heart: Line) -> None:
    car = heart.devices["car1"]
    heart.send_from(car, [(car.packet(n, speed(n)), car.stamp(T0)) for n in (1, 2, 3)])
    heart.drain()
    heart.send_from(car, [(car.packet(n, speed(n)), car.stamp(T0)) for n in (3, 4)])
    heart.drain()
    heart.drain()
    assert heart.rows("SELECT ranges::text, packets, duplicates FROM seen_ranges") == [("{[1,5)}", 4, 1)]
    assert sum(one.records for one in heart.receipts) == 5 and sum(one.replayed for one in heart.receipts) == 0


def test_forged_array_counts_are_set_aside_and_the_job_lives(heart: Line) -> None:
    car = heart.devices["car1"]
    attacks = [forged("car1", "north", count) for count in (2_000_000_000, 131_073, 2**40, -(2**31))]
    cut = seal(car.packet(9, speed(1, 2, 3))[: PREFIX_BYTES + 12])
    good = car.packet(1, speed(100))
    heart.send_from(car, [(one, car.stamp(T0)) for one in [*attacks, cut, good]])
    heart.drain()
    found = heart.rows("SELECT reason, bytes FROM quarantine ORDER BY kafka_offset")
    assert found == [("undecodable", one) for one in [*attacks, cut]]
    assert heart.rows("SELECT value FROM readings") == [(1.0,)]


def test_accounts_and_dead_letters_become_rows(heart: Line) -> None:
    car = heart.devices["car1"]

    def account(at_ms: int, next_seq: int, device: str = "car1", version: str = "1.0") -> bytes:
        return encode_status(AgentStatus(device, 1, 77, at_ms, next_seq, 9, 8, 0, 0, 0, 1, 9, 5, 0, 4, version))

    status = heart.topics.status.name
    accounts = [account(T0 + 5, 10), account(T0, 4), account(T0 + 9, 11, "wtg1"), b"{", account(T0 + 6, 2**63)]
    heart.send_from(car, [(one, car.stamp(T0)) for one in accounts], status)
    heart.send_from(car, [(account(T0 + 7, 12, version="1\x00\udc00"), car.stamp(T0))], status)
    letter = DeadLetter("bad_crc", "x\x00y", "v1/car1/up/live", "car1", T0, car.tenant_id, 1, 3)
    heart.send_letter("car1", b"bytes", encode_dead_letter(letter))
    heart.send_letter("car1", b"other", b'{"reason": 1}')
    heart.drain()
    assert heart.rows("SELECT next_seq, at_ms, account ->> 'agent_version' FROM agent_status") == [
        (12, T0 + 7, "1\ufffd?")
    ]
    assert heart.rows("SELECT reason FROM quarantine ORDER BY reason") == [
        ("bad_dead_letter",), ("bad_status",), ("bad_status",), ("wrong_device",),
    ]  # fmt: skip
    assert heart.rows("SELECT device, seq, reason, detail, bytes FROM dead_letters") == [
        ("car1", 3, "bad_crc", "x\ufffdy", b"bytes")
    ]


def test_one_task_reads_one_partition_and_nothing_is_moved(heart: Line) -> None:
    """The plan has no exchange, no union and nothing that splits or joins partitions."""
    options = ingest.kafka_options(heart.bootstrap, TOPICS, "earliest", 100) | {"subscribe": heart.topics.live.name}
    assert not {"minpartitions", "maxrecordsperpartition"} & {name.lower() for name in options}
    stream = heart.spark.read.format("kafka").options(**{k: v for k, v in options.items() if "PerTrigger" not in k})
    attached = TaskSink(target(heart.dsn)).attach(ingest.decoded(stream.load(), TOPICS))
    plan = plan_of(attached)
    assert "MapInArrow" in plan
    assert not [word for word in ("Exchange", "Union", "Coalesce", "Sort", "Aggregate", "Join") if word in plan]


def test_the_running_query_has_no_exchange_either(heart: Line) -> None:
    car = heart.devices["car1"]
    heart.send_from(car, [(car.packet(1, speed(1)), car.stamp(T0))])
    query = heart.drain()
    plan = query._jsq.explainInternal(True)
    assert "MapInArrow" in plan and "Exchange" not in plan and "Union" not in plan
    assert json.loads(query._jsq.lastProgress().json())["numInputRows"] == 1


def plan_of(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())

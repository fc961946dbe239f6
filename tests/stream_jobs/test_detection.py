"""Detection on real Kafka, Spark and PostgreSQL: what the stream finds is what NumPy finds, however the run went."""

from __future__ import annotations

import contextlib
from typing import Any
from uuid import UUID, uuid4

from pyspark.errors import StreamingQueryException

from anomaly.deployed import DEPLOYED
from anomaly.shard import Shard
from contracts.finding import decode_finding
from stream_jobs.detection import query
from stream_jobs.detection.query import Said
from stream_jobs.detection.samples import Plan
from stream_jobs.jobs.ingest import kafka_options
from stream_jobs.log import LogReader
from stream_jobs.records import Kind
from stream_jobs.sinks.base import Topic
from stream_jobs.sinks.findings import FindingStore
from tests.stream_jobs.fix_detection import SHARD, WAIT_MS, drives, offline, stored
from tests.stream_jobs.fix_ingest import Line

OUTBOX = "SELECT kafka_value FROM outbox WHERE topic = 'findings' ORDER BY outbox_id"


class Detection:
    """The query in the test's Spark session, run until the log is drained."""

    def __init__(self, line: Line, shard: Shard = SHARD) -> None:
        self.line = line
        self.shard = shard
        self.store = FindingStore(line.dsn, shard.deployments)
        self.run_id: UUID = uuid4()
        self.store.begin(self.run_id, shard.version)
        self.said: list[Said] = []

    def drain(self, checkpoint: str, per_batch: int = 20_000, fail_at: int = -1) -> int:
        """Batches taken; ``fail_at``: the batch whose transaction is committed before everything breaks."""
        lanes = {self.line.topics.live.name: 0, self.line.topics.backlog.name: 1}
        log = LogReader(self.line.bootstrap, list(lanes)).state()
        topics = {name: Topic(log.ids[name], Kind.PACKETS) for name in lanes}
        options = kafka_options(self.line.bootstrap, topics, "earliest", per_batch)
        before = len(self.said)

        def sink(said: Said) -> None:
            self.store.write(self.run_id, said.batch, said.told, said.readings, said.late)
            self.said.append(said)
            if said.batch == fail_at:
                raise RuntimeError("broken on purpose")

        plan = Plan(self.shard, 3, topics, lanes)
        folder, trigger = self.line.scratch / checkpoint, {"availableNow": True}
        for _ in range(2):
            running = query.start(self.line.spark, plan, options, folder, trigger, sink)
            with contextlib.suppress(StreamingQueryException):
                assert running.awaitTermination(300)
            if not query.ended_by_reporting(running):
                break
        error = running.exception()
        assert error is None or (fail_at >= 0 and "broken on purpose" in str(error)), error
        return len(self.said) - before


def outbox(line: Line) -> list[Any]:
    return [decode_finding(bytes(value)) for (value,) in line.rows(OUTBOX)]


def test_the_stream_finds_what_numpy_finds(heart: Line) -> None:
    """First one detector alone; then the whole set, deployed later, in small batches, torn behind a commit."""
    sent = drives(heart.devices)
    heart.send([(one.device.name, *one.frame) for one in sent])
    expected = offline(sent)
    assert {row[2] for row in expected.values()} == {"car-coolant", "car-charging"} and len(expected) >= 2
    alone = Detection(heart, Shard(DEPLOYED[:1], WAIT_MS))
    alone.drain("alone")
    early = {key: row for key, row in expected.items() if row[2] == "car-coolant"}
    assert stored(heart.dsn) == early and 0 < len(early) < len(expected)
    torn = Detection(heart)
    assert torn.drain("torn", per_batch=60, fail_at=1) == 2
    assert torn.drain("torn", per_batch=60) >= 3  # the batch that was committed comes again
    assert stored(heart.dsn) == expected
    messages = outbox(heart)
    assert len({(one.id, one.revision) for one in messages}) == len(messages), "said twice"
    assert {one.id: one.revision for one in messages} == {key: row[1] for key, row in expected.items()}
    assert {one.asset for one in messages} == {"car1", "car2"}
    counts = [one for one in torn.said if one is not torn.said[2]]  # the one that came again
    (run,) = heart.rows("SELECT last_batch, readings, late FROM detection_runs WHERE run_id = %s", torn.run_id)
    assert run == (torn.said[-1].batch, sum(one.readings for one in counts), 0)


def test_broken_and_late_records_stop_nothing(heart: Line) -> None:
    car = heart.devices["car1"]
    sent = drives({"car1": car}, seconds=120, wild=False)
    late = sent[2]
    heart.send_from(car, [(b"no packet", car.stamp(1)), (None, None), *(one.frame for one in sent), late.frame])
    detection = Detection(heart)
    detection.drain("broken")
    assert sum(one.late for one in detection.said) == len(late.samples)
    assert sum(one.readings for one in detection.said) == sum(len(one.samples) for one in sent)
    ((late_count,),) = heart.rows("SELECT late FROM detection_runs WHERE run_id = %s", detection.run_id)
    assert late_count == len(late.samples)

"""The job of ``docs/how-to/write-a-stream-job.md``, as it stands on the page, on a real Kafka."""

from __future__ import annotations

import gc
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer

from contracts.topics import Topics
from stream_jobs.library.late import LateRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-stream-job.md"
START = datetime(2026, 11, 21, 12, tzinfo=UTC)

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


def window(device: str, at_s: int, mean: float, signal: str = "Vehicle.Speed") -> tuple[str, bytes]:
    """A message as the relay writes it."""
    body = {
        "device": device, "signal": signal, "width_s": 10, "n": 10, "min": mean, "max": mean + 1, "mean": mean,
        "starts_at": (START + timedelta(seconds=at_s)).strftime("%Y-%m-%dT%H:%M:%SZ"), "last": mean, "revision": 0,
    }  # fmt: skip
    return device, json.dumps(body).encode()


def test_the_documented_job_finds_the_drives(
    spark: SparkSession, kafka_bootstrap: str, topic_prefix: str, tmp_path: Path
) -> None:
    topics = Topics(topic_prefix)
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    said = [window("car1", at, 50.0 + at % 7) for at in (20, 0, 10, 140, 400, 410)]  # two drives, out of order
    said += [window("car1", 200, 0.0), window("car1", 300, 99.0, "Vehicle.Other"), window("car2", 5, 30.0)]
    for key, value in [*said, ("car3", b"no json"), window("clock", 9_000, 9.0)]:
        producer.produce(topics.windows.name, value, key)
    assert producer.flush(180) == 0
    (source,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    names: dict[str, Any] = {}
    exec(compile(source, str(PAGE), "exec"), names)
    late, checkpoint = LateRows(spark), tmp_path / "checkpoint"
    query = names["run"](spark, kafka_bootstrap, topics.windows.name, topics.events.name, checkpoint, late, drain=True)
    assert query.awaitTermination(600)
    late.close()
    gc.collect()
    found = read(kafka_bootstrap, topics.events.name, 3)
    assert sorted((one["device"], one["moving_windows"], one["top_speed"]) for one in found) == [
        ("car1", 2, 55.0), ("car1", 4, 57.0), ("car2", 1, 31.0),
    ]  # fmt: skip
    assert {one["starts_at"] for one in found if one["moving_windows"] == 4} == {"2026-11-21T12:00:00.000Z"}


def read(bootstrap: str, topic: str, count: int) -> list[dict[str, Any]]:
    """The first messages of a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        found: list[dict[str, Any]] = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), timeout=300)
            assert messages, f"only {len(found)} of {count} came"
            found += [json.loads(message.value() or b"") for message in messages]
        return found
    finally:
        consumer.close()

"""One transaction per Kafka partition, inside the Spark task that read it: partitions commit in parallel.

The task keeps one connection in its worker process between batches. It commits before it yields its first row, so
that a repeated task, a speculative one or a second evaluation finds its offsets taken and stores nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from stream_jobs.errors import PlanBroken
from stream_jobs.scales import catalogue_scales
from stream_jobs.sinks.assemble import assemble, chunked
from stream_jobs.sinks.base import RECEIPT_COLUMNS, RECEIPT_DDL, Receipt, Target
from stream_jobs.sinks.refusals import commit
from stream_jobs.sinks.transaction import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TYPES: dict[str, pa.DataType] = dict.fromkeys(RECEIPT_COLUMNS, pa.int64())
RECEIPT_SCHEMA = pa.schema({**_TYPES, "topic": pa.string(), "partition": pa.int32()})


class TaskSink:
    """The driver moves no data, so this is the way for many cores."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def attach(self, records: DataFrame) -> DataFrame:
        return records.mapInArrow(partial(run_task, self._target), RECEIPT_DDL)

    def store(self, batch: DataFrame) -> list[Receipt]:
        return [Receipt(**row.asDict()) for row in batch.collect()]


def run_task(target: Target, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What Spark runs in a Python worker for one partition of one micro-batch."""
    receipts = store_partition(target, batches)
    if receipts:
        yield pa.RecordBatch.from_pylist([asdict(receipt) for receipt in receipts], RECEIPT_SCHEMA)


def store_partition(target: Target, batches: Iterable[pa.RecordBatch]) -> list[Receipt]:
    """Store the records of one Kafka partition. Raises PlanBroken for records of two, StoreBusy."""
    receipts: list[Receipt] = []
    for table in chunked(batches, target.chunk_bytes):
        parts = assemble(table, target.topics)
        if len(parts) != 1 or len(parts[0].sources) != 1:
            raise PlanBroken("a task was given more than one Kafka partition; nothing was stored: check the plan")
        batch = Batch(parts, catalogue_scales())
        receipts += commit(target.dsn, batch)
    return receipts

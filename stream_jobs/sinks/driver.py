"""One transaction per batch through the driver: one commit, no Python workers, every byte through one process.

The default: on small machines it costs less CPU and answers sooner (docs/decisions/010-sink.md). Memory is bounded
twice: Spark refuses to collect more than ``spark.driver.maxResultSize``, and such a batch goes the way of
``TaskSink``; what is collected is stored in transactions of at most ``chunk_bytes``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa

from stream_jobs.scales import catalogue_scales
from stream_jobs.sinks.assemble import assemble, chunked
from stream_jobs.sinks.base import Receipt, Target
from stream_jobs.sinks.refusals import commit
from stream_jobs.sinks.tasks import TaskSink
from stream_jobs.sinks.transaction import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOO_LARGE = "spark.driver.maxResultSize"
"""What Spark's refusal to collect names."""

log = logging.getLogger(__name__)


class DriverSink:
    """Collects the batch as Arrow and stores all its partitions at once."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._tasks = TaskSink(target)

    def attach(self, records: DataFrame) -> DataFrame:
        return records

    def store(self, batch: DataFrame) -> list[Receipt]:
        try:
            table = batch.toArrow()
        except Exception as error:
            if TOO_LARGE not in str(error):
                raise
            log.warning("event=batch_too_large way=tasks")
            return self._tasks.store(self._tasks.attach(batch))
        return store_table(self._target, table)


def store_table(target: Target, table: pa.Table) -> list[Receipt]:
    """Store records of any number of partitions, each in offset order. Raises StoreBusy."""
    receipts: list[Receipt] = []
    for chunk in chunked(table.to_batches(), target.chunk_bytes):
        batch = Batch(assemble(chunk, target.topics), catalogue_scales())
        receipts += commit(target.dsn, batch)
    return receipts

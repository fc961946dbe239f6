"""One transaction per batch through the driver: fewer commits, but every byte passes through one process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from stream_jobs.scales import catalogue_scales
from stream_jobs.sinks.assemble import assemble
from stream_jobs.sinks.base import Receipt, Target
from stream_jobs.sinks.connection import repeated
from stream_jobs.sinks.transaction import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class DriverSink:
    """Collects the batch as Arrow and stores all its partitions at once."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def attach(self, records: DataFrame) -> DataFrame:
        return records

    def store(self, batch: DataFrame) -> list[Receipt]:
        return store_table(self._target, batch.toArrow())


def store_table(target: Target, table: pa.Table) -> list[Receipt]:
    """Store records of any number of partitions in one transaction. Raises StoreBusy."""
    if not table.num_rows:
        return []
    batch = Batch(assemble(table, target.topics), catalogue_scales())
    made, retries = repeated(target.dsn, batch.commit)
    return [replace(receipt, retries=retries) for receipt in made]

"""A slice of the log that was read again, through the driver, into the tables of a rebuild."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stream_jobs.sinks.base import Receipt, Target
from stream_jobs.sinks.driver import TOO_LARGE, store_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class BatchTooLarge(Exception):
    """Spark refused to hand a slice to the driver; a smaller one goes."""


class SliceSink:
    """Stores whole slices, in the order in which their rows come; unlike ``DriverSink`` it has no way round by tasks,
    because the tasks of a slice read from files may hold several Kafka partitions."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def store(self, batch: DataFrame) -> list[Receipt]:
        """Raises BatchTooLarge, StoreBusy."""
        try:
            table = batch.toArrow()
        except Exception as error:
            if TOO_LARGE not in str(error):
                raise
            raise BatchTooLarge("a slice is larger than the driver may hold; nothing of it was stored") from error
        return store_table(self._target, table)

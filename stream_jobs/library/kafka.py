"""Topics of JSON objects as inputs and as a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from stream_jobs.library.job import Sink


def json_topic(session: SparkSession, bootstrap: str, topic: str, columns: str, per_batch: int = 200_000) -> DataFrame:
    """A stream of a topic's values. ``columns`` as in ``CREATE TABLE``; what is no JSON object gives no row.

    A gap in the log (retention passed the reader) fails the query instead of being skipped.
    """
    options = {
        "kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest",
        "failOnDataLoss": "true", "maxOffsetsPerTrigger": str(per_batch),
    }  # fmt: skip
    read = session.readStream.format("kafka").options(**options).load()
    parsed = read.select(F.from_json(F.col("value").cast("string"), columns).alias("row"))
    return parsed.where("row IS NOT NULL").select("row.*")


def to_topic(bootstrap: str, topic: str, key: str) -> Sink:
    """Write each row as JSON under the column ``key``. Spark may write a row twice after a crash, never not at all:
    readers take the newest row per key and window, as they do with the outbox's messages."""

    def write(batch: DataFrame, _: int) -> None:
        row = F.to_json(F.struct(*(F.col(name) for name in batch.columns)), {"ignoreNullFields": "false"})
        messages = batch.select(F.col(key).cast("string").alias("key"), row.alias("value"))
        messages.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", topic).save()

    return write

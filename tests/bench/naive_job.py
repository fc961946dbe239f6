"""The job that people write first, for comparison: one JSON message per sample, Spark's own settings, rows appended.

It knows no packet, no identity, no window and no offset of its own: a batch that Spark repeats is stored twice, and a
message that does not parse becomes a row of nulls. Its text stays as it is, or figures of two dates mean two jobs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial

import psycopg
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import col, from_json

SCHEMA = "device STRING, signal STRING, measured_at TIMESTAMP, value DOUBLE"
TABLE = """
CREATE TABLE naive_readings (device text, signal text, measured_at timestamptz, value double precision);
CREATE INDEX ON naive_readings (device, signal, measured_at)"""


def insert(dsn: str, rows: Iterable[Row]) -> None:
    """One partition of a batch."""
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO naive_readings VALUES (%s, %s, %s, %s)", [tuple(row) for row in rows])


def append(dsn: str, batch: DataFrame, _: int) -> None:
    batch.foreachPartition(partial(insert, dsn))


def run(bootstrap: str, topic: str, dsn: str, checkpoint: str, jars: str) -> None:
    """Store what the topic holds."""
    spark = SparkSession.builder.appName("naive").config("spark.jars", jars).getOrCreate()
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    rows = messages.select(from_json(col("value").cast("string"), SCHEMA).alias("row")).select("row.*")
    query = (
        rows.writeStream.foreachBatch(partial(append, dsn))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    run(*sys.argv[1:])
    print("stored", flush=True)
    sys.stdin.readline()  # who measures reads the processes' clocks while they live

"""The ingest query: Kafka's records, decoded in the JVM, stored by the sink. One screen.

One task reads one whole Kafka partition: nothing here may split, unite or shuffle them (no ``minPartitions``,
``maxRecordsPerPartition``, ``union`` or ``repartition``), because the ledger of offsets is kept per partition.
The only action is the sink's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from contracts.packet import CRC_BYTES, MARKER, PREFIX_BYTES, schema_text, writer_schemas
from stream_jobs.records import Kind
from stream_jobs.sinks.base import Receipt, Sink, Topic

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def kafka_options(bootstrap: str, topics: Mapping[str, Topic], starting: str, max_offsets: int) -> dict[str, str]:
    """Options of Spark's Kafka source; ``failOnDataLoss`` makes a gap in the log an error, never a silence."""
    return {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": ",".join(topics),
        "startingOffsets": starting,
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        "maxOffsetsPerTrigger": str(max_offsets),
    }


def decoded(records: DataFrame, topics: Mapping[str, Topic]) -> DataFrame:
    """Kafka's columns to ours; ``packet`` is NULL where the body is not a packet."""
    return records.select(
        "topic",
        "partition",
        "offset",
        "value",
        F.col("headers")[0]["value"].alias("stamp"),
        packet_column([name for name, topic in topics.items() if topic.kind is Kind.PACKETS]).alias("packet"),
    )


def packet_column(topics: list[str]) -> Column:
    """``from_avro`` with the writer's schema that the frame's fingerprint names, read as the current schema."""
    value = F.col("value")
    prefix = F.substring(value, 1, PREFIX_BYTES)
    body = value.substr(F.lit(PREFIX_BYTES + 1), F.octet_length(value) - (PREFIX_BYTES + CRC_BYTES))
    options = {"mode": "PERMISSIVE", "avroSchema": schema_text()}
    column: Column | None = None
    for fingerprint, writer in writer_schemas().items():
        written_so = F.col("topic").isin(topics) & (prefix == F.lit(MARKER + fingerprint))
        decoded_body = from_avro(body, writer, options)
        column = F.when(written_so, decoded_body) if column is None else column.when(written_so, decoded_body)
    assert column is not None
    return column


def start(
    session: SparkSession,
    sink: Sink,
    topics: Mapping[str, Topic],
    options: Mapping[str, str],
    checkpoint: Path,
    trigger: Mapping[str, str | bool],
    on_receipts: Callable[[list[Receipt]], None],
) -> StreamingQuery:
    """Start the query; ``on_receipts`` hears what each batch committed."""
    records = session.readStream.format("kafka").options(**options).load()

    def store(batch: DataFrame, _: int) -> None:
        on_receipts(sink.store(batch))

    writer = sink.attach(decoded(records, topics)).writeStream.foreachBatch(store)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()  # type: ignore[arg-type]

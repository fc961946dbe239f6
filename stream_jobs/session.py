"""The Spark session, built in one place."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from contracts.packet import MAX_FRAME_BYTES
from stream_jobs.settings import StreamSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AVRO_LIMITS = {
    "collectionItems": MAX_FRAME_BYTES,
    "bytes": MAX_FRAME_BYTES,
    "string": MAX_FRAME_BYTES,
}
"""Longest array, bytes and string that Avro may read: none can have more items than a frame has bytes. Without
limits one forged body that claims two thousand million items ends the JVM, even in PERMISSIVE mode."""

ARROW_BATCH_BYTES = 16 * 1024 * 1024
_STATE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_RAW_FILES = "org.apache.hadoop.fs.RawLocalFileSystem"
"""Hadoop's usual local file system forks a ``chmod`` for every file and its checksum: four processes a batch."""

_COLLECTOR = ("", " -XX:+UseSerialGC")
"""On one core a collector of many threads only takes memory."""

_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def avro_guards() -> str:
    """JVM options that every Spark process must run with."""
    return " ".join(f"-Dorg.apache.avro.limits.{name}.maxLength={limit}" for name, limit in AVRO_LIMITS.items())


def session_options(settings: StreamSettings, scratch: Path) -> dict[str, str]:
    """Every setting that differs from Spark's own default, with its reason in docs/decisions or beside it."""
    cores = str(settings.cores)
    return {
        "spark.master": f"local[{cores}]",
        "spark.jars": ",".join(map(str, settings.jars)),
        "spark.driver.maxResultSize": f"{settings.driver_memory_mb // 4}m",
        "spark.driver.memory": f"{settings.driver_memory_mb}m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{avro_guards()} -Dlog4j2.level=warn{_COLLECTOR[settings.cores == 1]}",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": cores,
        "spark.sql.streaming.stateStore.providerClass": _STATE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
        "spark.sql.streaming.checkpointFileManagerClass": _FILES,  # local disk: saves 60 ms a batch
        "spark.hadoop.fs.file.impl": _RAW_FILES,
        "spark.sql.streaming.minBatchesToRetain": "2",  # the ledger is in the store, not in the checkpoint
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BATCH_BYTES),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.retainedJobs": "10",
        "spark.ui.retainedStages": "10",
        "spark.ui.retainedTasks": "100",
        "spark.sql.ui.retainedExecutions": "10",
    }


def build_session(settings: StreamSettings, scratch: Path, job: str = "ingest") -> SparkSession:
    """Start Spark in this process. ``scratch`` is emptied by whoever made it."""
    from pyspark.sql import SparkSession  # slow to import, and only this process needs it

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if settings.java_home is not None:
        os.environ["JAVA_HOME"] = str(settings.java_home)
    builder = SparkSession.builder.appName(f"fleetstream-{job}")
    for key, value in session_options(settings, scratch).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session

"""The detection query: packets decoded in the JVM, readings by shard, a shard's state in RocksDB, findings to the sink.

One task decodes a whole micro-batch (``coalesce``), so each shard has exactly one row: PySpark 4.1.1 hands Python state
over beside the rows, and misreads it where a batch has more rows than keys. Decoding keeps up with ten times what the
detectors do, which run in as many tasks as there are cores.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from anomaly.excursions import TOLD
from anomaly.moments import ASTRAY
from anomaly.shard import together
from anomaly.types import Rows
from stream_jobs.detection.samples import BLOCK_DDL, Plan, pack
from stream_jobs.errors import PlanBroken
from stream_jobs.jobs.ingest import decoded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.state import GroupState

SAID_DDL = "shard int, told binary, readings long, late long, state_bytes long, astray binary"
NAME = "detection"
REPORTING_FAULT = 'the return value of "scala.Option.get()" is null'
"""Spark 4.1.1 ends a query that went on with a planned batch after a crash: the batch is done and committed, but the
report of its progress finds no newest offsets (SPARK-55271). Started again, it goes on behind that batch."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Said:
    """What one micro-batch said, all shards together; ``astray`` is ``moments.ASTRAY``."""

    batch: int
    told: Rows
    readings: int
    late: int
    state_bytes: int
    astray: Rows


@dataclass(frozen=True, slots=True)
class Watch:
    """The function that Spark calls: a shard's readings and its state in, what is to be said out."""

    plan: Plan

    def __call__(self, key: Any, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        blocks = [bytes(block) for frame in frames for block in frame["readings"]]
        if len(blocks) != 1:
            raise PlanBroken(f"shard {key[0]} was given {len(blocks)} rows; nothing was judged: check the plan")
        shard = self.plan.shard
        before = shard.load(bytes(state.get[0])) if state.exists else shard.start()
        step = shard.run(before, together(blocks))
        after = shard.dump(step.state)
        state.update((after,))
        row = {
            "shard": [int(key[0])], "told": [step.told.tobytes()], "readings": [step.readings], "late": [step.late],
            "state_bytes": [len(after)], "astray": [step.astray.tobytes()],
        }  # fmt: skip
        yield pd.DataFrame(row)


def build(records: DataFrame, plan: Plan) -> DataFrame:
    """From Kafka's columns to what shards say."""
    blocks = decoded(records, plan.topics).coalesce(1).mapInArrow(partial(pack, plan), BLOCK_DDL)
    return blocks.groupBy("shard").applyInPandasWithState(Watch(plan), SAID_DDL, "blob binary", "update", "NoTimeout")


def start(
    session: SparkSession,
    plan: Plan,
    options: Mapping[str, str],
    checkpoint: Path,
    trigger: Mapping[str, str | bool],
    sink: Callable[[Said], None],
) -> StreamingQuery:
    """Start the query; ``sink`` gets every batch in order, the last one again after a crash."""
    records = session.readStream.format("kafka").options(**options).load()

    def store(batch: DataFrame, number: int) -> None:
        sink(said_of(number, batch.collect()))

    writer = build(records, plan).writeStream.queryName(NAME).outputMode("update").foreachBatch(store)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()  # type: ignore[arg-type]


def ended_by_reporting(query: StreamingQuery) -> bool:
    """Whether a query ended by ``REPORTING_FAULT``: nothing was lost, it has only to be started again."""
    error = query.exception()
    return error is not None and REPORTING_FAULT in str(error)


def said_of(number: int, rows: Iterable[Any]) -> Said:
    """One batch's rows, one per shard, as one."""
    listed = list(rows)
    told = np.frombuffer(b"".join(bytes(row["told"]) for row in listed), TOLD)
    readings, late, size = (sum(row[name] for row in listed) for name in ("readings", "late", "state_bytes"))
    astray = np.frombuffer(b"".join(bytes(row["astray"]) for row in listed), ASTRAY)
    return Said(number, told, readings, late, size, astray)

"""A job in its flat form, and how it starts.

| trigger | results leave | Spark's output mode |
| --- | --- | --- |
| ``EachRecord`` | as soon as a record has come: the window so far, again after each change | update |
| ``Every(delay_s)`` | once per delay, each changed window once | update |
| ``AtWatermark`` | once, when no record within ``wait_s`` can change it any more | append |

Records that come more than ``wait_s`` behind the newest one may be dropped by Spark: it counts them, and after each
batch the log and the metrics say so. Nothing is lost by that: the store's windows took them in, these are answers that
were asked for early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from contracts.errors import Fatal
from stream_jobs.library.late import LateRows
from stream_jobs.library.steps import Each, Grouped, Joined, Step, each, grouped, paired

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"

Sink: TypeAlias = "Callable[[DataFrame, int], None]"
"""Takes each batch with its number. A batch may come again after a crash, so a sink writes under keys."""


@dataclass(frozen=True, slots=True)
class EachRecord:
    """As early as Spark can: the next batch starts when the last one is done."""


@dataclass(frozen=True, slots=True)
class Every:
    """Once per delay of processing time."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class AtWatermark:
    """Once per window, when it is over; ``look_s`` is how often Spark looks."""

    look_s: float = 1.0


Trigger: TypeAlias = EachRecord | Every | AtWatermark


@dataclass(frozen=True, slots=True)
class Job:
    """What is read, what is done with it, when it is said.

    ``time`` is the event time column of every input, ``wait_s`` how long stragglers are waited for.
    """

    name: str
    input: str
    time: str
    wait_s: int
    steps: tuple[Step, ...]
    trigger: Trigger

    def __post_init__(self) -> None:
        groups = [at for at, step in enumerate(self.steps) if isinstance(step, Grouped)]
        joins = [at for at, step in enumerate(self.steps) if isinstance(step, Joined)]
        if len(groups) > 1 or len(joins) > 1:
            raise Fatal(f"job {self.name}: at most one group and one join; a further one is a further job")
        if groups and joins and (joins[0] > groups[0] or self.early):
            raise Fatal(f"job {self.name}: a join may only be grouped after it, and only said at the watermark")

    @property
    def early(self) -> bool:
        """Whether windows are said before they are over."""
        return not isinstance(self.trigger, AtWatermark)

    @property
    def output_mode(self) -> str:
        """Spark's word; rows of jobs without windows never change, so they are always appended."""
        return "update" if self.early and any(isinstance(step, Grouped) for step in self.steps) else "append"


def build(job: Job, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """The job's steps on its inputs by name: streams, or tables that end (then the result is exact and whole)."""

    def watched(name: str) -> DataFrame:
        if name not in inputs:
            raise Fatal(f"job {job.name} reads {name!r}, which was not given")
        frame = inputs[name]
        return frame.withWatermark(job.time, f"{job.wait_s} seconds") if frame.isStreaming else frame

    frame = watched(job.input)
    for step in job.steps:
        if isinstance(step, Each):
            frame = each(frame, step)
        elif isinstance(step, Grouped):
            frame = grouped(frame, step, job.time, job.early)
        else:
            frame = paired(frame, watched(step.other), step, job.time)
    return frame


def start(
    job: Job,
    inputs: Mapping[str, DataFrame],
    sink: Sink,
    checkpoint: Path,
    late: LateRows,
    drain: bool = False,
) -> StreamingQuery:
    """Start the job; ``late`` hears of rows that it leaves out. ``drain`` True: take what is there now, in the same
    steps, and end."""
    writer = build(job, inputs).writeStream.queryName(job.name).outputMode(job.output_mode)
    writer = writer.option("checkpointLocation", str(checkpoint)).foreachBatch(sink)
    writer = writer.trigger(availableNow=True) if drain else writer.trigger(processingTime=_interval(job))
    late.watch(job.name)
    with _one_row_at_a_time(inputs[job.input].sparkSession):
        return writer.start()


@contextmanager
def _one_row_at_a_time(session: SparkSession) -> Iterator[None]:
    """PySpark 4.1.1 hands Python state over beside the rows, and misreads it where a batch has more rows than keys
    (its integers become floats). Batches of one row have not. A query takes the session's settings when it starts."""
    usual = session.conf.get(ROWS_AT_ONCE)
    session.conf.set(ROWS_AT_ONCE, "1")
    try:
        yield
    finally:
        session.conf.set(ROWS_AT_ONCE, str(usual))


def _interval(job: Job) -> str:
    trigger = job.trigger
    seconds = 0.0 if isinstance(trigger, EachRecord) else trigger.delay_s if isinstance(trigger, Every) else (
        trigger.look_s
    )  # fmt: skip
    return f"{round(seconds * 1000)} milliseconds"

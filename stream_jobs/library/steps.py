"""Steps of a job: element-wise, grouped, and a join of two streams. Each makes a frame from a frame.

Steps say nothing about when results leave; the same steps run on a table that ends, which is how they are tested.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F

from contracts.errors import Fatal
from stream_jobs.library.kinds import Kind, Session
from stream_jobs.library.sessions import SessionStep

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OTHER = "other_"
"""What the right side's columns are called with after a join."""

_HOW = ("count", "total", "lowest", "highest")


@dataclass(frozen=True, slots=True)
class Value:
    """One aggregate. Sums of doubles depend on the order of rows; sum scaled integers where that matters."""

    how: str
    of: str = ""

    def __post_init__(self) -> None:
        if self.how not in _HOW or bool(self.of) != (self.how != "count"):
            raise Fatal(f"a value is one of {', '.join(_HOW)}, all but count of a column; not {self.how}({self.of})")

    def column(self) -> Column:
        made = {"count": F.count(F.lit(1))} if self.how == "count" else {
            "total": F.sum(self.of), "lowest": F.min(self.of), "highest": F.max(self.of),
        }  # fmt: skip
        return made[self.how]


COUNT = Value("count")


def total(column: str) -> Value:
    """Sum of the values that are not NULL."""
    return Value("total", column)


def lowest(column: str) -> Value:
    """Least value."""
    return Value("lowest", column)


def highest(column: str) -> Value:
    """Greatest value."""
    return Value("highest", column)


@dataclass(frozen=True, slots=True)
class Each:
    """Element-wise: keep rows that pass ``where``, then compute ``columns`` (SQL; none: all as they are).

    Spark filters before it looks at event times: rows that ``where`` drops do not move the watermark.
    """

    columns: tuple[str, ...] = ()
    where: str = ""


@dataclass(frozen=True, slots=True)
class Grouped:
    """One row per key and window: the key's columns, ``starts_at``, ``ends_at``, the named values."""

    by: tuple[str, ...]
    window: Kind
    values: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Joined:
    """Pairs with the stream ``other`` that agree in ``on`` and lie at most ``within_s`` apart; columns of the other
    side are named ``other_…``."""

    other: str
    on: tuple[str, ...]
    within_s: int


Step: TypeAlias = Each | Grouped | Joined


def each(frame: DataFrame, step: Each) -> DataFrame:
    kept = frame.where(step.where) if step.where else frame
    return kept.selectExpr(*step.columns) if step.columns else kept


def grouped(frame: DataFrame, step: Grouped, time: str, early: bool) -> DataFrame:
    """``early``: results are wanted before the watermark closes them."""
    if isinstance(step.window, Session) and early and frame.isStreaming:
        return _early_sessions(frame, step, step.window, time)
    window = step.window.column(time).alias("window")
    made = frame.groupBy(*step.by, window).agg(*(value.column().alias(name) for name, value in step.values.items()))
    edges = (F.col("window.start").alias("starts_at"), F.col("window.end").alias("ends_at"))
    return made.select(*step.by, *edges, *step.values)


def paired(frame: DataFrame, other: DataFrame, step: Joined, time: str) -> DataFrame:
    right = other.select(*(F.col(name).alias(OTHER + name) for name in other.columns))
    apart = F.expr(f"interval {step.within_s} seconds")
    near = (F.col(OTHER + time) >= F.col(time) - apart) & (F.col(OTHER + time) <= F.col(time) + apart)
    for name in step.on:
        near = near & (F.col(name) == F.col(OTHER + name))
    return frame.join(right, near).drop(*(OTHER + name for name in step.on))


def _early_sessions(frame: DataFrame, step: Grouped, window: Session, time: str) -> DataFrame:
    types = dict(frame.dtypes)
    values = {name: _type(value, types) for name, value in step.values.items()}
    columns = {name: types[name] for name in step.by} | {"starts_at": "timestamp", "ends_at": "timestamp"} | values
    work = SessionStep(
        tuple(columns), time, window.gap_s * 1_000_000, tuple(value.how for value in step.values.values()),
        tuple(value.of for value in step.values.values()),
    )  # fmt: skip
    return frame.groupBy(*step.by).applyInPandasWithState(
        work, ", ".join(f"`{name}` {kind}" for name, kind in columns.items()), "sessions string", "update",
        "EventTimeTimeout",
    )  # fmt: skip


def _type(value: Value, types: Mapping[str, str]) -> str:
    """Spark's own rule for the type of an aggregate."""
    if value.how == "count":
        return "bigint"
    own = types[value.of]
    if value.how == "total":
        return "bigint" if own in ("tinyint", "smallint", "int", "bigint") else "double"
    return own

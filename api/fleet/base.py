"""What a fleet question is: its words, its columns, its time, and how it is answered.

The thirteen questions are those of the Time Series Benchmark Suite's use case iot (github.com/timescale/tsbs,
``cmd/tsbs_generate_queries``, as its TimescaleDB version has them). Several of them do not compute what they ask; so
each question here states its own meaning (``semantics``), that of the suite (``suite``) and what differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from typing import ClassVar, Protocol

from api.queries.pool import Connection
from api.tables import REAL, TEXT

Cell = str | int | float | datetime | None
Row = tuple[Cell, ...]

MINUTE_MS = 60_000
BUCKET_MS = 10 * MINUTE_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
BUCKETS_PER_HOUR = 6

STRIP_NOTE = (
    "A bucket is ten minutes from a whole ten minutes (UTC). One without readings counts neither as yes nor as no. "
    "Buckets are told when the hour's roll-up is made, about a minute after the hour, and corrected with it."
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of an answer. ``unit`` is empty for names, times, counts and parts; ``kind`` as in ``api.tables``."""

    name: str
    unit: str
    text: str
    kind: str = REAL


@dataclass(frozen=True, slots=True)
class Time:
    """Which time a question is about, in whole steps. ``width_ms`` 0: any number of steps, ``default_ms`` when unasked;
    ``default_ms`` 0: about now, no range."""

    step_ms: int = 0
    width_ms: int = 0
    default_ms: int = 0
    settle_ms: int = 0
    """How long after its end a range is told in full."""

    def settled_ms(self, now_ms: int) -> int:
        """The last whole step up to which everything is told in full; both Unix milliseconds."""
        return (now_ms - self.settle_ms) // self.step_ms * self.step_ms


NOW = Time()
DAYS = Time(DAY_MS, 0, 7 * DAY_MS, 2 * MINUTE_MS)


@dataclass(frozen=True, slots=True)
class Threshold:
    """The limit a caller may change."""

    default: float
    unit: str
    text: str


@dataclass(frozen=True, slots=True)
class Words:
    """What people read about a question."""

    asks: str
    semantics: str
    suite: str
    differs: str
    source: str


@dataclass(frozen=True, slots=True)
class Asked:
    """One question as it was put, checked. The range is [start_ms, end_ms), Unix milliseconds, 0 for NOW."""

    now: datetime
    fleet: str | None = None
    asset: str | None = None
    start_ms: int = 0
    end_ms: int = 0
    threshold: float = 0.0
    max_age_s: float = 0.0

    @property
    def days(self) -> int:
        return (self.end_ms - self.start_ms) // DAY_MS

    def day_name(self, number: int) -> str:
        """ISO date of the range's day, 0 the first."""
        return datetime.fromtimestamp(self.start_ms / 1000 + number * 86_400, UTC).date().isoformat()


@dataclass(slots=True)
class Found:
    """Rows sorted by their key columns, and how many vehicles were asked about and could not be judged."""

    rows: Sequence[Row]
    counted: dict[str, int] = field(default_factory=dict)


class Question(Protocol):
    """One of the menu."""

    name: ClassVar[str]
    words: ClassVar[Words]
    columns: ClassVar[tuple[Column, ...]]
    keys: ClassVar[int]
    """So many leading columns identify a row; rows are sorted by them."""
    time: ClassVar[Time]
    threshold: ClassVar[Threshold | None]
    takes: ClassVar[frozenset[str]]
    """Further parameters: ``fleet``, ``asset``, ``max_age_s``."""

    async def answer(self, connection: Connection, asked: Asked) -> Found: ...


ASSET = Column("asset", "", "name of the vehicle", TEXT)
FLEET = Column("fleet", "", "the fleet it counts under; null: nobody said", TEXT)
DRIVER = Column("driver", "", "null: nobody said", TEXT)
MODEL = Column("model", "", "null: nobody said", TEXT)
DAY = Column("day", "", "UTC day", TEXT)


def sorted_rows(rows: Sequence[Row], keys: int) -> list[Row]:
    """By the key columns, nulls first."""
    try:
        return sorted(rows, key=itemgetter(slice(keys)))  # four times as fast, and possible where no key is null
    except TypeError:
        return sorted(rows, key=lambda row: key_of(row, keys))


def key_of(row: Row, keys: int) -> tuple[tuple[bool, str], ...]:
    """What rows are ordered and continued by: key columns are text, numbers or null."""
    return tuple((cell is not None, "" if cell is None else _text(cell)) for cell in row[:keys])


def _text(cell: Cell) -> str:
    return f"{cell:020.6f}" if isinstance(cell, int | float) else str(cell)

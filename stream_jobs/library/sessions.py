"""Sessions that are told before they end.

Spark says a session only when the watermark has closed it. Told earlier, a session may grow, change its start, or
join with its neighbour; whoever was told before must hear of it. So each change gives the session as it is now, and
a row whose values are all NULL for every session that is no more (its start moved, or another one took it in).

Pure but for ``SessionStep``, which Spark calls once per key and batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import pandas as pd

if TYPE_CHECKING:
    from pyspark.sql.streaming.state import GroupState

Number: TypeAlias = int | float | None
_FOLD: dict[str, Callable[[Any, Any], Any]] = {
    "count": lambda a, b: a + b,
    "total": lambda a, b: a + b,
    "lowest": min,
    "highest": max,
}


@dataclass(frozen=True, slots=True)
class Open:
    """One session: first and last event in microseconds, and its values so far."""

    first_us: int
    last_us: int
    values: tuple[Number, ...]


def joined(sessions: Iterable[Open], gap_us: int, how: Sequence[str]) -> list[Open]:
    """Sessions that touch become one; the order they come in does not matter."""
    result: list[Open] = []
    for one in sorted(sessions, key=lambda session: session.first_us):
        if result and one.first_us <= result[-1].last_us + gap_us:
            held = result[-1]
            values = tuple(fold(*both) for both in zip(how, held.values, one.values, strict=True))
            result[-1] = Open(held.first_us, max(held.last_us, one.last_us), values)
        else:
            result.append(one)
    return result


def fold(how: str, left: Number, right: Number) -> Number:
    """Two partial values as one; None is "no value yet"."""
    if left is None or right is None:
        return right if left is None else left
    result: Number = _FOLD[how](left, right)
    return result


def told(before: Sequence[Open], after: Sequence[Open]) -> tuple[list[Open], list[int]]:
    """What changed: sessions to say, and starts of sessions to withdraw."""
    known = set(before)
    starts = {one.first_us for one in after}
    return [one for one in after if one not in known], [one.first_us for one in before if one.first_us not in starts]


@dataclass(frozen=True, slots=True)
class SessionStep:
    """The function that Spark calls: a key's new rows and its state in, changed sessions out.

    ``columns``: names of the result; ``how`` and ``of``: each value's fold and its column ('' for a count).
    """

    columns: tuple[str, ...]
    time: str
    gap_us: int
    how: tuple[str, ...]
    of: tuple[str, ...]

    def __call__(self, key: Any, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        before = [Open(first, last, tuple(values)) for first, last, values in json.loads(state.get[0])] if (
            state.exists
        ) else []  # fmt: skip
        after = joined([*before, *(one for frame in frames for one in self._rows(frame))], self.gap_us, self.how)
        changed, gone = told(before, after)
        self._keep([one for one in after if one.last_us + self.gap_us > state.getCurrentWatermarkMs() * 1000], state)
        rows: list[tuple[Any, ...]] = [
            (*key, _moment(one.first_us), _moment(one.last_us + self.gap_us), *one.values) for one in changed
        ]
        rows += [(*key, _moment(start), None, *(None for _ in self.how)) for start in gone]
        if rows:
            yield pd.DataFrame(rows, columns=list(self.columns), dtype=object)

    def _rows(self, frame: pd.DataFrame) -> Iterator[Open]:
        times = (
            frame[self.time].astype("datetime64[us]").astype("int64").tolist()
        )  # Spark gives the session's zone, UTC
        columns = [[1] * len(frame) if not name else frame[name].tolist() for name in self.of]
        for at, *values in zip(times, *columns, strict=True):
            yield Open(at, at, tuple(None if value != value else value for value in values))

    def _keep(self, sessions: list[Open], state: GroupState) -> None:
        if not sessions:
            if state.exists:
                state.remove()
            return
        state.update((json.dumps([(one.first_us, one.last_us, one.values) for one in sessions]),))
        soonest_ms = min(one.last_us + self.gap_us for one in sessions) // 1000
        state.setTimeoutTimestamp(max(soonest_ms, state.getCurrentWatermarkMs() + 1))


def _moment(us: int) -> pd.Timestamp:
    return pd.Timestamp(us, unit="us")

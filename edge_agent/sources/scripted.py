"""A source that tells what it was given: for tests, notebooks and as the smallest example of a source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edge_agent.sources.base import Reading


class ScriptedSource:
    """Hands out a list, each reading not before its event time; its cursor is the number handed out.

    >>> source = ScriptedSource([Reading(1, 1_000, 50.0), Reading(1, 2_000, 51.0)])
    >>> [reading.value for reading in source.read(now_ms=1_500, limit=10)], source.cursor
    ([50.0], '1')
    """

    can_wait = True

    def __init__(self, readings: Iterable[Reading]) -> None:
        self._readings = tuple(readings)
        self._at = 0

    @property
    def cursor(self) -> str | None:
        return str(self._at)

    @property
    def finished(self) -> bool:
        return self._at >= len(self._readings)

    def seek(self, cursor: str) -> None:
        self._at = int(cursor)

    def read(self, now_ms: int, limit: int) -> Sequence[Reading]:
        end = self._at
        last = min(len(self._readings), self._at + limit)
        while end < last and self._readings[end].at_ms <= now_ms:
            end += 1
        due = self._readings[self._at : end]
        self._at = end
        return due

    def close(self) -> None:
        """Holds nothing open."""

"""What every source of readings promises: it is asked, answers at once, and never blocks.

The agent calls ``read`` in its tick, so one thread can drive many agents. A source that can be repositioned
names its place by a ``cursor``; the agent stores it in the very transaction that accepts the readings read so
far, and hands it to ``seek`` after a restart, so a recording continues without a reading lost or doubled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable


class Reading(NamedTuple):
    """One measured value of one catalogue signal, in the signal's unit."""

    signal: int
    at_ms: int
    """Event time, Unix epoch milliseconds."""
    value: float
    quality: int = 0
    """``contracts.packet.Quality``."""


@runtime_checkable
class CountsRefusals(Protocol):
    """A source that can be given what is no reading; it leaves it out and counts it."""

    bad_lines: int


@runtime_checkable
class Source(Protocol):
    """One supplier of readings for one device."""

    @property
    def can_wait(self) -> bool:
        """True for recordings: they are not asked while the spool is nearly full. False for real sensors."""
        ...

    @property
    def cursor(self) -> str | None:
        """Place after everything that ``read`` returned so far; None when the past cannot be read again."""
        ...

    @property
    def finished(self) -> bool:
        """True when nothing will ever come again."""
        ...

    def seek(self, cursor: str) -> None:
        """Continue after ``cursor``; called before the first ``read``, only with what ``cursor`` once said."""
        ...

    def read(self, now_ms: int, limit: int) -> Sequence[Reading]:
        """Readings that are due at wall time ``now_ms``, at most about ``limit``; empty when there are none."""
        ...

    def close(self) -> None:
        """Give back files and ports; nothing is read afterwards."""
        ...

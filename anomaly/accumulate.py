"""Before a person is called: a criticality counter with hysteresis, and one alert per cause.

A leaky counter (after the CARE benchmark): each alarm adds one, each healthy reading takes one away, never below
zero nor above ``ceiling``. At ``call_at`` the excursion is opened once; it is closed when the counter has fallen to
``close_at``. Readings that a detector does not know move nothing. State: 24 bytes per device and cause.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anomaly.base import Verdict
from anomaly.errors import BadParameters
from anomaly.types import Bools, Ints, Rows


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to the excursions of a call: opened, closed (row numbers), and since when each is running."""

    opened: Bools
    closed: Bools
    started_at_ms: Ints


@dataclass(frozen=True)
class Accumulator:
    """Counts are in readings; ``close_at`` below ``call_at`` is the hysteresis."""

    call_at: int = 72
    close_at: int = 0
    ceiling: int = 144

    def __post_init__(self) -> None:
        if not 0 <= self.close_at < self.call_at <= self.ceiling:
            raise BadParameters("wanted: 0 <= close_at < call_at <= ceiling")

    def start(self, devices: int) -> Rows:
        return np.zeros(devices, dtype=[("count", "<i4"), ("open", "?"), ("started", "<i8"), ("first", "<i8")])

    def step(self, state: Rows, device: Ints, at_ms: Ints, verdict: Verdict) -> tuple[Rows, Change]:
        """One moment, each device at most once; the given state stays as it was."""
        rows, after = state[device], state.copy()
        moved = np.where(verdict.alarm, 1, -1) * verdict.known
        count = np.clip(rows["count"] + moved, 0, self.ceiling)
        rows["first"] = np.where((rows["count"] == 0) & (count > 0), at_ms, rows["first"])
        opened = ~rows["open"] & (count >= self.call_at)
        closed = rows["open"] & (count <= self.close_at)
        rows["started"] = np.where(opened, rows["first"], rows["started"])
        rows["open"] = (rows["open"] | opened) & ~closed
        rows["count"] = count
        after[device] = rows
        return after, Change(opened, closed, rows["started"])

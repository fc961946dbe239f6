"""The only place of the room that reads a clock; everything else is given one."""

from __future__ import annotations

import time
from typing import Protocol

TRUST_FLOOR_MS = 1_767_225_600_000
"""2026-01-01: a wall clock before this product existed has not been set yet (1970 at boot)."""

STEADY_MS = 3_600_000
"""A wall clock that has kept step with the monotonic one for this long may decide that a packet is too old."""
STEP_MS = 60_000
"""What counts as a jump: clocks are slewed by far less, and set right by more."""


class Clock(Protocol):
    """Wall time for stamps, monotonic time for waiting. A test moves both by hand."""

    def now_ms(self) -> int:
        """Unix epoch milliseconds as the device believes them."""
        ...

    def mono_ms(self) -> int:
        """Milliseconds that never jump; the zero is arbitrary."""
        ...

    def trusted(self) -> bool:
        """Whether the wall clock was ever set."""
        ...


class StepWatch:
    """For how long the wall clock has not jumped: a glitch of a year must not make 15 days of packets look old."""

    def __init__(self) -> None:
        self._ahead_ms: int | None = None
        self._since_ms = 0

    def steady(self, now_ms: int, mono_ms: int) -> bool:
        """Whether it has run without a jump for ``STEADY_MS``, as far as this process has seen."""
        if self._ahead_ms is None or abs(now_ms - mono_ms - self._ahead_ms) > STEP_MS:
            self._ahead_ms, self._since_ms = now_ms - mono_ms, mono_ms
        return mono_ms - self._since_ms >= STEADY_MS


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def mono_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def trusted(self) -> bool:
        return self.now_ms() >= TRUST_FLOOR_MS


class ManualClock:
    """A clock that moves when told; for tests and for simulations faster than life."""

    def __init__(self, now_ms: int = 1_790_000_000_000) -> None:
        self.wall_ms = now_ms
        self.monotonic_ms = 0
        self.is_trusted = True

    def now_ms(self) -> int:
        return self.wall_ms

    def mono_ms(self) -> int:
        return self.monotonic_ms

    def trusted(self) -> bool:
        return self.is_trusted

    def advance(self, by_ms: int) -> None:
        """Let ``by_ms`` pass on both clocks."""
        self.wall_ms += by_ms
        self.monotonic_ms += by_ms

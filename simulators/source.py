"""A simulated machine as a source of the real agent: it lives by the agent's clock and is asked like any sensor."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from edge_agent.sources.base import Reading
from simulators.machine import STEP_MS, Machine

CATCH_UP_MS: Final = 5_000
"""A process that was held up longer than this has missed samples, as a real one would; they are not made up later."""
ROUND_ITEMS: Final = 6
"""Digits after the point that a snapshot keeps."""


class SimulatedSource:
    """Steps a machine up to now and reads the sensors that are due, on a grid of wall time."""

    can_wait = False

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._at_ms = 0
        self._ended = False
        periods = sorted({channel.every_ms for channel in machine.channels})
        self._groups = [
            (every_ms, tuple(channel.signal for channel in machine.channels if channel.every_ms == every_ms))
            for every_ms in periods
        ]
        self.missed_ms = 0
        """Time that passed without samples because nobody asked."""

    @property
    def cursor(self) -> str | None:
        """Odometer, fuel, temperatures and place, so that a restarted device goes on with the same machine."""
        return json.dumps([round(value, ROUND_ITEMS) for value in self._machine.snapshot()], separators=(",", ":"))

    @property
    def finished(self) -> bool:
        return self._ended

    def seek(self, cursor: str) -> None:
        self._machine.restore(json.loads(cursor))

    def end(self) -> None:
        """Switch the machine off: nothing more is measured, and the agent sees a finished source."""
        self._ended = True

    def read(self, now_ms: int, limit: int) -> Sequence[Reading]:
        if self._ended:
            return ()
        now_ms -= now_ms % STEP_MS
        if self._at_ms == 0 or now_ms < self._at_ms - CATCH_UP_MS:
            self._at_ms = now_ms - STEP_MS
        if now_ms - self._at_ms > CATCH_UP_MS:
            self.missed_ms += now_ms - STEP_MS - self._at_ms
            self._at_ms = now_ms - STEP_MS
        readings: list[Reading] = []
        while self._at_ms < now_ms and len(readings) < limit:
            self._at_ms += STEP_MS
            self._machine.step(self._at_ms)
            self._look(readings)
        return readings

    def close(self) -> None:
        self._ended = True

    def _look(self, readings: list[Reading]) -> None:
        at_ms = self._at_ms
        due = [signal for every_ms, signals in self._groups if at_ms % every_ms == 0 for signal in signals]
        if due:
            values = self._machine.measure(due)
            readings += [Reading(s, at_ms, v) for s, v in zip(due, values, strict=True) if v is not None]

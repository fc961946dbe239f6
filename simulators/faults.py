"""Faults that machines develop, by name: a healthy machine whose sensor drifts away from some moment on.

Labelled by their parameters: since when, how fast, how far. The rest of the machine does not know of it, so what a
detector finds is the drift itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from simulators.errors import PlanError
from simulators.machine import Channel, Machine


@dataclass(frozen=True, slots=True)
class Drift:
    """``signal`` gains ``per_s`` units each second, from ``after_s`` of the machine's life on, up to ``at_most``."""

    signal: int
    after_s: float
    per_s: float
    at_most: float

    def after(self, seconds: float) -> float:
        """What is added at this age of the machine."""
        grown = self.per_s * max(0.0, seconds - self.after_s)
        return min(grown, self.at_most) if self.per_s > 0 else max(grown, self.at_most)


FAULTS: Final[Mapping[str, Drift]] = {
    "bearing": Drift(1011, after_s=20.0, per_s=1.0, at_most=90.0),  # a generator bearing seizes: kelvins
    "charging": Drift(50, after_s=10.0, per_s=-0.2, at_most=-2.6),  # an alternator dies: volts
    "coolant": Drift(21, after_s=30.0, per_s=0.8, at_most=70.0),  # coolant is lost: kelvins
}


class Faulty:
    """A machine with a fault; otherwise the machine itself."""

    def __init__(self, machine: Machine, fault: str) -> None:
        """Raises PlanError for a fault that is not on the menu."""
        if fault not in FAULTS:
            raise PlanError(f"there is no fault named {fault!r}; choose one of {', '.join(FAULTS)}")
        self._machine = machine
        self._drift = FAULTS[fault]
        self._begun_ms: int | None = None
        self._now_ms = 0

    @property
    def channels(self) -> Sequence[Channel]:
        return self._machine.channels

    def step(self, at_ms: int) -> None:
        self._begun_ms = at_ms if self._begun_ms is None else self._begun_ms
        self._now_ms = at_ms
        self._machine.step(at_ms)

    def measure(self, signals: Iterable[int]) -> list[float | None]:
        asked = list(signals)
        added = self._drift.after((self._now_ms - (self._begun_ms or self._now_ms)) / 1_000)
        return [
            value + added if signal == self._drift.signal and value is not None else value
            for signal, value in zip(asked, self._machine.measure(asked), strict=True)
        ]

    def snapshot(self) -> list[float]:
        return self._machine.snapshot()

    def restore(self, state: list[float]) -> None:
        self._machine.restore(state)

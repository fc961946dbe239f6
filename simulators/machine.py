"""What every simulated machine promises: it lives in fixed steps and tells what its sensors see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

STEP_MS: Final = 100
"""Length of one step of every machine's physics."""


class Channel(NamedTuple):
    """A signal (catalogue number) and how often its sensor is read; ``every_ms`` is a multiple of STEP_MS."""

    signal: int
    every_ms: int


class Machine(Protocol):
    """A car, a turbine: deterministic given its seed and its steps."""

    @property
    def channels(self) -> Sequence[Channel]:
        """What can be measured; literal, in a fixed order."""
        ...

    def step(self, at_ms: int) -> None:
        """Live through the STEP_MS that end at wall time ``at_ms`` (traffic lights follow it)."""
        ...

    def measure(self, signals: Iterable[int]) -> list[float | None]:
        """The sensors' values now, each in its signal's unit; None where there is nothing to say."""
        ...

    def snapshot(self) -> list[float]:
        """What must survive a restart: counters, stores, temperatures."""
        ...

    def restore(self, state: list[float]) -> None:
        """Continue a life from what ``snapshot`` gave."""
        ...

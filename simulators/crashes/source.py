"""A crash that happens to a real agent: one scenario, played once on the device's monotonic clock.

``CrashDrive`` is both of what an agent asks: the crash source of its recorder (accelerometer, channels, restraints at
their own rates) and an ordinary source of readings once a second (speed, pedal, engine, position).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from contracts.signals import catalogue
from edge_agent.recorder.feed import Sample
from edge_agent.sources import Reading
from simulators.crashes.scenarios import END_S, IMPACT_S, Scenario
from simulators.crashes.sensor import Sensor, channel_values, readings

POSITION: Final = (49.0117, 8.4044)
"""Where every simulated crash happens: degrees, WGS 84."""

READING_STEP_MS: Final = 1_000
PATHS: Final = {
    "Vehicle.Speed": "speed",
    "Vehicle.Chassis.Accelerator.PedalPosition": "accelerator",
    "Vehicle.Powertrain.CombustionEngine.Speed": "engine_rpm",
}


class CrashDrive:
    """One drive. ``begins_ms`` is the monotonic instant at which it begins, ``wall_ms`` the wall clock's then.

    ``skip_s`` leaves out the beginning: an agent that need not learn its sensor's zero meets the crash sooner.
    """

    can_wait = False
    cursor: str | None = None

    def __init__(
        self, scenario: Scenario, sensor: Sensor, seed: int, begins_ms: int, wall_ms: int, skip_s: float = 0.0
    ) -> None:
        self._scenario = scenario
        self._skip_us = round(skip_s * 1e6)
        self._shift_us = begins_ms * 1_000 - self._skip_us
        self._wall_ms = wall_ms
        self._stream = self._samples(sensor, seed)
        self._next: Sample | None = next(self._stream, None)
        self._told = 0

    @property
    def finished(self) -> bool:
        """Never: a vehicle that has crashed still stands there; the agent is stopped from outside."""
        return False

    @property
    def over(self) -> bool:
        """Whether all samples of the scenario were taken."""
        return self._next is None

    @property
    def impact_ms(self) -> int:
        """When the pulse begins, on the monotonic clock."""
        return round(IMPACT_S * 1_000) + self._shift_us // 1_000

    def seek(self, cursor: str) -> None:
        """A vehicle has no past to go back to."""

    def samples(self, mono_us: int, limit: int) -> Sequence[Sample]:
        """What the recorder's own sensors saw up to ``mono_us``."""
        return list(islice(self._due(mono_us), limit))

    def read(self, now_ms: int, limit: int) -> Sequence[Reading]:
        """Ordinary readings up to ``now_ms``, once a second."""
        due = min(limit, (now_ms - self._wall_ms) // READING_STEP_MS - self._told)
        told: list[Reading] = []
        for number in range(self._told, self._told + max(0, due)):
            told += self._readings(number * READING_STEP_MS)
        self._told += max(0, due)
        return told

    def close(self) -> None:
        """Holds nothing open."""

    def _samples(self, sensor: Sensor, seed: int) -> Iterator[Sample]:
        for reading in readings(self._scenario, sensor, seed, END_S, self._skip_us / 1e6):
            yield Sample(reading.at_us + self._shift_us, reading.name, reading.value)

    def _due(self, mono_us: int) -> Iterator[Sample]:
        while self._next is not None and self._next.at_us <= mono_us:
            taken, self._next = self._next, None
            self._next = next(self._stream, None)
            yield taken

    def _readings(self, after_ms: int) -> Iterator[Reading]:
        at_ms, signals = self._wall_ms + after_ms, catalogue()
        at_s = min(END_S, (after_ms * 1_000 + self._skip_us) / 1e6)
        values = channel_values(self._scenario, at_s)
        for path, name in PATHS.items():
            value = values[name]
            if isinstance(value, float | int):
                yield Reading(signals.by_path(path).number, at_ms, float(value))
        for path, degrees in zip(("Latitude", "Longitude"), POSITION, strict=True):
            yield Reading(signals.by_path(f"Vehicle.CurrentLocation.{path}").number, at_ms, degrees)

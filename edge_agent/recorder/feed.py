"""What the recorder feeds on: a crash source at its own rate, and the ordinary readings that mean something to it.

A crash source (accelerometer, restraint bus) stamps with the device's monotonic microseconds, the clock that the agent
names when it asks. Ordinary readings carry wall-clock milliseconds; their age is what places them on the monotonic
clock, so a wall clock that jumps between two readings moves a sample by at most ``MAX_AGE_US``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from contracts.packet import FIRST_BAD_QUALITY
from contracts.signals import Catalogue
from edge_agent.recorder.rings import Reading as ChannelValue
from edge_agent.sources.base import Reading

MOTION: Final = "motion"
RESTRAINT: Final = "restraint:"
MAX_AGE_US: Final = 2_000_000
"""An ordinary reading older than this is history, not the vehicle's present state: the recorder does not take it."""

Vector = tuple[float, float, float]


class Sample(NamedTuple):
    """One thing seen: ``name`` is "motion" (sensor axes, m/s²), a channel, or "restraint:<name>"."""

    at_us: int
    name: str
    value: ChannelValue | Vector


class CrashSource(Protocol):
    """Supplies samples in the order of time; asked in every tick, answers at once, never blocks."""

    def samples(self, mono_us: int, limit: int) -> Sequence[Sample]:
        """What was seen up to ``mono_us``, at most about ``limit`` (the rest at the next call)."""
        ...


class Place(NamedTuple):
    """The newest position: degrees (WGS 84) and the event time of its younger half, Unix epoch milliseconds."""

    latitude: float
    longitude: float
    at_ms: int


def _number(value: float) -> ChannelValue:
    return float(value)


def _negative(value: float) -> ChannelValue:
    return -float(value)


def _on_off(value: float) -> ChannelValue:
    return "on" if value else "off"


CHANNELS: Final[Mapping[str, tuple[str, Callable[[float], ChannelValue]]]] = {
    "Vehicle.Speed": ("speed", _number),
    "Vehicle.Chassis.Accelerator.PedalPosition": ("accelerator", _number),
    "Vehicle.Powertrain.CombustionEngine.TPS": ("throttle", _number),
    "Vehicle.Powertrain.CombustionEngine.Speed": ("engine_rpm", _number),
    "Vehicle.Chassis.Brake.PedalPosition": ("service_brake", _on_off),
    "Vehicle.Chassis.SteeringWheel.Angle": ("steering", _number),
    # ISO 8855 counts yaw to the left, the record to the right
    "Vehicle.AngularVelocity.Yaw": ("yaw_rate", _negative),
    "Vehicle.ADAS.ABS.IsEngaged": ("abs_activity", _on_off),
    "Vehicle.ADAS.ESC.IsEngaged": ("stability_control", _on_off),
    "Vehicle.Chassis.ParkingBrake.IsEngaged": ("parking_brake", _on_off),
    "Vehicle.Cabin.Seat.Row1.DriverSide.IsBelted": ("belt_driver", _on_off),
}
AIRBAGS: Final[Mapping[str, str]] = {
    "Vehicle.Cabin.Seat.Row1.DriverSide.Airbag.IsDeployed": "frontal_airbag_time_driver"
}
LATITUDE: Final = "Vehicle.CurrentLocation.Latitude"
LONGITUDE: Final = "Vehicle.CurrentLocation.Longitude"


class ReadingTap:
    """Ordinary readings as samples; remembers the newest position and which air bags were told as deployed."""

    def __init__(self, signals: Catalogue) -> None:
        self._channels = {signals.by_path(path).number: row for path, row in CHANNELS.items()}
        self._airbags = {signals.by_path(path).number: name for path, name in AIRBAGS.items()}
        self._latitude, self._longitude = signals.by_path(LATITUDE).number, signals.by_path(LONGITUDE).number
        self._half: dict[int, Reading] = {}
        self._deployed: dict[str, bool] = {}
        self._owned: set[str] = set()

    def own(self, name: str) -> None:
        """The crash source supplies this channel: ordinary readings of it are not taken any more."""
        self._owned.add(name)

    def samples(self, readings: Iterable[Reading], now_ms: int, mono_us: int) -> Iterator[Sample]:
        """Those readings that mean something to the recorder, in the order in which they were read.

        A bad reading, or one that is no number, says that its channel is unknown: the value before it is over.
        """
        for reading in readings:
            known = reading.quality < FIRST_BAD_QUALITY and math.isfinite(reading.value)
            age_us = max(0, (now_ms - reading.at_ms) * 1_000)
            if reading.signal in (self._latitude, self._longitude):
                if known:
                    self._half[reading.signal] = reading
            elif age_us <= MAX_AGE_US:
                yield from self._sample(reading, known, mono_us - age_us)

    def place(self) -> Place | None:
        """Where the device was last known to be."""
        latitude, longitude = self._half.get(self._latitude), self._half.get(self._longitude)
        if latitude is None or longitude is None:
            return None
        return Place(latitude.value, longitude.value, max(latitude.at_ms, longitude.at_ms))

    def _sample(self, reading: Reading, known: bool, at_us: int) -> Iterator[Sample]:
        channel = self._channels.get(reading.signal)
        if channel is not None and channel[0] not in self._owned:
            yield Sample(at_us, channel[0], channel[1](reading.value) if known else None)
        airbag = self._airbags.get(reading.signal)
        if airbag is not None and known:
            # only a change seen by us is a command: a bag that was open when we started fired before our time
            fired = bool(reading.value) and self._deployed.get(airbag) is False
            self._deployed[airbag] = bool(reading.value)
            if fired:
                yield Sample(at_us, RESTRAINT + airbag, None)

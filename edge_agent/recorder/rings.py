"""Ring buffers: the last seconds of every channel and of motion, in bounded memory, searchable by time."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

Reading = float | str | None
"""A channel's value: a number in the profile's unit, a state's name, or None: the source says "unknown"."""


class ChannelRing:
    """Timestamped values of one channel; keeps between ``capacity`` and twice that, newest last.

    Samples closer together than ``min_gap_us`` are dropped unless the value is a state that changed.
    """

    def __init__(self, capacity: int, min_gap_us: int) -> None:
        self._capacity = capacity
        self._min_gap_us = min_gap_us
        self._times: list[int] = []
        self._values: list[Reading] = []

    def __len__(self) -> int:
        return len(self._times)

    def add(self, at_us: int, value: Reading) -> None:
        """Remembers a value; one that is older than the newest is ignored (the clock is monotonic)."""
        times = self._times
        if times:
            gap = at_us - times[-1]
            changed_state = not isinstance(value, float) and value != self._values[-1]
            if gap <= 0 or (gap < self._min_gap_us and not changed_state):
                return
        times.append(at_us)
        self._values.append(value)
        if len(times) >= 2 * self._capacity:
            del times[: self._capacity]
            del self._values[: self._capacity]

    def at(self, at_us: int) -> tuple[int, Reading] | None:
        """The newest value not younger than ``at_us``, with its time; None when there is none."""
        index = bisect_right(self._times, at_us) - 1
        return None if index < 0 else (self._times[index], self._values[index])

    def first(self, from_us: int, to_us: int) -> int | None:
        """When the first value within the interval was taken; None when there is none."""
        index = bisect_left(self._times, from_us)
        return self._times[index] if index < len(self._times) and self._times[index] <= to_us else None

    def nearest(self, at_us: int, max_age_us: int, max_ahead_us: int) -> Reading:
        """The value taken closest to ``at_us``, at most so much older or younger; None when there is none."""
        index = bisect_left(self._times, at_us)
        best: Reading = None
        best_distance = max_age_us + 1
        if index > 0:
            best, best_distance = self._values[index - 1], at_us - self._times[index - 1]
        if index < len(self._times):
            ahead = self._times[index] - at_us
            if ahead <= max_ahead_us and ahead < best_distance:
                return self._values[index]
        return best if best_distance <= max_age_us else None


@dataclass(frozen=True, slots=True)
class Motion:
    """A stretch of motion in the record's axes: m/s², and whether each axis' sensor was at its limit (bits 1, 2, 4)."""

    times_us: array[int]
    axes: tuple[array[float], array[float], array[float]]
    limits: array[int]


class MotionRing:
    """Acceleration samples in the record's axes; keeps between ``capacity`` and twice that, newest last."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._times = array("q")
        self._axes = (array("d"), array("d"), array("d"))
        self._limits = array("B")

    def __len__(self) -> int:
        return len(self._times)

    def add(self, at_us: int, x: float, y: float, z: float, limits: int) -> None:
        """Remembers one sample, later than every one before it."""
        self._times.append(at_us)
        self._axes[0].append(x)
        self._axes[1].append(y)
        self._axes[2].append(z)
        self._limits.append(limits)
        if len(self._times) >= 2 * self._capacity:
            for column in (self._times, *self._axes, self._limits):
                del column[: self._capacity]

    def between(self, from_us: int, to_us: int) -> Motion:
        """The samples from ``from_us`` up to and including ``to_us``."""
        first, last = bisect_left(self._times, from_us), bisect_right(self._times, to_us)
        x, y, z = (axis[first:last] for axis in self._axes)
        return Motion(self._times[first:last], (x, y, z), self._limits[first:last])

"""From rings to record: fills every element of the profile for one event, or says that it is not available. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from contracts.edr.elements import Element
from contracts.edr.profiles import Profile
from contracts.edr.record import ElementValue
from edge_agent.recorder.axes import KMH_PER_MPS, STANDARD_GRAVITY_MPS2
from edge_agent.recorder.detector import SPEED_RULES, Event
from edge_agent.recorder.filters import cfc60
from edge_agent.recorder.rings import ChannelRing, Motion, MotionRing, Reading

AFTER_END_US: Final = 30_000
"""Crash data run to the end of the event and 30 ms beyond, if that is earlier than the table's interval."""

LONGEST_CURVE_US: Final = 400_000
"""Velocity change is wanted for 300 ms at most; a little more lets the last value be interpolated."""

BRIDGED_STEPS: Final = 2.5
"""One lost motion sample is bridged by a straight line; two in a row are a gap, and nothing is made up for it."""

FILTER_MARGIN_US: Final = 40_000
SLOW_RATE_HZ: Final = 20
"""Acceleration asked for at this rate or slower comes from the block means that are kept as channels."""

SAME_STATE: Final = {
    ("abs_activity", "engaged"): "on",
    ("abs_activity", "non_engaged"): "off",
    ("abs_activity", "on"): "engaged",
    ("abs_activity", "off"): "non_engaged",
}
"""What one regulation calls on and another engaged. A state unknown to a table is not available, never guessed."""

AXES: Final = ("x", "y", "z")
COMPLETE_FEED: Final = "event:complete"
TIMES_US: Final = 1_000


@dataclass(frozen=True, slots=True)
class Memory:
    """Everything that the recorder remembers when an event is written down. Restraints: name -> command time."""

    channels: Mapping[str, ChannelRing]
    motion: MotionRing
    motion_step_us: int
    restraints: Mapping[str, int]
    record_lateral: bool
    stale_after_us: int
    state_stale_after_us: int
    ignition_cycle: int
    event_number: int
    since_previous_us: int | None
    complete: bool


@dataclass(frozen=True, slots=True)
class _Curves:
    """Velocity change since time zero (km/h) along x and y at the motion samples, and when each sensor saturated.

    The curves end where motion was first not seen for longer than ``bridged_us``: from there on nobody knows.
    """

    after_us: list[int]
    change: dict[str, list[float]]
    saturated_ms: dict[str, int | None]
    bridged_us: int


@dataclass(frozen=True, slots=True)
class Assembled:
    """The recorded elements, in the profile's order, the names of those not available, and whether all is there."""

    elements: tuple[ElementValue, ...]
    missing: tuple[str, ...]
    complete: bool


def elements_of(profile: Profile, event: Event, memory: Memory) -> Assembled:
    """Fills every element of the profile; "complete file recorded" comes last, as its definition says."""
    filler = _Filler(event, memory)
    values = {
        element.name: filler.fill(element)
        for element in sorted(profile.elements, key=lambda element: element.feed == COMPLETE_FEED)
    }
    recorded = [value for element in profile.elements if (value := values[element.name]) is not None]
    return Assembled(tuple(recorded), tuple(name for name in _names(profile) if values[name] is None), filler.whole)


def _names(profile: Profile) -> list[str]:
    return [element.name for element in profile.elements]


_Piece = tuple[list[int], list[float]]
"""Instants and values without a gap."""


class _Filler:
    """One event's answers, by the first word of an element's feed."""

    def __init__(self, event: Event, memory: Memory) -> None:
        self._event = event
        self._memory = memory
        self._zero_us = event.time_zero_us
        self.whole = memory.complete
        self._curves = _curves(memory.motion, event.time_zero_us, memory.motion_step_us)
        self._fillers: dict[str, Callable[[Element, str], ElementValue | None]] = {
            "delta_v": self._delta_v,
            "max_delta_v": self._max_delta_v,
            "time_max_delta_v": self._time_max_delta_v,
            "acceleration": self._acceleration,
            "pre_acceleration": self._pre_acceleration,
            "saturated": self._saturated,
            "channel": self._channel,
            "flag": self._channel,
            "restraint": self._restraint,
            "counter": self._counter,
            "event": self._about_event,
        }

    def fill(self, element: Element) -> ElementValue | None:
        """One element's answer. One that cannot be worked out is missing, and the record then is not complete."""
        word, argument = element.feed.split(":", 1)
        try:
            return self._fillers[word](element, argument)
        except (ArithmeticError, ValueError, LookupError):
            self.whole = False
            return None

    def _span_us(self, element: Element) -> int:
        """How long after time zero this element's crash data run."""
        span_us = (element.to_ms or 0) * TIMES_US
        if element.ends_with_event and self._event.end_us is not None:
            return min(span_us, self._event.end_us - self._zero_us + AFTER_END_US)
        return span_us

    def _has_motion(self, argument: str) -> bool:
        """Whether there is a source for this axis at all; what of its data is missing then counts as missing."""
        lateral_needed = argument not in ("x", "z")
        return len(self._memory.motion) > 0 and (self._memory.record_lateral or not lateral_needed)

    def _motion_missing(self) -> None:
        """Motion of the event was not seen; an event that the speed triggered does not need it."""
        self.whole = self.whole and self._event.rule in SPEED_RULES

    def _delta_v(self, element: Element, axis: str) -> ElementValue | None:
        if not self._has_motion(axis):
            return None
        values: list[float | None] = []
        for after_us in range(0, self._span_us(element) + 1, element.step_us):
            values.append(_between(self._curves.after_us, self._curves.change[axis], after_us))
        if values[-1] is None:
            self._motion_missing()
        if len(self._curves.after_us) < 2:
            return None  # the zero at time zero is a definition, not something seen
        return _series(element, values, 0, element.step_us, self._curves.saturated_ms[axis])

    def _peak(self, element: Element, axis: str) -> tuple[float, int] | None:
        if not self._has_motion(axis):
            return None
        span_us = self._span_us(element)
        if self._curves.after_us[-1] < span_us - self._curves.bridged_us:
            self._motion_missing()  # the largest may lie where nothing was seen
            return None
        changes = self._curves.change[axis]
        within = [index for index, after_us in enumerate(self._curves.after_us) if after_us <= span_us]
        best = max(within, key=lambda index: abs(changes[index]))
        return changes[best], self._curves.after_us[best]

    def _max_delta_v(self, element: Element, argument: str) -> ElementValue | None:
        peak = self._peak(element, argument.removesuffix("_squared"))
        if peak is None:
            return None
        value = peak[0] ** 2 if argument.endswith("_squared") else peak[0]
        return _single(element, value, self._saturation(argument.removesuffix("_squared")))

    def _time_max_delta_v(self, element: Element, axis: str) -> ElementValue | None:
        peak = self._peak(element, axis)
        return None if peak is None else _single(element, peak[1] / TIMES_US, self._saturation(axis))

    def _saturation(self, axis: str) -> int | None:
        if axis in self._curves.saturated_ms:
            return self._curves.saturated_ms[axis]
        times = [ms for ms in (self._curves.saturated_ms["x"], self._curves.saturated_ms["y"]) if ms is not None]
        return min(times, default=None)

    def _acceleration(self, element: Element, axis: str) -> ElementValue | None:
        if element.rate_hz is not None and element.rate_hz <= SLOW_RATE_HZ:
            return self._pre_acceleration(element, axis)
        if not self._has_motion(axis):
            return None
        step_us = max(element.step_us, self._memory.motion_step_us)
        from_us, to_us = (element.from_ms or 0) * TIMES_US, self._span_us(element)
        stretch = self._memory.motion.between(
            self._zero_us + from_us - FILTER_MARGIN_US, self._zero_us + to_us + FILTER_MARGIN_US
        )
        pieces = self._smooth_pieces(stretch, AXES.index(axis))
        first = -(-from_us // step_us)
        values = [_in_pieces(pieces, index * step_us) for index in range(first, to_us // step_us + 1)]
        if None in values:
            self._motion_missing()
        in_g = [None if value is None else value / STANDARD_GRAVITY_MPS2 for value in values]
        return _series(element, in_g, first, step_us, self._curves.saturated_ms[axis])

    def _smooth_pieces(self, stretch: Motion, axis: int) -> list[_Piece]:
        """The filtered samples between one gap and the next: a filter across a gap would smear what was not seen."""
        times = [at_us - self._zero_us for at_us in stretch.times_us]
        pieces, begin = [], 0
        for index in range(1, len(times) + 1):
            if index == len(times) or times[index] - times[index - 1] > self._curves.bridged_us:
                smooth = cfc60(stretch.axes[axis][begin:index], self._memory.motion_step_us)
                pieces.append((times[begin:index], smooth))
                begin = index
        return pieces

    def _pre_acceleration(self, element: Element, axis: str) -> ElementValue | None:
        """From the block means; the element says since when, within its interval, the sensor stood at its limit."""
        value, limits = (
            self._from_channel(element, f"acceleration_{axis}_g"),
            self._memory.channels.get(f"limit_{axis}"),
        )
        if value is None or limits is None or element.from_ms is None or element.to_ms is None:
            return value
        from_us, to_us = (self._zero_us + ms * TIMES_US for ms in (element.from_ms, element.to_ms))
        since_us = limits.first(from_us, to_us)
        return value if since_us is None else replace(value, saturated_from_ms=(since_us - self._zero_us) // TIMES_US)

    def _saturated(self, element: Element, axis: str) -> ElementValue | None:
        since_ms = self._curves.saturated_ms[axis]
        return None if since_ms is None else _single(element, float(since_ms), None)

    def _channel(self, element: Element, name: str) -> ElementValue | None:
        if element.kind in ("series", "state_series"):
            return self._from_channel(element, name)
        ring = self._memory.channels.get(name)
        if ring is None:
            return None
        # -1.0 s, or the interval's end where the table asks for what came of it
        at_ms = -1_000 if element.to_ms == 0 else element.to_ms or 0
        at_us = self._zero_us + at_ms * TIMES_US
        newest = ring.at(at_us)
        fresh = newest is not None and at_us - newest[0] <= self._memory.state_stale_after_us
        value = newest[1] if newest is not None and fresh else None
        return None if value is None else _single(element, value, None)

    def _from_channel(self, element: Element, name: str) -> ElementValue | None:
        ring = self._memory.channels.get(name)
        if ring is None or element.from_ms is None or element.to_ms is None:
            return None
        step_us = element.step_us
        first, last = element.from_ms * TIMES_US // step_us, element.to_ms * TIMES_US // step_us
        values: list[Reading] = []
        for index in range(first, last + 1):
            at_us = self._zero_us + index * step_us
            ahead_us = min(step_us // 2, 50_000)
            if index <= 0:  # a pre-crash sample is never one of the crash
                ahead_us = min(ahead_us, -index * step_us)
            values.append(ring.nearest(at_us, self._memory.stale_after_us, ahead_us))
        return _series(element, values, first, step_us, None)

    def _restraint(self, element: Element, name: str) -> ElementValue | None:
        commanded_us = self._memory.restraints.get(name)
        return None if commanded_us is None else _single(element, (commanded_us - self._zero_us) / TIMES_US, None)

    def _counter(self, element: Element, name: str) -> ElementValue | None:
        if name != "ignition_cycle_crash":
            return None  # the cycle at download is known only then: the export's manifest carries it
        return _single(element, float(self._memory.ignition_cycle), None)

    def _about_event(self, element: Element, what: str) -> ElementValue | None:
        event, memory = self._event, self._memory
        answers: dict[str, Reading] = {
            "number": float(memory.event_number),
            "time_from_previous": None if memory.since_previous_us is None else memory.since_previous_us / 1e6,
            "complete": "yes" if self.whole else "no",
            "end": None if event.end_us is None else (event.end_us - event.time_zero_us) / TIMES_US,
            "trigger": event.trigger,
        }
        answer = answers[what]
        return None if answer is None else _single(element, answer, None)


def _curves(ring: MotionRing, zero_us: int, step_us: int) -> _Curves:
    stretch: Motion = ring.between(zero_us - round(BRIDGED_STEPS * step_us), zero_us + LONGEST_CURVE_US)
    sampled = [at_us - zero_us for at_us in stretch.times_us]
    first = next((index for index, after in enumerate(sampled) if after > 0), len(sampled))
    # a source that is slower than its setting has longer steps, not one gap after the other
    steps = sorted(later - earlier for earlier, later in pairwise(sampled))
    bridged_us = round(BRIDGED_STEPS * max([step_us, *steps[len(steps) // 2 :][:1]]))
    last = first
    while last < len(sampled) and sampled[last] - (sampled[last - 1] if last else 0) <= bridged_us:
        last += 1
    after_us = [0, *sampled[first:last]]
    change = {}
    for axis, samples in zip(AXES, stretch.axes, strict=True):
        at_zero = _between(sampled, samples, 0)
        start = samples[0] if at_zero is None and samples else at_zero or 0.0
        change[axis] = _integral(after_us, [start, *samples[first:last]])
    change["resultant"] = [math.hypot(x, y) for x, y in zip(change["x"], change["y"], strict=True)]
    saturated: dict[str, int | None] = {}
    for index, axis in enumerate(AXES):
        at_limit = (after for after, limits in zip(sampled, stretch.limits, strict=True) if limits >> index & 1)
        since_us = next((after for after in at_limit if after >= 0), None)
        saturated[axis] = None if since_us is None else since_us // TIMES_US
    return _Curves(after_us, change, saturated, bridged_us)


def _in_pieces(pieces: Sequence[_Piece], at_us: int) -> float | None:
    return next((value for times, smooth in pieces if (value := _between(times, smooth, at_us)) is not None), None)


def _integral(after_us: list[int], acceleration: Sequence[float]) -> list[float]:
    total, out = 0.0, [0.0] * min(1, len(after_us))
    for index in range(1, len(after_us)):
        step_s = (after_us[index] - after_us[index - 1]) / 1e6
        total += (acceleration[index] + acceleration[index - 1]) / 2 * step_s * KMH_PER_MPS
        out.append(total)
    return out


def _between(times_us: Sequence[int], values: Sequence[float], at_us: int) -> float | None:
    """The value at ``at_us`` on the line between its neighbours; None outside what was sampled."""
    if not times_us or not times_us[0] <= at_us <= times_us[-1]:
        return None
    index = bisect_left(times_us, at_us)
    if times_us[index] == at_us:
        return values[index]
    share = (at_us - times_us[index - 1]) / (times_us[index] - times_us[index - 1])
    return values[index - 1] + share * (values[index] - values[index - 1])


def _steps(element: Element, value: Reading) -> tuple[int | None, bool]:
    """A reading as the integer to record, and whether the table's range clamped it."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None, False
    if isinstance(value, str):
        state = value if value in element.states else SAME_STATE.get((element.name, value), "")
        return (element.to_state(state), False) if state in element.states else (None, False)
    steps = element.to_steps(value)
    return steps, abs(element.from_steps(steps) - value) > 0.501 * float(element.resolution)


def _series(
    element: Element, values: Sequence[Reading], first: int, step_us: int, saturated_ms: int | None
) -> ElementValue | None:
    recorded = [_steps(element, value) for value in values]
    if all(steps is None for steps, _ in recorded):
        return None
    return ElementValue(
        name=element.name,
        values=tuple(steps for steps, _ in recorded),
        first=first,
        step_us=step_us,
        saturated_from_ms=saturated_ms,
        clamped=any(clamped for _, clamped in recorded),
    )


def _single(element: Element, value: Reading, saturated_ms: int | None) -> ElementValue | None:
    steps, clamped = _steps(element, value)
    if steps is None:
        return None
    return ElementValue(element.name, (steps,), saturated_from_ms=saturated_ms, clamped=clamped)

"""Compares one record with the truth of its scenario, element by element, within the table's accuracy.

A recorded integer cannot be nearer than half its resolution, so that half is granted beside the accuracy. Pre-crash
samples are asynchronous: one that stands for an instant may be a tenth of a second off it (footnote 1 allows a second).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from contracts.edr.elements import Element
from contracts.edr.profiles import Profile
from contracts.edr.record import ElementValue, EventRecord
from simulators.crashes.felt import channel_truth, felt_g, first_saturation_s
from simulators.crashes.scenarios import IMPACT_S, SCENARIOS, Scenario
from simulators.crashes.sensor import Sensor
from simulators.crashes.truth import TrueEvent, change_kmh, largest_change_kmh

ASYNCHRONOUS_S = 0.1
FILTER_S = 0.006
"""The class 60 filter's reach: an edge of the pulse is smeared this far."""


OVERSHOOT = 0.1
"""The share of a sudden step by which a Butterworth filter of this class rings beyond it (8 % on paper)."""

TAIL = 0.02
TAIL_S = 0.012
"""What is left of that ringing until here; an edge further away is forgotten (below half a percent)."""

GRID_HZ = 200
ENGAGED = {"engaged": "on", "non_engaged": "off"}
"""What one table calls engaged, another calls on; a table that has both means different things by them."""


@cache
def saturation_s(scenario: Scenario, sensor: Sensor, axis: str, zero_s: float) -> float | None:
    return first_saturation_s(scenario, sensor, axis, zero_s, zero_s + 0.4)


@cache
def channel_at(scenario: str, name: str, index: int) -> float | str | None:
    return channel_truth(SCENARIOS[scenario], name, index / GRID_HZ)


@cache
def acceleration_at(scenario: str, axis: str, at_ms: int) -> float:
    return felt_g(SCENARIOS[scenario], axis, at_ms / 1_000)


def acceleration_range(scenario: str, axis: str, at_ms: int, reach_ms: int) -> tuple[float, float]:
    values = [acceleration_at(scenario, axis, moment) for moment in range(at_ms - reach_ms - 1, at_ms + reach_ms + 2)]
    return min(values), max(values)


@dataclass(frozen=True)
class Comparison:
    """One event's record beside its truth; ``check`` raises AssertionError naming the element.

    ``number``, ``since_s``: which event of its crash it is, and how long after the one before.
    """

    scenario: Scenario
    sensor: Sensor
    profile: Profile
    record: EventRecord
    truth: TrueEvent
    number: int = 1
    since_s: float | None = None

    def check(self, value: ElementValue) -> None:
        element = self.profile.element(value.name)
        word, argument = element.feed.split(":", 1)
        checks = {
            "delta_v": self._delta_v,
            "max_delta_v": self._max_delta_v,
            "time_max_delta_v": self._time_max_delta_v,
            "acceleration": self._series,
            "pre_acceleration": self._series,
            "saturated": self._saturated,
            "channel": self._channel,
            "restraint": self._restraint,
            "counter": self._counter,
            "event": self._event,
        }
        checks[word](element, argument, value)

    def _close(self, element: Element, steps: int | None, truth: float, what: str) -> None:
        assert steps is not None, f"{element.name} {what}: nothing recorded"
        allowed = element.accuracy.tolerance(truth, element.full_range) + float(element.resolution) / 2
        got = element.from_steps(steps)
        assert abs(got - truth) <= allowed + 1e-9, f"{element.name} {what}: {got} for {truth:.3f} ±{allowed:.3f}"

    def _within(self, element: Element, steps: int, low: float, high: float, what: str) -> None:
        slack = float(element.resolution) / 2
        low -= element.accuracy.tolerance(low, element.full_range) + slack
        high += element.accuracy.tolerance(high, element.full_range) + slack
        low, high = max(low, float(element.minimum) - slack), min(high, float(element.maximum) + slack)
        got = element.from_steps(steps)
        assert low - 1e-9 <= got <= high + 1e-9, f"{element.name} {what}: {got} outside {low:.3f}..{high:.3f}"

    def _span_s(self, element: Element) -> float:
        span_s = (element.to_ms or 0) / 1_000
        if element.ends_with_event and self.truth.end_s is not None:
            span_s = min(span_s, self.truth.end_s - self.truth.time_zero_s + 0.030)
        return span_s

    def _saturated_before(self, axes: str, after_s: float) -> bool:
        since = [saturation_s(self.scenario, self.sensor, axis, self.truth.time_zero_s) for axis in axes]
        return any(one is not None and one <= self.truth.time_zero_s + after_s for one in since)

    def _delta_v(self, element: Element, axis: str, value: ElementValue) -> None:
        zero = self.truth.time_zero_s
        expected = int(self._span_s(element) * 100) + 1
        assert abs(len(value.values) - expected) <= 1, f"{element.name}: {len(value.values)} values for {expected}"
        for index, steps in enumerate(value.values):
            after_s = index * value.step_us / 1e6
            if self._saturated_before(axis, after_s):
                assert value.saturated_from_ms is not None and value.saturated_from_ms <= after_s * 1_000 + 2
                return
            self._close(element, steps, change_kmh(self.scenario, axis, zero, zero + after_s), f"at {after_s:.3f} s")

    def _peak(self, element: Element, axis: str) -> tuple[float, float] | None:
        zero, span_s = self.truth.time_zero_s, self._span_s(element)
        if self._saturated_before("xy" if axis == "resultant" else axis, span_s):
            return None
        return largest_change_kmh(self.scenario, axis, zero, zero + span_s)

    def _max_delta_v(self, element: Element, argument: str, value: ElementValue) -> None:
        peak = self._peak(element, argument.removesuffix("_squared"))
        if peak is None:
            assert value.saturated_from_ms is not None
            return
        truth = peak[0] ** 2 if argument.endswith("_squared") else peak[0]
        self._close(element, value.values[0], truth, "peak")

    def _time_max_delta_v(self, element: Element, axis: str, value: ElementValue) -> None:
        peak = self._peak(element, axis)
        if peak is not None and abs(peak[0]) >= 1:  # below the resolution of delta-V there is no peak to time
            self._close(element, value.values[0], peak[1] * 1_000, "time")

    def _saturated(self, element: Element, axis: str, value: ElementValue) -> None:
        zero = self.truth.time_zero_s
        since_s = saturation_s(self.scenario, self.sensor, axis, zero)
        assert since_s is not None, f"{element.name}: the sensor never saturated"
        self._close(element, value.values[0], (since_s - zero) * 1_000, "time")

    def _series(self, element: Element, axis: str, value: ElementValue) -> None:
        slow = (element.rate_hz or 0) <= 20
        reach_s = ASYNCHRONOUS_S if slow else FILTER_S
        for index, steps in enumerate(value.values, value.first):
            after_s = index * value.step_us / 1e6
            if not slow and self._saturated_before(axis, max(0.0, after_s + reach_s)):
                return
            at_s = self.truth.time_zero_s + after_s
            low, high = acceleration_range(self.scenario.name, axis, round(at_s * 1_000), round(reach_s * 1_000))
            near, far = acceleration_range(self.scenario.name, axis, round(at_s * 1_000), round(TAIL_S * 1_000))
            ringing = max(OVERSHOOT * (high - low), TAIL * (far - near))
            low, high = low - ringing, high + ringing
            assert steps is not None, f"{element.name} at {after_s}: nothing recorded"
            if not (slow and self._saturated_before("xyz", max(0.0, after_s + reach_s))):
                self._within(element, steps, low, high, f"at {after_s:.3f} s")

    def _channel(self, element: Element, name: str, value: ElementValue) -> None:
        if element.kind == "state":
            assert value.values == (element.to_state("off" if name.endswith("lamp") else "on"),)
            return
        assert element.from_ms is not None and element.to_ms is not None
        count = (element.to_ms - element.from_ms) * 1_000 // value.step_us + 1
        assert (len(value.values), value.first) == (count, element.from_ms * 1_000 // value.step_us)
        for index, steps in enumerate(value.values, value.first):
            at_s = self.truth.time_zero_s + index * value.step_us / 1e6
            assert steps is not None, f"{element.name} at {at_s - IMPACT_S:.1f} s: nothing recorded"
            nearest = round(at_s * GRID_HZ)
            reach = round(ASYNCHRONOUS_S * GRID_HZ)
            truths = [channel_at(self.scenario.name, name, nearest + offset) for offset in range(-reach, reach + 1)]
            if element.kind == "state_series":
                said = element.states[steps]
                said = said if "on" in element.states else ENGAGED.get(said, said)
                assert said in truths, f"{element.name} at {at_s - IMPACT_S:.1f} s: {said}, not of {set(truths)}"
                continue
            numbers = [truth for truth in truths if isinstance(truth, float | int)]
            self._within(element, steps, min(numbers), max(numbers), f"at {at_s - self.truth.time_zero_s:.1f} s")

    def _restraint(self, element: Element, name: str, value: ElementValue) -> None:
        commanded_s = IMPACT_S + dict(self.scenario.restraints)[name]
        self._close(element, value.values[0], (commanded_s - self.truth.time_zero_s) * 1_000, "time")

    def _counter(self, element: Element, name: str, value: ElementValue) -> None:
        assert (name, value.values) == ("ignition_cycle_crash", (1,))

    def _event(self, element: Element, what: str, value: ElementValue) -> None:
        if what == "end":
            assert self.truth.end_s is not None
            self._close(element, value.values[0], (self.truth.end_s - self.truth.time_zero_s) * 1_000, "time")
        elif what == "complete":
            assert value.values == (element.to_state("yes"),)
        elif what == "trigger":
            assert value.values == (element.to_state(self.truth.trigger),)
        elif what == "number":
            highest = int(element.maximum)
            assert value.values == (min(self.number, highest),), f"{element.name}: {value.values} for {self.number}"
            assert value.clamped == (self.number > highest), f"{element.name}: clamped {value.clamped}"
        else:
            assert what == "time_from_previous" and self.since_s is not None, f"{element.name}: nothing was before it"
            self._close(element, value.values[0], self.since_s, "time")

"""What really happened in a scenario, computed from the pulses' closed forms; no code shared with the recorder.

The rules are written out a second time, as a plain search over exact velocities on a fine grid: slow, obvious, ours to
compare with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from contracts.edr.profiles import Profile, Threshold
from simulators.crashes.pulses import velocity
from simulators.crashes.scenarios import IMPACT_S, KMH, Scenario

GRID_S: Final = 0.0005
SEARCH_FROM_S: Final = IMPACT_S - 2.2
SEARCH_TO_S: Final = IMPACT_S + 1.6
RANGE_OF_RESTRAINT_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class TrueEvent:
    """One event that a perfect recorder would write: seconds of the scenario; ``trigger`` as the record names it."""

    time_zero_s: float
    trigger: str
    end_s: float | None


@cache
def _grid(scenario: Scenario) -> tuple[list[float], list[float], list[float]]:
    count = round((SEARCH_TO_S - SEARCH_FROM_S) / GRID_S)
    times = [SEARCH_FROM_S + index * GRID_S for index in range(count + 1)]
    x = [velocity(scenario.longitudinal, at_s) / KMH for at_s in times]
    y = [velocity(scenario.y, at_s) / KMH for at_s in times]
    return times, x, y


def change_kmh(scenario: Scenario, axis: str, from_s: float, to_s: float) -> float:
    """The exact velocity change along an axis (or of both together) between two instants."""
    if axis == "resultant":
        return math.hypot(change_kmh(scenario, "x", from_s, to_s), change_kmh(scenario, "y", from_s, to_s))
    pulses = scenario.longitudinal if axis == "x" else scenario.y
    return (velocity(pulses, to_s) - velocity(pulses, from_s)) / KMH


def largest_change_kmh(scenario: Scenario, axis: str, from_s: float, to_s: float) -> tuple[float, float]:
    """The largest change since ``from_s`` and when it was reached (seconds after ``from_s``)."""
    count = round((to_s - from_s) / (GRID_S / 2))
    instants = [index * GRID_S / 2 for index in range(count + 1)]
    after_s = max(instants, key=lambda after: abs(change_kmh(scenario, axis, from_s, from_s + after)))
    return change_kmh(scenario, axis, from_s, from_s + after_s), after_s


def true_events(scenario: Scenario, profile: Profile) -> list[TrueEvent]:
    """The events of the scenario under the profile's rules, in order."""
    events = _braking_events(scenario, profile) + _impact_events(scenario, profile)
    return sorted(events, key=lambda event: event.time_zero_s)


def numbers(events: Sequence[TrueEvent], window_s: float) -> list[tuple[int, float | None]]:
    """Each event's number in its crash and the seconds since the event before it (None for the first).

    A crash is what begins within ``window_s`` of its first event; ``events`` are in order.
    """
    numbered: list[tuple[int, float | None]] = []
    first_s, number = -math.inf, 0
    for index, event in enumerate(events):
        if event.time_zero_s - first_s > window_s:
            first_s, number = event.time_zero_s, 0
        number += 1
        numbered.append((number, None if number == 1 else event.time_zero_s - events[index - 1].time_zero_s))
    return numbered


def _braking_events(scenario: Scenario, profile: Profile) -> list[TrueEvent]:
    rule = profile.sustained_deceleration
    if rule is None or scenario.brake_s * 1_000 < rule.hold_ms or scenario.brake_mps2 <= rule.threshold_mps2:
        return []
    return [TrueEvent(IMPACT_S - scenario.brake_s, "sustained_deceleration", None)]


def _impact_events(scenario: Scenario, profile: Profile) -> list[TrueEvent]:
    commands = sorted(IMPACT_S + after_s for name, after_s in _first_stages(scenario, profile))
    events: list[TrueEvent] = []
    since = 0
    while True:
        found = _next_event(scenario, profile, since, commands)
        if found is None:
            return events
        event, since = found
        events.append(event)
        commands = [at_s for at_s in commands if at_s > max(event.end_s or 0, event.time_zero_s + RANGE_OF_RESTRAINT_S)]


def _first_stages(scenario: Scenario, profile: Profile) -> list[tuple[str, float]]:
    known = {element.name for element in profile.elements}
    return [(name, after_s) for name, after_s in scenario.restraints if name in known and "stage2" not in name]


def _next_event(
    scenario: Scenario, profile: Profile, since: int, commands: list[float]
) -> tuple[TrueEvent, int] | None:
    """The first event at or after grid point ``since``, and the grid point at which it ended."""
    times, x, y = _grid(scenario)
    gates = ((x, profile.gate_longitudinal), (y, profile.gate_lateral))
    zero: int | None = None
    trigger, by_command = "", False
    for now in range(since, len(times)):
        if zero is None or by_command:
            starts = [start for series, gate in gates if (start := _start(series, since, now, gate)) is not None]
            if starts and (zero is None or min(starts) < zero):
                zero, by_command = min(starts), False
        if not trigger and any(_met(series, since, now, profile.trigger) for series in (x, y)):
            trigger = "delta_v"
        if not trigger and commands and times[now] >= commands[0]:
            trigger = "restraint"
        if trigger and zero is None:
            by_command = trigger == "restraint"
            zero = now if by_command else now - _points(profile.trigger)
        if zero is None or not _over(times, x, y, zero, now, profile):
            continue
        if trigger:
            return TrueEvent(times[zero], trigger, times[now]), now
        zero = None
    return None


def _points(rule: Threshold) -> int:
    return round(rule.window_ms / 1_000 / GRID_S)


def _met(series: list[float], since: int, now: int, rule: Threshold) -> bool:
    """Whether the change up to ``now`` within the rule's window reaches its threshold."""
    if now % 4:  # every 2 ms suffices for 150 ms
        return False
    first = max(since, now - _points(rule))
    return rule.met_by(max(abs(series[now] - series[past]) for past in range(first, now + 1)))


def _start(series: list[float], since: int, now: int, rule: Threshold) -> int | None:
    """The first point of the window that ends at ``now``, if the rule is met within it."""
    first = max(since, now - _points(rule))
    if rule.met_by(max(abs(series[now] - series[past]) for past in range(first, now + 1))):
        return now - _points(rule)
    return None


def _over(times: list[float], x: list[float], y: list[float], zero: int, now: int, profile: Profile) -> bool:
    window = round(profile.event_end.window_ms / 1_000 / GRID_S)
    if now - zero < window:
        return False
    past = now - window
    return math.hypot(x[now] - x[past], y[now] - y[past]) <= profile.event_end.threshold_kmh

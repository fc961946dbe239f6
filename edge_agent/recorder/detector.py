"""The trigger: when does an event begin, where is its time zero, when does it end. Pure and streaming.

Time zero (49 CFR 563.5, continuously running systems) is the first point of the interval within which the gate (0.8
km/h in 20 ms along x, in 5 ms along y) is passed, read literally: the instant of passing, found between two samples,
less the gate's window; or a restraint's command, whichever is earlier. A passed gate opens a candidate; it becomes an
event when the profile's threshold is met within 150 ms or a restraint is commanded, and is forgotten when it fades
before. A trigger that passed no gate (a long soft push from the side) begins where its own 150 ms began.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

from contracts.edr.profiles import Profile, Threshold
from contracts.edr.record import TimeZeroRule, Trigger
from edge_agent.recorder.axes import KMH_PER_MPS

MAX_EVENT_US: Final = 1_000_000
"""An event that never fades (a long slide) ends here: the detector resets, as the definition allows."""

SPEED_RULES: Final = ("deceleration_start", "standstill")
"""Time zeros of the heavy-duty triggers, which are judged from the speed: motion is no part of such an event."""

LATE_COMMAND_US: Final = 250_000
"""A restraint command this soon after time zero belongs to the event though its motion has faded: the table's range."""


@dataclass(slots=True)
class Event:
    """A triggered event; ``end_us`` is None until it has faded (or for triggers that know no end).

    ``fast_change``: the profile's lock threshold (25 km/h in 150 ms) was met along x.
    """

    time_zero_us: int
    rule: TimeZeroRule
    trigger: Trigger
    triggered_us: int
    end_us: int | None = None
    fast_change: bool = False


class ChangeWindow:
    """The largest change of a running value within the last ``window_us``: two monotone queues, O(1) a sample.

    The window's far edge falls between two samples; the value there is taken from the line between them, or a slow
    sampler would see a shorter window than the rule says.
    """

    def __init__(self, rule: Threshold) -> None:
        self._rule = rule
        self._window_us = 1_000 * rule.window_ms
        self._last: tuple[int, float] | None = None
        self._lows: deque[tuple[int, float]] = deque()
        self._highs: deque[tuple[int, float]] = deque()
        self._samples: deque[tuple[int, float]] = deque()

    def push(self, at_us: int, value: float) -> int | None:
        """Adds a sample. While the rule is met: the first point of the interval in which it is, else None."""
        change = self._change(at_us, value)
        last, self._last = self._last, (at_us, change)
        if not self._rule.met_by(change):
            return None
        passed_us = at_us
        if last is not None and last[1] < self._rule.threshold_kmh < change:
            share = (self._rule.threshold_kmh - last[1]) / (change - last[1])
            passed_us = last[0] + round(share * (at_us - last[0]))
        return passed_us - self._window_us

    def _change(self, at_us: int, value: float) -> float:
        """How far a new sample lies from the lowest or the highest within the window before it."""
        lows, highs, samples, oldest = self._lows, self._highs, self._samples, at_us - self._window_us
        samples.append((at_us, value))
        while lows and lows[-1][1] >= value:
            lows.pop()
        lows.append((at_us, value))
        while highs and highs[-1][1] <= value:
            highs.pop()
        highs.append((at_us, value))
        while lows[0][0] < oldest:
            lows.popleft()
        while highs[0][0] < oldest:
            highs.popleft()
        while len(samples) > 1 and samples[1][0] <= oldest:
            samples.popleft()
        change = max(value - lows[0][1], highs[0][1] - value)
        if samples[0][0] < oldest:
            (before_us, before), (after_us, after) = samples[0], samples[1]
            edge = before + (after - before) * (oldest - before_us) / (after_us - before_us)
            change = max(change, abs(value - edge))
        return change

    def restart(self, at_us: int, value: float) -> None:
        """Forgets what was before: changes are counted from here."""
        for queue in (self._lows, self._highs, self._samples):
            queue.clear()
        self._last = None
        self._change(at_us, value)


class CrashDetector:
    """Velocity change along x and y against one profile's rules; one instance per recorder."""

    def __init__(self, profile: Profile, lateral: bool) -> None:
        self._profile = profile
        self._lateral = lateral
        self._velocity = [0.0, 0.0]
        self._last: tuple[int, float, float] | None = None
        self._history: deque[tuple[int, float, float]] = deque()
        self._longest_gap_us = 1_000 * profile.trigger.window_ms
        self._end_window_us = 1_000 * profile.event_end.window_ms
        self._triggers = (ChangeWindow(profile.trigger), ChangeWindow(profile.trigger))
        self._gates: tuple[tuple[ChangeWindow, TimeZeroRule], ...] = (
            (ChangeWindow(profile.gate_longitudinal), "longitudinal_gate"),
            (ChangeWindow(profile.gate_lateral), "lateral_gate"),
        )
        lock = profile.lock.delta_v
        self._lock_window = None if lock is None else ChangeWindow(lock)
        self._candidate: tuple[int, TimeZeroRule] | None = None
        self._event: Event | None = None
        self._ended: Event | None = None

    @property
    def active(self) -> Event | None:
        """The event that has been triggered and has not ended."""
        return self._event

    def on_motion(self, at_us: int, ax_mps2: float, ay_mps2: float) -> tuple[Event | None, Event | None]:
        """One sample in the record's axes. Returns (event just triggered, event just ended).

        After a silence longer than the trigger's window nothing is known of what lies between: it is not integrated,
        and an event that was open ends without an end.
        """
        velocity = self._velocity
        if self._last is not None and at_us - self._last[0] > self._longest_gap_us:
            self._lose_sight(at_us)
        if self._last is not None:
            half_s = (at_us - self._last[0]) / 2e6
            velocity[0] += (ax_mps2 + self._last[1]) * half_s * KMH_PER_MPS
            velocity[1] += (ay_mps2 + self._last[2]) * half_s * KMH_PER_MPS
        self._last = (at_us, ax_mps2, ay_mps2)
        vx, vy = velocity
        history = self._history
        history.append((at_us, vx, vy))
        while len(history) > 1 and history[1][0] <= at_us - self._end_window_us:
            history.popleft()
        self._watch_gates(at_us)
        started = self._watch_trigger(at_us)
        fast = self._lock_window is not None and self._lock_window.push(at_us, vx) is not None
        if fast and self._event is not None:
            self._event.fast_change = True
        ended = None
        zero_us = self._event.time_zero_us if self._event else self._candidate[0] if self._candidate else None
        if zero_us is not None and self._faded(at_us, zero_us):
            ended = self._end(at_us)
        return started, ended

    def on_restraint(self, at_us: int) -> Event | None:
        """A non-reversible restraint was commanded. Returns the event that this starts, if it does."""
        if self._event is not None:
            return None
        if self._ended is not None and at_us - self._ended.time_zero_us <= LATE_COMMAND_US:
            return None
        zero: tuple[int, TimeZeroRule] = self._candidate or (at_us, "deployment")
        self._event = Event(zero[0], zero[1], "restraint", at_us)
        self._candidate = None
        return self._event

    def _watch_gates(self, at_us: int) -> None:
        for axis, (window, rule) in enumerate(self._gates):
            start_us = window.push(at_us, self._velocity[axis])
            if start_us is None or (axis == 1 and not self._lateral):
                continue
            event = self._event
            if event is None and self._candidate is None:
                self._candidate = (start_us, rule)
            elif event is not None and event.rule == "deployment" and start_us < event.time_zero_us:
                # the restraint was commanded before the gate was passed, yet the gate's interval began earlier
                event.time_zero_us, event.rule = start_us, rule

    def _watch_trigger(self, at_us: int) -> Event | None:
        triggered = None
        for axis, window in enumerate(self._triggers):
            start_us = window.push(at_us, self._velocity[axis])
            judged = axis == 0 or (self._lateral and self._profile.lateral_trigger)
            if self._event is None and judged and start_us is not None:
                zero: tuple[int, TimeZeroRule] = self._candidate or (start_us, "trigger_interval")
                triggered = self._event = Event(zero[0], zero[1], "delta_v", at_us)
                self._candidate = None
        return triggered

    def _faded(self, at_us: int, zero_us: int) -> bool:
        """Whether the resultant change within the end window has fallen to its threshold, or the event is too long."""
        past_us, past_x, past_y = self._history[0]
        if at_us - zero_us < self._end_window_us or at_us - past_us < self._end_window_us:
            return False
        change = math.hypot(self._velocity[0] - past_x, self._velocity[1] - past_y)
        return change <= self._profile.event_end.threshold_kmh or at_us - zero_us >= MAX_EVENT_US

    def _lose_sight(self, at_us: int) -> None:
        if self._event is not None:
            self._ended = self._event
        self._event = self._candidate = self._last = None
        self._restart(at_us)
        if self._lock_window is not None:
            self._lock_window.restart(at_us, self._velocity[0])

    def _end(self, at_us: int) -> Event | None:
        ended, self._event, self._candidate = self._event, None, None
        if ended is None:
            return None
        ended.end_us = at_us
        self._ended = ended
        self._restart(at_us)
        return ended

    def _restart(self, at_us: int) -> None:
        """Changes are counted from here."""
        for axis in range(2):
            self._triggers[axis].restart(at_us, self._velocity[axis])
            self._gates[axis][0].restart(at_us, self._velocity[axis])
        self._history.clear()
        self._history.append((at_us, self._velocity[0], self._velocity[1]))

"""The trigger: when does an event begin, where is its time zero, when does it end. Pure and streaming.

Time zero (49 CFR 563.5, continuously running systems) is the first point of the interval within which the gate (0.8
km/h in 20 ms along x, in 5 ms along y) was passed: here the start of the SHORTEST such interval at the moment of
passing, so that a sharp onset is not dated up to 20 ms early. A passed gate opens a candidate; it becomes an event when
the profile's threshold is met within 150 ms or a restraint is commanded, and is forgotten when it fades before.
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

LATE_COMMAND_US: Final = 250_000
"""A restraint command this soon after time zero belongs to the event even if its motion has faded: the table's range."""


@dataclass(slots=True)
class Event:
    """A triggered event; ``end_us`` is None until it has faded (or for triggers that know no end)."""

    time_zero_us: int
    rule: TimeZeroRule
    trigger: Trigger
    triggered_us: int
    end_us: int | None = None
    lock_change_kmh: float = 0.0


class ChangeWindow:
    """The largest change of a running value within the last ``window_us``: two monotone queues, O(1) a sample."""

    def __init__(self, window_us: int) -> None:
        self._window_us = window_us
        self._lows: deque[tuple[int, float]] = deque()
        self._highs: deque[tuple[int, float]] = deque()

    def push(self, at_us: int, value: float) -> float:
        """Adds a sample; returns how far it lies from the lowest or the highest within the window before it."""
        lows, highs, oldest = self._lows, self._highs, at_us - self._window_us
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
        return max(value - lows[0][1], highs[0][1] - value)

    def restart(self, at_us: int, value: float) -> None:
        """Forgets what was before: changes are counted from here."""
        self._lows.clear()
        self._highs.clear()
        self.push(at_us, value)


class CrashDetector:
    """Velocity change along x and y against one profile's rules; one instance per recorder."""

    def __init__(self, profile: Profile, lateral: bool) -> None:
        self._profile = profile
        self._lateral = lateral
        self._velocity = [0.0, 0.0]
        self._last: tuple[int, float, float] | None = None
        longest_us = 1_000 * max(profile.trigger.window_ms, profile.gate_longitudinal.window_ms)
        self._history: deque[tuple[int, float, float]] = deque()
        self._history_us = longest_us
        self._trigger_windows = tuple(ChangeWindow(1_000 * profile.trigger.window_ms) for _ in range(2))
        lock = profile.lock.delta_v
        self._lock_window = ChangeWindow(1_000 * (lock.window_ms if lock else 150))
        self._gates: tuple[tuple[Threshold, ChangeWindow, TimeZeroRule], ...] = (
            (profile.gate_longitudinal, ChangeWindow(1_000 * profile.gate_longitudinal.window_ms), "longitudinal_gate"),
            (profile.gate_lateral, ChangeWindow(1_000 * profile.gate_lateral.window_ms), "lateral_gate"),
        )
        self._candidate: tuple[int, TimeZeroRule] | None = None
        self._event: Event | None = None
        self._ended: Event | None = None

    @property
    def active(self) -> Event | None:
        """The event that has been triggered and has not ended."""
        return self._event

    def on_motion(self, at_us: int, ax_mps2: float, ay_mps2: float) -> tuple[Event | None, Event | None]:
        """One sample in the record's axes. Returns (event just triggered, event just ended)."""
        velocity = self._velocity
        if self._last is not None:
            half_s = (at_us - self._last[0]) / 2e6
            velocity[0] += (ax_mps2 + self._last[1]) * half_s * KMH_PER_MPS
            velocity[1] += (ay_mps2 + self._last[2]) * half_s * KMH_PER_MPS
        self._last = (at_us, ax_mps2, ay_mps2)
        vx, vy = velocity
        history = self._history
        history.append((at_us, vx, vy))
        while history[0][0] < at_us - self._history_us:
            history.popleft()
        self._watch_gates(at_us)
        started = self._watch_trigger(at_us)
        change = self._lock_window.push(at_us, vx)
        ended = None
        if self._event is not None:
            self._event.lock_change_kmh = max(self._event.lock_change_kmh, change)
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
        for axis, (threshold, window, rule) in enumerate(self._gates):
            change = window.push(at_us, self._velocity[axis])
            if axis == 1 and not self._lateral:
                continue
            if self._event is None and self._candidate is None and threshold.met_by(change):
                self._candidate = (self._start_of(axis, threshold), rule)

    def _watch_trigger(self, at_us: int) -> Event | None:
        triggered = None
        threshold = self._profile.trigger
        for axis in range(2):
            change = self._trigger_windows[axis].push(at_us, self._velocity[axis])
            judged = axis == 0 or (self._lateral and self._profile.lateral_trigger)
            if self._event is None and judged and threshold.met_by(change):
                zero: tuple[int, TimeZeroRule] = self._candidate or (self._start_of(axis, threshold), "trigger_interval")
                triggered = self._event = Event(zero[0], zero[1], "delta_v", at_us)
                self._candidate = None
        return triggered

    def _start_of(self, axis: int, threshold: Threshold) -> int:
        """The latest instant from which the newest sample differs by the threshold: the shortest interval's start."""
        newest = self._history[-1]
        for sample in reversed(self._history):
            if threshold.met_by(abs(newest[1 + axis] - sample[1 + axis])):
                return sample[0]
        return self._history[0][0]

    def _faded(self, at_us: int, zero_us: int) -> bool:
        end = self._profile.event_end
        window_us = 1_000 * end.window_ms
        if at_us - zero_us < window_us:
            return False
        if at_us - zero_us >= MAX_EVENT_US:
            return True
        vx, vy = self._velocity
        for sample_us, sample_x, sample_y in reversed(self._history):
            if at_us - sample_us >= window_us:
                return math.hypot(vx - sample_x, vy - sample_y) <= end.threshold_kmh
        return False

    def _end(self, at_us: int) -> Event | None:
        ended, self._event, self._candidate = self._event, None, None
        if ended is None:
            return None
        ended.end_us = at_us
        self._ended = ended
        for axis in range(2):
            self._trigger_windows[axis].restart(at_us, self._velocity[axis])
            self._gates[axis][1].restart(at_us, self._velocity[axis])
        self._history.clear()
        self._history.append((at_us, self._velocity[0], self._velocity[1]))
        return ended

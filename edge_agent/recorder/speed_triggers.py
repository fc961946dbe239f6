"""The heavy-duty triggers (UN R169), judged from vehicle speed: sustained deceleration and the last stop."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from contracts.edr.profiles import LastStop, Profile, SustainedDeceleration
from edge_agent.recorder.axes import KMH_PER_MPS
from edge_agent.recorder.detector import Event

FIT_BEFORE_US: Final = 1_000_000
FIT_GAP_US: Final = 150_000
"""Half of the span over which the speed is differentiated: readings this near to the onset belong to neither line."""

FIT_REACH_US: Final = 250_000
MIN_FIT: Final = 3
KEPT_US: Final = 3_000_000


def onset_us(readings: Sequence[tuple[int, float]], coarse_us: int) -> int:
    """Where the line through the speeds before a braking meets the line through those in it.

    A slope over 300 ms of readings at 10 Hz misses the onset by half a span at worst: more than the table grants for
    the time between two events (0.1 s). Where there are too few readings, or the lines meet somewhere else,
    ``coarse_us`` stands.
    """
    before = [(at, v) for at, v in readings if -FIT_BEFORE_US <= at - coarse_us <= -FIT_GAP_US]
    within = [(at, v) for at, v in readings if at - coarse_us >= FIT_GAP_US]
    if len(before) < MIN_FIT or len(within) < MIN_FIT:
        return coarse_us
    level, slope = _line(before, coarse_us)
    braked, steeper = _line(within, coarse_us)
    if slope - steeper <= 0:
        return coarse_us
    after_us = round((braked - level) / (slope - steeper))
    return coarse_us + after_us if abs(after_us) <= FIT_REACH_US else coarse_us


def _line(readings: Sequence[tuple[int, float]], origin_us: int) -> tuple[float, float]:
    """Least squares: the value at the origin, and the change per microsecond."""
    count = len(readings)
    mean_at = sum(at - origin_us for at, _ in readings) / count
    mean_v = sum(v for _, v in readings) / count
    spread = sum((at - origin_us - mean_at) ** 2 for at, _ in readings)
    slope = sum((at - origin_us - mean_at) * (v - mean_v) for at, v in readings) / spread if spread else 0.0
    return mean_v - slope * mean_at, slope


class SpeedTriggers:
    """Feeds on speed readings (km/h); returns an event when one of the profile's two speed triggers is met."""

    def __init__(self, profile: Profile) -> None:
        self._braking = profile.sustained_deceleration
        self._stop = profile.last_stop
        self._recent: deque[tuple[int, float]] = deque()
        self._kept: deque[tuple[int, float]] = deque()
        self._braking_since_us: int | None = None
        self._braking_told = False
        self._moved = False
        self._standing_since_us: int | None = None

    def on_speed(self, at_us: int, speed_kmh: float) -> list[Event]:
        """One speed reading. The events that it triggers."""
        events = []
        if self._braking is not None:
            events += self._judge_braking(self._braking, at_us, speed_kmh)
        if self._stop is not None:
            events += self._judge_stop(self._stop, at_us, speed_kmh)
        return events

    def _judge_braking(self, rule: SustainedDeceleration, at_us: int, speed_kmh: float) -> list[Event]:
        recent, span_us = self._recent, rule.span_ms * 1_000
        if recent and at_us - recent[-1][0] > rule.max_gap_ms * 1_000:
            recent.clear()
            self._kept.clear()
            self._braking_since_us = None
        recent.append((at_us, speed_kmh))
        self._kept.append((at_us, speed_kmh))
        while at_us - self._kept[0][0] > KEPT_US:
            self._kept.popleft()
        while len(recent) > 1 and at_us - recent[1][0] >= span_us:
            recent.popleft()
        span_s = (at_us - recent[0][0]) / 1e6
        if span_s * 1_000 < rule.span_ms:
            return []
        deceleration = (recent[0][1] - speed_kmh) / KMH_PER_MPS / span_s
        if deceleration <= rule.threshold_mps2:
            self._braking_since_us, self._braking_told = None, False
            return []
        # a mean over a span tells of its middle: a crash of 0.1 s must not look like braking of 0.7 s
        middle_us = (recent[0][0] + at_us) // 2
        if self._braking_since_us is None:
            self._braking_since_us = middle_us
        if self._braking_told or middle_us - self._braking_since_us < rule.hold_ms * 1_000:
            return []
        self._braking_told = True
        begun_us = onset_us(self._kept, self._braking_since_us)
        return [Event(begun_us, "deceleration_start", "sustained_deceleration", at_us)]

    def _judge_stop(self, rule: LastStop, at_us: int, speed_kmh: float) -> list[Event]:
        if speed_kmh > rule.speed_kmh:
            self._moved = self._moved or speed_kmh >= rule.moved_kmh
            self._standing_since_us = None
            return []
        if self._standing_since_us is None:
            self._standing_since_us = at_us
        if not self._moved or at_us - self._standing_since_us < rule.hold_ms * 1_000:
            return []
        self._moved = False
        return [Event(self._standing_since_us, "standstill", "last_stop", at_us)]

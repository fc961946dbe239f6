"""Harsh braking as a reading of its own, judged from the speed: a candidate for whoever scores drivers. Pure.

This is no crash trigger and shares no code with one: a harsh stop is some 0.4 g, a trigger 1.5 g. The mean deceleration
over about a second is what a speed polled once a second (OBD) can tell; whole km/h polled so blur it by 0.3 m/s².
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from contracts.packet import FIRST_BAD_QUALITY
from contracts.signals import Catalogue
from edge_agent.sources.base import Reading

SPEED: Final = "Vehicle.Speed"
CANDIDATE: Final = "Fleetstream.Driver.HarshBraking"
MIN_SPAN_MS: Final = 800
"""Two readings closer together say too little (one km/h in 0.1 s is 2.8 m/s²)."""

MAX_SPAN_MS: Final = 2_500
"""Readings further apart say nothing about a braking of a second."""

IMPLAUSIBLE_MPS2: Final = 12.0
"""No road tyre brakes harder: a faulty speed, or a crash, which is the recorder's matter."""

KMH_PER_MPS: Final = 3.6


class HarshBraking:
    """Watches one vehicle's speed; when a braking that reached ``threshold_mps2`` is over, it is told once."""

    def __init__(self, threshold_mps2: float, signals: Catalogue) -> None:
        self._threshold = threshold_mps2
        self._speed = signals.by_path(SPEED).number
        self._candidate = signals.by_path(CANDIDATE).number
        self._recent: deque[Reading] = deque()
        self._worst: Reading | None = None

    def judge(self, readings: Iterable[Reading]) -> list[Reading]:
        """The brakings that are over with these readings: the largest mean deceleration (m/s²) and when it was."""
        found = []
        for reading in readings:
            if reading.signal == self._speed and reading.quality < FIRST_BAD_QUALITY:
                found += self._take(reading)
        return found

    def _take(self, reading: Reading) -> list[Reading]:
        recent = self._recent
        if recent and reading.at_ms < recent[-1].at_ms:
            recent.clear()
        if recent and reading.value == recent[-1].value:
            # told again or truly constant: only an instant of change is surely that of a poll
            return self._over() if reading.at_ms - recent[-1].at_ms >= MAX_SPAN_MS else []
        recent.append(reading)
        while len(recent) > 1 and reading.at_ms - recent[1].at_ms >= MIN_SPAN_MS:
            recent.popleft()
        span_ms = reading.at_ms - recent[0].at_ms
        if span_ms < MIN_SPAN_MS:
            return []
        mean_mps2 = (recent[0].value - reading.value) / KMH_PER_MPS / (span_ms / 1_000)
        if span_ms > MAX_SPAN_MS or mean_mps2 < self._threshold / 2:
            return self._over()
        worst = self._worst.value if self._worst else 0.0
        if max(self._threshold, worst) <= mean_mps2 <= IMPLAUSIBLE_MPS2:
            self._worst = Reading(self._candidate, reading.at_ms, round(mean_mps2, 2))
        return []

    def _over(self) -> list[Reading]:
        worst, self._worst = self._worst, None
        return [] if worst is None else [worst]

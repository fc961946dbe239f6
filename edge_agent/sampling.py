"""Which readings are worth keeping: deadband, minimum and maximum interval, change, change of quality. Pure.

A reading that steps back in time is always kept: it is news about the past, not a repeat of the present.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from contracts.signals import Catalogue
from edge_agent.settings import SamplingRule, SamplingSettings
from edge_agent.sources.base import Reading


def is_news(rule: SamplingRule, last: Reading, new: Reading) -> bool:
    """Whether ``new`` must be kept, given the ``last`` kept reading of the same signal.

    >>> rule = SamplingRule(deadband=0.5)
    >>> last = Reading(1, 0, 10.0)
    >>> is_news(rule, last, Reading(1, 1_000, 10.5)), is_news(rule, last, Reading(1, 1_000, 10.6))
    (False, True)
    """
    elapsed_ms = new.at_ms - last.at_ms
    if new.quality != last.quality or elapsed_ms < 0:
        return True
    if elapsed_ms < rule.min_interval_ms:
        return False
    if rule.max_interval_ms and elapsed_ms >= rule.max_interval_ms:
        return True
    if not math.isfinite(new.value) or not math.isfinite(last.value):
        return repr(new.value) != repr(last.value) or not _thins_by_value(rule)
    if rule.deadband and abs(new.value - last.value) <= rule.deadband:
        return False
    return new.value != last.value if rule.on_change else True


def _thins_by_value(rule: SamplingRule) -> bool:
    return rule.on_change or rule.deadband > 0


class Sampler:
    """Remembers the last kept reading of each signal; memory is one reading per signal."""

    def __init__(self, settings: SamplingSettings, signals: Catalogue) -> None:
        self._thin = settings.thin
        self._default = settings.default
        self._rules = {signal.number: settings.states for signal in signals if signal.kind == "state"}
        self._rules |= {signals.by_path(path).number: rule for path, rule in settings.rules.items()}
        self._last: dict[int, Reading] = {}

    def keep(self, readings: Iterable[Reading]) -> Iterator[Reading]:
        """Those of ``readings`` that are news, in order."""
        if not self._thin:
            yield from readings
            return
        for reading in readings:
            last = self._last.get(reading.signal)
            if last is None or is_news(self._rules.get(reading.signal, self._default), last, reading):
                if last is None or reading.at_ms >= last.at_ms:
                    self._last[reading.signal] = reading
                yield reading

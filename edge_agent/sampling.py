"""Which readings are worth keeping: deadband, minimum and maximum interval, change, change of quality. Pure.

A reading that steps back in time is always kept: it is news about the past, not a repeat of the present. The newest
reading of each signal is remembered, kept or not, for a snapshot.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from contracts.packet import Quality
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


def with_profile(settings: SamplingSettings, profile: str, min_interval_ms: int) -> SamplingSettings:
    """The rules under a profile (``contracts.command_menu.PROFILES``): configured, all, or interval."""
    if profile == "all":
        return settings.model_copy(update={"thin": False})
    if profile == "interval":
        spaced = {"min_interval_ms": min_interval_ms}
        rules = {path: rule.model_copy(update=spaced) for path, rule in settings.rules.items()}
        default, states = settings.default.model_copy(update=spaced), settings.states.model_copy(update=spaced)
        return settings.model_copy(update={"thin": True, "rules": rules, "default": default, "states": states})
    return settings


class Sampler:
    """Remembers the last kept and the newest reading of each signal; memory is two readings per signal."""

    def __init__(self, settings: SamplingSettings, signals: Catalogue) -> None:
        self._signals = signals
        self._last: dict[int, Reading] = {}
        self._newest: dict[int, Reading] = {}
        self.use(settings)

    def use(self, settings: SamplingSettings) -> None:
        """Go on under these rules."""
        self._thin = settings.thin
        self._default = settings.default
        self._rules = {signal.number: settings.states for signal in self._signals if signal.kind == "state"}
        self._rules |= {self._signals.by_path(path).number: rule for path, rule in settings.rules.items()}

    def keep(self, readings: Iterable[Reading]) -> Iterator[Reading]:
        """Those of ``readings`` that are news, in order."""
        for reading in readings:
            newest = self._newest.get(reading.signal)
            if newest is None or reading.at_ms >= newest.at_ms:
                self._newest[reading.signal] = reading
            last = self._last.get(reading.signal)
            if not self._thin or last is None or self._is_news(last, reading):
                if last is None or reading.at_ms >= last.at_ms:
                    self._last[reading.signal] = reading
                yield reading

    def snapshot(self, now_ms: int, fresh_ms: int) -> list[Reading]:
        """What every signal is now, none of it told twice.

        A newest reading that was not kept is told as it is. One that was kept lies in a packet already, so its value
        is told as held until now (quality SUBSTITUTED), unless it is younger than ``fresh_ms``: then the packet with
        it leaves at once anyway.
        """
        told = []
        for signal, newest in sorted(self._newest.items()):
            if self._last.get(signal) is not newest:
                self._last[signal] = newest
                told.append(newest)
            elif newest.at_ms + fresh_ms <= now_ms:
                quality = newest.quality or Quality.SUBSTITUTED
                told.append(Reading(signal, now_ms, newest.value, quality))
        return told

    def _is_news(self, last: Reading, reading: Reading) -> bool:
        return is_news(self._rules.get(reading.signal, self._default), last, reading)

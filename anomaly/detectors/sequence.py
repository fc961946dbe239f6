"""Event patterns: steps in the order of event time, within a span, while nothing that is excluded happens.

Of all ways to have done the first ``k`` steps only the one that began last matters: whatever completes another one in
time completes it too. So a device's state is one moment per step, and yet nothing is missed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from anomaly.base import Detector, Readings, Verdict, columns
from anomaly.errors import BadParameters
from anomaly.types import Bools, Floats, Ints, Rows

SPAN_PARTS = 10
MOST_STEPS = 12
NOT_BEGUN = -1


@dataclass(frozen=True, slots=True)
class Span:
    """A rise by at least ``by`` within ``over_ms``, looked at in tenths of it: the lowest value counts from the tenth
    of event time in which ``over_ms`` ago lies."""

    by: float
    over_ms: int

    @property
    def part_ms(self) -> int:
        return self.over_ms // SPAN_PARTS


@dataclass(frozen=True, slots=True)
class Term:
    """A column within [low, high], and risen if ``rise`` says so."""

    column: int
    low: float = -float("inf")
    high: float = float("inf")
    rise: Span | None = None


@dataclass(frozen=True, slots=True)
class When:
    """All terms hold."""

    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """``fresh``: the condition has to begin (it was seen not to hold the last time that it could be decided)."""

    when: When
    fresh: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """``steps`` at moments after each other, the last at most ``within_ms`` after the first. A moment in which any of
    ``without`` holds takes back all that had begun, and no step is done in it."""

    steps: tuple[Step, ...]
    within_ms: int
    without: tuple[When, ...] = ()

    def __post_init__(self) -> None:
        if not 2 <= len(self.steps) <= MOST_STEPS or self.within_ms <= 0:
            raise BadParameters(f"a pattern has 2 to {MOST_STEPS} steps and a span; this one has {len(self.steps)}")

    @property
    def conditions(self) -> tuple[When, ...]:
        return (*(step.when for step in self.steps), *self.without)

    @property
    def rises(self) -> tuple[tuple[int, Span], ...]:
        """Columns whose rise is asked for, and over what."""
        terms = (term for when in self.conditions for term in when.terms)
        return tuple(dict.fromkeys((term.column, term.rise) for term in terms if term.rise is not None))


@dataclass(frozen=True)
class Sequence(Detector):
    """One rule over ``signals`` columns. The score is the number of steps done; all of them are an alarm, once.

    The carrier is the column that the last step speaks of first, its band what lies outside of that step.
    """

    name: ClassVar[str] = "sequence"
    layer: ClassVar[str] = "c"
    signals: int
    rule: Rule

    def __post_init__(self) -> None:
        used = {term.column for when in self.rule.conditions for term in when.terms}
        if used != set(range(self.signals)):
            raise BadParameters(f"a pattern over {self.signals} signals speaks of columns {sorted(used)}")

    @classmethod
    def example(cls) -> Self:
        """Something rises by 2 within ten minutes, then another signal goes above 53, unless the third falls to 40."""
        up = When((Term(0, rise=Span(2.0, 600_000)),))
        high = When((Term(1, low=53.0),))
        return cls(3, Rule((Step(up, True), Step(high, False)), 1_800_000, (When((Term(2, high=40.0),)),)))

    @property
    def channels(self) -> int:
        return self.signals

    @property
    def memory_ms(self) -> int:
        """A way through the rule, after the longest rise that is part of it."""
        spans = (span.over_ms + span.part_ms for _, span in self.rule.rises)
        return self.rule.within_ms + max(spans, default=0)

    def row(self) -> Rows:
        steps, rises = len(self.rule.steps), len(self.rule.rises)
        kinds = [("begun", "<i8", (steps,)), ("was", "?", (steps,))]
        lows = [("part", "<i8", (rises,)), ("lows", "<f8", (rises, SPAN_PARTS + 1))]
        fresh = np.zeros(1, dtype=kinds + lows)
        fresh["begun"], fresh["was"], fresh["lows"] = NOT_BEGUN, True, np.inf
        return fresh

    def judge(self, rows: Rows, readings: Readings) -> Verdict:
        moment = self._moment(rows, readings)
        steps = self.rule.steps
        done = (moment.begun > NOT_BEGUN) * np.arange(1, len(steps) + 1)
        score = np.where(moment.complete, len(steps), done.max(axis=1)).astype(np.float64)
        term = steps[-1].when.terms[0]
        low = np.full(len(score), term.high if np.isfinite(term.high) else np.nan)
        high = np.full(len(score), term.low if np.isfinite(term.low) else np.nan)
        channel = np.full(len(score), term.column, dtype=np.int64)
        return columns(score, len(steps) - 0.5, moment.known, channel=channel, low=low, high=high)

    def learn(self, rows: Rows, readings: Readings, verdict: Verdict) -> None:
        moment = self._moment(rows, readings)
        known, each = moment.known, moment.known[:, None]
        rows["was"] = np.where(moment.decided & each, moment.holds, rows["was"])
        begun = np.where(moment.complete[:, None], NOT_BEGUN, moment.begun)  # what is found is not found again
        rows["begun"] = np.where(each, begun, rows["begun"])
        rows["part"] = np.where(each, moment.part, rows["part"])
        rows["lows"] = np.where(known[:, None, None], moment.lows, rows["lows"])

    def _moment(self, rows: Rows, readings: Readings) -> _Moment:
        """Follow the rule through one moment of each device."""
        values, at_ms, steps = readings.values, readings.at_ms, self.rule.steps
        part, lows = self._lows(rows, values, at_ms)
        risen = values[:, [column for column, _ in self.rule.rises]] - lows.min(axis=2, initial=np.inf)
        truth = [self._holds(when, values, risen) for when in self.rule.conditions]
        holds = np.stack(truth[: len(steps)], axis=1)
        decided = np.stack([_decided(step.when, values) for step in steps], axis=1)
        happens = holds & ~(rows["was"] & [step.fresh for step in steps])
        stopped = np.logical_or.reduce([np.zeros(len(at_ms), np.bool_), *truth[len(steps) :]])
        begun = self._follow(rows["begun"], at_ms, happens, stopped)
        known = (readings.regime >= 0) & np.isfinite(values).any(axis=1)
        return _Moment(known, holds, decided, begun, begun[:, -1] > NOT_BEGUN, part, lows)

    def _follow(self, before: Ints, at_ms: Ints, happens: Bools, stopped: Bools) -> Ints:
        """Per step when the way that began last and has done it began."""
        alive = (before > NOT_BEGUN) & (at_ms[:, None] - before <= self.rule.within_ms) & ~stopped[:, None]
        begun = np.where(alive, before, NOT_BEGUN)
        for step in reversed(range(begun.shape[1])):
            comes_from = at_ms if step == 0 else begun[:, step - 1]
            done = happens[:, step] & ~stopped
            begun[:, step] = np.where(done, np.maximum(begun[:, step], comes_from), begun[:, step])
        return begun

    def _lows(self, rows: Rows, values: Floats, at_ms: Ints) -> tuple[Ints, Floats]:
        """The newest part of each span and the lowest value of each part that counts; a slot is a part's number modulo
        their count."""
        part, lows = rows["part"].copy(), rows["lows"].copy()
        slots = np.arange(SPAN_PARTS + 1)
        for place, (column, span) in enumerate(self.rule.rises):
            now = at_ms // span.part_ms
            age = (now[:, None] - slots) % (SPAN_PARTS + 1)
            lows[:, place][now[:, None] - age > part[:, place, None]] = np.inf
            value = values[:, column]
            here = (slots == (now % (SPAN_PARTS + 1))[:, None]) & np.isfinite(value)[:, None]
            lows[:, place] = np.where(here, np.fmin(lows[:, place], value[:, None]), lows[:, place])
            part[:, place] = np.maximum(part[:, place], now)
        return part, lows

    def _holds(self, when: When, values: Floats, risen: Floats) -> Bools:
        rises = {key: place for place, key in enumerate(self.rule.rises)}
        parts = []
        for term in when.terms:
            value = values[:, term.column]
            parts.append((value >= term.low) & (value <= term.high))
            if term.rise is not None:
                parts.append(risen[:, rises[term.column, term.rise]] >= term.rise.by)
        return np.asarray(np.logical_and.reduce(parts))


@dataclass(frozen=True, slots=True)
class _Moment:
    """What one moment makes of the state; ``complete``: the last step is done."""

    known: Bools
    holds: Bools
    decided: Bools
    begun: Ints
    complete: Bools
    part: Ints
    lows: Floats


def _decided(when: When, values: Floats) -> Bools:
    return np.asarray(np.isfinite(values[:, list(_columns(when.terms))]).all(axis=1))


def _columns(terms: Iterable[Term]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(term.column for term in terms))

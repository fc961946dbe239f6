"""Event patterns against a slow reference that tries every way through the steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from anomaly.accumulate import Accumulator
from anomaly.base import Readings
from anomaly.deployment import Deployment
from anomaly.detectors.sequence import SPAN_PARTS, Rule, Sequence, Span, Step, Term, When
from anomaly.moments import SAMPLE
from anomaly.shard import Shard
from contracts.finding import Severity

T0 = 1_700_000_000_000
UP = When((Term(0, low=2.0),))
SMALL = When((Term(1, high=1.0),))
RISES = When((Term(0, low=1.0, rise=Span(2.0, 20_000)),))
BOTH = When((Term(0, low=1.0), Term(1, low=1.0)))
RULES = (
    Rule((Step(UP, True), Step(SMALL, False)), 6_000),
    Rule((Step(UP, True), Step(SMALL, True), Step(UP, False)), 9_000, (When((Term(2, low=3.0),)),)),
    Rule((Step(SMALL, False), Step(UP, True)) * 3, 60_000, (When((Term(1, low=3.0), Term(2, low=2.0))),)),
    Rule((Step(RISES, True), Step(BOTH, False)), 12_000, (When((Term(2, low=3.0),)),)),
)
Moment = tuple[int, tuple[float, ...]]
value = st.sampled_from([0.0, 1.0, 2.0, 3.0, float("nan")])
moments_of = st.lists(st.tuples(st.integers(1, 4), st.tuples(value, value, value)), max_size=40)


def timed(drawn: list[tuple[int, tuple[float, ...]]]) -> list[Moment]:
    """Pauses in seconds as event times."""
    at = np.cumsum([pause for pause, _ in drawn])
    return [(T0 + 1_000 * int(one), values) for one, (_, values) in zip(at, drawn, strict=True)]


@dataclass
class Slow:
    """Every moment is kept, every way is tried."""

    rule: Rule
    seen: list[Moment] = field(default_factory=list)
    done_at: list[list[int]] = field(default_factory=list)
    was: list[bool] = field(default_factory=list)
    after_ms: int = -1

    def holds(self, when: When, at_ms: int, values: tuple[float, ...]) -> bool:
        for term in when.terms:
            one = values[term.column]
            if not term.low <= one <= term.high:
                return False
            if term.rise is not None:
                part_ms = term.rise.over_ms // SPAN_PARTS
                kept = [v[term.column] for at, v in self.seen if at // part_ms >= at_ms // part_ms - SPAN_PARTS]
                if one - min(v for v in kept if v == v) < term.rise.by:
                    return False
        return True

    def moment(self, at_ms: int, values: tuple[float, ...]) -> bool:
        """Whether the rule is complete at this moment."""
        self.was = self.was or [True] * len(self.rule.steps)
        self.done_at = self.done_at or [[] for _ in self.rule.steps]
        if not any(v == v for v in values):
            return False
        self.seen.append((at_ms, values))
        for place, step in enumerate(self.rule.steps):
            if any(values[term.column] != values[term.column] for term in step.when.terms):
                continue
            here = self.holds(step.when, at_ms, values)
            if here and not (step.fresh and self.was[place]):
                self.done_at[place].append(at_ms)
            self.was[place] = here
        if any(self.holds(when, at_ms, values) for when in self.rule.without):
            self.after_ms = at_ms  # no way leads through this moment
            return False
        complete = at_ms in self.done_at[-1] and self.way(len(self.rule.steps) - 1, at_ms, at_ms)
        if complete:
            self.after_ms = at_ms
        return complete

    def way(self, step: int, at_ms: int, last_ms: int) -> bool:
        if step == 0:
            return last_ms - at_ms <= self.rule.within_ms
        return any(
            self.way(step - 1, before, last_ms) for before in self.done_at[step - 1] if self.after_ms < before < at_ms
        )


def slowly(rule: Rule, moments: list[Moment]) -> list[int]:
    slow = Slow(rule)
    return [at_ms for at_ms, values in moments if slow.moment(at_ms, values)]


def detector(rule: Rule) -> Sequence:
    return Sequence(1 + max(term.column for when in rule.conditions for term in when.terms), rule)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(RULES), moments_of, st.lists(st.integers(0, 40), max_size=4))
def test_it_finds_what_trying_every_way_finds(rule: Rule, drawn: list[Moment], cuts: list[int]) -> None:
    one = detector(rule)
    moments = [(at, values[: one.signals]) for at, values in timed(drawn)]
    if not moments:
        return
    at = np.array([at for at, _ in moments])
    values = np.array([values for _, values in moments])
    readings = Readings(np.zeros(len(at), int), at, values, np.zeros(len(at), int))
    state, found = one.start(1), []
    edges = [0, *sorted(min(cut, len(at)) for cut in cuts), len(at)]
    for left, right in pairwise(edges):
        state, verdict = one.run(one.load(one.dump(state)), readings.take(slice(left, right)))
        found += [int(moment) for moment in at[left:right][verdict.alarm]]
    assert found == slowly(rule, moments)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(RULES), moments_of, st.integers(0, 2**32 - 1), st.lists(st.integers(0, 120), max_size=5))
def test_disorder_and_cuts_change_nothing_in_the_stream(
    rule: Rule, drawn: list[Moment], seed: int, cuts: list[int]
) -> None:
    """Readings change places within the watermark and come in any batches; they are judged in order all the same."""
    one = detector(rule)
    deployment = Deployment(
        "rule", one, tuple(range(1, one.signals + 1)), ("car",), "cause", "Look.", Severity.NOTE,
        Accumulator(call_at=1, ceiling=1), awaits=tuple(range(one.signals)),
    )  # fmt: skip
    moments = [(at, values[: one.signals]) for at, values in timed(drawn)]
    rows = [
        (7, 0, column + 1, at, 1, seq, column, values[column])
        for seq, (at, values) in enumerate(moments, 1)
        for column in range(one.signals)
        if values[column] == values[column]
    ]
    end = T0 + 1_000_000
    samples = np.array([*rows, (7, 0, 1, end, 1, 10_000, 0, 0.0)], SAMPLE)
    rng = np.random.default_rng(seed)
    order = np.argsort(samples["at_ms"] + rng.integers(0, 4_000, len(samples)), kind="stable")
    shard = Shard((deployment,), 5_000)
    state, began = shard.start(), set()
    for part in np.split(samples[order], sorted(min(cut, len(samples)) for cut in cuts)):
        step = shard.run(shard.load(shard.dump(state)), part)
        state = step.state
        assert not step.late
        began |= {int(row["started_ms"]) for row in step.told}
    assert sorted(began) == sorted({*_excursions(rule, moments)})


def _excursions(rule: Rule, moments: list[Moment]) -> list[int]:
    """Matches in moments right after each other are one excursion: it closes with the first moment without one."""
    known = [at for at, values in moments if any(v == v for v in values)]
    hits = set(slowly(rule, moments))
    return [at for place, at in enumerate(known) if at in hits and (place == 0 or known[place - 1] not in hits)]

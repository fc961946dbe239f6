"""The exam that every event pattern of the menu takes; a new rule is examined without writing a test."""

from __future__ import annotations

import numpy as np
import pytest

from anomaly.base import Readings
from anomaly.deployed import DEPLOYED
from anomaly.deployment import Deployment
from anomaly.detectors.sequence import SPAN_PARTS, Rule, Sequence, When
from anomaly.patterns import PATTERNS
from anomaly.patterns.signals import ALL
from anomaly.types import Floats
from contracts.signals import catalogue

NAMES_GIVEN = (
    "pattern-overheating-under-load", "pattern-braking-then-airbag", "pattern-weak-starts", "pattern-bearing-wear",
)  # fmt: skip
"""Every name that a rule ever had, retired ones too, in the order in which they were given; only ever appended to."""

T0 = 1_700_000_000_000
each_rule = pytest.mark.parametrize("deployment", PATTERNS, ids=lambda one: one.name)


def rule_of(deployment: Deployment) -> Rule:
    assert isinstance(deployment.detector, Sequence)
    return deployment.detector.rule


def test_names_are_given_once_and_every_rule_is_deployed() -> None:
    assert [one.name for one in PATTERNS] == [name for name in NAMES_GIVEN if name in {one.name for one in PATTERNS}]
    assert len(set(NAMES_GIVEN)) == len(NAMES_GIVEN)
    assert [one for one in DEPLOYED if one in PATTERNS] == list(PATTERNS)


def test_names_of_signals_are_those_of_the_catalogue() -> None:
    known = {number: (one.path, one.unit) for number, one in ((n.number, catalogue().by_number(n.number)) for n in ALL)}
    assert {one.number: (one.path, one.unit) for one in ALL} == known


@each_rule
def test_conditions_can_hold_within_what_the_catalogue_allows(deployment: Deployment) -> None:
    rule = rule_of(deployment)
    for term in (term for when in rule.conditions for term in when.terms):
        signal = catalogue().by_number(deployment.signals[term.column])
        assert term.low <= signal.maximum and term.high >= signal.minimum and term.low <= term.high
        if term.rise is not None:
            assert 0 < term.rise.by < signal.maximum - signal.minimum and term.rise.part_ms >= 1_000


@each_rule
def test_state_is_small(deployment: Deployment) -> None:
    assert deployment.detector.start(1).bytes_per_device <= 1_024


def quiet(deployment: Deployment) -> Floats:
    """Values for which no step and nothing excluded holds, found by trying the catalogue's ranges."""
    rule, signals = rule_of(deployment), [catalogue().by_number(number) for number in deployment.signals]
    value = np.array([(one.minimum + one.maximum) / 2 for one in signals])
    for column, signal in enumerate(signals):
        terms = [term for when in rule.conditions for term in when.terms if term.column == column]
        edges = sorted({edge for term in terms for edge in (term.low, term.high) if np.isfinite(edge)})
        tried = [*edges, signal.minimum, signal.maximum]
        tried += [(a + b) / 2 for a in tried for b in tried]
        value[column] = min(tried, key=lambda one: sum(t.low <= one <= t.high for t in terms))
    return value


def doing(when: When, value: Floats) -> Floats:
    value = value.copy()
    for term in when.terms:
        value[term.column] = term.low if np.isfinite(term.low) else term.high
    return value


def judged(deployment: Deployment, moments: list[tuple[int, Floats]]) -> list[int]:
    """Seconds at which it alarms."""
    at = np.array([second for second, _ in moments])
    values = np.array([value for _, value in moments])
    readings = Readings(np.zeros(len(at), int), T0 + 1_000 * at, values, np.zeros(len(at), int))
    detector = deployment.detector
    _, verdict = detector.run(detector.start(1), readings)
    return [int(second) for second in at[verdict.alarm]]


def story(deployment: Deployment, pause_s: int = 2) -> list[tuple[int, Floats]]:
    """Calm, then each step in its order, back to back with what does not hold between them."""
    rule, calm = rule_of(deployment), quiet(deployment)
    told, second = [(0, calm)], 1
    for step in rule.steps:
        low = calm.copy()
        for term in step.when.terms:
            if term.rise is not None:
                low[term.column] = max(term.low - 2 * term.rise.by, low[term.column] - 2 * term.rise.by)
        told += [(second, low), (second + pause_s, doing(step.when, low))]
        second += 2 * pause_s
    return told


@each_rule
def test_its_steps_in_order_are_found_once(deployment: Deployment) -> None:
    told = story(deployment)
    assert judged(deployment, told) == [told[-1][0]]


@each_rule
def test_too_late_is_not_found(deployment: Deployment) -> None:
    told = story(deployment)
    gap_s = rule_of(deployment).within_ms // 1_000
    calm = (told[-1][0] + gap_s, quiet(deployment))
    assert judged(deployment, [*told[:-1], calm, (calm[0] + 1, told[-1][1])]) == []


@each_rule
def test_what_is_excluded_takes_it_back(deployment: Deployment) -> None:
    told = story(deployment)
    for when in rule_of(deployment).without:
        stop = (told[-2][0] + 1, doing(when, quiet(deployment)))
        assert judged(deployment, [*told[:-1], stop, told[-1]]) == []


def test_spans_are_cut_into_whole_parts() -> None:
    for one in PATTERNS:
        assert all(span.over_ms % SPAN_PARTS == 0 for _, span in rule_of(one).rises)

"""The sampler against what its rules promise, for any course of values."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from contracts.signals import catalogue
from edge_agent.sampling import Sampler, is_news
from edge_agent.settings import SamplingRule, SamplingSettings
from edge_agent.sources import Reading

courses = st.lists(
    st.tuples(st.integers(0, 5_000), st.floats(-100, 100) | st.just(math.nan), st.sampled_from([0, 0, 0, 64])),
    max_size=50,
)
rules = st.builds(
    SamplingRule,
    deadband=st.sampled_from([0.0, 0.5, 10.0]),
    on_change=st.booleans(),
    min_interval_ms=st.sampled_from([0, 500]),
    max_interval_ms=st.sampled_from([0, 3_000]),
)


def course(steps: list[tuple[int, float, int]]) -> list[Reading]:
    at_ms, readings = 0, []
    for wait_ms, value, quality in steps:
        at_ms += wait_ms
        readings.append(Reading(1, at_ms, value, quality))
    return readings


def sampled(rule: SamplingRule, readings: list[Reading]) -> list[Reading]:
    return list(Sampler(SamplingSettings(rules={"Vehicle.Speed": rule}), catalogue()).keep(readings))


@given(rules, courses)
def test_what_is_left_out_was_no_news(rule: SamplingRule, steps: list[tuple[int, float, int]]) -> None:
    readings = course(steps)
    kept = sampled(rule, readings)
    assert kept[:1] == readings[:1]
    last, rest = None, iter(kept)
    expected = next(rest, None)
    for reading in readings:
        if reading is expected:
            last, expected = reading, next(rest, None)
            continue
        assert last is not None
        assert reading.quality == last.quality
        too_soon = reading.at_ms - last.at_ms < rule.min_interval_ms
        near = abs(reading.value - last.value) <= rule.deadband
        same = repr(reading.value) == repr(last.value) or reading.value == last.value
        assert too_soon or near or same
        assert too_soon or not rule.max_interval_ms or reading.at_ms - last.at_ms < rule.max_interval_ms
    assert expected is None, "nothing new is made up and the order is kept"


@given(courses)
def test_without_thinning_everything_is_kept(steps: list[tuple[int, float, int]]) -> None:
    readings = course(steps)
    assert list(Sampler(SamplingSettings(thin=False), catalogue()).keep(readings)) == readings


@given(courses)
def test_a_rule_without_conditions_keeps_everything(steps: list[tuple[int, float, int]]) -> None:
    assert sampled(SamplingRule(), course(steps)) == course(steps)


def test_states_are_told_on_change_and_once_a_minute() -> None:
    state = next(signal.number for signal in catalogue() if signal.kind == "state")
    readings = [Reading(state, at_ms, float(at_ms >= 30_000)) for at_ms in range(0, 120_000, 1_000)]
    kept = list(Sampler(SamplingSettings(), catalogue()).keep(readings))
    assert [reading.at_ms for reading in kept] == [0, 30_000, 90_000]


def test_a_step_back_in_time_is_kept_and_does_not_move_the_present() -> None:
    sampler = Sampler(SamplingSettings(rules={"Vehicle.Speed": SamplingRule(deadband=5)}), catalogue())
    readings = [Reading(1, 1_000, 10.0), Reading(1, 500, 11.0), Reading(1, 1_100, 12.0)]
    assert list(sampler.keep(readings)) == readings[:2]


def test_becoming_not_a_number_is_news_and_staying_so_is_not() -> None:
    rule = SamplingRule(deadband=1)
    number, nan = Reading(1, 0, 5.0), Reading(1, 1, math.nan)
    assert is_news(rule, number, nan)
    assert is_news(rule, nan, Reading(1, 2, 5.0))
    assert not is_news(rule, nan, Reading(1, 2, math.nan))

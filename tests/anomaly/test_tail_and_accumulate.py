"""Tails follow known distributions; the accumulator calls once per cause."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anomaly import tail
from anomaly.accumulate import Accumulator
from anomaly.base import columns
from anomaly.errors import BadParameters


@pytest.mark.parametrize("shape", [0.0, 0.25])
def test_gpd_finds_its_own_parameters(shape: float) -> None:
    uniform = np.random.default_rng(1).random(20_000)
    excess = -2.0 * np.log(uniform) if shape == 0 else 2.0 / shape * (uniform**-shape - 1)
    found, scale = tail.gpd(excess)
    assert found == pytest.approx(shape, abs=0.05) and scale == pytest.approx(2.0, rel=0.06)


def test_gpd_level_is_exceeded_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    past, future = rng.exponential(1.0, 5_000), rng.exponential(1.0, 400_000)
    start = float(np.quantile(past, 0.95))
    shape, scale = tail.gpd(past[past > start] - start)
    level = tail.gpd_level(shape, scale, start, 0.05, 1e-3)
    assert 3e-4 < (future > level).mean() < 3e-3


def test_histogram_rarity_is_calibrated_on_an_exponential() -> None:
    rng = np.random.default_rng(3)
    counts, unit = np.zeros((1, tail.BINS), dtype=np.uint16), np.ones(1)
    for value in rng.exponential(1.0, 5_000):
        tail.count(counts, unit, np.array([value]), np.array([True]))
    for wanted in (2.0, 3.0):
        value = np.array([wanted * np.log(10.0)])
        assert tail.rarity(counts, unit, value)[0] == pytest.approx(wanted, abs=0.25)


def test_a_value_beyond_the_last_bin_becomes_the_unit() -> None:
    counts, unit = np.zeros((1, tail.BINS), dtype=np.uint16), np.zeros(1)
    for value in (0.0, 0.0, 5.0, 1e9, 1e9):
        tail.count(counts, unit, np.array([value]), np.array([True]))
    assert counts.sum() == 5 and unit[0] == 1e9


def test_full_histograms_fade() -> None:
    counts, unit = np.zeros((1, tail.BINS), dtype=np.uint16), np.ones(1)
    counts[0, 3] = tail.HALVE_AT
    tail.count(counts, unit, np.ones(1), np.array([True]))
    assert counts.sum() == tail.HALVE_AT // 2 + 1


@given(alarms=st.lists(st.booleans(), max_size=200))
def test_an_excursion_opens_once_and_closes_once(alarms: list[bool]) -> None:
    accumulator = Accumulator(call_at=5, close_at=1, ceiling=10)
    state, device, running = accumulator.start(1), np.zeros(1, dtype=np.int64), False
    for moment, alarm in enumerate(alarms):
        verdict = columns(np.array([2.0 if alarm else 0.0]), 1.0, np.array([True]))
        state, change = accumulator.step(state, device, np.array([moment]), verdict)
        assert not (change.opened[0] and running) and not (change.closed[0] and not running)
        running = (running or bool(change.opened[0])) and not bool(change.closed[0])
        assert 0 <= state["count"][0] <= 10
        if change.opened[0]:
            assert change.started_at_ms[0] <= moment - 4


def test_what_is_unknown_moves_nothing() -> None:
    accumulator = Accumulator(call_at=2, ceiling=4)
    state = accumulator.start(1)
    state["count"] = 1
    verdict = columns(np.array([9.0]), 1.0, np.array([False]))
    after, change = accumulator.step(state, np.zeros(1, int), np.zeros(1, int), verdict)
    assert after["count"][0] == 1 and not change.opened[0]


def test_hysteresis_must_make_sense() -> None:
    with pytest.raises(BadParameters):
        Accumulator(call_at=3, close_at=3)

"""The exam that every detector of the menu takes; a new entry is examined without writing a test."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anomaly.base import UNKNOWN_REGIME, Detector, Readings, State
from anomaly.detectors import MENU
from anomaly.errors import BadState

DEVICES = 7
each_detector = pytest.mark.parametrize("kind", MENU, ids=lambda kind: kind.name)


def readings(detector: Detector, moments: int, seed: int = 1, wild: float = 1.0) -> Readings:
    """Every device once a moment, some holes, a step change in the last third."""
    rng = np.random.default_rng(seed)
    values = rng.normal(50.0, wild, size=(moments, DEVICES, detector.channels)).cumsum(axis=2)
    values[2 * moments // 3 :, 0] += 40.0 * wild
    values[rng.random(values.shape) < 0.02] = np.nan
    device = np.tile(np.arange(DEVICES), moments)
    at_ms = np.repeat(1_700_000_000_000 + 60_000 * np.arange(moments), DEVICES)
    flat = values.reshape(moments * DEVICES, -1)
    return Readings(device, at_ms, flat, np.zeros(len(device), dtype=np.int64))


def same(left: State, right: State) -> bool:
    return left.rows.tobytes() == right.rows.tobytes() and left.parameters == right.parameters


@each_detector
def test_scoring_never_changes_state(kind: type[Detector]) -> None:
    detector = kind.example()
    state, _ = detector.run(detector.start(DEVICES), readings(detector, 150))
    before = state.rows.tobytes()
    moment = readings(detector, 1, seed=2)
    first, again = detector.score(state, moment), detector.score(state, moment)
    assert state.rows.tobytes() == before
    assert np.array_equal(first.score, again.score, equal_nan=True)
    detector.step(state, moment)
    assert state.rows.tobytes() == before


@each_detector
def test_a_state_survives_bytes_and_goes_on_the_same(kind: type[Detector]) -> None:
    detector = kind.example()
    batch = readings(detector, 160)
    half = 80 * DEVICES
    middle, _ = detector.run(detector.start(DEVICES), batch.take(slice(0, half)))
    revived = kind.example().load(detector.dump(middle))
    assert same(revived, middle)
    one, said = detector.run(middle, batch.take(slice(half, None)))
    two, told = detector.run(revived, batch.take(slice(half, None)))
    assert same(one, two) and np.array_equal(said.score, told.score, equal_nan=True)


@each_detector
def test_a_damaged_or_foreign_state_is_refused(kind: type[Detector]) -> None:
    detector = kind.example()
    data = detector.dump(detector.start(DEVICES))
    for spoiled in (b"", data[:-1], data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]):
        with pytest.raises(BadState):
            detector.load(spoiled)
    foreign = next(other for other in MENU if other is not kind).example()
    with pytest.raises(BadState):
        foreign.load(data)


@each_detector
@given(cuts=st.lists(st.integers(0, 60), max_size=6), seed=st.integers(0, 50))
@settings(max_examples=15, deadline=None)
def test_cutting_a_stream_into_calls_changes_nothing(kind: type[Detector], cuts: list[int], seed: int) -> None:
    detector = kind.example()
    batch = readings(detector, 60, seed=seed)
    whole, said = detector.run(detector.start(DEVICES), batch)
    state, scores, edges = detector.start(DEVICES), [], [0, *sorted(cuts), 60]
    for left, right in pairwise(edges):
        state, verdict = detector.run(state, batch.take(slice(left * DEVICES, right * DEVICES)))
        scores.append(verdict.score)
    assert same(whole, state)
    assert np.array_equal(np.concatenate(scores), said.score, equal_nan=True)


@each_detector
def test_a_step_is_a_run_of_one_moment(kind: type[Detector]) -> None:
    detector = kind.example()
    batch = readings(detector, 200)
    state, found = detector.start(DEVICES), 0
    for moment in range(200):
        state, findings = detector.step(state, batch.take(slice(moment * DEVICES, (moment + 1) * DEVICES)))
        found += len(findings)
    whole, verdict = detector.run(detector.start(DEVICES), batch)
    assert same(whole, state) and found == int(verdict.alarm.sum())


@each_detector
def test_an_unknown_regime_is_answered_as_unknown(kind: type[Detector]) -> None:
    if kind.name in ("limits", "faults", "maintenance"):
        pytest.skip("this rule holds in every regime")
    detector = kind.example()
    state, _ = detector.run(detector.start(DEVICES), readings(detector, 150))
    moment = readings(detector, 1)
    strange = replace(moment, regime=np.full(DEVICES, UNKNOWN_REGIME))
    verdict = detector.score(state, strange)
    assert not verdict.known.any() and np.isnan(verdict.score).all() and not verdict.alarm.any()


@each_detector
def test_hostile_numbers_neither_crash_nor_poison(kind: type[Detector]) -> None:
    detector = kind.example()
    hostile = readings(detector, 90)
    hostile.values[::5] = np.nan
    hostile.values[1::7] = 1e30
    hostile.values[2::11] = -1e30
    with np.errstate(all="ignore"):
        state, verdict = detector.run(detector.start(DEVICES), hostile)
        assert not np.isnan(verdict.score[verdict.known]).any()
        state, verdict = detector.run(state, readings(detector, 30))
    assert not np.isnan(verdict.score[verdict.known]).any()


@each_detector
def test_devices_do_not_hear_each_other(kind: type[Detector]) -> None:
    if kind.layer == "d":
        pytest.skip("comparing devices is this layer's purpose")
    detector = kind.example()
    batch = readings(detector, 120)
    mine = np.flatnonzero(batch.device == 3)
    _, together = detector.run(detector.start(DEVICES), batch)
    _, alone = detector.run(detector.start(DEVICES), batch.take(mine))
    assert np.allclose(together.score[mine], alone.score, equal_nan=True, rtol=1e-9)


@each_detector
def test_state_is_small_and_does_not_grow(kind: type[Detector]) -> None:
    detector = kind.example()
    state = detector.start(DEVICES)
    assert state.bytes_per_device <= 1024
    grown, _ = detector.run(state, readings(detector, 300))
    assert len(detector.dump(grown)) == len(detector.dump(state))


@each_detector
def test_parameters_are_frozen_and_name_the_state(kind: type[Detector]) -> None:
    detector = kind.example()
    name = next((field.name for field in fields(detector)), None)  # type: ignore[arg-type]
    if name is not None:
        with pytest.raises(FrozenInstanceError):
            setattr(detector, name, None)
    assert detector.fingerprint() == kind.example().fingerprint()
    assert detector.start(1).parameters == detector.fingerprint()


def test_names_are_unique_and_every_layer_has_an_entry() -> None:
    assert len({kind.name for kind in MENU}) == len(MENU)
    assert {kind.layer for kind in MENU} == {"a", "b", "c", "d"}

"""Trained models, without Spark: their bytes, their trial, who judges when, and what drifts."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anomaly.base import Readings
from anomaly.deployment import FOREVER
from anomaly.detectors.input_drift import InputDrift
from anomaly.errors import BadModel, BadParameters
from anomaly.models.file import decode, encode, sha256_of
from anomaly.models.fitting import choose, fit
from anomaly.models.recipe import RECIPES, SIGNALS, recipe_named
from anomaly.models.rows import rows_of, stretches
from anomaly.models.schedule import LEAD_MS, Change, before, deployments, era, generations
from anomaly.models.trial import FaultScore, Score, tellings
from anomaly.models.verdict import worse
from anomaly.shard import Shard
from contracts.limits import MAX_FUTURE_MS
from contracts.signals import catalogue
from tests.anomaly.fix_models import RECIPE, SHAPE, T0, WAIT_MS, driven, samples, trained

DATA = encode(trained())


def test_a_model_travels_unchanged_and_is_made_the_same_again() -> None:
    assert decode(DATA) == trained()
    trained.cache_clear()
    assert encode(trained()) == DATA
    assert sha256_of(encode(trained(seed=2))) != sha256_of(DATA)


@given(at=st.integers(0, len(DATA) - 1), by=st.integers(1, 255))
def test_any_byte_changed_is_another_name_or_no_model(at: int, by: int) -> None:
    spoiled = DATA[:at] + bytes([DATA[at] ^ by]) + DATA[at + 1 :]
    assert sha256_of(spoiled) != sha256_of(DATA)
    with contextlib.suppress(BadModel):
        assert decode(spoiled) != trained()


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2}, {"signals": [21]}, {"kind": 5}, {"detector": {"name": "limits"}}, {"score": {}}, {"more": 1},
        {"call": None}, {"training": {"seed": 1}},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_model_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(BadModel):
        decode(json.dumps({**json.loads(DATA), **change}, sort_keys=True, separators=(",", ":")).encode() + b"\n")
    for junk in (b"", b"{}", b"[]", b"\xff", DATA + b" ", DATA[:-2], b"[" * 100_000):
        with pytest.raises(BadModel):
            decode(junk)


def test_parameters_that_were_meddled_with_are_not_taken() -> None:
    told = json.loads(DATA)
    told["detector"]["parameters"]["threshold"] *= 9
    with pytest.raises(BadModel, match="train anew"):
        decode(json.dumps(told, sort_keys=True, separators=(",", ":")).encode() + b"\n")


def test_a_trial_says_what_the_stream_says() -> None:
    model = trained()
    told = samples(7, driven(7, 6_000, 1_800, hot_from_s=6_900), 6_000)
    last = told[-40:].copy()
    last["at_ms"] += 60_000  # moves the watermark past the end
    shard = Shard((model.deployment(),), WAIT_MS)
    said = shard.run(shard.start(), np.concatenate([told, last])).told
    tried, known = tellings(model.deployment(), rows_of(SHAPE, told, WAIT_MS))
    assert known.mean() > 0.9
    assert said["started_ms"].tolist() == sorted(set(tried["started_ms"].tolist())) and len(said) == 1
    assert 0 < (int(said["started_ms"][0]) - T0) / 1_000 - 6_900 < 240


def test_the_score_of_a_good_model_and_of_a_loud_one() -> None:
    good, loud = trained().score, trained(loud=True).score
    assert good.false_alarms == 0 and good.hours > 1.2 and not worse(good, None)
    assert [(one.found, one.tried) for one in good.faults] == [(3, 3)]
    assert loud.false_alarms > 0 and any("false alarms" in reason for reason in worse(loud, good))


def test_a_verdict_has_its_reason() -> None:
    def score(alarms: int, found: int, delay_s: float | None, hours: float = 100.0) -> Score:
        return Score(hours, alarms, (FaultScore("a", 4, found, delay_s),))

    live = score(1, 4, 60.0)
    assert not worse(live, live) and not worse(score(0, 4, 80.0), live) and not worse(score(1, 4, None), live)
    quiet = score(0, 4, 60.0, hours=80.0)
    for candidate in (score(2, 4, 60.0), score(1, 3, 60.0), score(1, 4, 120.0), score(0, 4, 1.0, hours=0.0), quiet):
        assert worse(candidate, live)
    assert worse(score(0, 1, 60.0), None) and worse(score(9, 4, 60.0), None) and not worse(score(0, 2, 60.0), None)
    assert worse(replace(live, faults=(FaultScore("a", 0, 0, None),)), None)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz-"), st.integers(1, 10**6)), max_size=25))
def test_at_each_time_at_most_one_model_judges(steps: list[tuple[str, str, int]]) -> None:
    """Promotions and rollbacks ("-") against a stack kept by hand."""
    made: list[Change] = []
    stacks: dict[str, list[str]] = {"a": [], "b": []}
    clock = 0
    for number, (name, letter, pause) in enumerate(steps, 1):
        clock += pause
        stack, mine = stacks[name], [one for one in made if one.name == name]
        live = stack[-1] if stack else None
        if letter == "-":
            if live is None:
                continue
            stack.pop()
            assert before(mine) == (stack[-1] if stack else None)
            made.append(Change(number, name, before(mine), live, clock, rolled_back=True))
        elif letter != live:
            stack.append(letter)
            made.append(Change(number, name, letter, live, clock))
    found = generations(made)
    for name, stack in stacks.items():
        theirs = [one for one in found if one.name == name]
        assert all(one.until_ms <= other.since_ms for one, other in pairwise(theirs))
        assert [one.model for one in theirs if one.until_ms == FOREVER] == stack[-1:]
    assert len(found) <= 16 and era(made) == 0


def test_a_change_made_now_holds_ahead_of_whatever_can_have_been_judged() -> None:
    assert LEAD_MS > MAX_FUTURE_MS
    assert era([Change(3, "a", "x", None, 5, anew=True), Change(4, "a", "y", "x", 9)]) == 3


def test_a_generation_without_its_file_is_left_out_and_the_rest_judges() -> None:
    name = sha256_of(DATA)
    schedule = generations([Change(1, RECIPE.name, "f" * 64, None, 10), Change(2, RECIPE.name, name, "f" * 64, 50)])
    found = deployments(schedule, {name: trained()})
    assert [(one.name, one.since_ms, one.model) for one in found] == [
        ("car-coolant-model", 50, name), ("car-coolant-model-inputs", 50, name),
    ]  # fmt: skip
    assert Shard(found, WAIT_MS, SIGNALS).version == Shard((), WAIT_MS, SIGNALS).version


@given(rows=st.integers(0, 400), most=st.integers(1, 300), gap=st.integers(2, 50))
def test_rows_are_drawn_in_whole_stretches_and_never_too_many(rows: int, most: int, gap: int) -> None:
    at = np.arange(rows)
    readings = Readings(
        at // 200, 1_000 * at + 100_000 * (at // gap), np.zeros((rows, 1)), np.zeros(rows, np.int64)
    )  # fmt: skip
    chosen = choose(readings, most, (1, 2))
    assert len(chosen) == min(rows, most) and np.array_equal(chosen, np.unique(chosen))
    assert sum(map(len, stretches(readings, 60))) == rows
    assert all(np.ptp(part) < gap for part in stretches(readings, 60))


def test_too_few_rows_and_strange_names_are_refused() -> None:
    with pytest.raises(BadParameters, match="too few"):
        fit(RECIPE, {1: np.ones((20, 4))})
    with pytest.raises(BadParameters, match="choose one of"):
        recipe_named("crystal-ball")


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_fits_the_catalogue_and_gives_a_model(name: str) -> None:
    recipe = RECIPES[name]
    assert set(recipe.signals) <= {one.number for one in catalogue()} and set(recipe.signals) <= set(SIGNALS)
    rng = np.random.default_rng(3)
    detector, inputs = fit(recipe, {1: rng.normal(50, 5, (900, recipe.channels))})
    model = replace(
        trained(), recipe=recipe.name, kind=recipe.kind, signals=recipe.signals, detector=detector, call=recipe.call,
        inputs=inputs, faults=recipe.faults,
    )  # fmt: skip
    assert decode(encode(model)).deployment() == model.deployment()


def test_inputs_that_leave_the_training_are_noticed_and_say_which() -> None:
    rng = np.random.default_rng(5)
    watch = InputDrift.of(rng.normal(size=(2_000, 2)), memory=300.0)
    steady, moved = rng.normal(size=(1_500, 2)), rng.normal(size=(1_500, 2)) + np.array([0.0, 3.0])
    nothing = np.zeros(1_500, np.int64)
    state, calm = watch.run(watch.start(1), Readings(nothing, nothing, steady, nothing))
    _, loud = watch.run(state, Readings(nothing, nothing, moved, nothing))
    assert calm.score[0] == pytest.approx(0.0, abs=1e-4) and not calm.alarm[:600].any()
    assert loud.alarm[-1] and int(loud.channel[-1]) == 1 and watch.index(moved) > 1 > watch.index(steady)

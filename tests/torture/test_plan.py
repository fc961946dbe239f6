"""The plan: one seed, one plan; as many kills as asked; every kind comes round; half waits for lag 0."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.torture.menu import MENU
from tests.torture.plan import KILL, SECONDS_PER_FAULT, STORM_SHARE, VICTIMS, draw_plan, kills_of

seeds = st.integers(0, 2**32)
lengths = st.floats(10, 1_000)
counts = st.integers(0, 200)


@given(seeds, lengths, counts)
@settings(max_examples=60)
def test_same_numbers_same_plan(seed: int, seconds: float, kills: int) -> None:
    assert draw_plan(seed, seconds, kills, MENU.values()) == draw_plan(seed, seconds, kills, MENU.values())


def test_another_seed_is_another_plan() -> None:
    assert len({draw_plan(seed, 100, 20, MENU.values()) for seed in range(20)}) == 20


@given(seeds, lengths, counts)
@settings(max_examples=60)
def test_exactly_the_kills_asked_for_half_of_them_in_the_storm(seed: int, seconds: float, kills: int) -> None:
    plan = draw_plan(seed, seconds, kills, MENU.values())
    assert kills_of(plan) == kills
    assert kills_of([step for step in plan if not step.drained]) == kills // 2
    victims = [victim for step in plan if step.fault == KILL for victim in step.targets]
    assert set(victims) <= set(VICTIMS)
    assert all(len(set(step.targets)) == len(step.targets) for step in plan)


@given(seeds, lengths, counts)
@settings(max_examples=60)
def test_the_storm_comes_first_in_order_and_ends_in_time(seed: int, seconds: float, kills: int) -> None:
    plan = draw_plan(seed, seconds, kills, MENU.values())
    storm = [step for step in plan if not step.drained]
    assert list(plan[: len(storm)]) == sorted(storm, key=lambda step: step.at_s)
    assert all(0 <= step.at_s <= STORM_SHARE * seconds for step in storm)
    others = [step for step in plan if step.fault != KILL]
    assert abs(sum(step.drained for step in others) - len(others) / 2) <= 1


@given(seeds)
@settings(max_examples=30)
def test_no_kind_comes_twice_before_every_kind_came_once(seed: int) -> None:
    kinds = len(MENU) - 1
    plan = draw_plan(seed, SECONDS_PER_FAULT * kinds, 0, MENU.values())
    assert {step.fault for step in plan} == set(MENU) - {KILL} and len(plan) == kinds


@given(seeds, st.floats(10, 100))
@settings(max_examples=30)
def test_a_short_run_holds_its_faults_for_its_share_of_the_time(seed: int, seconds: float) -> None:
    long = {step.hold_s for step in draw_plan(seed, 10_000, 0, MENU.values())}
    short = {step.hold_s for step in draw_plan(seed, seconds, 0, MENU.values())}
    assert max(long) > 30 and max(short) <= 45 * max(0.2, seconds / 240) + 1e-3

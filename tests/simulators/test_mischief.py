"""Mischief loses nothing that it does not name, repeats nothing that it does not count, and is the same every time."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from edge_agent.clock import ManualClock
from edge_agent.sources.base import Reading
from edge_agent.sources.scripted import ScriptedSource
from simulators.mischief import CALM, ROUGH, DriftingClock, Mischief, MischievousSource, Odds, play

odds = st.builds(
    Odds, late=st.floats(0, 0.3), shuffled=st.floats(0, 0.4), held_back=st.floats(0, 1), repeated=st.floats(0, 0.5),
    gap=st.floats(0, 0.3), late_batches=st.integers(1, 30),
)  # fmt: skip


@given(odds, st.integers(0, 99), st.lists(st.integers(), max_size=200))
def test_all_but_the_lost_come_out(odds: Odds, seed: int, items: list[int]) -> None:
    mischief: Mischief[int] = Mischief(odds, seed)
    out = [item for at in range(0, len(items), 5) for item in mischief.pass_on(items[at : at + 5])]
    out += mischief.finish()
    played = mischief.played
    assert mischief.holding == 0
    assert len(out) == len(items) - len(played.lost) + played.repeated
    assert Counter(items) - Counter(played.lost) <= Counter(out)


@given(st.integers(0, 99))
def test_the_defaults_only_reorder(seed: int) -> None:
    out = list(play(range(3_000), Odds(), seed))
    assert out != list(range(3_000)) and sorted(out) == list(range(3_000))
    assert out == list(play(range(3_000), Odds(), seed))


def test_calm_changes_nothing() -> None:
    assert list(play(range(500), CALM, seed=1)) == list(range(500))


def test_the_named_probabilities_are_kept() -> None:
    """Over 20,000 batches each share lies within five standard deviations of its name."""
    mischief: Mischief[int] = Mischief(
        Odds(late=0.01, shuffled=0.05, held_back=0.3, repeated=0.02, gap=0.005), "shares"
    )
    out = sum(len(mischief.pass_on([batch] * 10)) for batch in range(20_000))
    played = mischief.played
    assert abs(played.late - 200) < 5 * 200**0.5
    assert abs(played.shuffled - 1_000) < 5 * 1_000**0.5
    assert abs(played.held_back - 0.3 * 10 * played.shuffled) < 5 * (0.21 * 10 * played.shuffled) ** 0.5
    assert abs(len(played.lost) / 10 - 100) < 5 * 10
    assert abs(played.repeated / out - 0.02) < 0.003


def test_a_source_with_mischief_ends_and_gives_every_reading() -> None:
    readings = [Reading(1, at_ms, float(at_ms)) for at_ms in range(1, 20_001)]
    source = MischievousSource(ScriptedSource(readings), ROUGH, seed=3)
    got: list[Reading] = []
    now_ms = 0
    while not source.finished:
        now_ms += 20
        got += source.read(now_ms, 100)
    assert set(got) | set(source.played.lost) == set(readings)
    assert source.played.lost and len(got) > len(set(got))


def test_a_drifting_clock_drifts_and_waits_truly() -> None:
    true = ManualClock(now_ms=1_790_000_000_000)
    clock = DriftingClock(true, drift_ppm=100, offset_ms=-5_000)
    assert clock.now_ms() == true.now_ms() - 5_000
    true.advance(1_000_000)
    assert clock.now_ms() == true.now_ms() - 5_000 + 100
    assert clock.mono_ms() == true.mono_ms()

"""The rate limit: a burst passes, a flood does not, and one name's flood is nobody else's trouble."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.limiter import Limiter


@given(gaps_s=st.lists(st.floats(0, 2), min_size=1, max_size=300))
def test_never_more_than_burst_plus_rate(gaps_s: list[float]) -> None:
    limiter, now_s, allowed = Limiter(per_s=5.0, burst=10), 0.0, 0
    for gap_s in gaps_s:
        now_s += gap_s
        allowed += limiter.allow("a", now_s)
    assert allowed <= 10 + 5.0 * now_s + 1
    assert allowed >= min(len(gaps_s), 10)


def test_a_flood_costs_only_its_own_name() -> None:
    limiter = Limiter(per_s=10.0, burst=20)
    steady = flood = 0
    for tick in range(1_000):
        now_s = tick / 10
        steady += limiter.allow("steady", now_s)
        flood += sum(limiter.allow("wild", now_s) for _ in range(100))
    assert steady == 1_000
    assert 1_000 <= flood <= 1_020


def test_memory_is_bounded_when_names_are_invented() -> None:
    limiter = Limiter(per_s=1.0, burst=5, max_buckets=100)
    for number in range(10_000):
        assert limiter.allow(f"name-{number}", number / 1_000)
        assert len(limiter) <= 101


def test_a_busy_name_survives_the_cleaning_of_idle_ones() -> None:
    limiter = Limiter(per_s=1.0, burst=50, max_buckets=100)
    for _ in range(50):
        assert limiter.allow("wild", 100.0)
    for number in range(200):
        limiter.allow(f"n{number}", number / 10)
    assert not limiter.allow("wild", 100.0)

"""Range sets against plain Python sets."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.ranges import RangeSet, count, holes, normalise, ranges_of

numbers = st.lists(st.integers(1, 60))


@given(numbers)
def test_ranges_cover_exactly_the_numbers(values: list[int]) -> None:
    ranges = ranges_of(values)
    assert {n for first, last in ranges for n in range(first, last + 1)} == set(values)
    assert count(ranges) == len(set(values))
    assert all(left[1] + 1 < right[0] for left, right in pairwise(ranges))


@given(numbers)
def test_adding_one_by_one_gives_the_same_set(values: list[int]) -> None:
    growing, known = RangeSet(), set[int]()
    for value in values:
        assert growing.add(value) is (value not in known)
        known.add(value)
    assert growing.as_tuple() == ranges_of(values)
    assert len(growing) == len(known)
    assert all((n in growing) is (n in known) for n in range(62))


@given(numbers, st.integers(1, 30), st.integers(31, 60))
def test_holes_are_what_is_missing(values: list[int], first: int, last: int) -> None:
    missing = holes(ranges_of(values), first, last)
    assert {n for a, b in missing for n in range(a, b + 1)} == set(range(first, last + 1)) - set(values)


def test_a_reversed_range_is_refused() -> None:
    with pytest.raises(ValueError, match="reversed"):
        normalise([(3, 2)])

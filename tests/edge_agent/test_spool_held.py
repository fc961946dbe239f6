"""What the heartbeat says is held: exact while there are few ranges, never less than the truth, always bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from contracts.ranges import count, normalise, ranges_of
from edge_agent.spool_held import MAX_LOOKS, held, narrow
from edge_agent.spool_index import CHUNK_BITS, SpoolIndex, packet_id

CHUNK = 1 << CHUNK_BITS


class Rows:
    """Stands in for the file: answers the one question that is asked, and counts it."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids, self.looks = sorted(ids), 0

    def execute(self, _: str, bounds: tuple[int, int]) -> list[tuple[int]]:
        self.looks += 1
        return [(one,) for one in self.ids if bounds[0] <= one <= bounds[1]]


def told(numbers: dict[int, set[int]], limit: int = 64) -> tuple[Any, Rows]:
    ids = [packet_id(epoch, seq) for epoch, seqs in numbers.items() for seq in seqs]
    index = SpoolIndex()
    for one in ids:
        index.add(one, 0, 0, 10, 1)
    rows = Rows(ids)
    return held(rows, index, limit), rows  # type: ignore[arg-type]


numbers = st.dictionaries(st.integers(1, 5), st.sets(st.integers(1, 60), min_size=1), max_size=5)


@given(numbers)
def test_few_ranges_are_told_exactly(drawn: dict[int, set[int]]) -> None:
    answer, _ = told(drawn, limit=500)
    assert answer == tuple((e, first, last) for e in sorted(drawn) for first, last in ranges_of(drawn[e]))


@given(numbers, st.integers(5, 40))
def test_many_ranges_are_told_as_wider_ones(drawn: dict[int, set[int]], limit: int) -> None:
    answer, _ = told(drawn, limit)
    assert answer is not None and len(answer) <= limit
    for epoch, seqs in drawn.items():
        ours = [(first, last) for e, first, last in answer if e == epoch]
        assert list(normalise(ours)) == ours
        assert all(any(first <= seq <= last for first, last in ours) for seq in seqs)
        assert ours[0][0] == min(seqs) and ours[-1][1] == max(seqs)


def test_the_narrowest_holes_close_first() -> None:
    by_epoch = {1: ((1, 1), (3, 3), (10, 10)), 2: ((5, 5),)}
    assert narrow(by_epoch, 3) == ((1, 1, 3), (1, 10, 10), (2, 5, 5))
    assert narrow(by_epoch, 2) == ((1, 1, 10), (2, 5, 5))
    assert narrow(by_epoch, 1) is None


def test_a_long_backlog_costs_few_looks() -> None:
    seqs = set(range(1, 40 * CHUNK)) - {5}
    answer, rows = told({3: seqs})
    assert answer == ((3, 1, 4), (3, 6, 40 * CHUNK - 1))
    assert rows.looks == 1


def test_a_spool_full_of_holes_costs_bounded_looks_and_hides_nothing() -> None:
    seqs = {n for n in range(1, 30 * CHUNK) if n % CHUNK == 7}
    answer, rows = told({1: seqs})
    assert rows.looks == MAX_LOOKS
    assert all(any(first <= seq <= last for _, first, last in answer) for seq in seqs)
    assert count((first, last) for _, first, last in answer) > len(seqs)

"""Sets of sequence numbers held as ranges: how the ledger, acknowledgements and gaps are counted.

Ranges are closed (``first`` and ``last`` both belong to it), disjoint, ordered and never adjacent, so two
equal sets have equal tuples.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

Range = tuple[int, int]


def normalise(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Sort, merge overlapping and adjacent closed ranges. Raises ValueError on a reversed one."""
    merged: list[Range] = []
    for first, last in sorted(ranges):
        if last < first:
            raise ValueError(f"range {first}..{last} is reversed")
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def ranges_of(numbers: Iterable[int]) -> tuple[Range, ...]:
    """The ranges that cover exactly ``numbers``.

    >>> ranges_of([4, 1, 2, 9])
    ((1, 2), (4, 4), (9, 9))
    """
    return normalise((number, number) for number in set(numbers))


def holes(ranges: Iterable[Range], first: int, last: int) -> tuple[Range, ...]:
    """What is missing from ``ranges`` between ``first`` and ``last``, both included."""
    missing: list[Range] = []
    next_expected = first
    for start, end in normalise(ranges):
        if start > last:
            break
        if start > next_expected:
            missing.append((next_expected, start - 1))
        next_expected = max(next_expected, end + 1)
    if next_expected <= last:
        missing.append((next_expected, last))
    return tuple(missing)


def meet(left: Iterable[Range], right: Iterable[Range]) -> tuple[Range, ...]:
    """The numbers that both have.

    >>> meet([(1, 5), (8, 9)], [(4, 8)])
    ((4, 5), (8, 8))
    """
    ours, theirs = normalise(left), normalise(right)
    found: list[Range] = []
    at = beside = 0
    while at < len(ours) and beside < len(theirs):
        first, last = max(ours[at][0], theirs[beside][0]), min(ours[at][1], theirs[beside][1])
        if first <= last:
            found.append((first, last))
        if ours[at][1] < theirs[beside][1]:
            at += 1
        else:
            beside += 1
    return tuple(found)


def without(left: Iterable[Range], right: Iterable[Range]) -> tuple[Range, ...]:
    """The numbers of ``left`` that ``right`` has not.

    >>> without([(1, 5), (8, 9)], [(2, 3), (9, 20)])
    ((1, 1), (4, 5), (8, 8))
    """
    ours = normalise(left)
    if not ours:
        return ()
    return meet(ours, holes(right, ours[0][0], ours[-1][1]))


def count(ranges: Iterable[Range]) -> int:
    """How many numbers the disjoint ``ranges`` hold."""
    return sum(last - first + 1 for first, last in ranges)


class RangeSet:
    """A growing set of sequence numbers; memory is proportional to its holes, not to its size."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        normal = normalise(ranges)
        self._firsts = [first for first, _ in normal]
        self._lasts = [last for _, last in normal]

    def add(self, number: int) -> bool:
        """Add one number; False when it was there already."""
        at = bisect_right(self._firsts, number) - 1
        if at >= 0 and number <= self._lasts[at]:
            return False
        joins_left = at >= 0 and self._lasts[at] == number - 1
        joins_right = at + 1 < len(self._firsts) and self._firsts[at + 1] == number + 1
        if joins_left and joins_right:
            self._lasts[at] = self._lasts.pop(at + 1)
            self._firsts.pop(at + 1)
        elif joins_left:
            self._lasts[at] = number
        elif joins_right:
            self._firsts[at + 1] = number
        else:
            self._firsts.insert(at + 1, number)
            self._lasts.insert(at + 1, number)
        return True

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]

    def __iter__(self) -> Iterator[Range]:
        return iter(zip(self._firsts, self._lasts, strict=True))

    def __len__(self) -> int:
        """How many numbers are in the set."""
        return sum(self._lasts) - sum(self._firsts) + len(self._firsts)

    def as_tuple(self) -> tuple[Range, ...]:
        return tuple(self)

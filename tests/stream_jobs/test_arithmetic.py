"""Exact means exact: against Python's integers and decimals."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stream_jobs.arithmetic import (
    EXACT_LIMIT,
    UNITS_LIMIT,
    as_ints,
    rescale,
    sum_runs,
    sum_square_runs,
    to_double,
)

raws = st.integers(-2 * EXACT_LIMIT, 2 * EXACT_LIMIT)
units = st.integers(-UNITS_LIMIT, UNITS_LIMIT)


def ints(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


@given(st.lists(st.tuples(raws, st.integers(-40, 40)), min_size=1))
def test_rescaling_rounds_half_to_even_once_or_says_that_it_does_not_fit(rows: list[tuple[int, int]]) -> None:
    made, too_large = rescale(ints([raw for raw, _ in rows]), ints([shift for _, shift in rows]))
    for (raw, shift), value, over in zip(rows, made.tolist(), too_large.tolist(), strict=True):
        exact = (
            int((Decimal(raw).scaleb(shift)).quantize(Decimal(1), ROUND_HALF_EVEN)) if shift < 0 else raw * 10**shift
        )
        assert over == (abs(exact) > EXACT_LIMIT)
        assert value == (0 if over else exact)


@given(st.lists(st.tuples(st.integers(-EXACT_LIMIT, EXACT_LIMIT), st.integers(-9, 0)), min_size=1))
def test_the_double_is_what_parsing_the_decimal_gives(rows: list[tuple[int, int]]) -> None:
    made = to_double(ints([value for value, _ in rows]), ints([exponent for _, exponent in rows]))
    assert made.tolist() == [float(Decimal(value).scaleb(exponent)) for value, exponent in rows]


@given(st.lists(st.lists(units, min_size=1, max_size=8), min_size=1, max_size=6))
def test_sums_of_runs_are_python_s(runs: list[list[int]]) -> None:
    flat = ints([value for run in runs for value in run])
    starts = np.cumsum([0] + [len(run) for run in runs[:-1]])
    assert as_ints(sum_runs(flat, starts)) == [sum(run) for run in runs]
    assert as_ints(sum_square_runs(flat, starts)) == [sum(value * value for value in run) for run in runs]


def test_long_runs_of_the_largest_values_do_not_overflow() -> None:
    size = 2**18
    for value in (UNITS_LIMIT, -UNITS_LIMIT, UNITS_LIMIT - 1, -1):
        flat = np.full(size, value, np.int64)
        assert as_ints(sum_runs(flat, ints([0]))) == [size * value]
        assert as_ints(sum_square_runs(flat, ints([0]))) == [size * value * value]

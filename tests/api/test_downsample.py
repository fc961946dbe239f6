"""Downsampling: what is kept is a part of what there was, and never without its extremes or its gaps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from api.downsample import extremes, largest_triangles, pause_ms, segments, thin

NUMBER = st.floats(-1e6, 1e6)
VALUES = st.lists(NUMBER, min_size=1, max_size=300)


@given(VALUES, st.integers(1, 40))
def test_extremes_of_every_part_are_kept(values: list[float], buckets: int) -> None:
    kept = extremes(values, buckets)
    assert kept == sorted(set(kept)) and len(kept) <= 2 * buckets + 2
    assert kept[0] == 0 and kept[-1] == len(values) - 1
    shown = [values[at] for at in kept]
    assert max(shown) == max(values) and min(shown) == min(values)
    for bucket in range(buckets):
        part = values[bucket * len(values) // buckets : (bucket + 1) * len(values) // buckets]
        assert not part or {max(part), min(part)} <= set(shown)


@given(VALUES, st.integers(2, 60))
def test_triangles_keep_the_ends_and_the_number_asked_for(values: list[float], points: int) -> None:
    ms = [1_000 * at for at in range(len(values))]
    kept = largest_triangles(ms, values, points)
    assert kept == sorted(set(kept)) and kept[0] == 0 and kept[-1] == len(values) - 1
    assert len(kept) == min(points, len(values))


def test_triangles_see_a_lone_peak() -> None:
    values = [0.0] * 1_000
    values[617] = 50.0
    assert 617 in largest_triangles(list(range(1_000)), values, 20)


@given(
    st.lists(st.tuples(st.integers(1, 5_000), st.none() | NUMBER), max_size=200), st.integers(10, 80),
    st.sampled_from(["extremes", "triangles", "all"]),
)  # fmt: skip
def test_a_line_is_broken_exactly_where_the_data_is(
    steps: list[tuple[int, float | None]], points: int, keep: str
) -> None:
    ms, values = [sum(step for step, _ in steps[: at + 1]) for at in range(len(steps))], [one for _, one in steps]
    times, shown = thin(ms, values, points, keep)
    real = {at: value for at, value in zip(ms, values, strict=True) if value is not None}
    assert all(real[at] == value for at, value in zip(times, shown, strict=True) if value is not None)
    stretches = segments(ms, values, pause_ms(ms))
    assert shown.count(None) == max(0, len(stretches) - 1)
    assert times == sorted(times)
    if keep == "all":
        assert [value for value in shown if value is not None] == [value for value in values if value is not None]
    if real and keep != "triangles":
        numbers = [value for value in shown if value is not None]
        assert (min(numbers), max(numbers)) == (min(real.values()), max(real.values()))

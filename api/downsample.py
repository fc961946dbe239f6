"""Fewer points for a chart: extremes kept, gaps shown as gaps. Pure; times are milliseconds in ascending order.

A value None is a point without a value. It breaks the line, and so does a pause in the data (``breaks``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

PAUSE_STEPS = 5
"""A pause is longer than so many usual steps …"""
LEAST_PAUSE_MS = 2_000
"""… and than this."""

Value = float | None


def pause_ms(ms: Sequence[int]) -> int:
    """From which distance on two neighbours are not joined by a line, judged by the usual distance."""
    steps = [later - one for one, later in pairwise(ms[:2_000]) if later > one]
    return max(LEAST_PAUSE_MS, round(PAUSE_STEPS * median(steps))) if steps else LEAST_PAUSE_MS


def segments(ms: Sequence[int], values: Sequence[Value], longest_ms: int) -> list[tuple[int, int]]:
    """Stretches [begin, end) of points that belong together; points without a value are in none."""
    found, begin = [], 0
    for at in range(1, len(ms) + 1):
        broken = at == len(ms) or ms[at] - ms[at - 1] > longest_ms or values[at] is None or values[at - 1] is None
        if broken:
            if begin < at and values[begin] is not None:
                found.append((begin, at))
            begin = at
    return found


def extremes(values: Sequence[float], buckets: int) -> list[int]:
    """Places of the least and the greatest value of each of ``buckets`` equal parts, and of both ends, in order."""
    size = len(values)
    if size <= 2 * buckets:
        return list(range(size))
    kept = {0, size - 1}
    for bucket in range(buckets):
        begin, end = bucket * size // buckets, (bucket + 1) * size // buckets
        part = values[begin:end]
        kept.add(begin + part.index(min(part)))
        kept.add(begin + part.index(max(part)))
    return sorted(kept)


def largest_triangles(ms: Sequence[int], values: Sequence[float], points: int) -> list[int]:
    """Largest-Triangle-Three-Buckets (S. Steinarsson, 2013): what the eye would keep; the ends stay."""
    size = len(ms)
    if size <= points or points < 3:
        return list(range(size)) if size <= points else [0, size - 1][:points]
    edges = [1 + bucket * (size - 2) // (points - 2) for bucket in range(points - 1)]
    kept = [0]
    for bucket in range(points - 2):
        begin, end = edges[bucket], edges[bucket + 1]
        after = edges[bucket + 2] if bucket + 2 < len(edges) else size
        next_x = sum(ms[end:after]) / (after - end)
        next_y = sum(values[end:after]) / (after - end)
        x, y = ms[kept[-1]], values[kept[-1]]
        across, up = next_x - x, next_y - y
        areas = [abs(across * (values[at] - y) - up * (ms[at] - x)) for at in range(begin, end)]
        kept.append(begin + areas.index(max(areas)))
    return [*kept, size - 1]


def thin(ms: Sequence[int], values: Sequence[Value], points: int, keep: str) -> tuple[list[int], list[Value]]:
    """About ``points`` points, ``keep`` "extremes", "triangles" or "all"; a None value between two stretches.

    Each stretch gets its share, at least two points, so a line of many short stretches may have more.
    """
    times: list[int] = []
    shown: list[Value] = []
    for begin, end in segments(ms, values, pause_ms(ms)):
        part = [value for value in values[begin:end] if value is not None]
        share = max(2, points * (end - begin) // max(1, len(ms)))
        if keep == "all":
            places = list(range(len(part)))
        elif keep == "triangles":
            places = largest_triangles(ms[begin:end], part, share)
        else:
            places = extremes(part, max(1, share // 2))
        if times:
            times.append(times[-1] + 1)
            shown.append(None)
        times += [ms[begin + at] for at in places]
        shown += [part[at] for at in places]
    return times, shown

"""What the map shows beside coasts: read from the formats its sources come in, joined, thinned, and drawable."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards import CONSOLE_FOLDER
from dashboards.details import chained, lines, places, rivers, shapes

Line = list[tuple[float, float]]


def shapefile(kind: int, *records: Sequence[Line]) -> bytes:
    """The bytes of a .shp with one record per argument, parts in each."""
    data = b"\0" * 100
    for number, parts in enumerate(records, 1):
        flat = [axis for part in parts for point in part for axis in point]
        firsts = [sum(len(part) for part in parts[:n]) for n in range(len(parts))]
        body = struct.pack("<i4dii", kind, 0, 0, 0, 0, len(parts), len(flat) // 2)
        body += struct.pack(f"<{len(firsts)}i", *firsts) + struct.pack(f"<{len(flat)}d", *flat)
        data += struct.pack(">ii", number, len(body) // 2) + body
    return data


def test_a_shapefile_is_read_part_by_part() -> None:
    one: Line = [(8.0, 49.0), (8.5, 49.5)]
    two: Line = [(9.0, 50.0), (9.1, 50.1), (9.2, 50.0)]
    assert list(shapes(shapefile(3, [one, two], [two]))) == [one, two, two]
    assert list(shapes(shapefile(5, [two]))) == [two]
    assert list(shapes(shapefile(1, [one]))) == [], "points are no lines"


@given(st.lists(st.integers(2, 4), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_a_line_cut_into_pieces_becomes_one_again(cuts: list[int], dice: object) -> None:
    at, pieces = 0, []
    for length in cuts:
        pieces.append([(float(n), float(n * n)) for n in range(at, at + length)])
        at += length - 1
    whole = [(float(n), float(n * n)) for n in range(at + 1)]
    dice.shuffle(pieces)  # type: ignore[attr-defined]
    turned = [piece[::-1] if dice.random() < 0.5 else piece for piece in pieces]  # type: ignore[attr-defined]
    made = chained(turned)
    assert len(made) == 1 and made[0] in (whole, whole[::-1])


def test_where_three_lines_meet_none_is_joined_and_a_ring_stays_one() -> None:
    star: list[Line] = [[(0.0, 0.0), (1.0, 0.0)], [(0.0, 0.0), (0.0, 1.0)], [(-1.0, 0.0), (0.0, 0.0)]]
    assert sorted(map(sorted, chained(star))) == sorted(map(sorted, star))
    halves: list[Line] = [[(0.0, 0.0), (1.0, 1.0), (2.0, 0.0)], [(2.0, 0.0), (1.0, -1.0), (0.0, 0.0)]]
    (ring,) = chained(halves)
    assert ring[0] == ring[-1] and len(ring) == 5


def test_rivers_use_each_arc_once_and_small_lines_are_left_out() -> None:
    topology = {
        "transform": {"scale": [0.1, 0.1], "translate": [8.0, 49.0]},
        "arcs": [[[0, 0], [10, 0]], [[0, 0], [1, 0]], [[5, 5], [1, 1]]],
        "objects": {
            "rivers": {
                "geometries": [{"type": "LineString", "arcs": [0, ~1]}, {"type": "MultiLineString", "arcs": [[~0]]}]
            }
        },
    }
    found = list(rivers(topology))
    assert [len(line) for line in found] == [2, 2] and found[0][-1] == pytest.approx((9.0, 49.0))
    assert lines(found, 1.0, 50) == [[800, 4900, 100, 0]]


def test_places_are_the_large_ones_the_largest_first() -> None:
    told = {
        str(n): {"name": name, "population": people, "longitude": 8.404, "latitude": 49.009}
        for n, (name, people) in enumerate([("Small", 10), ("Big", 900_000), ("Bigger", 1_000_000)])
    }
    assert places(told, 100_000) == (["Bigger", "Big"], [840, 4901, 840, 4901])


def test_the_file_that_travels_is_whole() -> None:
    made = json.loads((CONSOLE_FOLDER / "details.json").read_text(encoding="utf-8"))
    assert made["units"] == 100 and "CC BY" in made["source"]
    assert len(made["at"]) == 2 * len(made["names"]) and "Karlsruhe" in made["names"]
    for kind in ("states", "rivers", "lakes"):
        for line in made[kind]:
            assert len(line) >= 4 and len(line) % 2 == 0
            x, y = sum(line[::2]), sum(line[1::2])
            assert -18_000 <= x <= 18_000 and -9_000 <= y <= 9_000

"""Makes the map's outlines: ``python -m dashboards.outlines TOPOLOGY > dashboards/console/world.json``.

TOPOLOGY is ``countries-50m.json`` of the npm package world-atlas 2.0.2 (ISC licence; the data is Natural Earth's, in
the public domain). Points are thinned (Douglas and Peucker) and kept in hundredths of a degree, about a kilometre:
enough to say where on a coast a fleet is, small enough to travel with the page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

UNITS_PER_DEGREE = 100
TOLERANCE_UNITS = 1.5

Point = tuple[int, int]


class Outlines(TypedDict):
    """``arcs``: longitude, latitude of the first point, then differences, in 1/``units`` degree. ``land``: rings of arc
    numbers (``~n``: arc n backwards). ``borders``: arcs between two countries."""

    units: int
    source: str
    arcs: list[list[int]]
    land: list[list[int]]
    borders: list[int]


def thin(points: Sequence[Point], tolerance: float) -> list[Point]:
    """The points that matter: no dropped one is further than ``tolerance`` from the line that replaces it."""
    keep = {0, len(points) - 1}
    spans = [(0, len(points) - 1)]
    while spans:
        first, last = spans.pop()
        far, at = max(
            ((_distance(points[n], points[first], points[last]), n) for n in range(first + 1, last)),
            default=(0.0, first),
        )
        if far > tolerance:
            keep.add(at)
            spans += [(first, at), (at, last)]
    return [points[n] for n in sorted(keep)]


def _distance(point: Point, start: Point, end: Point) -> float:
    (x, y), (ax, ay), (bx, by) = point, start, end
    length_squared = (bx - ax) ** 2 + (by - ay) ** 2
    along = 0.0 if not length_squared else ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / length_squared
    along = min(1.0, max(0.0, along))
    return float(((x - ax - along * (bx - ax)) ** 2 + (y - ay - along * (by - ay)) ** 2) ** 0.5)


def outlines(topology: dict[str, Any], tolerance: float = TOLERANCE_UNITS) -> Outlines:
    """A TopoJSON topology of countries as thinned arcs, the rings of land, and the borders between countries."""
    rings = [ring for geometry in topology["objects"]["countries"]["geometries"] for ring in _rings(geometry)]
    used: dict[int, int] = {}
    for ring in rings:
        for arc in ring:
            used[_plain(arc)] = used.get(_plain(arc), 0) + 1
    arcs = [deltas(thin(_degrees(arc, topology["transform"]), tolerance)) for arc in topology["arcs"]]
    return {
        "units": UNITS_PER_DEGREE,
        "source": "Natural Earth, public domain",
        "arcs": arcs,
        "land": [ring for ring in rings if any(len(arcs[_plain(arc)]) > 4 for arc in ring) or len(ring) > 2],
        "borders": sorted(arc for arc, times in used.items() if times > 1),
    }


def _plain(arc: int) -> int:
    return arc if arc >= 0 else ~arc


def _rings(geometry: dict[str, Any]) -> list[list[int]]:
    if geometry["type"] == "Polygon":
        return list(geometry["arcs"])
    return [ring for polygon in geometry["arcs"] for ring in polygon]


def _degrees(arc: Sequence[Sequence[int]], transform: dict[str, Sequence[float]]) -> list[Point]:
    x = y = 0
    points: list[Point] = []
    for dx, dy in arc:
        x, y = x + dx, y + dy
        longitude = x * transform["scale"][0] + transform["translate"][0]
        latitude = y * transform["scale"][1] + transform["translate"][1]
        points.append((round(longitude * UNITS_PER_DEGREE), round(latitude * UNITS_PER_DEGREE)))
    return points


def deltas(points: Sequence[Point]) -> list[int]:
    """The first point, then differences: what an arc looks like in the file."""
    flat = [*points[0]]
    for (x, y), (before_x, before_y) in zip(points[1:], points, strict=False):
        flat += [x - before_x, y - before_y]
    return flat


if __name__ == "__main__":
    made = outlines(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    sys.stdout.write(json.dumps(made, separators=(",", ":")) + "\n")

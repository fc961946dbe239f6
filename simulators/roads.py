"""A closed road network and the circuits that cars drive on it. Pure geometry, in metres east (x) and north (y).

Streets form a slightly crooked grid with faster roads around it. A circuit is a closed tour over crossings,
straight pieces joined by arcs, so a car that drives on for ever stays on roads, its heading is continuous and
its yaw rate is speed times curvature. Height is a smooth function of the place: a closed lap climbs nothing.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

GRID: Final = 7
BLOCK_M: Final = 450.0
CROOKED_M: Final = 60.0
CITY_LIMIT_MPS: Final = 50 / 3.6
RING_LIMIT_MPS: Final = 80 / 3.6
TANGENT_M: Final = 15.0
"""How far before a crossing the turn begins: a right angle is driven with a radius of 15 m."""
STRAIGHT_RAD: Final = 1e-3
METRES_PER_DEGREE: Final = 111_194.9
"""One degree of a great circle on a sphere of 6,371.0 km."""
ORIGIN: Final = (49.0, 8.4)
"""Latitude and longitude of x = y = 0: the upper Rhine valley, where the recorded drives took place."""

Node = tuple[int, int]


class Pose(NamedTuple):
    """Where a car is: metres, heading in radians counter-clockwise from east, curvature positive to the left."""

    x_m: float
    y_m: float
    heading_rad: float
    curvature_per_m: float
    limit_mps: float


@dataclass(frozen=True, slots=True)
class Piece:
    """A straight (curvature 0) or an arc; ``starts_m`` is the distance along the circuit."""

    starts_m: float
    length_m: float
    x_m: float
    y_m: float
    heading_rad: float
    curvature_per_m: float
    limit_mps: float

    def pose(self, along_m: float) -> Pose:
        k = self.curvature_per_m
        if k == 0.0:
            x = self.x_m + along_m * math.cos(self.heading_rad)
            y = self.y_m + along_m * math.sin(self.heading_rad)
            return Pose(x, y, self.heading_rad, 0.0, self.limit_mps)
        end = self.heading_rad + k * along_m
        x = self.x_m + (math.sin(end) - math.sin(self.heading_rad)) / k
        y = self.y_m - (math.cos(end) - math.cos(self.heading_rad)) / k
        return Pose(x, y, end, k, self.limit_mps)


class StopLine(NamedTuple):
    """A traffic light before a crossing; ``phase_s`` shifts its cycle."""

    at_m: float
    phase_s: float


class Circuit:
    """A closed tour by distance; every distance is taken modulo the length."""

    def __init__(self, pieces: tuple[Piece, ...], stops: tuple[StopLine, ...]) -> None:
        self.pieces = pieces
        self.stops = stops
        self.length_m = pieces[-1].starts_m + pieces[-1].length_m
        self._starts = [piece.starts_m for piece in pieces]

    def pose(self, at_m: float) -> Pose:
        at_m %= self.length_m
        piece = self.pieces[bisect_right(self._starts, at_m) - 1]
        return piece.pose(at_m - piece.starts_m)

    def pieces_ahead(self, at_m: float, within_m: float) -> list[tuple[float, Piece]]:
        """(distance to its beginning, piece) of what begins within ``within_m`` ahead of ``at_m``."""
        at_m %= self.length_m
        index = bisect_right(self._starts, at_m)
        ahead: list[tuple[float, Piece]] = []
        for step in range(len(self.pieces)):
            laps, place = divmod(index + step, len(self.pieces))
            distance = self.pieces[place].starts_m + laps * self.length_m - at_m
            if distance > within_m:
                break
            ahead.append((distance, self.pieces[place]))
        return ahead

    def next_stop(self, at_m: float) -> tuple[float, StopLine]:
        """(distance, stop line) of the first one at or ahead of ``at_m``."""
        at_m %= self.length_m
        return min(((stop.at_m - at_m) % self.length_m, stop) for stop in self.stops)


def height_m(x_m: float, y_m: float) -> float:
    """Height above the ellipsoid of the rolling country."""
    return 115.0 + 9.0 * math.sin(x_m / 510.0) + 6.0 * math.cos(y_m / 380.0)


def slope(x_m: float, y_m: float, heading_rad: float) -> float:
    """Climb per metre driven: the derivative of ``height_m`` along the heading."""
    east = 9.0 / 510.0 * math.cos(x_m / 510.0)
    north = -6.0 / 380.0 * math.sin(y_m / 380.0)
    return east * math.cos(heading_rad) + north * math.sin(heading_rad)


def geographic(x_m: float, y_m: float) -> tuple[float, float]:
    """WGS 84 latitude and longitude in degrees (local tangent plane, good to centimetres over the network)."""
    latitude = ORIGIN[0] + y_m / METRES_PER_DEGREE
    return latitude, ORIGIN[1] + x_m / (METRES_PER_DEGREE * math.cos(math.radians(ORIGIN[0])))


def compass_degrees(heading_rad: float) -> float:
    """Course over ground, north 0, east 90, in [0, 360)."""
    return (90.0 - math.degrees(heading_rad)) % 360.0


@cache
def crossings() -> dict[Node, tuple[float, float]]:
    """Every crossing's place; the same network for all cars of all runs."""
    chance = random.Random("roads")
    return {
        (column, row): (
            column * BLOCK_M + chance.uniform(-CROOKED_M, CROOKED_M),
            row * BLOCK_M + chance.uniform(-CROOKED_M, CROOKED_M),
        )
        for column in range(GRID)
        for row in range(GRID)
    }


def limit_between(a: Node, b: Node) -> float:
    """Speed limit in m/s: faster where both ends lie on the same outer side."""
    edge = GRID - 1
    outer = any(a[axis] == b[axis] and a[axis] in (0, edge) for axis in (0, 1))
    return RING_LIMIT_MPS if outer else CITY_LIMIT_MPS


def tour(chance: random.Random, legs: int = 5) -> list[Node]:
    """A closed walk over neighbouring crossings through ``legs`` random ones, without turning back on the spot."""
    while True:
        marks = [(chance.randrange(GRID), chance.randrange(GRID)) for _ in range(legs)]
        walk: list[Node] = []
        for here, there in zip(marks, marks[1:] + marks[:1], strict=True):
            walk += _steps(chance, here, there)
        walk = _without_turning_back(walk)
        if len(walk) >= 8:
            return walk


def build_circuit(nodes: list[Node]) -> Circuit:
    """Straights and arcs over a closed walk; arcs stay within ``TANGENT_M`` of their crossing."""
    places = [crossings()[node] for node in nodes]
    count = len(nodes)
    headings = [_heading(places[i], places[(i + 1) % count]) for i in range(count)]
    turns = [_wrapped(headings[i] - headings[i - 1]) for i in range(count)]
    cut = [TANGENT_M if abs(turn) > STRAIGHT_RAD else 0.0 for turn in turns]
    pieces: list[Piece] = []
    stops: list[StopLine] = []
    at_m = 0.0
    for i, (x, y) in enumerate(places):
        following = (i + 1) % count
        heading, limit = headings[i], limit_between(nodes[i], nodes[following])
        length = math.dist(places[i], places[following]) - cut[i] - cut[following]
        x, y = x + cut[i] * math.cos(heading), y + cut[i] * math.sin(heading)
        pieces.append(Piece(at_m, length, x, y, heading, 0.0, limit))
        at_m += length
        stops.append(StopLine(at_m - 2.0, _phase(nodes[following], i % 2)))
        turn = turns[following]
        if cut[following]:
            end = pieces[-1].pose(length)
            radius = TANGENT_M / math.tan(abs(turn) / 2)
            arc = Piece(at_m, radius * abs(turn), end.x_m, end.y_m, heading, math.copysign(1 / radius, turn), limit)
            pieces.append(arc)
            at_m += arc.length_m
    return Circuit(tuple(pieces), tuple(stops))


def _steps(chance: random.Random, here: Node, there: Node) -> list[Node]:
    """From ``here`` to just before ``there``: a shortest way, its corners by chance."""
    moves = [0] * abs(there[0] - here[0]) + [1] * abs(there[1] - here[1])
    chance.shuffle(moves)
    walk, place = [], list(here)
    for axis in moves:
        walk.append((place[0], place[1]))
        place[axis] += 1 if there[axis] > place[axis] else -1
    return walk


def _without_turning_back(walk: list[Node]) -> list[Node]:
    """Cut every there-and-back spur (a, b, a) out of a closed walk."""
    changed = True
    while changed and len(walk) > 2:
        changed = False
        for i in range(len(walk)):
            if walk[i - 1] == walk[(i + 1) % len(walk)]:
                gone = {i, (i + 1) % len(walk)}
                walk = [node for place, node in enumerate(walk) if place not in gone]
                changed = True
                break
    return walk


def _phase(node: Node, direction: int) -> float:
    return (node[0] * 17 + node[1] * 29 + direction * 31) % 60


def _heading(a: tuple[float, float], b: tuple[float, float]) -> float:
    return math.atan2(b[1] - a[1], b[0] - a[0])


def _wrapped(angle_rad: float) -> float:
    return (angle_rad + math.pi) % (2 * math.pi) - math.pi

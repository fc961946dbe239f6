"""The fleet questions once more: slow, plain, over every raw reading, sharing no code with what answers them.

Each method returns rows as the answer's, without ages. Nothing is merged or rolled up: buckets are lists of readings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from tests.api.trucks import CONSUMPTION, FUEL, LAMP, LATITUDE, LOAD, LONGITUDE, RUNNING, SPEED, Told, Truck

TEN_MIN, DAY = 600_000, 86_400_000
Rows = list[tuple[Any, ...]]


class Reference:
    """All trucks and everything they told, in any order."""

    def __init__(self, trucks: Sequence[Truck], told: Iterable[Told]) -> None:
        self.trucks = {truck.name: truck for truck in trucks}
        self.told = list(told)
        self.buckets: dict[tuple[str, str, int], list[int]] = {}
        for one in self.told:
            self.buckets.setdefault((one.truck, one.path, one.ms // TEN_MIN * TEN_MIN), []).append(one.units)

    def readings(self, truck: str, path: str, start: int = 0, end: int = 2**62) -> list[Told]:
        found = [one for one in self.told if one.truck == truck and one.path == path and start <= one.ms < end]
        return sorted(found, key=lambda one: one.ms)

    def newest(self, truck: str, path: str) -> Told | None:
        found = self.readings(truck, path)
        return found[-1] if found else None

    def last_locations(self, fleet: str | None, now: int, max_age: int, name: str | None = None) -> Rows:
        rows: Rows = []
        for truck in self.of(fleet):
            latitude, longitude = self.newest(truck.name, LATITUDE), self.newest(truck.name, LONGITUDE)
            if name not in (None, truck.name) or latitude is None or longitude is None:
                continue
            older = latitude.ms if latitude.ms < longitude.ms else longitude.ms
            if now - older <= max_age:
                rows.append((truck.name, truck.driver, latitude.value, longitude.value, at(older)))
        return rows

    def low_fuel(self, fleet: str | None, now: int, max_age: int, below: float) -> Rows:
        rows: Rows = []
        for truck in self.of(fleet):
            level = self.newest(truck.name, FUEL)
            if level is not None and now - level.ms <= max_age and level.value < below:
                rows.append((truck.name, truck.driver, level.value, at(level.ms)))
        return rows

    def high_load(self, fleet: str | None, now: int, max_age: int, above: float) -> Rows:
        rows: Rows = []
        for truck in self.of(fleet):
            load = self.newest(truck.name, LOAD)
            if load is None or truck.capacity_kg is None or now - load.ms > max_age:
                continue
            if load.value / truck.capacity_kg > above:
                part = load.value / truck.capacity_kg
                rows.append((truck.name, truck.driver, load.value, truck.capacity_kg, part, at(load.ms)))
        return rows

    def stationary(self, fleet: str | None, start: int, below: float) -> Rows:
        rows: Rows = []
        for truck in self.of(fleet):
            speeds = [one.value for one in self.readings(truck.name, SPEED, start, start + TEN_MIN)]
            if speeds and mean(speeds) < below:
                rows.append((truck.name, truck.driver, mean(speeds), len(speeds)))
        return rows

    def long_driving(self, fleet: str | None, start: int, end: int, more_than: float) -> Rows:
        rows: Rows = []
        for truck in self.of(fleet):
            driven = silent = 0
            for bucket in range(start, end, TEN_MIN):
                says = self.driven(truck.name, bucket)
                driven += says is True
                silent += says is None
            if driven > more_than:
                rows.append((truck.name, truck.driver, driven, silent, driven / 6))
        return rows

    def consumption(self, start: int, end: int) -> Rows:
        rows: Rows = []
        for fleet in self.fleets():
            values: list[float] = []
            nominal: list[float] = []
            told = 0
            for truck in self.of_exactly(fleet):
                found = [one.value for one in self.readings(truck.name, CONSUMPTION, start, end)]
                if found and truck.nominal_l_100km is not None:
                    values += found
                    nominal += [truck.nominal_l_100km] * len(found)
                    told += 1
            if values:
                rows.append((fleet, mean(values), mean(nominal), len(values), told))
        return rows

    def daily_driving(self, start: int, end: int) -> Rows:
        rows: Rows = []
        for truck in self.trucks.values():
            hours: list[float] = []
            for day in range(start, end, DAY):
                said = [self.driven(truck.name, bucket) for bucket in range(day, day + DAY, TEN_MIN)]
                if any(one is not None for one in said):
                    hours.append(sum(one is True for one in said) / 6)
            if hours:
                rows.append((truck.fleet, truck.name, truck.driver, mean(hours), len(hours)))
        return rows

    def daily_sessions(self, start: int, end: int) -> Rows:
        rows: Rows = []
        for truck in self.trucks.values():
            sessions: dict[str, list[int]] = {}
            drove = False
            began = ""
            for bucket in range(start, end, TEN_MIN):
                drives = self.driven(truck.name, bucket) is True
                if drives and not drove:
                    began = day_name(bucket)
                    sessions.setdefault(began, []).append(0)
                if drives:
                    sessions[began][-1] += 1
                drove = drives
            for day, lengths in sessions.items():
                rows.append((truck.name, day, mean([length / 6 for length in lengths]), len(lengths)))
        return rows

    def average_load(self, start: int, end: int) -> Rows:
        parts: dict[tuple[str | None, str | None, float], list[float]] = {}
        for truck in self.trucks.values():
            loads = [one.value for one in self.readings(truck.name, LOAD, start, end)]
            if loads and truck.capacity_kg is not None:
                key = (truck.fleet, truck.model, truck.capacity_kg)
                parts.setdefault(key, []).append(mean(loads) / truck.capacity_kg)
        return [(*key, mean(found), len(found)) for key, found in parts.items()]

    def daily_activity(self, start: int, end: int) -> Rows:
        hours: dict[tuple[str, str | None, str | None], list[float]] = {}
        for truck in self.trucks.values():
            for day in range(start, end, DAY):
                said = [self.half(truck.name, RUNNING, bucket) for bucket in range(day, day + DAY, TEN_MIN)]
                if any(one is not None for one in said):
                    key = (day_name(day), truck.fleet, truck.model)
                    hours.setdefault(key, []).append(sum(one is True for one in said) / 6)
        return [(*key, sum(found), len(found)) for key, found in hours.items()]

    def breakdowns(self, start: int, end: int) -> Rows:
        often: dict[str | None, list[tuple[int, int]]] = {}
        for truck in self.trucks.values():
            said = [self.half(truck.name, LAMP, bucket) for bucket in range(start, end, TEN_MIN)]
            heard = [one for one in said if one is not None]
            if heard:
                flips = 0
                for before, after in pairwise(heard):
                    flips += after and not before
                often.setdefault(truck.model, []).append((flips, sum(heard)))
        return [
            (model, sum(one for one, _ in found), sum(one for _, one in found) / 6, len(found))
            for model, found in often.items()
        ]

    def driven(self, truck: str, bucket: int) -> bool | None:
        """None: nothing was told."""
        units = self.in_bucket(truck, SPEED, bucket)
        return sum(units) > 100 * len(units) if units else None

    def half(self, truck: str, path: str, bucket: int) -> bool | None:
        units = self.in_bucket(truck, path, bucket)
        return 2 * sum(units) >= len(units) if units else None

    def in_bucket(self, truck: str, path: str, bucket: int) -> list[int]:
        return self.buckets.get((truck, path, bucket), [])

    def fleets(self) -> set[str | None]:
        return {truck.fleet for truck in self.trucks.values()}

    def of(self, fleet: str | None) -> list[Truck]:
        return [truck for truck in self.trucks.values() if fleet is None or truck.fleet == fleet]

    def of_exactly(self, fleet: str | None) -> list[Truck]:
        return [truck for truck in self.trucks.values() if truck.fleet == fleet]


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def day_name(ms: int) -> str:
    return at(ms).strftime("%Y-%m-%d")

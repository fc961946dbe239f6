"""Questions about now: newest values, each with its age. None of them takes an old value for a present one."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from api.fleet.base import ASSET, DRIVER, NOW, Asked, Cell, Column, Found, Row, Threshold, Time, Words, sorted_rows
from api.queries.fleet import Newest, newest
from api.queries.pool import Connection
from api.questions import from_ms
from api.tables import TIME
from contracts.signals import Signal, catalogue

DAY_S = 86_400.0
AT = Column("measured_at", "", "when it was measured", TIME)
AGE = Column("age_s", "s", "as_of less measured_at; negative when the device's clock is ahead")
LATITUDE = catalogue().by_path("Vehicle.CurrentLocation.Latitude")
LONGITUDE = catalogue().by_path("Vehicle.CurrentLocation.Longitude")
FUEL = catalogue().by_path("Vehicle.Powertrain.FuelSystem.RelativeLevel")
LOAD = catalogue().by_path("Fleetstream.Cargo.Weight")
SOURCE = "latest values: one row per device and signal, kept by every packet's transaction"
BOUND = "A value older than max_age_s (a day unless asked) is no answer about now: the vehicle is counted as too_old."

Judge = Callable[[Newest], "tuple[Cell, ...] | None"]
"""The cells between name and time, None where the vehicle does not belong into the answer."""


class LastLocations:
    """TSBS iot ``last-loc``."""

    name: ClassVar[str] = "last-locations"
    words: ClassVar[Words] = Words(
        "Where is each vehicle?",
        f"The newest latitude and longitude of each vehicle, told together with the older one's time. {BOUND}",
        "last-loc: each named truck's newest row of one fleet, however old; a blanked field makes the place null.",
        "Age is told and bounded; a missing field does not hide the place known before.",
        SOURCE,
    )
    columns: ClassVar[tuple[Column, ...]] = (
        ASSET, DRIVER, Column("latitude", "degrees", "WGS 84"), Column("longitude", "degrees", "WGS 84"), AT, AGE,
    )  # fmt: skip
    keys: ClassVar[int] = 1
    time: ClassVar[Time] = NOW
    threshold: ClassVar[Threshold | None] = None
    takes: ClassVar[frozenset[str]] = frozenset({"fleet", "max_age_s"})

    async def answer(self, connection: Connection, asked: Asked) -> Found:
        return await _now(connection, asked, LATITUDE, LONGITUDE, lambda one: (one.first, one.second), self.keys)


class LastLocation(LastLocations):
    """TSBS iot ``single-last-loc``."""

    name: ClassVar[str] = "last-location"
    words: ClassVar[Words] = Words(
        "Where is this vehicle?",
        f"As last-locations, of one vehicle by its name. {BOUND}",
        "single-last-loc: the newest row of one truck, however old.",
        "Age is told and bounded.",
        SOURCE,
    )
    takes: ClassVar[frozenset[str]] = frozenset({"asset", "max_age_s"})


class LowFuel:
    """TSBS iot ``low-fuel``."""

    name: ClassVar[str] = "low-fuel"
    words: ClassVar[Words] = Words(
        "Which vehicles are low on fuel?",
        f"Vehicles whose newest fuel level is below the threshold. {BOUND}",
        "low-fuel: newest diagnostics row with a fuel state below 0.1; the level is cut to one decimal before, so "
        "that only 0.0 counts. The suite's version for InfluxDB returns the last low reading, not who is low now.",
        "The level is not cut: 9.9 % is below 10 %. The newest level decides.",
        SOURCE,
    )
    columns: ClassVar[tuple[Column, ...]] = (
        ASSET, DRIVER, Column("fuel_level", FUEL.unit, "newest fuel level"), AT, AGE,
    )  # fmt: skip
    keys: ClassVar[int] = 1
    time: ClassVar[Time] = NOW
    threshold: ClassVar[Threshold | None] = Threshold(10.0, FUEL.unit, "lower levels are told")
    takes: ClassVar[frozenset[str]] = frozenset({"fleet", "max_age_s"})

    async def answer(self, connection: Connection, asked: Asked) -> Found:
        def low(one: Newest) -> tuple[Cell, ...] | None:
            return (one.first,) if one.first is not None and one.first < asked.threshold else None

        return await _now(connection, asked, FUEL, FUEL, low, self.keys)


class HighLoad:
    """TSBS iot ``high-load``."""

    name: ClassVar[str] = "high-load"
    words: ClassVar[Words] = Words(
        "Which vehicles are loaded almost to their capacity?",
        "Vehicles whose newest cargo weight is more than the threshold's part of their load capacity. A vehicle whose "
        f"capacity nobody said is counted as no_capacity. {BOUND}",
        "high-load: newest current load / load capacity above 0.9 (the suite's version for InfluxDB: 0.9 or more).",
        "Age is told and bounded; above 0.9 means above.",
        SOURCE,
    )
    columns: ClassVar[tuple[Column, ...]] = (
        ASSET, DRIVER, Column("load", LOAD.unit, "newest cargo weight"),
        Column("load_capacity", "kg", "what it may carry"), Column("part", "", "load / load_capacity"), AT, AGE,
    )  # fmt: skip
    keys: ClassVar[int] = 1
    time: ClassVar[Time] = NOW
    threshold: ClassVar[Threshold | None] = Threshold(0.9, "", "higher parts of the capacity are told")
    takes: ClassVar[frozenset[str]] = frozenset({"fleet", "max_age_s"})

    async def answer(self, connection: Connection, asked: Asked) -> Found:
        unsaid = 0

        def high(one: Newest) -> tuple[Cell, ...] | None:
            nonlocal unsaid
            capacity_kg = one.vehicle.load_capacity_kg
            if capacity_kg is None:
                unsaid += 1
                return None
            part = (one.first or 0.0) / capacity_kg
            return (one.first, capacity_kg, part) if part > asked.threshold else None

        found = await _now(connection, asked, LOAD, LOAD, high, self.keys)
        found.counted["no_capacity"] = unsaid
        return found


async def _now(connection: Connection, asked: Asked, first: Signal, second: Signal, judge: Judge, keys: int) -> Found:
    """Judge each vehicle that told both values lately."""
    rows: list[Row] = []
    told = await newest(connection, asked.fleet, asked.asset, first, second)
    counted = {"vehicles": len(told), "no_value": 0, "too_old": 0}
    for one in told:
        if one.first is None or one.second is None or one.first_ms is None or one.second_ms is None:
            counted["no_value"] += 1
            continue
        measured_at = from_ms(min(one.first_ms, one.second_ms))
        age_s = (asked.now - measured_at).total_seconds()
        if age_s > asked.max_age_s:
            counted["too_old"] += 1
            continue
        cells = judge(one)
        if cells is not None:
            rows.append((one.vehicle.name, one.vehicle.driver, *cells, measured_at, age_s))
    return Found(sorted_rows(rows, keys), counted)

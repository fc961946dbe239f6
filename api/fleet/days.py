"""Questions over whole UTC days that are over: consumption, driving, load, activity, breakdowns."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict
from typing import ClassVar

from api.fleet.base import (
    ASSET,
    BUCKETS_PER_HOUR,
    DAY,
    DAYS,
    DRIVER,
    FLEET,
    MODEL,
    STRIP_NOTE,
    Asked,
    Column,
    Found,
    Row,
    Threshold,
    Time,
    Words,
    sorted_rows,
)
from api.fleet.spans import DRIVES, DRIVING, day_of
from api.fleet.strips import NOTHING, beginnings, join, known, sessions
from api.queries.fleet import Vehicle, strips, sums, vehicles
from api.queries.pool import Connection
from api.tables import WHOLE
from contracts.signals import catalogue

CONSUMPTION = catalogue().by_path("Vehicle.Powertrain.FuelSystem.InstantConsumption")
LOAD = catalogue().by_path("Fleetstream.Cargo.Weight")
DAY_S = 86_400
DAY_WINDOWS = "roll-ups of one day"
OVER = "Whole UTC days that are over."
Strips = dict[int, dict[int, str]]


class FuelConsumption:
    """TSBS iot ``avg-vs-projected-fuel-consumption``."""

    name: ClassVar[str] = "fuel-consumption-against-nominal"
    words: ClassVar[Words] = Words(
        "Does each fleet consume what its makers promised?",
        "Mean of all consumption readings of each fleet, and the mean of its vehicles' nominal consumption, each "
        "vehicle weighted by its number of readings. The signal is absent while a vehicle stands, so no filter by "
        f"speed is needed. A vehicle whose nominal consumption nobody said is counted as no_nominal. {OVER}",
        "avg-vs-projected-fuel-consumption: means over rows with a velocity above 1, both weighted by rows.",
        "The device says when it drives, not a speed of 1 in the same row; signals do not come in rows.",
        DAY_WINDOWS,
    )
    columns: ClassVar[tuple[Column, ...]] = (
        FLEET, Column("mean", CONSUMPTION.unit, "mean of the readings"),
        Column("nominal", CONSUMPTION.unit, "mean nominal consumption, weighted by readings"),
        Column("readings", "", "how many they were", WHOLE), Column("vehicles", "", "that told some", WHOLE),
    )  # fmt: skip
    keys: ClassVar[int] = 1
    time: ClassVar[Time] = DAYS
    threshold: ClassVar[Threshold | None] = None
    takes: ClassVar[frozenset[str]] = frozenset({"fleet"})

    async def answer(self, connection: Connection, asked: Asked) -> Found:
        known_ones = await vehicles(connection, asked.fleet, asked.asset)
        told = await sums(connection, asked.fleet, asked.asset, CONSUMPTION, DAY_S, asked.start_ms, asked.end_ms)
        groups: dict[str | None, list[tuple[int, float, float]]] = defaultdict(list)
        unsaid = 0
        for asset, (n, total) in sorted(told.items()):
            nominal = known_ones[asset].nominal_l_100km
            if nominal is None:
                unsaid += 1
            else:
                groups[known_ones[asset].fleet].append((n, total, n * nominal))
        rows: list[Row] = []
        for fleet, parts in groups.items():
            n, total, nominal = (sum(column) for column in zip(*parts, strict=True))
            rows.append((fleet, total / n, nominal / n, int(n), len(parts)))
        counted = {"vehicles": len(known_ones), "no_data": len(known_ones) - len(told), "no_nominal": unsaid}
        return Found(sorted_rows(rows, self.keys), counted)


class AverageLoad:
    """TSBS iot ``avg-load``."""

    name: ClassVar[str] = "average-load"
    words: ClassVar[Words] = Words(
        "How full do the models of each fleet drive?",
        "Mean of each vehicle's load readings divided by its capacity, then the mean over the vehicles of each fleet, "
        f"model and capacity. A vehicle whose capacity nobody said is counted as no_capacity. {OVER}",
        "avg-load: the same over all data.",
        "Asked for days; who cannot be judged is counted.",
        DAY_WINDOWS,
    )
    columns: ClassVar[tuple[Column, ...]] = (
        FLEET, MODEL, Column("load_capacity", "kg", "what such a vehicle may carry"),
        Column("part", "", "mean load / capacity"), Column("vehicles", "", "that told some", WHOLE),
    )  # fmt: skip
    keys: ClassVar[int] = 3
    time: ClassVar[Time] = DAYS
    threshold: ClassVar[Threshold | None] = None
    takes: ClassVar[frozenset[str]] = frozenset({"fleet"})

    async def answer(self, connection: Connection, asked: Asked) -> Found:
        known_ones = await vehicles(connection, asked.fleet, asked.asset)
        told = await sums(connection, asked.fleet, asked.asset, LOAD, DAY_S, asked.start_ms, asked.end_ms)
        groups: dict[tuple[str | None, str | None, float], list[float]] = defaultdict(list)
        unsaid = 0
        for asset, (n, total) in sorted(told.items()):
            one = known_ones[asset]
            if one.load_capacity_kg is None:
                unsaid += 1
            else:
                groups[one.fleet, one.model, one.load_capacity_kg].append(total / n / one.load_capacity_kg)
        rows: list[Row] = [(*key, sum(parts) / len(parts), len(parts)) for key, parts in groups.items()]
        counted = {"vehicles": len(known_ones), "no_data": len(known_ones) - len(told), "no_capacity": unsaid}
        return Found(sorted_rows(rows, self.keys), counted)


class StripQuestion(ABC):
    """What questions over strips of whole days share; a subclass says what it makes of each vehicle's."""

    name: ClassVar[str]
    mark: ClassVar[str] = DRIVING
    words: ClassVar[Words]
    columns: ClassVar[tuple[Column, ...]]
    keys: ClassVar[int]
    time: ClassVar[Time] = DAYS
    threshold: ClassVar[Threshold | None] = None
    takes: ClassVar[frozenset[str]] = frozenset({"fleet"})

    async def answer(self, connection: Connection, asked: Asked) -> Found:
        known_ones = await vehicles(connection, asked.fleet, asked.asset)
        told = await strips(
            connection, asked.fleet, asked.asset, self.mark, day_of(asked.start_ms), day_of(asked.end_ms)
        )
        return await asyncio.to_thread(self._found, asked, known_ones, told)

    def _found(self, asked: Asked, known_ones: dict[int, Vehicle], told: Strips) -> Found:
        heard = {asset: days for asset, days in told.items() if any(map(known, days.values()))}
        rows = self.rows(asked, known_ones, heard)
        return Found(
            sorted_rows(rows, self.keys), {"vehicles": len(known_ones), "no_data": len(known_ones) - len(heard)}
        )

    @abstractmethod
    def rows(self, asked: Asked, known_ones: dict[int, Vehicle], told: Strips) -> list[Row]:
        """The answer's rows in any order, of vehicles that told something."""


class DailyDriving(StripQuestion):
    """TSBS iot ``avg-daily-driving-duration``."""

    name: ClassVar[str] = "daily-driving-hours"
    words: ClassVar[Words] = Words(
        "How many hours a day does each driver drive?",
        "Driven buckets / 6 per day, and their mean over the days on which the vehicle told its speed at all. "
        f"{DRIVES} {OVER} {STRIP_NOTE}",
        "avg-daily-driving-duration: the same, with hours per day cut to whole ones and days without any driving "
        "left out of the mean.",
        "Nothing is cut off; a day of rest is a day with 0 hours.",
        "strips of the day",
    )
    columns: ClassVar[tuple[Column, ...]] = (
        FLEET, ASSET, DRIVER, Column("driven_h_per_day", "h", "mean over days"),
        Column("days", "", "on which the vehicle told its speed", WHOLE),
    )  # fmt: skip
    keys: ClassVar[int] = 2

    def rows(self, asked: Asked, known_ones: dict[int, Vehicle], told: Strips) -> list[Row]:
        made: list[Row] = []
        for asset, days in told.items():
            one, heard = known_ones[asset], [strip for strip in days.values() if known(strip)]
            hours = sum(strip.count("1") for strip in heard) / BUCKETS_PER_HOUR
            made.append((one.fleet, one.name, one.driver, hours / len(heard), len(heard)))
        return made


class DrivingSessions(StripQuestion):
    """TSBS iot ``avg-daily-driving-session``."""

    name: ClassVar[str] = "daily-driving-sessions"
    words: ClassVar[Words] = Words(
        "How long does each vehicle drive without a break, day by day?",
        "A session is an unbroken run of driven buckets; it counts on the day on which it begins, whole if it ends "
        "within [from, to), else as far as that. One that runs on from before counts from the range's beginning. "
        f"{DRIVES} {OVER} {STRIP_NOTE}",
        "avg-daily-driving-session: driving means a mean velocity above 5 here, against 1 in all other questions; "
        "a session that runs at the beginning or the end of the data is left out; silent buckets are passed over.",
        "One meaning of driving; sessions at the edges count; silence ends a session.",
        "strips of the day",
    )
    columns: ClassVar[tuple[Column, ...]] = (
        ASSET, DAY, Column("mean_session_h", "h", "mean length of the sessions that begin on this day"),
        Column("sessions", "", "how many they are", WHOLE),
    )  # fmt: skip
    keys: ClassVar[int] = 2

    def rows(self, asked: Asked, known_ones: dict[int, Vehicle], told: Strips) -> list[Row]:
        names = [asked.day_name(day) for day in range(asked.days)]
        made: list[Row] = []
        for asset, days in told.items():
            name = known_ones[asset].name
            found = sessions([days.get(day, NOTHING) for day in range(asked.days)])
            made += [
                (name, names[day], total / often / BUCKETS_PER_HOUR, often)
                for day, (often, total) in enumerate(found)
                if often
            ]
        return made


class DailyActivity(StripQuestion):
    """TSBS iot ``daily-activity``."""

    name: ClassVar[str] = "daily-activity"
    mark: ClassVar[str] = "engine_running"
    words: ClassVar[Words] = Words(
        "How many hours did each fleet's models work, day by day?",
        "Hours (buckets / 6) in which the engine ran in at least half of the readings, summed over the vehicles of "
        f"each fleet and model. {OVER} {STRIP_NOTE}",
        "daily-activity: buckets with a mean status below 1 count as active, and of these the numbers of rows are "
        "summed and divided by 144 in integers; breakdown-frequency calls the same status 0 broken.",
        "Hours of an engine that runs, whatever the sample rate; activity and breakdown are two signals.",
        "strips of the day",
    )
    columns: ClassVar[tuple[Column, ...]] = (
        DAY, FLEET, MODEL, Column("active_h", "h", "vehicle hours"),
        Column("vehicles", "", "that told something", WHOLE),
    )  # fmt: skip
    keys: ClassVar[int] = 3

    def rows(self, asked: Asked, known_ones: dict[int, Vehicle], told: Strips) -> list[Row]:
        groups: dict[tuple[int, str | None, str | None], list[int]] = defaultdict(list)
        for asset, days in told.items():
            one = known_ones[asset]
            for day, strip in days.items():
                if known(strip):
                    groups[day, one.fleet, one.model].append(strip.count("1"))
        return [
            (asked.day_name(day), fleet, model, sum(active) / BUCKETS_PER_HOUR, len(active))
            for (day, fleet, model), active in groups.items()
        ]


class Breakdowns(StripQuestion):
    """TSBS iot ``breakdown-frequency``."""

    name: ClassVar[str] = "breakdown-frequency"
    mark: ClassVar[str] = "lamp_on"
    words: ClassVar[Words] = Words(
        "How often does each model break down?",
        "A bucket is broken when the malfunction lamp was on in at least half of its readings; told is how often a "
        "vehicle became broken after it had not been. Silent buckets are passed over: who falls silent broken and "
        f"comes back broken broke down once. {OVER} {STRIP_NOTE}",
        "breakdown-frequency: meant is a share of at least 0.5 of rows with status 0, but a count of a boolean counts "
        "every row that is not null and the division is one of integers, so a bucket is broken when no status in it "
        "is null.",
        "The share is computed; the lamp says broken, not a status that means active elsewhere.",
        "strips of the day",
    )
    columns: ClassVar[tuple[Column, ...]] = (
        MODEL, Column("breakdowns", "", "how often a vehicle became broken", WHOLE),
        Column("broken_h", "h", "vehicle hours broken"), Column("vehicles", "", "that told something", WHOLE),
    )  # fmt: skip
    keys: ClassVar[int] = 1

    def rows(self, asked: Asked, known_ones: dict[int, Vehicle], told: Strips) -> list[Row]:
        groups: dict[str | None, list[tuple[int, int]]] = defaultdict(list)
        for asset, days in told.items():
            strip = join(days, asked.days)
            groups[known_ones[asset].model].append((beginnings(strip), strip.count("1")))
        made: list[Row] = []
        for model, parts in groups.items():
            often, broken = (sum(column) for column in zip(*parts, strict=True))
            made.append((model, often, broken / BUCKETS_PER_HOUR, len(parts)))
        return made

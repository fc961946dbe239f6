"""Questions about a fixed stretch of time: standing still for ten minutes, driving too long in four or 24 hours."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import ClassVar

from api.fleet.base import (
    ASSET,
    BUCKET_MS,
    BUCKETS_PER_HOUR,
    DAY_MS,
    DRIVER,
    HOUR_MS,
    MINUTE_MS,
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
from api.fleet.strips import BUCKETS_PER_DAY, join, known
from api.queries.fleet import Vehicle, strips, sums, vehicles
from api.queries.pool import Connection
from api.tables import WHOLE
from contracts.signals import catalogue

SPEED = catalogue().by_path("Vehicle.Speed")
MINUTE_S = 60
DRIVING = "driving"
STRIPS = "strips of the day (day_strips, mark driving), drawn when an hour's roll-up is made or corrected"
DRIVES = "A bucket is driven when the mean of its speed readings is above 1 km/h."


class StationaryTrucks:
    """TSBS iot ``stationary-trucks``."""

    name: ClassVar[str] = "stationary-vehicles"
    words: ClassVar[Words] = Words(
        "Which vehicles stood still in these ten minutes?",
        "Vehicles whose speed readings of [from, to) have a mean below the threshold; ten minutes from a whole minute. "
        "A vehicle without readings is counted as no_data: it is not known to stand.",
        "stationary-trucks: mean velocity below 1 over a random ten minutes, start inclusive, end exclusive.",
        "The start is a whole minute; the number of readings is told, and who said nothing is counted.",
        "windows of one minute, merged with every packet",
    )
    columns: ClassVar[tuple[Column, ...]] = (
        ASSET, DRIVER, Column("mean_speed", SPEED.unit, "mean of the readings"),
        Column("readings", "", "how many they were", WHOLE),
    )  # fmt: skip
    keys: ClassVar[int] = 1
    time: ClassVar[Time] = Time(MINUTE_MS, BUCKET_MS, BUCKET_MS, MINUTE_MS)
    threshold: ClassVar[Threshold | None] = Threshold(1.0, SPEED.unit, "lower means are told")
    takes: ClassVar[frozenset[str]] = frozenset({"fleet"})

    async def answer(self, connection: Connection, asked: Asked) -> Found:
        known_ones = await vehicles(connection, asked.fleet, asked.asset)
        told = await sums(connection, asked.fleet, asked.asset, SPEED, MINUTE_S, asked.start_ms, asked.end_ms)
        rows: list[Row] = [
            (known_ones[asset].name, known_ones[asset].driver, total / n, n)
            for asset, (n, total) in told.items()
            if total / n < asked.threshold
        ]
        counted = {"vehicles": len(known_ones), "no_data": len(known_ones) - len(told)}
        return Found(sorted_rows(rows, self.keys), counted)


class LongDrivingSessions:
    """TSBS iot ``long-driving-sessions``."""

    name: ClassVar[str] = "long-driving-sessions"
    words: ClassVar[Words] = Words(
        "Who drove for four hours with less than five minutes' rest per hour?",
        f"Vehicles with more driven buckets in [from, to) than the threshold, of 24. {DRIVES} {STRIP_NOTE}",
        "long-driving-sessions: more than 22 buckets of ten minutes with a mean velocity above 1 in a random four "
        "hours (22 = 240 min less 5 min per hour, in buckets); the first and last bucket may be cut.",
        "Buckets are whole, because the range begins at a whole ten minutes; silent buckets are told.",
        STRIPS,
    )
    columns: ClassVar[tuple[Column, ...]] = (
        ASSET, DRIVER, Column("driven_buckets", "", "driven buckets of ten minutes", WHOLE),
        Column("silent_buckets", "", "buckets without a speed reading", WHOLE),
        Column("driven_h", "h", "driven buckets / 6"),
    )  # fmt: skip
    keys: ClassVar[int] = 1
    time: ClassVar[Time] = Time(BUCKET_MS, 4 * HOUR_MS, 4 * HOUR_MS, HOUR_MS + 2 * MINUTE_MS)
    threshold: ClassVar[Threshold | None] = Threshold(22, "", "who has more driven buckets is told")
    takes: ClassVar[frozenset[str]] = frozenset({"fleet"})

    async def answer(self, connection: Connection, asked: Asked) -> Found:
        known_ones = await vehicles(connection, asked.fleet, asked.asset)
        first, last = day_of(asked.start_ms), day_of(asked.end_ms - 1) + timedelta(days=1)
        told = await strips(connection, asked.fleet, asked.asset, DRIVING, first, last)
        return await asyncio.to_thread(self._judge, asked, known_ones, told)

    def _judge(self, asked: Asked, known_ones: dict[int, Vehicle], told: dict[int, dict[int, str]]) -> Found:
        begin = asked.start_ms % DAY_MS // BUCKET_MS
        end = begin + (asked.end_ms - asked.start_ms) // BUCKET_MS
        rows: list[Row] = []
        heard = 0
        for asset, days in told.items():
            strip = join(days, -(-end // BUCKETS_PER_DAY))[begin:end]
            heard += known(strip) > 0
            driven = strip.count("1")
            if driven > asked.threshold:
                one = known_ones[asset]
                rows.append((one.name, one.driver, driven, strip.count("."), driven / BUCKETS_PER_HOUR))
        counted = {"vehicles": len(known_ones), "no_data": len(known_ones) - heard}
        return Found(sorted_rows(rows, self.keys), counted)


class LongDailySessions(LongDrivingSessions):
    """TSBS iot ``long-daily-sessions``."""

    name: ClassVar[str] = "long-daily-sessions"
    words: ClassVar[Words] = Words(
        "Who drove more than ten hours in these 24?",
        f"Vehicles with more driven buckets in [from, to) than the threshold, of 144. {DRIVES} {STRIP_NOTE}",
        "long-daily-sessions: more than 60 buckets of ten minutes with a mean velocity above 1 in a random 24 hours "
        "(60 = 1,440 min less 35 min per hour, in buckets).",
        "Buckets are whole, because the range begins at a whole ten minutes; silent buckets are told.",
        STRIPS,
    )
    time: ClassVar[Time] = Time(BUCKET_MS, DAY_MS, DAY_MS, HOUR_MS + 2 * MINUTE_MS)
    threshold: ClassVar[Threshold | None] = Threshold(60, "", "who has more driven buckets is told")


def day_of(ms: int) -> date:
    """UTC day of a moment, Unix milliseconds."""
    return datetime.fromtimestamp(ms / 1000, UTC).date()

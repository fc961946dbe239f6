"""Strips of the day: what is read from them, and that the store draws them as its hours say."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import groupby

import psycopg
from hypothesis import given
from hypothesis import strategies as st

from api.fleet.strips import NOTHING, beginnings, join, known, overlay, sessions
from api.queries.fleet import strips
from api.queries.pool import Store
from infra.enrol import Enrolment
from infra.rollups import roll_up
from tests.api.fix_api import RPM, SPEED, Fleet
from tests.api.question_reference import at

MIDNIGHT = 1_790_035_200_000
STRIP = st.text("01.", max_size=300)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


DAYS = st.integers(1, 6).flatmap(lambda size: st.lists(st.text("0111.", min_size=size, max_size=size), max_size=6))


@given(DAYS)
def test_sessions_are_what_a_walk_over_the_characters_finds(days: list[str]) -> None:
    walked, place = [(0, 0)] * len(days), 0
    for character, group in groupby("".join(days)):
        length = len(list(group))
        if character == "1":
            day = place // len(days[0])
            walked[day] = walked[day][0] + 1, walked[day][1] + length
        place += length
    assert sessions(days) == walked


@given(STRIP)
def test_a_beginning_is_a_yes_whose_last_known_neighbour_was_a_no(strip: str) -> None:
    count, last = 0, ""
    for character in strip:
        if character != ".":
            count += last == "0" and character == "1"
            last = character
    assert beginnings(strip) == count and known(strip) == sum(character in "01" for character in strip)


@given(st.lists(st.tuples(st.sampled_from("01."), st.sampled_from("01."))))
def test_of_two_boxes_the_one_that_says_more_is_believed(pairs: list[tuple[str, str]]) -> None:
    one, other = "".join(a for a, _ in pairs), "".join(b for _, b in pairs)
    for mixed, a, b in zip(overlay(one, other), one, other, strict=True):
        assert mixed == ("1" if "1" in (a, b) else "0" if "0" in (a, b) else ".")


def test_a_day_that_is_not_there_tells_nothing() -> None:
    assert join({1: "1" * 144}, 3) == NOTHING + "1" * 144 + NOTHING


def drawn(fleet: Fleet, mark: int = 1) -> dict[str, str]:
    with psycopg.connect(fleet.sink_dsn) as connection:
        rows = connection.execute(
            "SELECT day::text, strip FROM day_strips WHERE mark = %s AND device_key = %s",
            (mark, fleet.devices["north-1"]),
        ).fetchall()
    return dict(rows)


def test_the_store_draws_an_hour_when_it_is_made_corrected_and_removed(fleet: Fleet) -> None:
    hour = at(MIDNIGHT) + 3 * HOUR
    fleet.window("north-1", SPEED.number, hour, [101, 99], 60)
    fleet.window("north-1", SPEED.number, hour + 21 * MINUTE, [300], 60)
    fleet.window("north-1", SPEED.number, hour + 29 * MINUTE, [1], 60)
    fleet.window("north-1", RPM.number, hour, [300], 60)
    fleet.window("north-1", RPM.number, hour, [300], 3600)
    assert drawn(fleet) == {}
    fleet.window("north-1", SPEED.number, hour, [101, 99], 3600)
    assert drawn(fleet) == {"2026-09-22": "." * 18 + "0.1..." + "." * 120}, "a mean of exactly 1 km/h is not above it"
    fleet.execute("UPDATE window_aggregates SET sum_units = 201 WHERE width_s = 60 AND starts_at = %s", hour)
    assert drawn(fleet)["2026-09-22"][18:24] == "0.1..."
    fleet.execute("UPDATE window_aggregates SET n = n + 1 WHERE width_s = 3600 AND signal = 1")
    assert drawn(fleet)["2026-09-22"][18:24] == "1.1..."
    fleet.window("north-1", SPEED.number, hour + HOUR, [0], 60)
    fleet.window("north-1", SPEED.number, hour + HOUR, [0], 3600)
    assert drawn(fleet) == {"2026-09-22": "." * 18 + "1.1...0....." + "." * 114}
    fleet.execute("DELETE FROM window_aggregates WHERE width_s = 3600 AND starts_at = %s", hour)
    assert drawn(fleet) == {"2026-09-22": "." * 24 + "0....." + "." * 114}


def test_half_of_the_readings_is_enough_for_engine_and_lamp(fleet: Fleet) -> None:
    for signal in (26, 102):
        fleet.window("north-1", signal, at(MIDNIGHT), [0, 1], 60)
        fleet.window("north-1", signal, at(MIDNIGHT) + 10 * MINUTE, [0, 0, 1], 60)
        fleet.window("north-1", signal, at(MIDNIGHT), [0, 1], 3600)
    assert drawn(fleet, 2)["2026-09-22"][:6] == drawn(fleet, 3)["2026-09-22"][:6] == "10...."


def test_a_version_is_drawn_from_its_own_minutes_from_any_search_path(
    fleet: Fleet, schema: str, postgres_dsn: str
) -> None:
    """As a rebuild fills it: over a connection that does not look into the schema."""
    fleet.window("north-1", SPEED.number, at(MIDNIGHT), [500], 60)
    roll_up(postgres_dsn, schema)
    assert drawn(fleet)["2026-09-22"] == "1" + "." * 143


def test_a_box_that_moves_takes_the_buckets_that_begin_after_it_moved(fleet: Fleet) -> None:
    ten = at(MIDNIGHT) + 10 * HOUR
    fleet.enrol(Enrolment("north-1", "north", "Car 9", "car", since=ten))
    fleet.insert("day_strips", {
        "device_key": fleet.devices["north-1"], "mark": 1, "day": at(MIDNIGHT).date(), "strip": "1" * 144,
        "tenant_id": fleet.tenants["north"],
    })  # fmt: skip

    async def read(asset: str) -> str:
        store = Store(fleet.api_dsn, 1, 5.0, 5_000)
        await store.open()
        try:
            async with store.transaction(fleet.tenants["north"]) as connection:
                day = at(MIDNIGHT).date()
                found = await strips(connection, None, asset, "driving", day, day + timedelta(days=1))
                return next(iter(found.values()))[0]
        finally:
            await store.close()

    for minutes, bucket in ((0, 60), (1, 61), (9, 61), (10, 61)):
        moved = ten + minutes * MINUTE
        fleet.execute("DELETE FROM bindings WHERE device_key = %s", fleet.devices["north-1"])
        for asset, valid in (("Car 1", f"[,{moved})"), ("Car 9", f"[{moved},)")):
            fleet.execute(
                "INSERT INTO bindings (device_key, asset_id, tenant_id, valid)"
                " SELECT %s, asset_id, tenant_id, %s::tstzrange FROM assets WHERE name = %s",
                fleet.devices["north-1"], valid, asset,
            )  # fmt: skip
        assert asyncio.run(read("Car 1")) == "1" * bucket + "." * (144 - bucket), minutes
        assert asyncio.run(read("Car 9")) == "." * bucket + "1" * (144 - bucket), minutes

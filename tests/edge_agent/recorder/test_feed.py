"""What the recorder takes of ordinary readings, and what it leaves."""

from __future__ import annotations

import math

import pytest

from contracts.edr.profiles import PROFILE_NAMES, load_profile
from contracts.packet import Quality
from contracts.signals import catalogue
from edge_agent.recorder.feed import CHANNELS, RESTRAINT, ReadingTap, Sample
from edge_agent.sources import Reading

NOW_MS, MONO_US = 1_790_000_000_000, 50_000_000
AIRBAG = "Vehicle.Cabin.Seat.Row1.DriverSide.Airbag.IsDeployed"


def reading(path: str, value: float, age_ms: int = 0, quality: int = 0) -> Reading:
    return Reading(catalogue().by_path(path).number, NOW_MS - age_ms, value, quality)


def taken(tap: ReadingTap, *readings: Reading) -> list[Sample]:
    return list(tap.samples(readings, NOW_MS, MONO_US))


@pytest.mark.parametrize(
    ("path", "value", "name", "told"),
    [
        ("Vehicle.Speed", 51.5, "speed", 51.5),
        ("Vehicle.AngularVelocity.Yaw", 3.0, "yaw_rate", -3.0),
        ("Vehicle.Chassis.Brake.PedalPosition", 12.0, "service_brake", "on"),
        ("Vehicle.ADAS.ABS.IsEngaged", 0.0, "abs_activity", "off"),
    ],
)
def test_a_reading_becomes_a_sample_of_its_age(path: str, value: float, name: str, told: float | str) -> None:
    assert taken(ReadingTap(catalogue()), reading(path, value, 250)) == [Sample(MONO_US - 250_000, name, told)]


def test_every_channel_is_one_that_some_table_asks_for() -> None:
    feeds = {e.feed.removeprefix("channel:") for name in PROFILE_NAMES for e in load_profile(name).elements}
    assert {name for name, _ in CHANNELS.values()} <= feeds


@pytest.mark.parametrize(("value", "quality"), [(50.0, Quality.BAD_SENSOR), (math.nan, 0), (math.inf, 0)])
def test_a_bad_reading_says_that_its_channel_is_unknown(value: float, quality: int) -> None:
    tap = ReadingTap(catalogue())
    belt = "Vehicle.Cabin.Seat.Row1.DriverSide.IsBelted"
    assert taken(tap, reading(belt, 1.0)) == [Sample(MONO_US, "belt_driver", "on")]
    assert taken(tap, reading(belt, value, quality=quality)) == [Sample(MONO_US, "belt_driver", None)]
    assert taken(tap, reading(AIRBAG, 0), reading(AIRBAG, value, quality=quality)) == [], "a bad word is no command"
    for half in ("Latitude", "Longitude"):
        assert taken(tap, reading(f"Vehicle.CurrentLocation.{half}", value, quality=quality)) == []
    assert tap.place() is None


def test_history_and_what_the_crash_source_supplies_are_left() -> None:
    tap = ReadingTap(catalogue())
    assert taken(tap, reading("Vehicle.Speed", 50, age_ms=60_000)) == []
    tap.own("speed")
    assert taken(tap, reading("Vehicle.Speed", 50)) == []
    [ahead] = taken(tap, reading("Vehicle.Powertrain.CombustionEngine.Speed", 900, age_ms=-5_000))
    assert ahead.at_us == MONO_US, "a stamp from the future is taken as of now"


def test_only_an_air_bag_seen_to_open_is_a_command() -> None:
    tap = ReadingTap(catalogue())
    assert taken(tap, reading(AIRBAG, 1)) == [], "it was open before we looked"
    assert taken(tap, reading(AIRBAG, 0), reading(AIRBAG, 0)) == []
    [fired] = taken(tap, reading(AIRBAG, 1))
    assert fired == Sample(MONO_US, RESTRAINT + "frontal_airbag_time_driver", None)
    assert taken(tap, reading(AIRBAG, 1)) == []


def test_the_newest_position_needs_both_halves() -> None:
    tap = ReadingTap(catalogue())
    taken(tap, reading("Vehicle.CurrentLocation.Latitude", 49.0, 900))
    assert tap.place() is None
    taken(tap, reading("Vehicle.CurrentLocation.Longitude", 8.4, 800))
    place = tap.place()
    assert place is not None and (place.latitude, place.longitude, place.at_ms) == (49.0, 8.4, NOW_MS - 800)

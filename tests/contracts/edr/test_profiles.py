"""The profiles say what the regulations say, and a wrong file is refused by name."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from importlib import resources

import pytest

from contracts.edr.errors import BadProfile
from contracts.edr.profiles import PROFILE_NAMES, load_profile, parse_profile


def text_of(name: str) -> str:
    return resources.files("contracts.edr.regulations").joinpath(f"{name}.toml").read_text("utf-8")


@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_every_profile_loads_and_marks_every_row(name: str) -> None:
    profile = load_profile(name)
    assert len(profile.elements) > 30
    assert {element.mark for element in profile.elements} <= {"confirmed", "corroborated", "unsure"}
    assert "vin" in profile.linkage_only
    assert not {"vin", "position", "driver", "event_date_time"} & {element.name for element in profile.elements}


@pytest.mark.parametrize(
    ("name", "samples", "capacity", "comparison", "max_speed"),
    [
        ("part563-2012", 11, 2, "at_least", 200),
        ("part563-2024", 201, 2, "at_least", 200),
        ("un-r160", 11, 3, "more_than", 250),
        ("gb-39732", 11, 3, "at_least", 250),
        ("un-r169", 201, 5, "at_least", 250),
    ],
)
def test_the_numbers_that_tell_them_apart(
    name: str, samples: int, capacity: int, comparison: str, max_speed: int
) -> None:
    profile = load_profile(name)
    speed = profile.element("speed")
    assert speed.from_ms is not None and speed.rate_hz is not None
    assert -speed.from_ms * speed.rate_hz // 1_000 + 1 == samples
    assert speed.maximum == max_speed
    assert profile.capacity_events == capacity
    assert (profile.trigger.threshold_kmh, profile.trigger.window_ms) == (8.0, 150)
    assert profile.trigger.comparison == comparison
    assert profile.trigger.met_by(8.0) == (comparison == "at_least")


def test_seven_elements_moved_to_twenty_seconds() -> None:
    old, new = load_profile("part563-2012"), load_profile("part563-2024")
    moved = [element.name for element in new.elements if element != old.element(element.name)]
    assert sorted(moved) == sorted(
        ["speed", "accelerator", "service_brake", "engine_rpm", "abs_activity", "stability_control", "steering"]
    )
    assert new.phase_in[0][:2] == (date(2028, 9, 1), 25)
    assert (date(2031, 9, 1), 100, "all makers") in new.phase_in


def test_lock_rules() -> None:
    assert load_profile("part563-2024").lock.delta_v is None
    un, gb = load_profile("un-r160").lock, load_profile("gb-39732").lock
    assert un.delta_v is not None and gb.delta_v is not None
    assert (un.delta_v.threshold_kmh, un.delta_v.comparison, un.only_without_frontal_restraint) == (
        25,
        "more_than",
        True,
    )
    assert (gb.delta_v.threshold_kmh, gb.delta_v.comparison, gb.only_without_frontal_restraint) == (
        25,
        "at_least",
        False,
    )


def test_only_the_heavy_profile_watches_speed_and_it_says_what_was_not_read() -> None:
    heavy = load_profile("un-r169")
    assert heavy.sustained_deceleration is not None and heavy.last_stop is not None
    assert (heavy.sustained_deceleration.threshold_mps2, heavy.sustained_deceleration.hold_ms) == (3.25, 700)
    assert heavy.last_stop.hold_ms == 20_000
    assert (heavy.sustained_deceleration.max_gap_ms, heavy.last_stop.moved_kmh) == (1_500, 5.0)
    assert {element.mark for element in heavy.elements} == {"unsure"}
    assert all(load_profile(name).sustained_deceleration is None for name in PROFILE_NAMES if name != "un-r169")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('"confirmed"\n\n[[element]]\nname = "max', '"surely"\n\n[[element]]\nname = "max', "delta_v_longitudinal"),
        ('resolution = "2.5"', 'resolution = "0"', "time_max_delta_v_longitudinal"),
        ("rate_hz = 100", "rate_hz = 7", "delta_v_longitudinal"),
        ('name = "belt_driver"', 'name = "speed"', "speed"),
        ('feed = "channel:speed"', 'feed = "chanel:speed"', "speed"),
        ("non_reversible = true", "non_reversible = false", "non-reversible"),
        ("events = 2\n", "events = 0\n", "capacity"),
        ('name = "part563-2024"', 'name = "part563-2025"', "name"),
        ("[lock]", "[lock", "part563-2024"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_by_name(old: str, new: str, named: str) -> None:
    text = text_of("part563-2024")
    assert old in text
    with pytest.raises(BadProfile, match=named):
        parse_profile(text.replace(old, new, 1).encode(), "part563-2024")


def test_the_chinese_record_counts_from_minus_127_to_126() -> None:
    """One byte, N − 127; 0xFE and 0xFF mean invalid and not available. The square of the resultant must fit, too."""
    profile = load_profile("gb-39732")
    bytes_of = [element for element in profile.elements if element.unit in ("km/h", "g") and element.minimum < 0]
    assert {(element.minimum, element.maximum) for element in bytes_of} == {(Decimal(-127), Decimal(126))}
    assert len(bytes_of) == 6
    assert profile.element("max_delta_v_longitudinal").to_steps(-115.0) == -115
    assert profile.element("max_delta_v_resultant_squared").maximum >= 2 * 127**2


def test_what_is_our_own_reading_of_a_table_is_marked_unsure() -> None:
    un = load_profile("un-r160")
    for element in un.elements:
        assert "our reading" not in element.note or element.mark == "unsure", element.name
    assert un.element("pre_acceleration_longitudinal").mark == un.element("pre_acceleration_lateral").mark == "unsure"
    assert "6-year-old" in un.element("occupant_size_passenger").title


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max_gap_ms = 1500", "max_gap_ms = 200"), ("hold_ms = 700", "hold_ms = 0"), ("max_gap_ms = 1500", ""),
        ('moved_kmh = "5"', 'moved_kmh = "0"'), ("hold_ms = 20000", "hold_ms = 0"),
    ],
)  # fmt: skip
def test_a_heavy_duty_trigger_that_cannot_work_is_refused(old: str, new: str) -> None:
    text = text_of("un-r169")
    assert text.count(old) == 1
    with pytest.raises(BadProfile, match="un-r169"):
        parse_profile(text.replace(old, new).encode(), "un-r169")


def test_an_unknown_profile_lists_the_known() -> None:
    with pytest.raises(BadProfile, match="un-r169"):
        load_profile("part563-2030")


def test_values_become_steps_and_back() -> None:
    speed = load_profile("part563-2024").element("speed")
    assert [speed.to_steps(value) for value in (-3.0, 0.4, 88.6, 999.0)] == [0, 0, 89, 200]
    peak = load_profile("part563-2024").element("time_max_delta_v_longitudinal")
    assert peak.from_steps(peak.to_steps(106.4)) == 107.5

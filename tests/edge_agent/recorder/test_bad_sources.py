"""Sources that lie, stammer or fall silent: the recorder loses at most what they spoilt, never the crash."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.edr.capsule import open_capsule
from contracts.edr.profiles import load_profile
from contracts.edr.record import EventRecord, check_record
from edge_agent.recorder.capture import SILENCE_US, EventCapture
from edge_agent.recorder.settings import RecorderSettings
from simulators.crashes.play import BUMPER, play
from simulators.crashes.scenarios import END_S, SCENARIOS
from simulators.crashes.sensor import Reading, readings

GRAVITY = 9.80665
STEP_US = 2_000
IMPACT_US = 400_000
BAD = [math.nan, math.inf, -math.inf, 1e308, -1e308]


def frontal(end_us: int = 2_500_000, begin_us: int = 0) -> Iterator[tuple[int, float]]:
    """Instants and longitudinal acceleration: 14.4 km/h in 100 ms at ``IMPACT_US``, calm around it."""
    for at_us in range(begin_us, end_us, STEP_US):
        yield at_us, -40.0 if 0 <= at_us - IMPACT_US < 100_000 else 0.0


def recorded(capture: EventCapture, motion: Iterable[tuple[int, float]]) -> list[EventRecord]:
    return [one.record for at_us, x in motion for one in capture.on_motion(at_us, x, 0.0, GRAVITY)]


def capture_for(profile: str = "part563-2024") -> EventCapture:
    return EventCapture(load_profile(profile), RecorderSettings(profile=profile), 1, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", BAD)
def test_one_motion_reading_that_is_no_number_costs_that_reading_only(bad: float) -> None:
    capture = capture_for()
    capture.on_motion(-STEP_US, 0.0, bad, GRAVITY)
    [record] = recorded(capture, frontal())
    change = record.value("max_delta_v_longitudinal")
    assert record.complete and change is not None and change.values == (-14,)
    assert capture.unusable == 1


@pytest.mark.parametrize("bad", BAD[:3])
@pytest.mark.parametrize("channel", ["speed", "steering"])
def test_one_channel_reading_that_is_no_number_is_unknown_for_its_instant(channel: str, bad: float) -> None:
    def stream() -> Iterator[Reading]:
        for one in readings(SCENARIOS["triangle"], BUMPER, 1, END_S, 19.0):
            spoilt = one.name == channel and 22_000_000 < one.at_us < 22_100_000
            yield Reading(one.at_us, one.name, bad) if spoilt else one

    [capsule] = play(SCENARIOS["triangle"], "un-r160", 1, BUMPER, stream=stream()).held
    value = capsule.record.value(channel)
    assert value is not None and None in value.values[-4:] and value.values[-1] is not None
    assert capsule.record.complete


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_no_reading_whatever_raises_or_makes_a_record_outside_its_profile(data: st.DataObject) -> None:
    profile = load_profile("un-r160")
    capture = capture_for(profile.name)
    channels = ["speed", "steering", "roll_rate", "acceleration_x_g", "service_brake", "belt_driver"]
    anything = st.one_of(st.floats(), st.sampled_from(["on", "off", "", "?"]), st.none())
    spoilt = data.draw(st.dictionaries(st.integers(0, 80), st.tuples(*[st.floats()] * 3), max_size=8))
    made = []
    for number, (at_us, x) in enumerate(frontal(1_200_000, 200_000)):
        if number % 20 == 0:
            made += capture.on_channel(at_us, data.draw(st.sampled_from(channels)), data.draw(anything))
        vector = spoilt.get(number) or (x, 0.0, GRAVITY)
        made += capture.on_motion(at_us, *vector)
    made += capture.close()
    assert made, "the crash at the end of it is recorded"
    for one in made:
        check_record(one.record, profile)


def test_when_all_sources_fall_silent_the_clock_closes_the_event() -> None:
    capture = capture_for()
    assert recorded(capture, frontal(IMPACT_US + 150_000)) == []
    assert capture.on_tick(IMPACT_US + 1_000_000) == []
    [one] = capture.on_tick(IMPACT_US + 1_200_000 + SILENCE_US)
    assert one.record.trigger == "delta_v"
    assert capture.on_tick(IMPACT_US + 60_000_000) == [] and capture.close() == []


def test_a_late_source_is_waited_for() -> None:
    capture = capture_for()
    stream = list(frontal())
    assert recorded(capture, stream[:230]) == []
    capture.on_tick(stream[-1][0])
    [record] = recorded(capture, stream[230:])
    assert record.complete


def test_open_capsules_of_a_spoilt_drive_hold() -> None:
    """Sealed, not only captured: every tenth motion reading of a real pulse is no number."""

    def stream() -> Iterator[Reading]:
        for number, one in enumerate(readings(SCENARIOS["haversine"], BUMPER, 3, END_S, 21.0)):
            yield Reading(one.at_us, one.name, (math.nan,) * 3) if one.name == "motion" and not number % 10 else one

    played = play(SCENARIOS["haversine"], "part563-2024", 3, BUMPER, stream=stream())
    [record] = [open_capsule(one.capsule).record for one in played.recorder.undelivered()]
    change = record.value("max_delta_v_longitudinal")
    assert change is not None and change.values[0] == pytest.approx(-45, abs=2)


def yes_or_no(record: EventRecord) -> str:
    element = load_profile(record.profile).element("complete_file_recorded")
    value = record.value(element.name)
    assert value is not None and value.values[0] is not None
    return element.states[value.values[0]]


@pytest.mark.parametrize("gap_us", [0, STEP_US, 2 * STEP_US, 40_000])
def test_what_a_silent_sensor_did_not_see_is_not_made_up(gap_us: int) -> None:
    """One lost reading is bridged. A gap ends the velocity change, leaves no maximum and an incomplete record."""
    begins_us = IMPACT_US + 30_000
    capture = capture_for()
    seen = [one for one in frontal() if not begins_us <= one[0] < begins_us + gap_us]
    [record] = recorded(capture, seen)
    change, force = record.value("delta_v_longitudinal"), record.value("acceleration_longitudinal")
    assert change is not None and force is not None
    bridged = gap_us <= STEP_US
    assert (record.complete, yes_or_no(record)) == ((True, "yes") if bridged else (False, "no"))
    assert ("max_delta_v_longitudinal" in record.not_available) == (not bridged)
    for index, steps in enumerate(change.values):
        known = bridged or record.time_zero_us + index * change.step_us < begins_us
        assert (steps is not None) == known, index
    unseen = [
        steps is None
        for index, steps in enumerate(force.values, force.first)
        if begins_us <= record.time_zero_us + index * force.step_us < begins_us + gap_us - STEP_US
    ]
    assert all(unseen) and sum(steps is None for steps in force.values) <= len(unseen) + 2


def test_a_sensor_dead_before_the_deployment_leaves_an_incomplete_record() -> None:
    capture = capture_for()
    assert recorded(capture, frontal(200_000)) == []
    capture.on_restraint(5_000_000, "frontal_airbag_time_driver")
    [one] = capture.on_tick(12_000_000)
    assert not one.record.complete and "delta_v_longitudinal" in one.record.not_available
    blind = capture_for()
    blind.on_restraint(5_000_000, "frontal_airbag_time_driver")
    [one] = blind.on_tick(12_000_000)
    assert one.record.complete, "a device without an accelerometer records what it has"


def test_a_clock_that_jumps_in_the_pulse_makes_up_no_velocity_change() -> None:
    jump_us = 3_600_000_000
    capture = capture_for("un-r160")
    stream = ((at_us + (jump_us if at_us > IMPACT_US + 70_000 else 0), x) for at_us, x in frontal())
    records = recorded(capture, stream) + [one.record for one in capture.on_tick(jump_us + 20_000_000)]
    assert [record.complete for record in records] == [False], "what is left after the jump is below the threshold"
    assert "max_delta_v_longitudinal" in records[0].not_available


@pytest.mark.parametrize("hz", [100, 500])
def test_a_source_slower_than_its_setting_is_no_row_of_gaps(hz: int) -> None:
    capture = capture_for()
    [record] = recorded(capture, [one for one in frontal() if one[0] % (1_000_000 // hz) == 0])
    change = record.value("max_delta_v_longitudinal")
    assert record.complete and change is not None and change.values[0] == pytest.approx(-14, abs=1)


@pytest.mark.parametrize(("age_us", "known"), [(4_000_000, True), (6_000_000, False), (3_600_000_000, False)])
def test_an_old_word_of_belt_and_lamp_is_not_known_any_more(age_us: int, known: bool) -> None:
    capture = capture_for()
    capture.on_channel(0, "belt_driver", "on")
    capture.on_channel(0, "airbag_lamp", "off")
    before_us = 1_000_000 + age_us - IMPACT_US
    [record] = recorded(capture, ((at_us + before_us, x) for at_us, x in frontal()))
    for name in ("belt_driver", "airbag_lamp"):
        assert (name in record.not_available) == (not known)


def test_block_means_say_since_when_the_sensor_stood_at_its_limit() -> None:
    """A jump of 4 g upwards and braking of 1.2 g, on a sensor that ends at 2 g and 1 g."""
    settings = RecorderSettings(profile="un-r160", sensor_limit_g=(1.0, 50.0, 2.0))
    capture = EventCapture(load_profile("un-r160"), settings, 1, 1)
    made = []
    for at_us in range(0, 7_200_000, STEP_US):
        x = -min(12.0, GRAVITY) if 600_000 <= at_us < 900_000 else 0.0
        z = 2 * GRAVITY if 1_500_000 <= at_us < 2_000_000 else GRAVITY
        if at_us == 1_000_000:
            made += capture.on_restraint(at_us, "pretensioner_time_driver")
        made += capture.on_motion(at_us, x, 0.0, z)
    record = made[-1].record
    braking, lift = record.value("pre_acceleration_longitudinal"), record.value("acceleration_normal")
    sideways = record.value("pre_acceleration_lateral")
    assert braking is not None and lift is not None and sideways is not None
    assert braking.saturated_from_ms == pytest.approx(600 - record.time_zero_us // 1_000, abs=3)
    assert lift.saturated_from_ms == pytest.approx(1_500 - record.time_zero_us // 1_000, abs=3)
    assert sideways.saturated_from_ms is None


def test_the_events_of_one_crash_begin_within_five_seconds_of_the_first() -> None:
    capture = capture_for("un-r160")
    at_s, impacts = 0.0, (0.4, 4.4, 8.4, 9.4)
    told = []
    while at_s < 15:
        x = -40.0 if any(0 <= at_s - impact < 0.1 for impact in impacts) else 0.0
        told += [one.record for one in capture.on_motion(round(at_s * 1e6), x, 0.0, GRAVITY) if one.record.complete]
        at_s += 0.002
    assert [record.event_number for record in told] == [1, 2, 1, 2], "the third is 8 s after the first"
    assert [record.since_previous_us is None for record in told] == [True, False, True, False]


def test_a_third_event_of_a_crash_is_not_passed_off_as_the_second() -> None:
    capture = capture_for("part563-2024")
    told = []
    for at_us in range(0, 5_000_000, STEP_US):
        x = -40.0 if at_us % 1_000_000 < 100_000 and 1_000_000 <= at_us < 4_000_000 else 0.0
        told += [one.record for one in capture.on_motion(at_us, x, 0.0, GRAVITY)]
    assert [record.event_number for record in told] == [1, 2, 3]
    numbers = [record.value("multi_event_number") for record in told]
    assert [number and (number.values[0], number.clamped) for number in numbers] == [(1, False), (2, False), (2, True)]

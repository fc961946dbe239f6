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

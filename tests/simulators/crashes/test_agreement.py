"""The recorder against the truth: every element of every profile for every simulated crash, and silence otherwise."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from contracts.edr.elements import Element
from contracts.edr.profiles import PROFILE_NAMES, load_profile
from contracts.edr.verify import verify_export
from contracts.edr.x509 import X509Checks
from simulators.crashes.play import ASKEW, BUMPER, SHORT, play
from simulators.crashes.pulses import Haversine
from simulators.crashes.scenarios import END_S, SCENARIOS
from simulators.crashes.sensor import Reading, readings
from simulators.crashes.truth import TrueEvent, numbers, true_events
from tests.simulators.crashes.agreement import Comparison

CRASHES = [name for name, scenario in SCENARIOS.items() if scenario.crash]
HARMLESS = [name for name, scenario in SCENARIOS.items() if not scenario.crash]
SENSORS = {"askew": ASKEW, "saturating": SHORT}
SEATS = [("askew", 11), ("askew", 6), ("saturating", 8)]
"""Every profile on a noisy sensor on a bracket, with two seeds of noise, and on one that saturates."""

TIME_ZERO_S = 0.002
"""One sample of 500 Hz."""

BRAKING_S = 0.06
"""The heavy-duty trigger reads a speed of 10 Hz; the table grants 0.1 s between two events."""

NOW_MS = 1_790_000_000_000
FED = frozenset(
    "speed accelerator service_brake engine_rpm steering yaw_rate abs_activity stability_control roll_angle roll_rate"
    " belt_driver belt_passenger airbag_lamp".split()
)


@cache
def truth_of(scenario: str, profile: str) -> list[TrueEvent]:
    return true_events(SCENARIOS[scenario], load_profile(profile))


@cache
def stream_of(scenario: str, sensor: str, seed: int) -> tuple[Reading, ...]:
    """The same readings for every profile: making them costs more than recording them."""
    return tuple(readings(SCENARIOS[scenario], SENSORS[sensor], seed, END_S))


@pytest.mark.parametrize("name", PROFILE_NAMES)
@pytest.mark.parametrize("scenario", CRASHES)
@pytest.mark.parametrize(("sensor", "seed"), SEATS)
def test_records_agree_with_the_truth(name: str, scenario: str, sensor: str, seed: int) -> None:
    profile = load_profile(name)
    played = play(SCENARIOS[scenario], name, seed, SENSORS[sensor], stream=stream_of(scenario, sensor, seed))
    expected = truth_of(scenario, name)
    held = sorted((capsule.record for capsule in played.held), key=lambda record: record.time_zero_us)
    assert [record.trigger for record in held] == [event.trigger for event in expected]
    assert verify_export(played.recorder.export(NOW_MS), X509Checks(), NOW_MS).holds
    places = numbers(expected, profile.multi_event_window_ms / 1_000)
    for record, event, (number, since_s) in zip(held, expected, places, strict=True):
        slack_s = BRAKING_S if event.trigger == "sustained_deceleration" else TIME_ZERO_S
        assert record.time_zero_us / 1e6 == pytest.approx(event.time_zero_s, abs=slack_s)
        assert record.complete and record.event_number == number
        assert (record.since_previous_us is None) == (since_s is None)
        if record.since_previous_us is not None:
            assert record.since_previous_us / 1e6 == pytest.approx(since_s, abs=0.1)
        if slack_s == BRAKING_S:  # its own instants are judged from its own time zero
            event = replace(event, time_zero_s=record.time_zero_us / 1e6)
        comparison = Comparison(SCENARIOS[scenario], SENSORS[sensor], profile, record, event, number, since_s)
        for value in record.elements:
            comparison.check(value)


@pytest.mark.parametrize("name", ["part563-2024", "un-r160"])
def test_a_wrong_value_is_noticed_whatever_element_it_is_of(name: str) -> None:
    """The comparison can fail: each element of the second impact's record, off by more than its table grants."""
    profile = load_profile(name)
    truths = truth_of("double", name)
    record = play(SCENARIOS["double"], name, 11, ASKEW, stream=stream_of("double", "askew", 11)).held[-1].record
    place = numbers(truths, profile.multi_event_window_ms / 1_000)[-1]
    comparison = Comparison(SCENARIOS["double"], ASKEW, profile, record, truths[-1], *place)
    for value in record.elements:
        comparison.check(value)
        if value.name == "time_max_delta_v_lateral":
            continue  # nothing moved sideways: there is no peak to time
        wrong = replace(value, values=tuple(moved(profile.element(value.name), steps) for steps in value.values))
        with pytest.raises(AssertionError):
            comparison.check(wrong)


def moved(element: Element, steps: int | None) -> int | None:
    """The next state, or a value half of the range away."""
    if steps is None:
        return None
    if element.states:
        return (steps + 1) % len(element.states)
    half = max(1, int((element.maximum - element.minimum) / 2 / element.resolution))
    return steps + half if steps <= int((element.maximum + element.minimum) / 2 / element.resolution) else steps - half


@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_what_has_no_source_is_not_available_and_the_rest_is_there(name: str) -> None:
    profile = load_profile(name)
    stream = stream_of("haversine", "askew", 11)
    record = play(SCENARIOS["haversine"], name, 11, ASKEW, stream=stream).held[-1].record
    for element in profile.elements:
        word, argument = element.feed.split(":", 1)
        missing = element.name in record.not_available
        if word in ("channel", "flag"):
            assert missing == (argument not in FED), element.name
        elif word == "restraint":
            assert missing == (argument not in dict(SCENARIOS["haversine"].restraints)), element.name
        elif word in ("delta_v", "max_delta_v", "time_max_delta_v", "acceleration", "pre_acceleration"):
            assert not missing, element.name


@pytest.mark.parametrize("scenario", HARMLESS)
@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_non_events_trigger_nothing(name: str, scenario: str) -> None:
    expected = [event.trigger for event in truth_of(scenario, name)]
    # full braking is an event for heavy vehicles and for nobody else
    assert expected == (["sustained_deceleration"] if (name, scenario) == ("un-r169", "emergency_braking") else [])
    stream = stream_of(scenario, "askew", 5)
    assert [
        capsule.record.trigger for capsule in play(SCENARIOS[scenario], name, 5, ASKEW, stream=stream).held
    ] == expected


def test_the_threshold_is_met_by_one_regulation_and_missed_by_none_just_above() -> None:
    """From 7.6 to 8.4 km/h the recorder answers as the truth does."""
    base = SCENARIOS["minor_bump"]
    for kmh in (7.6, 8.4):
        scenario = replace(base, x=(Haversine(23.0, 0.120, -kmh / 3.6),))
        expected = [event.trigger for event in true_events(scenario, load_profile("un-r160"))]
        assert expected == (["delta_v"] if kmh > 8 else [])
        assert [capsule.record.trigger for capsule in play(scenario, "un-r160", 3).held] == expected


def test_a_saturated_channel_says_since_when() -> None:
    record = play(SCENARIOS["haversine"], "gb-39732", 8, SHORT).held[0].record
    clipping = record.value("clipping_time_longitudinal")
    delta_v = record.value("delta_v_longitudinal")
    assert clipping is not None and delta_v is not None
    assert clipping.values[0] == delta_v.saturated_from_ms
    assert record.value("clipping_time_lateral") is None
    untouched = play(SCENARIOS["haversine"], "gb-39732", 8, BUMPER).held[0].record
    assert "clipping_time_longitudinal" in untouched.not_available


def test_the_same_seed_gives_the_same_capsules() -> None:
    first, second = (play(SCENARIOS["side"], "un-r160", 6) for _ in range(2))
    assert [one.capsule for one in first.sealed] == [one.capsule for one in second.sealed]
    assert play(SCENARIOS["side"], "un-r160", 7).sealed[0].capsule != first.sealed[0].capsule


def test_restraints_and_fast_impacts_lock_by_profile() -> None:
    def reasons(scenario: str, profile: str) -> list[str]:
        return [capsule.record.lock_reason for capsule in play(SCENARIOS[scenario], profile, 1).held]

    assert reasons("haversine", "part563-2024") == ["restraint"]
    assert reasons("triangle", "part563-2024") == [""]
    unarmed = replace(SCENARIOS["haversine"], restraints=())
    assert [one.record.lock_reason for one in play(unarmed, "gb-39732", 1).held] == ["delta_v"]
    assert [one.record.lock_reason for one in play(unarmed, "part563-2024", 1).held] == [""]

"""The trigger on pulses that can be reckoned by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.edr.profiles import Profile, load_profile
from edge_agent.recorder.detector import MAX_EVENT_US, ChangeWindow, CrashDetector, Event
from edge_agent.recorder.policy import gives_way
from edge_agent.recorder.speed_triggers import SpeedTriggers
from edge_agent.recorder.store import SlotHeader

US = load_profile("part563-2024")
UN = load_profile("un-r160")
HEAVY = load_profile("un-r169")


def run(detector: CrashDetector, *steps: tuple[int, float, float], step_us: int = 1_000) -> list[Event]:
    """Feeds constant accelerations: (milliseconds, ax, ay) one after the other. The events that began."""
    events, at_us = [], 0
    for duration_ms, ax, ay in steps:
        for _ in range(duration_ms * 1_000 // step_us):
            started, _ = detector.on_motion(at_us, ax, ay)
            events += [started] if started else []
            at_us += step_us
    return events


def test_time_zero_is_the_gates_crossing_less_twenty_milliseconds() -> None:
    """20 m/s² reach 0.8 km/h (0.2222 m/s) in 11.1 ms: time zero lies 8.9 ms before the pulse."""
    (event,) = run(CrashDetector(US, True), (500, 0, 0), (200, -20, 0), (100, 0, 0))
    assert event.rule == "longitudinal_gate"
    assert event.time_zero_us == pytest.approx(500_000 + 11_111 - 20_000, abs=1_000)
    assert event.triggered_us == pytest.approx(500_000 + 111_111, abs=1_500)
    assert event.end_us is not None
    # 0.8 km/h within the last 20 ms: 8.9 ms after the pulse
    assert event.end_us == pytest.approx(700_000 + 8_889, abs=1_500)


def test_the_lateral_gate_is_five_milliseconds() -> None:
    """60 m/s² reach it in 3.7 ms: 1.3 ms before the pulse."""
    (event,) = run(CrashDetector(US, True), (500, 0, 0), (60, 0, 60), (100, 0, 0))
    assert event.rule == "lateral_gate"
    assert event.time_zero_us == pytest.approx(500_000 + 3_704 - 5_000, abs=1_000)
    assert run(CrashDetector(US, False), (500, 0, 0), (60, 0, 60), (100, 0, 0)) == [], "lateral is not recorded"


def test_a_soft_push_from_the_side_begins_where_its_150_ms_began() -> None:
    """17 m/s² never pass the lateral gate, yet give 9.2 km/h in 150 ms."""
    (event,) = run(CrashDetector(US, True), (500, 0, 0), (200, 0, 17), (100, 0, 0))
    assert event.rule == "trigger_interval"
    assert event.time_zero_us == pytest.approx(500_000 + 130_719 - 150_000, abs=1_500)


@pytest.mark.parametrize(("profile", "triggers"), [(US, True), (UN, False)], ids=["at least", "more than"])
def test_exactly_the_threshold(profile: Profile, triggers: bool) -> None:
    window = ChangeWindow(profile.trigger)
    assert window.push(0, 0.0) is None
    assert (window.push(100_000, 8.0) is not None) == triggers
    assert window.push(101_000, 8.000001) is not None


def test_the_window_is_150_ms_and_not_more() -> None:
    """14.5 m/s² give 7.83 km/h in 150 ms and any amount in a second: hard braking of a racing car is no crash."""
    assert run(CrashDetector(US, True), (500, 0, 0), (1_000, -14.5, 0), (200, 0, 0)) == []
    assert len(run(CrashDetector(US, True), (500, 0, 0), (1_000, -15.2, 0), (200, 0, 0))) == 1


@pytest.mark.parametrize("step_us", [500, 1_000, 2_000, 4_000, 10_000])
def test_a_slow_sampler_sees_the_same_time_zero(step_us: int) -> None:
    (event,) = run(CrashDetector(US, True), (500, 0, 0), (200, -30, 0), (100, 0, 0), step_us=step_us)
    assert event.time_zero_us == pytest.approx(500_000 + 7_407 - 20_000, abs=max(1_000, step_us))


def test_two_impacts_are_two_events_and_the_first_does_not_trigger_the_second() -> None:
    events = run(CrashDetector(US, True), (300, 0, 0), (100, -40, 0), (120, 2, 0), (100, -40, 0), (100, 2, 0))
    assert len(events) == 2
    assert len(run(CrashDetector(US, True), (300, 0, 0), (100, -40, 0), (400, 2, 0))) == 1


def test_a_long_slide_ends_in_a_reset() -> None:
    detector = CrashDetector(US, True)
    (event, *_) = run(detector, (300, 0, 0), (1_100, -25, 0))
    assert event.end_us is not None
    assert event.end_us - event.time_zero_us == pytest.approx(MAX_EVENT_US, abs=1_500)


def test_a_restraint_begins_an_event_and_the_earlier_gate_dates_it() -> None:
    detector = CrashDetector(US, True)
    run(detector, (100, 0, 0))
    event = detector.on_restraint(100_500)
    assert event is not None and (event.trigger, event.rule, event.time_zero_us) == ("restraint", "deployment", 100_500)
    for at_ms in range(101, 130):
        detector.on_motion(at_ms * 1_000, -30.0, 0.0)
    assert event.rule == "longitudinal_gate" and event.time_zero_us < 100_500
    assert detector.on_restraint(131_000) is None, "a second command is the same event"


def test_heavy_braking_of_seven_tenths() -> None:
    def brake(deceleration: float, hold_s: float) -> list[Event]:
        triggers, events, speed = SpeedTriggers(HEAVY), [], 80.0
        for tick in range(100):
            if 2.0 <= tick / 10 < 2.0 + hold_s:
                speed -= deceleration * 0.36
            events += triggers.on_speed(tick * 100_000, speed)
        return events

    assert brake(3.0, 3.0) == []
    assert brake(4.0, 0.4) == []
    (event,) = brake(4.0, 2.0)
    assert event.trigger == "sustained_deceleration"
    assert event.time_zero_us == pytest.approx(2_000_000, abs=150_000)


def test_the_last_stop_needs_a_journey_before_it() -> None:
    triggers = SpeedTriggers(HEAVY)
    events = [event for second in range(60) for event in triggers.on_speed(second * 1_000_000, 0.0)]
    assert events == []
    triggers.on_speed(60_000_000, 30.0)
    events = [event for second in range(61, 120) for event in triggers.on_speed(second * 1_000_000, 0.0)]
    assert [(event.trigger, event.time_zero_us, event.triggered_us) for event in events] == [
        ("last_stop", 61_000_000, 81_000_000)
    ]


def test_the_oldest_unlocked_gives_way() -> None:
    header = SlotHeader(0, 1, 0, 1, b"", False, True)
    held = [replace(header, record_no=number, locked=number in (1, 3)) for number in (1, 2, 3, 4)]
    assert gives_way(held, 5) is None
    chosen = gives_way(held, 4)
    assert chosen is not None and chosen.record_no == 2
    with pytest.raises(LookupError):
        gives_way([one for one in held if one.locked], 2)

"""Alert policy by its properties: only allowed moves, one alert per cause, nothing critical hidden."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anomaly.alerts.gathering import Facts, Hysteresis, Place, Standing, contradicts, ground_of, place, step_for
from anomaly.alerts.gravity import Criticality, Record, Stake, grade
from anomaly.alerts.life import CLOSED, LONGEST_SUPPRESSION_MS, MOVES, OPEN, WAITING, Held, Move, moved
from anomaly.alerts.storm import Fresh, Storm, StormRule, storm_of
from anomaly.alerts.waiting import ATTEMPTS, LEVELS, QuietHours, escalates_at, may_disturb_at, pause_ms
from contracts.alert import AlertState, Resolution, StepKind
from contracts.errors import Rejected
from contracts.finding import Severity

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
STATES = st.sampled_from(AlertState)
SEVERITIES = st.sampled_from(Severity)
STAKES = st.builds(
    Stake, st.sampled_from(Criticality), st.none() | st.floats(0, 1e9), st.none() | st.floats(0, 1e6)
)  # fmt: skip


@st.composite
def sound_moves(draw: st.DrawFn) -> Move:
    """Moves that are complete; whether they are allowed is another question."""
    to = draw(STATES)
    name = draw(st.text(min_size=1, max_size=20))
    return Move(
        to,
        assignee=name if to is AlertState.ASSIGNED else None,
        resolution=draw(st.sampled_from(Resolution)) if to is AlertState.RESOLVED else None,
        suppress_until_ms=NOW_MS + DAY_MS if to is AlertState.SUPPRESSED else None,
    )


@given(st.lists(sound_moves(), max_size=30))
def test_any_sequence_of_moves_stays_within_the_life(moves: list[Move]) -> None:
    held = Held(AlertState.NEW)
    for move in moves:
        try:
            after = moved(held, move, NOW_MS)
        except Rejected as error:
            assert error.reason == "not_allowed"
            assert move.to_state not in MOVES[held.state]
            continue
        if after is None:
            assert held.state is move.to_state
            continue
        assert after.state in MOVES[held.state]
        assert (after.state is AlertState.RESOLVED) == (after.resolution is not None)
        assert (after.state is AlertState.SUPPRESSED) == (after.suppressed_until_ms is not None)
        held = Held(after.state, after.assignee, after.resolution)
        assert held.state is not AlertState.RETRACTED, "only what machines know takes the ground away"


@given(sound_moves(), STATES)
def test_a_move_that_is_repeated_changes_nothing(move: Move, state: AlertState) -> None:
    if move.to_state not in MOVES[state] or move.to_state is AlertState.SUPPRESSED:
        return
    resolution = Resolution.TRUE if state is AlertState.RESOLVED else None
    after = moved(Held(state, None, resolution), move, NOW_MS)
    assert after is not None
    assert moved(Held(after.state, after.assignee, after.resolution), move, NOW_MS) is None


@pytest.mark.parametrize(
    "move",
    [
        Move(AlertState.RESOLVED),
        Move(AlertState.ACKNOWLEDGED, resolution=Resolution.TRUE),
        Move(AlertState.ASSIGNED),
        Move(AlertState.ASSIGNED, assignee="x" * 101),
        Move(AlertState.ACKNOWLEDGED, assignee="somebody"),
        Move(AlertState.ACKNOWLEDGED, note="x" * 2_001),
        Move(AlertState.SUPPRESSED, suppress_until_ms=NOW_MS),
        Move(AlertState.SUPPRESSED, suppress_until_ms=NOW_MS + LONGEST_SUPPRESSION_MS + 1),
        Move(AlertState.RESOLVED, resolution=Resolution.TRUE, suppress_until_ms=NOW_MS + 1),
    ],
)
def test_a_move_that_is_incomplete_or_says_too_much_is_refused(move: Move) -> None:
    with pytest.raises(Rejected) as refused:
        moved(Held(AlertState.NEW), move, NOW_MS)
    assert refused.value.reason == "bad_move"


def test_an_assignment_is_handed_on_and_ends_when_it_is_opened_again() -> None:
    first = moved(Held(AlertState.NEW), Move(AlertState.ASSIGNED, assignee="ada"), NOW_MS)
    assert first is not None and first.assignee == "ada"
    second = moved(Held(first.state, "ada"), Move(AlertState.ASSIGNED, assignee="bob"), NOW_MS)
    assert second is not None and second.assignee == "bob"
    working = moved(Held(AlertState.ASSIGNED, "bob"), Move(AlertState.IN_PROGRESS), NOW_MS)
    assert working is not None and working.assignee == "bob"
    again = moved(Held(AlertState.RESOLVED, "bob", Resolution.TRUE), Move(AlertState.REOPENED), NOW_MS)
    assert again is not None and (again.assignee, again.resolution) == (None, None)


def test_every_state_is_reached_and_every_open_one_can_be_left() -> None:
    assert {*OPEN, *CLOSED} == set(AlertState)
    assert {to for moves in MOVES.values() for to in moves} == set(AlertState) - {AlertState.NEW, AlertState.RETRACTED}
    assert all(AlertState.RESOLVED in MOVES[state] for state in OPEN)


# -- gathering -------------------------------------------------------------------------------------------------------


@given(st.integers(-10 * DAY_MS, 30 * DAY_MS), STATES, st.sampled_from(Resolution))
def test_one_alert_per_cause(since_ms: int, state: AlertState, found: Resolution) -> None:
    resolution = found if state is AlertState.RESOLVED else None
    where = place(NOW_MS + since_ms, Standing(state, resolution, NOW_MS), Hysteresis())
    if state in OPEN:
        assert where is Place.JOIN
    if state is AlertState.RESOLVED and since_ms <= 0:
        assert where is Place.JOIN, "the excursion that a person judged is not said again"
    if where is Place.OPEN:
        assert state is AlertState.RESOLVED and since_ms > DAY_MS


def test_hysteresis_after_a_resolution() -> None:
    rule = Hysteresis(forget_ms=7 * DAY_MS, trust_ms=DAY_MS)
    false, true = Standing(AlertState.RESOLVED, Resolution.FALSE, 0), Standing(AlertState.RESOLVED, Resolution.TRUE, 0)
    assert [place(day * DAY_MS, false, rule) for day in (1, 2)] == [Place.JOIN, Place.OPEN]
    assert [place(day * DAY_MS, true, rule) for day in (7, 8)] == [Place.REOPEN, Place.OPEN]
    assert place(DAY_MS, None, rule) is Place.OPEN
    assert place(99 * DAY_MS, Standing(AlertState.RETRACTED), rule) is Place.REOPEN


facts = st.builds(
    Facts, SEVERITIES, st.integers(0, 100), st.integers(100, 200), st.booleans(), st.booleans(), st.booleans()
)


@given(st.lists(facts, max_size=8))
def test_the_ground_of_an_alert_does_not_depend_on_the_order_of_its_findings(findings: list[Facts]) -> None:
    ground = ground_of(findings)
    assert ground == ground_of(reversed(findings))
    holding = [one for one in findings if one.holds]
    assert (ground is None) == (not holding)
    if ground is not None:
        assert ground.severity == max(one.severity for one in holding)
        assert ground.running == any(not one.closed for one in holding)


@given(facts, st.integers(0, 50), SEVERITIES, st.booleans())
def test_longer_worse_and_over_correct_nothing(before: Facts, longer_ms: int, worse: Severity, over: bool) -> None:
    after = replace(
        before, last_seen_ms=before.last_seen_ms + longer_ms, severity=max(before.severity, worse),
        closed=before.closed or over,
    )  # fmt: skip
    assert not contradicts(before, after)
    assert contradicts(before, replace(after, holds=not after.holds))
    assert contradicts(before, replace(after, since_ms=after.since_ms + 1))
    if not before.lost:
        assert contradicts(before, replace(after, lost=True))


@given(STATES, SEVERITIES, st.lists(facts, max_size=4), st.booleans())
def test_what_loses_its_ground_is_retracted_and_a_resolution_stays(
    state: AlertState, severity: Severity, findings: list[Facts], corrected: bool
) -> None:
    ground = ground_of(findings)
    step = step_for(state, severity, ground, corrected)
    if state in OPEN:
        assert (step is StepKind.RETRACTED) == (ground is None)
    if state is AlertState.RESOLVED:
        assert step in (None, StepKind.AMENDED)
    if state is AlertState.RETRACTED:
        assert step is (None if ground is None else StepKind.REOPENED)
    if step is StepKind.WORSENED:
        assert ground is not None and ground.severity > severity


# -- gravity ---------------------------------------------------------------------------------------------------------


@given(SEVERITIES, STAKES, st.floats(0, 1))
def test_a_severity_moves_by_two_steps_at_most_and_critical_stays_an_alarm(
    told: Severity, stake: Stake, sureness: float
) -> None:
    seen = grade(told, stake, sureness)
    assert abs(seen - told) <= 2
    if told is Severity.CRITICAL:
        assert seen >= Severity.ALARM


@given(SEVERITIES, SEVERITIES, STAKES, st.floats(0, 1), st.floats(0, 1))
def test_graver_surer_or_dearer_is_never_less(
    one: Severity, other: Severity, stake: Stake, sure: float, surer: float
) -> None:
    low, high = sorted((one, other))
    sure, surer = sorted((sure, surer))
    assert grade(low, stake, sure) <= grade(high, stake, surer)
    vital = replace(stake, criticality=Criticality.VITAL)
    assert grade(low, stake, sure) <= grade(low, vital, sure)


def test_cost_moves_a_severity_by_its_ratio() -> None:
    assert grade(Severity.WARNING, Stake(Criticality.NORMAL, 4_000, 200), 0.5) is Severity.ALARM
    assert grade(Severity.WARNING, Stake(Criticality.NORMAL, 4_000, 200), 0.4) is Severity.WARNING
    assert grade(Severity.WARNING, Stake(Criticality.NORMAL, 10, 200), 0.9) is Severity.NOTE
    assert grade(Severity.WARNING, Stake(), 0.0) is Severity.WARNING
    assert Record().sureness == 0.5
    assert Record(confirmed=8, wrong=2, unclear=50).sureness == 0.75


# -- storms ----------------------------------------------------------------------------------------------------------

alerts = st.lists(
    st.builds(
        Fresh, st.uuids().map(str), st.sampled_from("abcdef"), st.sampled_from(("hot", "dry")),
        st.integers(0, 1_200_000), SEVERITIES, st.none(), st.booleans(), st.booleans(),
    ),
    min_size=1, max_size=12, unique_by=lambda one: one.alert_id,
)  # fmt: skip


@given(alerts, st.randoms(use_true_random=False))
def test_storms_hide_nothing_critical_and_nothing_in_work_and_make_no_chains(
    found: list[Fresh], shuffle: object
) -> None:
    newest, others = found[0], found[1:]
    storm = storm_of(newest, others, StormRule())
    assert storm == storm_of(newest, list(reversed(others)), StormRule()), "the order of rows decides nothing"
    if storm is None:
        return
    by_id = {one.alert_id: one for one in found}
    assert storm.root not in storm.members
    for member in map(by_id.__getitem__, storm.members):
        assert member.severity is not Severity.CRITICAL and member.untouched and not member.heads
        assert member.asset == newest.asset or member.cause == newest.cause
        assert abs(member.since_ms - newest.since_ms) <= 600_000


def test_three_alerts_of_an_asset_are_one_and_five_assets_of_a_cause_are_one() -> None:
    def fresh(number: int, asset: str, cause: str, **more: object) -> Fresh:
        return Fresh(f"a{number}", asset, cause, number * 1_000, Severity.WARNING, **more)  # type: ignore[arg-type]

    one, two, three = (fresh(n, "car", f"cause{n}") for n in range(3))
    assert storm_of(two, [one], StormRule()) is None
    assert storm_of(three, [one, two], StormRule()) == Storm("a0", ("a1", "a2"))
    later = fresh(3, "car", "cause3")
    grouped = [replace(one, heads=True), *(replace(alert, root="a0") for alert in (two, three))]
    assert storm_of(later, grouped, StormRule()) == Storm("a0", ("a3",))
    assert storm_of(replace(later, since_ms=700_000), grouped, StormRule()) is None
    fleet = [fresh(n, f"car{n}", "update") for n in range(5)]
    assert storm_of(fleet[3], fleet[:3], StormRule()) is None
    assert storm_of(fleet[4], fleet[:4], StormRule()) == Storm("a0", ("a1", "a2", "a3", "a4"))


# -- waiting ---------------------------------------------------------------------------------------------------------


@given(STATES, SEVERITIES, st.integers(0, 5))
def test_only_what_waits_for_people_escalates_and_not_for_ever(
    state: AlertState, severity: Severity, level: int
) -> None:
    at_ms = escalates_at(state, severity, level, NOW_MS)
    if state in WAITING and severity > Severity.NOTE and level < LEVELS:
        assert at_ms is not None and at_ms > NOW_MS
    if level >= LEVELS or severity is Severity.NOTE or state in (*CLOSED, AlertState.SUPPRESSED):
        assert at_ms is None
    if at_ms is not None and severity < Severity.CRITICAL:
        graver = escalates_at(state, Severity(severity + 1), level, NOW_MS)
        assert graver is not None and graver < at_ms


minutes = st.times().map(lambda moment: moment.replace(second=0, microsecond=0))
zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"])


@given(minutes, minutes, zones, st.integers(0, 4_000_000_000_000), SEVERITIES)
def test_quiet_hours_end_within_two_days_and_never_hold_back_the_critical(
    begin: time, end: time, zone: str, at_ms: int, severity: Severity
) -> None:
    quiet = QuietHours(begin, end, ZoneInfo(zone))
    sent_ms = may_disturb_at(at_ms, severity, quiet)
    assert at_ms <= sent_ms <= at_ms + 2 * DAY_MS + 7_200_000
    if severity is Severity.CRITICAL:
        assert sent_ms == at_ms
    else:
        assert not quiet.covers(sent_ms)


def test_a_night_over_midnight_and_a_change_of_clocks() -> None:
    quiet = QuietHours(time(22), time(6), ZoneInfo("Europe/Berlin"))

    def sent(*moment: int) -> str:
        at_ms = int(datetime(*moment, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc, arg-type]
        return f"{datetime.fromtimestamp(may_disturb_at(at_ms, Severity.ALARM, quiet) / 1000, UTC):%d %H:%M}"

    assert sent(2026, 1, 10, 20, 59) == "10 20:59"
    assert sent(2026, 1, 10, 21, 0) == "11 05:00"
    assert sent(2026, 3, 28, 23, 0) == "29 04:00", "the night in which an hour is missing"
    assert may_disturb_at(5, Severity.NOTE, None) == 5


@given(st.integers(1, ATTEMPTS * 3))
def test_pauses_grow_and_are_bounded(attempts: int) -> None:
    assert 5_000 <= pause_ms(attempts) <= pause_ms(attempts + 1) <= 3_600_000

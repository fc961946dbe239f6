"""What the clerk decides, as pure functions: when to send, when to end, what an answer does, what to ask for."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.clerk import decide, judge, resync_requests
from api.command_requests import new_request
from api.queries.clerk import Due, MissingRange, Told
from contracts.command_life import ANSWER_GRACE_MS, DEVICE_SILENT_MS, FINAL, OPEN, State, on_answer, on_send, on_time
from contracts.command_menu import MAX_RANGES
from contracts.commands import Answer, Outcome
from contracts.errors import Rejected

NOW = 1_790_000_000_000
DUE = Due("c1", "car", 1, "ping", {}, 7, "queued", 0, NOW + 3_600_000, None, False, NOW)


def test_one_that_is_heard_is_sent_at_once_and_again_ever_more_slowly() -> None:
    pauses = []
    for attempts in range(12):
        step = decide(replace(DUE, state="sent" if attempts else "queued", attempts=attempts), NOW)
        assert step.send and not step.silent and step.state is State.SENT
        pauses.append(step.again_ms - NOW)
    assert pauses[:4] == [5_000, 10_000, 20_000, 40_000]
    assert max(pauses) == 600_000


def test_one_that_is_off_gets_one_copy_and_the_next_when_it_is_heard() -> None:
    silent = replace(DUE, heard_ms=NOW - DEVICE_SILENT_MS - 1)
    first = decide(silent, NOW)
    assert first.send and first.silent and first.again_ms == DUE.expires_ms
    waiting = replace(silent, state="sent", attempts=1, sent_ms=NOW, sent_to_silence=True)
    assert not decide(waiting, NOW + 1_000_000).send
    heard = decide(replace(waiting, heard_ms=NOW + 1_000_000), NOW + 1_000_000)
    assert heard.send and not heard.silent


def test_time_ends_what_nobody_answered() -> None:
    late = decide(DUE, DUE.expires_ms)
    assert (late.state, late.reason, late.send) == (State.EXPIRED, "not_sent_in_time", False)
    sent = replace(DUE, state="sent", attempts=3)
    listening = decide(sent, DUE.expires_ms)
    assert (listening.state, listening.send) == (None, False)
    assert listening.again_ms == DUE.expires_ms + ANSWER_GRACE_MS
    ended = decide(sent, DUE.expires_ms + ANSWER_GRACE_MS)
    assert (ended.state, ended.reason) == (State.UNKNOWN, "no_answer")


@given(
    st.lists(
        st.one_of(
            st.integers(0, 400_000).map(lambda by: ("pass", by)),
            st.sampled_from(list(Outcome)).map(lambda outcome: ("answer", outcome)),
        ),
        max_size=60,
    )
)
def test_a_command_lives_by_the_rules(events: list[tuple[str, Any]]) -> None:
    """Never sent after its expiry nor after an end; a final state stays; an open one ends when its time is over."""
    now, expires, due = NOW, NOW + 1_000_000, replace(DUE, expires_ms=NOW + 1_000_000)
    history = [State.QUEUED]
    for kind, value in events:
        before = State(due.state)
        if kind == "answer":
            new = on_answer(before, value)
            assert (new is None) == (before in FINAL or State(value.value) is before)
            due = replace(due, state=new or before)
        else:
            now += value
            if before not in OPEN:
                continue
            step = decide(replace(due, heard_ms=now), now)
            assert not (step.send and now >= expires)
            assert step.send == (step.state is State.SENT)
            due = replace(due, state=step.state or before, attempts=due.attempts + step.send)
        after = State(due.state)
        assert before not in FINAL or after is before
        if after is not before:
            history.append(after)
    assert on_send(State(due.state)) is None or State(due.state) in OPEN
    end = expires + ANSWER_GRACE_MS
    assert on_time(State(due.state), end, expires) in (None, State.EXPIRED, State.UNKNOWN)
    if State(due.state) in OPEN:
        assert on_time(State(due.state), end, expires) is not None


def told(outcome: Outcome, detail: dict[str, Any] | None = None, reason: str = "") -> Told:
    return Told(Answer("c1", "car", 7, outcome, reason, NOW, detail or {}), 1, 1, NOW)


def test_an_answer_says_what_is_lost_and_where() -> None:
    detail = {"not_held": [[1, 1, 5, "forgotten"], [2, 3, 3, "freed"], [2, 9, 9, "dropped"], [1, 5, 1, "forgotten"], 7]}
    effect = judge(told(Outcome.DONE, detail), State.SENT)
    assert (effect.state, effect.forgotten) == (State.DONE, ((1, 1, 5),))
    assert [json.loads(event)["ranges"] for event in effect.events] == [[[2, 3, 3]]]
    assert judge(told(Outcome.DONE, detail), State.DONE).events == ()
    assert judge(told(Outcome.DONE), None).state is None
    changed = judge(told(Outcome.DONE, {"to_epoch": 9}, "identity_changed"), None)
    assert json.loads(changed.events[0])["to_epoch"] == 9


def test_gaps_become_one_request_per_device_of_bounded_size() -> None:
    missing = [MissingRange("a", 1, 1, n * 3 + 1, n * 3 + 2) for n in range(300)] + [MissingRange("b", 2, 4, 7, 7)]
    asked = resync_requests(missing, datetime.fromtimestamp(NOW / 1000, UTC))
    assert [(one["device"], one["tenant_id"], one["kind"]) for one in asked] == [("a", 1, "resync"), ("b", 2, "resync")]
    assert len(json.loads(asked[0]["arguments"])["ranges"]) == MAX_RANGES
    assert json.loads(asked[1]["arguments"]) == {"ranges": [[4, 7, 7]]}


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("dance", {}), ("ping", {"n": 1}), ("sampling", {}), ("sampling", {"profile": "interval"}),
        ("sampling", {"profile": "all", "min_interval_ms": 5}), ("resync", {"ranges": []}),
        ("resync", {"ranges": [[1, 5, 4]]}), ("resync", {"ranges": [[1, True, 4]]}), ("edr_receipt", {}),
    ],
)  # fmt: skip
def test_what_is_not_on_the_menu_is_refused(kind: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(Rejected):
        new_request("car", kind, arguments, "key:k", datetime.now(UTC))

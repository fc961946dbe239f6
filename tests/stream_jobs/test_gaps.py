"""Gaps open once and end once, whatever comes when; first pure, then on a real store with what the outbox is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from contracts.errors import Rejected, TryLater
from contracts.gap_event import CLOSED, EXPLAINED, OPENED, GapEvent, decode_gap_event, encode_gap_event
from contracts.ranges import count, meet, normalise, ranges_of, without
from contracts.status import AgentStatus
from contracts.tables import ROLE_SINK
from stream_jobs.gaps import MOST_GAPS, Change, Gap, Look, advance
from stream_jobs.jobs.watch import GapWatch
from stream_jobs.metrics import WatchMetrics
from stream_jobs.sinks.gaps import GapStore
from tests.fix_cut import cut_at_commit
from tests.stream_jobs.build import T0, add_devices

LIMIT_MS = 60_000
numbers = st.sets(st.integers(1, 30))


@given(numbers, numbers)
def test_ranges_meet_and_part_as_sets_do(left: set[int], right: set[int]) -> None:
    ours, theirs = ranges_of(left), ranges_of(right)
    assert meet(ours, theirs) == ranges_of(left & right)
    assert without(ours, theirs) == ranges_of(left - right)


class Ledger:
    """Applies changes as the store does, and keeps what was told."""

    def __init__(self) -> None:
        self.standing: dict[int, Gap] = {}
        self.told: list[tuple[str, int]] = []
        self.last = 0
        self.before: tuple[tuple[int, int], ...] | None = None
        self.before_ms = 0

    def look(self, missing: set[int], now_ms: int, stored: set[int] | None = None) -> list[Change]:
        now = ranges_of(missing)
        look = Look(now, ranges_of(stored or set()), now_ms, self.before, self.before_ms)
        changes = advance(list(self.standing.values()), look, LIMIT_MS)
        for change in changes:
            self._apply(change)
        self.before, self.before_ms = now, now_ms
        return changes

    def _apply(self, change: Change) -> None:
        gap = change.gap
        if not gap.gap_id and not change.gone:
            self.last += 1
            gap = Gap(self.last, gap.numbers, gap.missing, gap.since_ms, gap.opened_ms)
        if change.gone or not gap.missing:
            self.standing.pop(gap.gap_id, None)
        else:
            self.standing[gap.gap_id] = gap
        if change.event:
            self.told.append((change.event, gap.gap_id))


@given(st.lists(st.tuples(numbers, st.integers(1, 50_000)), max_size=12))
def test_every_gap_opens_once_ends_once_and_none_is_forgotten(looks: list[tuple[set[int], int]]) -> None:
    ledger, now_ms, since = Ledger(), T0, dict[int, int]()
    for missing, wait_ms in looks:
        now_ms += wait_ms
        ledger.look(missing, now_ms)
        since = {number: since.get(number, now_ms) for number in missing}
        standing = list(ledger.standing.values())
        held = [gap.missing for gap in standing]
        assert count(normalise(r for ranges in held for r in ranges)) == sum(map(count, held)), "a number in two gaps"
        assert not without([r for ranges in held for r in ranges], ranges_of(missing))
        open_now = [r for gap in standing if gap.opened_ms is not None for r in gap.missing]
        overdue = {number for number, first_ms in since.items() if now_ms - first_ms >= LIMIT_MS}
        assert not without(ranges_of(overdue), open_now), "older than the limit and not told"
        young = {number for number, first_ms in since.items() if now_ms - first_ms < LIMIT_MS}
        assert not meet(ranges_of(young), open_now), "told before the limit"
    ledger.look(set(), now_ms + 1)
    opened = [gap_id for event, gap_id in ledger.told if event == OPENED]
    ended = [gap_id for event, gap_id in ledger.told if event != OPENED]
    assert not ledger.standing
    assert len(set(opened)) == len(opened) and sorted(opened) == sorted(ended)


def test_a_hole_that_grows_at_its_edge_stays_one_gap() -> None:
    ledger = Ledger()
    for step in range(20):
        ledger.look(set(range(5, 10 + step)), T0 + step * 30_000)
    assert ledger.told == [(OPENED, 1)]
    [gap] = [one for one in ledger.standing.values() if one.opened_ms]
    assert gap.numbers == gap.missing and gap.numbers[0][0] == 5 and gap.numbers[0][1] >= 25


def test_what_is_always_in_flight_is_no_gap() -> None:
    """A steady delay shorter than the limit: always something missing, never the same for long."""
    ledger = Ledger()
    for step in range(50):
        ledger.look(set(range(step * 10, step * 10 + 25)), T0 + step * 15_000)
    assert ledger.told == []


def test_the_number_of_gaps_is_bounded() -> None:
    ledger = Ledger()
    for step in range(4):
        ledger.look(set(range(1, 2_000, 2)), T0 + step * LIMIT_MS)
    assert len(ledger.standing) == MOST_GAPS


EVENT = GapEvent(7, OPENED, "car1", "north", 3, 5, 9, 4, T0, T0 + 5, ((5, 6), (8, 9)))


def test_events_come_back_as_they_went() -> None:
    assert decode_gap_event(encode_gap_event(EVENT)) == EVENT


@pytest.mark.parametrize("data", [b"", b"[]", b'{"v":1,"kind":"crash"}', b'{"v":1,"kind":"ledger_gap"}', b"\xff"])
def test_other_events_are_refused(data: bytes) -> None:
    with pytest.raises(Rejected):
        decode_gap_event(data)


class Rig:
    """A watch on a real store, with the clock moved by hand."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.devices = add_devices(dsn, {"north": ["car1"], "south": ["wtg1"]})
        self.now_ms = T0
        self.store = GapStore(dsn)
        self.registry = CollectorRegistry()
        self.watch = self.fresh_watch()

    def fresh_watch(self) -> GapWatch:
        return GapWatch(self.store, 1.0, LIMIT_MS, lambda: self.now_ms, WatchMetrics(CollectorRegistry()))

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn) as connection:
            done = connection.execute(statement.encode(), values)
            return done.fetchall() if done.description else []

    def accept(self, device: str, next_seq: int, held: tuple[tuple[int, int, int], ...] = ()) -> None:
        one = self.devices[device]
        status = AgentStatus(device, 1, 7, T0, next_seq, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "0.1.0", held=held)
        self.execute(
            "INSERT INTO agent_status VALUES (%s, 1, 7, %s, %s, 0, now(), %s) ON CONFLICT (device_key, boot_epoch)"
            " DO UPDATE SET next_seq = excluded.next_seq, account = excluded.account",
            one.key, one.tenant_id, next_seq, json.dumps(asdict(status)),
        )  # fmt: skip

    def store_numbers(self, device: str, ranges: str) -> None:
        one = self.devices[device]
        self.execute(
            "INSERT INTO seen_ranges VALUES (%s, 1, 7, %s, %s::int8multirange, 0, 0, 0) ON CONFLICT"
            " (device_key, boot_epoch) DO UPDATE SET ranges = seen_ranges.ranges + excluded.ranges",
            one.key, one.tenant_id, ranges,
        )  # fmt: skip

    def look(self, after_ms: int) -> list[GapEvent]:
        """Wait, look; every event told so far."""
        self.now_ms += after_ms
        self.watch.once()
        rows = self.execute("SELECT kafka_key, kafka_value FROM outbox WHERE topic = 'events' ORDER BY outbox_id")
        events = [decode_gap_event(bytes(value)) for _, value in rows]
        assert [key for key, _ in rows] == [event.device for event in events]
        return events


@pytest.fixture
def rig(role_dsn: Callable[[str], str]) -> Iterator[Rig]:
    made = Rig(role_dsn(ROLE_SINK))
    yield made
    made.store.disconnect()


def test_a_watch_killed_at_its_commit_has_neither_opened_nor_told(rig: Rig, schema: str, schema_dsn: str) -> None:
    rig.store_numbers("car1", "{[1,5),[8,20)}")
    rig.accept("car1", 20)
    assert rig.look(0) == rig.look(30_000) == []
    with cut_at_commit(schema_dsn, schema), pytest.raises(TryLater):
        rig.look(LIMIT_MS)
    assert rig.execute("SELECT state FROM gaps UNION ALL SELECT topic FROM outbox WHERE topic = 'events'") == [
        ("waiting",)
    ]
    assert [event.state for event in rig.look(1)] == [OPENED]
    assert rig.execute("SELECT state FROM gaps") == [("open",)] and len(rig.look(1)) == 1


def test_a_gap_is_told_once_and_its_end_once(rig: Rig) -> None:
    rig.store_numbers("car1", "{[1,5),[8,20)}")
    rig.accept("car1", 20)
    assert rig.look(0) == rig.look(30_000) == []
    assert rig.execute("SELECT state, missing_packets, missing::text FROM gaps") == [("waiting", 3, "{[5,8)}")]
    [opened] = rig.look(LIMIT_MS)
    assert (opened.state, opened.device, opened.tenant) == (OPENED, "car1", "north")
    assert (opened.first_seq, opened.last_seq, opened.packets, opened.ranges) == (5, 7, 3, ((5, 7),))
    assert opened.since_ms == T0 and opened.at_ms == T0 + 30_000 + LIMIT_MS
    rig.watch = rig.fresh_watch()
    assert rig.look(1_000) == rig.look(1_000) == [opened]
    rig.store_numbers("car1", "{[5,7)}")
    assert rig.look(1_000) == [opened]
    assert rig.execute("SELECT state, missing::text FROM gaps") == [("open", "{[7,8)}")]
    rig.store_numbers("car1", "{[7,8)}")
    [_, closed] = rig.look(1_000)
    assert (closed.state, closed.gap_id, closed.packets) == (CLOSED, opened.gap_id, 3)
    assert len(rig.look(1_000)) == 2
    assert rig.execute("SELECT state, missing_packets, first_seq, last_seq FROM gaps") == [("closed", 0, 5, 7)]


def test_a_gap_that_the_agent_explains_ends_as_explained(rig: Rig) -> None:
    rig.store_numbers("wtg1", "{[1,5),[8,9)}")
    rig.accept("wtg1", 9)
    rig.look(0)
    rig.look(LIMIT_MS)
    one = rig.devices["wtg1"]
    rig.execute("INSERT INTO agent_gaps VALUES (%s, 1, 5, 7, %s, 1, 1, 3, 30, 8, now())", one.key, one.tenant_id)
    assert [event.state for event in rig.look(1_000)] == [OPENED, EXPLAINED]
    assert rig.execute("SELECT device, reason, class, packets FROM drops") == [("wtg1", "spool_bytes", "standard", 3)]


def test_what_arrives_in_time_leaves_no_trace(rig: Rig) -> None:
    rig.accept("car1", 4)
    rig.look(0)
    rig.look(10_000)
    rig.store_numbers("car1", "{[1,4)}")
    assert rig.look(LIMIT_MS) == [] and rig.execute("SELECT * FROM ledger_gaps") == []


def test_two_watchers_tell_one_story(rig: Rig) -> None:
    rig.accept("car1", 4)
    rig.look(0)
    rig.look(LIMIT_MS)
    second = GapStore(rig.dsn)

    def meanwhile(epochs: object) -> dict[tuple[int, int], list[Change]]:
        assert second.look(lambda _: {}, rig.now_ms) is None
        return {}

    assert rig.store.look(meanwhile, rig.now_ms) is not None
    second.disconnect()
    assert len(rig.look(1_000)) == 1


def test_a_store_that_is_away_is_waited_for() -> None:
    with pytest.raises(TryLater):
        GapStore("host=127.0.0.1 port=1 user=nobody").look(lambda _: {}, T0)

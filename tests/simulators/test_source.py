"""A simulated machine behind the agent's source protocol: grid, rates, ends, restarts, and what is missed."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.sources.base import Reading, Source
from simulators.car import CHANNELS, Car
from simulators.source import CATCH_UP_MS, SimulatedSource

START_MS = 1_790_000_000_000


def read_for(source: SimulatedSource, seconds: int, step_ms: int = 100, begin_ms: int = START_MS) -> list[Reading]:
    return [one for at_ms in range(begin_ms, begin_ms + seconds * 1_000, step_ms) for one in source.read(at_ms, 5_000)]


def test_it_is_a_source() -> None:
    assert isinstance(SimulatedSource(Car(1)), Source)


def test_every_channel_is_read_at_its_rate() -> None:
    source = SimulatedSource(Car(1))
    counts = Counter(reading.signal for reading in read_for(source, 60))
    for channel in CHANNELS:
        if channel.signal != 34:  # consumption per distance is silent while standing
            assert counts[channel.signal] == 60_000 // channel.every_ms
    assert source.missed_ms == 0


@settings(max_examples=15, deadline=None)
@given(st.integers(30, 900), st.integers(0, 99))
def test_how_often_it_is_asked_changes_nothing(step_ms: int, offset_ms: int) -> None:
    often, seldom = SimulatedSource(Car(3)), SimulatedSource(Car(3))
    steady = read_for(often, 10)
    jumpy = [*seldom.read(START_MS, 5_000), *read_for(seldom, 9, step_ms, START_MS + offset_ms)]
    jumpy += seldom.read(START_MS + 9_900, 5_000)
    assert jumpy == steady


def test_what_nobody_asked_for_is_missed_and_counted() -> None:
    source = SimulatedSource(Car(1))
    source.read(START_MS, 5_000)
    late = source.read(START_MS + 60_000, 5_000)
    assert {reading.at_ms for reading in late} == {START_MS + 60_000}
    assert source.missed_ms == 60_000 - 100 > CATCH_UP_MS


def test_a_limit_spreads_a_catch_up_over_calls() -> None:
    source = SimulatedSource(Car(1))
    first = source.read(START_MS, 10)
    rest: list[Reading] = []
    while more := source.read(START_MS + 4_000, 10):
        rest += more
    times = [reading.at_ms for reading in [*first, *rest]]
    assert times == sorted(times) and times[-1] == START_MS + 4_000


def test_switched_off_it_is_finished() -> None:
    source = SimulatedSource(Car(1))
    states = [source.finished, bool(source.read(START_MS, 100))]
    source.end()
    states += [source.finished, bool(source.read(START_MS + 1_000, 100))]
    assert states == [False, True, True, False]


def test_the_cursor_carries_the_machine_over_a_restart() -> None:
    first, second = SimulatedSource(Car(5)), SimulatedSource(Car(5))
    read_for(first, 30)
    cursor = first.cursor
    assert cursor is not None
    second.seek(cursor)
    assert second.cursor == cursor
    odometer = [reading.value for reading in read_for(second, 1, 100, START_MS + 60_000) if reading.signal == 2]
    before = [reading.value for reading in read_for(first, 1, 100, START_MS + 30_000) if reading.signal == 2]
    assert abs(odometer[-1] - before[-1]) < 30

"""The live stream: a real server, real frames, resumed without a gap; and the mailbox by its properties."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import httpx
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.live import Interest, Mailbox
from tests.api.fix_api import RPM, SPEED, Fleet, Server, api_settings, running

NOW = datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the stream."""

    id: str
    name: str
    data: dict[str, Any]


def events(response: httpx.Response) -> Iterator[Event]:
    """Events as they arrive; comments are left out."""
    found: dict[str, str] = {}
    for line in response.iter_lines():
        if line:
            name, _, value = line.partition(": ")
            found[name] = value
        elif "event" in found:
            yield Event(found["id"], found["event"], json.loads(found["data"]))
            found = {}


def values(event: Event) -> list[tuple[str, str, float]]:
    return [(one["asset"], one["signal"], one["value"]) for one in event.data["values"]]


def test_a_change_arrives_with_unit_and_quality_and_only_at_its_tenant(fleet: Fleet, server: Server) -> None:
    north, south = server.client(fleet.key("north")), server.client(fleet.key("south"))
    with north, south, north.stream("GET", "/api/v1/stream") as mine, south.stream("GET", "/api/v1/stream") as theirs:
        heard, other = events(mine), events(theirs)
        assert next(heard).name == next(other).name == "hello"
        fleet.latest("north-1", SPEED.number, NOW, 42.5)
        fleet.latest("south-1", 1, NOW, 7.0)
        event = next(heard)
        (value,) = event.data["values"]
        assert event.name == "values" and event.data["skipped"] == 0
        assert (value["asset"], value["value"], value["unit"], value["quality"]) == ("Car 1", 42.5, "km/h", "good")
        assert value["measured_at"].endswith("Z")
        assert values(next(other)) == [("Turbine 1", SPEED.path, 7.0)]


def test_only_what_was_asked_for(fleet: Fleet, server: Server) -> None:
    question = {"asset": ["Car 1"], "signal": [SPEED.path]}
    with server.client(fleet.key("north")) as client, client.stream("GET", "/api/v1/stream", params=question) as stream:
        heard = events(stream)
        next(heard)
        fleet.latest("north-2", SPEED.number, NOW, 1.0)
        fleet.latest("north-1", RPM.number, NOW, 2.0)
        fleet.latest("north-1", SPEED.number, NOW, 3.0)
        assert values(next(heard)) == [("Car 1", SPEED.path, 3.0)]


def test_resume_after_a_break_misses_nothing_even_over_a_restart(fleet: Fleet) -> None:
    key = fleet.key("north")
    with (
        running(api_settings(fleet)) as server,
        server.client(key) as client,
        client.stream("GET", "/api/v1/stream") as stream,
    ):
        heard = events(stream)
        next(heard)
        fleet.latest("north-1", SPEED.number, NOW, 1.0)
        last = next(heard)
    fleet.latest("north-1", SPEED.number, NOW + timedelta(seconds=1), 2.0)
    # receive times may run backwards between partitions; what counts is what was committed since
    fleet.latest("north-2", SPEED.number, NOW, 3.0, received=NOW - timedelta(hours=1))
    with (
        running(api_settings(fleet)) as server,
        server.client(key) as client,
        client.stream("GET", "/api/v1/stream", headers={"Last-Event-ID": last.id}) as stream,
    ):
        heard = events(stream)
        assert next(heard).name == "hello"
        assert sorted(values(next(heard))) == [("Car 1", SPEED.path, 2.0), ("Car 2", SPEED.path, 3.0)]


def test_a_stream_that_ends_before_its_values_loses_none_of_them(fleet: Fleet) -> None:
    """No id stands for more than was sent: whoever hears only ``hello``, or ``bye``, comes back for the rest."""
    key = fleet.key("north")
    with running(api_settings(fleet)) as server, server.client(key) as client:
        with client.stream("GET", "/api/v1/stream") as stream:
            begin = next(events(stream)).id
        fleet.latest("north-1", SPEED.number, NOW, 1.0)
        with client.stream("GET", "/api/v1/stream", headers={"Last-Event-ID": begin}) as stream:
            begin = next(events(stream)).id
        with client.stream("GET", "/api/v1/stream", headers={"Last-Event-ID": begin}) as stream:
            heard = events(stream)
            assert next(heard).name == "hello"
            assert values(next(heard)) == [("Car 1", SPEED.path, 1.0)]


def test_a_quiet_client_is_told_how_far_it_has_come(fleet: Fleet) -> None:
    """Others' changes move the store on; whoever hears none of them need not go through all of them again."""
    question = {"asset": ["Car 1"]}
    with (
        running(api_settings(fleet, stream_heartbeat_s=0.1)) as server,
        server.client(fleet.key("north")) as client,
        client.stream("GET", "/api/v1/stream", params=question) as stream,
    ):
        lines = islice(stream.iter_lines(), 2_000)
        begin = next(line for line in lines if line.startswith("id: "))
        fleet.latest("north-2", SPEED.number, NOW, 1.0)
        passed = next(line for line in lines if line.startswith("id: ") and line != begin)
        assert int(passed[4:]) > int(begin[4:])
        assert next(lines) == "", "an id without data: kept by the client, no event"
        fleet.latest("north-1", SPEED.number, NOW, 2.0)
        name = next(line for line in lines if line.startswith("event: "))
        assert name == "event: values"


def test_no_place_to_come_back_to_lies_behind_what_still_waits() -> None:
    mailbox = Mailbox(Interest(), 10, position=100)
    mailbox.put([{"asset": "a", "signal": "x", "measured_at": 1}], 140)
    assert mailbox.taken == 100, "hello is said before the values are"
    assert mailbox.take().position == mailbox.taken == 140
    mailbox.put((), 150)
    assert mailbox.taken == 150, "nothing waits: a quiet client need not go back"
    mailbox.notify([{"asset": "a"}])
    mailbox.put((), 160)
    mailbox.reset(170)
    mailbox.end()
    assert mailbox.taken == 150, "the farewell is said instead of the notice and the reset"


def test_what_commits_late_is_not_missed(fleet: Fleet, server: Server) -> None:
    """A transaction that began before others and commits after them: a stream ordered by any column would lose it."""
    with server.client(fleet.key("north")) as client, client.stream("GET", "/api/v1/stream") as stream:
        heard = events(stream)
        next(heard)
        with psycopg.connect(fleet.sink_dsn) as slow:
            slow.execute(
                "INSERT INTO latest_values VALUES (%s, %s, %s, 1, 1, 1, 0, 9.0, 0, now())",
                (fleet.devices["north-1"], RPM.number, fleet.tenants["north"]),
            )
            fleet.latest("north-2", SPEED.number, NOW, 1.0)
            assert values(next(heard)) == [("Car 2", SPEED.path, 1.0)]
        assert values(next(heard)) == [("Car 1", RPM.path, 9.0)]


@pytest.mark.parametrize("position", ["1", "9000000000000000000"])
def test_a_position_that_cannot_be_resumed_means_load_afresh(fleet: Fleet, position: str) -> None:
    with running(api_settings(fleet, stream_pending=1)) as server, server.client(fleet.key("north")) as client:
        for number in (SPEED.number, RPM.number):
            fleet.latest("north-1", number, NOW, 1.0)
        with client.stream("GET", "/api/v1/stream", headers={"Last-Event-ID": position}) as stream:
            heard = events(stream)
            assert next(heard).name == "hello"
            event = next(heard)
            assert event.name == "reset" and event.data["values"] == []


def test_a_revoked_key_ends_its_stream(fleet: Fleet) -> None:
    with (
        running(api_settings(fleet, stream_heartbeat_s=0.1)) as server,
        server.client(fleet.key("north")) as client,
        client.stream("GET", "/api/v1/stream") as stream,
    ):
        heard = events(stream)
        assert next(heard).name == "hello"
        fleet.execute("UPDATE api_keys SET revoked_at = now()")
        assert [event.name for event in heard] == ["bye"]


def test_stopping_the_server_ends_streams_with_a_word(fleet: Fleet) -> None:
    with ExitStack() as later, running(api_settings(fleet)) as server:
        client = later.enter_context(server.client(fleet.key("north")))
        heard = events(later.enter_context(client.stream("GET", "/api/v1/stream")))
        assert next(heard).name == "hello"
        server.stop()
        assert [event.name for event in heard] == ["bye"]


def test_more_streams_than_a_key_may_hold(fleet: Fleet) -> None:
    with running(api_settings(fleet, streams_per_key=1)) as server, server.client(fleet.key("north")) as client:
        with client.stream("GET", "/api/v1/stream"):
            assert client.get("/api/v1/stream").status_code == 429
        again = 429
        while again == 429:  # the server notices the closed connection a moment later
            with client.stream("GET", "/api/v1/stream") as stream:
                again = stream.status_code
        assert again == 200


CHANGE = st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(["x", "y"]), st.integers(0, 9))


@given(st.lists(st.lists(CHANGE, max_size=6), max_size=8), st.integers(1, 6))
def test_a_mailbox_stays_small_and_keeps_the_newest(batches: list[list[tuple[str, str, int]]], most: int) -> None:
    mailbox = Mailbox(Interest(assets=frozenset("ab")), most, position=0)
    newest: dict[tuple[str, str], int] = {}
    for position, batch in enumerate(batches, start=1):
        mailbox.put([{"asset": one[0], "signal": one[1], "measured_at": one[2]} for one in batch], position)
        for asset, signal, at in batch:
            if asset != "c":
                newest[asset, signal] = max(at, newest.get((asset, signal), -1))
    frame = mailbox.take()
    got = {(value["asset"], value["signal"]): value["measured_at"] for value in frame.values}
    assert frame.reset == (len(newest) > most)
    assert got == ({} if frame.reset else newest)
    assert frame.position == len(batches)
    assert mailbox.take().values == []


def test_a_slow_client_is_told_what_it_skipped() -> None:
    mailbox = Mailbox(Interest(), 10, position=0)
    for at in range(5):
        mailbox.put([{"asset": "a", "signal": "x", "measured_at": at}], at)
    frame = mailbox.take()
    assert [value["measured_at"] for value in frame.values] == [4] and frame.skipped == 4

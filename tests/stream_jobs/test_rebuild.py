"""The log once more gives the same rows; what differs is shown; a kill in the middle costs nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.backends import Backends
from infra.compare import Row, merge
from infra.errors import RebuildRefused
from infra.versions import drop_version, find_version
from stream_jobs.parquet import Place
from stream_jobs.rebuild import Step, next_slice
from tests.stream_jobs.build import T0, speed
from tests.stream_jobs.fix_ingest import Line
from tests.stream_jobs.fix_rebuild import Versions
from tests.stream_jobs.test_heart_replay import fill

PLACES = [Place(name, uuid.UUID(int=1), number) for name in ("a", "b") for number in range(3)]


@pytest.fixture
def versions(heart: Line, stack: Backends, schema: str, tmp_path: Path) -> Iterator[Versions]:
    """A line, and versions beside it under names of their own, dropped at the end."""
    made = Versions(heart, stack, schema, tmp_path / "archive")
    yield made
    for name in (f"{schema}_v2", f"{schema}_v3"):
        if find_version(made.stack.postgres.dsn(), name):
            drop_version(made.stack.postgres.dsn(), schema, name)


def differences(versions: Versions, name: str) -> dict[str, int]:
    return {one.table: one.differences for one in versions.rebuilds.compare(name) if one.differences}


def test_a_rebuild_from_the_log_is_equal_row_by_row(versions: Versions, heart: Line) -> None:
    name = f"{versions.schema}_v2"
    fill(heart, 120)
    heart.drain(max_offsets=150)
    done = versions.rebuilds.rebuild(name, "kafka")
    assert done.behind == 0 and done.records > 400
    results = {one.table: one for one in versions.rebuilds.compare(name)}
    assert {table: one.first for table, one in results.items() if one.differences} == {}
    assert results["packets"].live_rows == results["packets"].rebuilt_rows > 300
    assert results["windows"].live_rows > 100 and results["quarantine"].live_rows > 2

    # the live tables go on: the comparison brings the version to the same place first
    car = heart.devices["car1"]
    heart.send_from(car, [(car.packet(seq, speed(seq), epoch=9), car.stamp(T0 + seq)) for seq in range(1, 31)])
    heart.drain()
    assert differences(versions, name) == {}

    # what differs is shown by key and by column
    with psycopg.connect(versions.dsn(name, "postgres")) as other:
        other.execute("UPDATE window_aggregates SET max_units = max_units + 1 WHERE ctid = (SELECT ctid"
                      " FROM window_aggregates WHERE width_s = 10 ORDER BY starts_at LIMIT 1)")  # fmt: skip
        other.execute("DELETE FROM packet_rows WHERE boot_epoch = 9 AND seq <= 3")
    found = {one.table: one for one in versions.rebuilds.compare(name, rows=2) if one.differences}
    assert set(found) == {"windows", "packets", "readings"}
    assert (found["packets"].only_live, found["windows"].changed) == (3, 1)
    assert [one.key["seq"] for one in found["packets"].first] == [1, 2]
    (window,) = found["windows"].first
    assert window.live and window.rebuilt and set(window.live) == {"max_units"}


class Killed(BaseException):
    """Stands for a SIGKILL: nothing of ours may catch it."""


def test_a_killed_rebuild_goes_on_where_it_was(versions: Versions, heart: Line) -> None:
    name = f"{versions.schema}_v2"
    fill(heart, 60)
    heart.drain()
    steps: list[Step] = []

    def die(step: Step) -> None:
        steps.append(step)
        if len(steps) == 2:
            raise Killed

    versions.tell, versions.slice_records = die, 40
    with pytest.raises(Killed):
        versions.rebuilds.rebuild(name, "kafka")
    with pytest.raises(RebuildRefused, match="was begun with --from kafka"):
        versions.rebuilds.rebuild(name, "archive")
    versions.tell = steps.append
    done = versions.rebuilds.rebuild(name, "kafka")
    assert steps[2].total == steps[0].total - steps[1].done == done.records
    assert steps[-1].done == steps[-1].total
    assert differences(versions, name) == {}


def test_since_compares_what_was_received_since(versions: Versions, heart: Line) -> None:
    name = f"{versions.schema}_v2"
    fill(heart, 120)
    heart.drain()
    (middle,) = heart.rows("SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY received_at) FROM packet_rows")[0]
    versions.rebuilds.rebuild(name, "kafka", middle.astimezone(UTC))
    results = {one.table: one for one in versions.rebuilds.compare(name)}
    assert {table: one.first for table, one in results.items() if one.differences} == {}
    assert 100 < results["packets"].rebuilt_rows < 300
    (wrong,) = heart.rows("SELECT count(*) FROM packet_rows WHERE received_at < %s", middle)[0]
    assert wrong > 100, "there was something before"


def test_names_and_moments_that_are_refused(versions: Versions) -> None:
    for name in (versions.schema, "public", "Robert'; DROP", "pg_catalog", ""):
        with pytest.raises(RebuildRefused, match="cannot be the name"):
            versions.rebuilds.rebuild(name, "kafka")
    with pytest.raises(RebuildRefused, match="no rebuild named"):
        versions.rebuilds.compare("nowhere")
    with pytest.raises(RebuildRefused, match="must lie within"):
        versions.rebuilds.rebuild("later", "kafka", datetime(1990, 1, 1, tzinfo=UTC))
    with pytest.raises(RebuildRefused, match="no rebuild named"):
        drop_version(versions.stack.postgres.dsn(), "other", versions.schema)


@given(
    at=st.dictionaries(st.sampled_from(PLACES), st.integers(0, 30)),
    until=st.dictionaries(st.sampled_from(PLACES), st.integers(0, 30)),
    limit=st.integers(1, 20),
)
def test_slices_cover_every_offset_once_and_in_order(at: dict[Place, int], until: dict[Place, int], limit: int) -> None:
    position = dict(at)
    read: dict[Place, list[int]] = {}
    while part := next_slice(position, until, limit):
        assert sum(map(len, part.values())) <= max(limit, len(part)) and all(part.values())
        for place, offsets in part.items():
            read.setdefault(place, []).extend(offsets)
            position[place] = offsets.stop
    assert read == {place: list(range(at.get(place, 0), end)) for place, end in until.items() if at.get(place, 0) < end}


ROWS = st.lists(st.tuples(st.tuples(st.integers(0, 5)), st.sampled_from("ab")), max_size=12).map(sorted)


@given(live=ROWS, rebuilt=ROWS)
def test_merging_finds_exactly_what_differs(live: list[Row], rebuilt: list[Row]) -> None:
    found = list(merge(live, rebuilt))
    assert (not found) == (live == rebuilt)
    for key, in_live, in_rebuilt in found:
        mine, theirs = [row for row in live if row[0] == key], [row for row in rebuilt if row[0] == key]
        assert mine != theirs and (mine or not in_live) and (theirs or not in_rebuilt)

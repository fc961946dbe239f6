"""Roll-ups and gaps that people and devices made: what a comparison sees of them, and what a swap keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.packet import DropReason, Gap
from infra.backends import Backends
from infra.compare import Row, among
from infra.rebuild import Rebuilds
from infra.swap import swap
from infra.versions import Version, drop_version, find_version
from tests.stream_jobs.build import T0, speed
from tests.stream_jobs.fix_plain import PlainLine, plain
from tests.stream_jobs.fix_rebuild import Versions
from tests.stream_jobs.test_heart_replay import fill
from tests.stream_jobs.test_lambda import DAY_MS, close

__all__ = ["plain"]
ROLLUPS = """
SELECT device_key, signal, width_s, starts_at, n, sum_units, first_ms, last_units, late_minutes, state, publications
FROM window_aggregates WHERE width_s >= 3600 ORDER BY 1, 2, 3, 4"""


@pytest.fixture
def versions(plain: PlainLine, stack: Backends, schema: str, tmp_path: Path) -> Iterator[Versions]:
    made = Versions(plain, stack, schema, tmp_path / "archive")
    yield made
    name = f"{schema}_v2"
    if find_version(made.stack.postgres.dsn(), name):
        drop_version(made.stack.postgres.dsn(), schema, name)


def rebuilds_of(versions: Versions, plain: PlainLine) -> Rebuilds:
    """Filled without Spark."""

    def refill(schema: str, version: Version, until: Mapping[tuple[UUID, int], tuple[str, int]]) -> int:
        assert version.source == "kafka"
        return plain.fill(versions.dsn(schema), until, versions.archive)

    return replace(versions.rebuilds, fill=refill)


def differing(rebuilds: Rebuilds, name: str) -> dict[str, Any]:
    return {one.table: one for one in rebuilds.compare(name) if one.differences}


def test_a_wrong_hour_is_seen_and_does_not_survive_a_swap(versions: Versions, plain: PlainLine) -> None:
    name, rebuilds = f"{versions.schema}_v2", rebuilds_of(versions, plain)
    car = plain.devices["car1"]
    fill(plain, 80)
    plain.send_from(car, [(car.packet(1, speed(5), base_ms=T0 + 900, epoch=9), car.stamp(T0 + DAY_MS // 4))])
    plain.drain()
    close(plain, T0 + 2 * DAY_MS)
    right = plain.rows(ROLLUPS)
    assert len(right) > 10 and any(row[8] for row in right), "some late data too"
    rebuilds.rebuild(name, "kafka")
    results = {one.table: one for one in rebuilds.compare(name)}
    assert {table: one.first for table, one in results.items() if one.differences} == {}
    assert results["roll_ups"].live_rows == results["roll_ups"].rebuilt_rows == len(right)

    hour, lost = right[0][:4], right[-1][:4]
    plain.rows("UPDATE window_aggregates SET sum_units = 999999 WHERE"
               " (device_key, signal, width_s, starts_at) = (%s, %s, %s, %s) RETURNING n", *hour)  # fmt: skip
    plain.rows("DELETE FROM window_aggregates WHERE"
               " (device_key, signal, width_s, starts_at) = (%s, %s, %s, %s) RETURNING n", *lost)  # fmt: skip
    found = differing(rebuilds, name)
    assert set(found) == {"roll_ups"}
    assert (found["roll_ups"].changed, found["roll_ups"].only_rebuilt, found["roll_ups"].only_live) == (1, 1, 0)
    swap(rebuilds, name)
    close(plain, T0 + 2 * DAY_MS)
    again = plain.rows(ROLLUPS)
    assert [row[:-1] for row in again] == [row[:-1] for row in right]
    assert [row[:4] for row, before in zip(again, right, strict=True) if row[-1] > before[-1]] == [hour]
    assert plain.rows("SELECT count(*) FROM rollup_due") == [(0,)]


def test_hours_that_are_not_over_are_no_difference(versions: Versions, plain: PlainLine) -> None:
    name, rebuilds = f"{versions.schema}_v2", rebuilds_of(versions, plain)
    fill(plain, 40)
    plain.drain()
    close(plain, T0 + 80_000)
    rebuilds.rebuild(name, "kafka")
    assert differing(rebuilds, name) == {}
    assert plain.rows("SELECT count(*) > 0 FROM rollup_due") == [(True,)]


def test_what_devices_forgot_is_still_known_after_a_swap(versions: Versions, plain: PlainLine) -> None:
    """The clerk's gaps are in no record of the log. The device's own report of the same packets has the last word."""
    name, rebuilds = f"{versions.schema}_v2", rebuilds_of(versions, plain)
    car = plain.devices["car1"]
    gap = Gap(10, 12, DropReason.SPOOL_AGE, 1, 3, 9)
    frames = [car.packet(seq, speed(seq), epoch=1, gaps=(gap,) if seq == 9 else ()) for seq in range(1, 10)]
    plain.send_from(car, [(frame, car.stamp(T0 + 9_000)) for frame in frames])
    plain.drain()
    for first, last in ((10, 12), (20, 29)):
        plain.rows("INSERT INTO agent_gaps VALUES (%s, 1, %s, %s, %s, 5, 1, 3, 0, 4611686018427387904, now())"
                   " ON CONFLICT DO NOTHING RETURNING 1", car.key, first, last, car.tenant_id)  # fmt: skip
    gaps = plain.rows("SELECT first_seq, last_seq, reason FROM agent_gaps ORDER BY 1")
    assert gaps == [(10, 12, DropReason.SPOOL_AGE), (20, 29, DropReason.FORGOTTEN)]
    rebuilds.rebuild(name, "kafka")
    assert differing(rebuilds, name) == {}
    swap(rebuilds, name)
    assert plain.rows("SELECT first_seq, last_seq, reason FROM agent_gaps ORDER BY 1") == gaps


KEYS = st.lists(st.integers(0, 9), max_size=8)


@given(rows=KEYS, keys=st.sets(st.integers(0, 9)))
def test_only_rows_of_wanted_keys_are_compared(rows: list[int], keys: set[int]) -> None:
    given_rows: list[Row] = [((key,), "x") for key in sorted(rows)]
    found = list(among(given_rows, ((key,) for key in sorted(keys))))
    assert found == [row for row in given_rows if row[0][0] in keys]

"""The judge adds readings up itself: windows of every width, roll-ups as soon as nothing of theirs is to be made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import psycopg
import pytest

from tests.stream_jobs.fix_scene import Scene, scene
from tests.torture.evidence import StoreWitness

__all__ = ["scene"]
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
H0 = 1_790_035_200_000
"""Midnight UTC, Unix milliseconds."""
LATER = H0 + 2 * DAY
Look = Callable[[], list[int]]


@pytest.fixture
def wrong(scene: Scene, schema_dsn: str) -> Iterator[Look]:
    """Widths of the windows that the judge calls wrong."""
    witness = StoreWitness(schema_dsn)
    yield lambda: sorted(int(line.split()[2]) for line in witness.windows_wrong(["car1"]))
    witness.close()


@pytest.fixture
def change(schema_dsn: str) -> Iterator[Callable[[str], int]]:
    """Do a statement to the store behind everybody's back; how many rows it touched."""
    with psycopg.connect(schema_dsn, autocommit=True) as owner:
        yield lambda statement: owner.execute(statement.encode()).rowcount


def put_two_hours(scene: Scene) -> None:
    for seq, at in enumerate((0, 30 * MINUTE, HOUR), 1):
        scene.put(seq, 10 * seq, -seq, base_ms=H0 + at, received_ms=H0 + at + 500)


def test_what_the_closer_makes_is_right_at_every_moment(scene: Scene, wrong: Look) -> None:
    """Before the hour is over, after it, with a late packet that nothing was made of yet, and with it made."""
    put_two_hours(scene)
    assert wrong() == []
    for now_ms in (H0 + 10 * MINUTE, H0 + HOUR + MINUTE, LATER):
        scene.close_until_quiet(now_ms)
        assert wrong() == []
    scene.put(4, 500, base_ms=H0 + 7 * MINUTE, received_ms=LATER)
    assert wrong() == []
    scene.close_until_quiet(LATER + MINUTE)
    assert wrong() == [] and len(scene.rows("SELECT FROM windows WHERE width_s > 60")) == 3


def test_one_wrong_figure_is_found(scene: Scene, wrong: Look, change: Callable[[str], int]) -> None:
    put_two_hours(scene)
    scene.close_until_quiet(LATER)
    for width, column in product((10, 60, 3600, 86400), ("n", "sum_units", "min_units", "max_units")):
        rows = change(f"UPDATE window_aggregates SET {column} = {column} + 1 WHERE width_s = {width}")
        assert rows > 0 and wrong() == [width] * rows, (width, column)
        change(f"UPDATE window_aggregates SET {column} = {column} - 1 WHERE width_s = {width}")
    assert wrong() == []


def test_a_correction_that_its_hour_never_heard_of_is_found(
    scene: Scene, wrong: Look, change: Callable[[str], int]
) -> None:
    put_two_hours(scene)
    scene.close_until_quiet(LATER)
    scene.put(4, 500, base_ms=H0 + 7 * MINUTE, received_ms=LATER)
    assert change("UPDATE window_aggregates SET state = 1 WHERE state <> 1") == 2
    assert wrong() == [3600, 86400]


def test_a_roll_up_that_will_never_be_made_is_found(scene: Scene, wrong: Look, change: Callable[[str], int]) -> None:
    put_two_hours(scene)
    scene.close_until_quiet(H0 + 50 * MINUTE)
    assert scene.rows("SELECT FROM windows WHERE width_s > 60") == [] and wrong() == []
    assert change("DELETE FROM rollup_due") == 1
    assert wrong() == [3600]

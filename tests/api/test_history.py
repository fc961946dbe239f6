"""History through the API: the same answer from packet rows, from blocks and from both; columns; charts."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import httpx
import pytest

from api.shapes_series import ReadingColumns, Series
from contracts.packet import FIRST_BAD_QUALITY, Quality
from infra.enrol import Enrolment
from stream_jobs.sinks.compactor import Compactor
from tests.api.fix_api import RPM, SPEED, Fleet, Server, ms_of
from tests.api.test_resources import NOW, stamp
from tests.stream_jobs.history_rows import RowOfPacket, insert_rows

START = (NOW - timedelta(days=3)).replace(minute=0, second=0)
HOUR = {"signal": SPEED.path, "from": stamp(START), "to": stamp(START + timedelta(hours=1))}


def fill(fleet: Fleet, seed: int = 1) -> list[tuple[int, float | None]]:
    """Packets of two devices of one car, overlapping, out of order, some values no numbers; (ms, value) in order."""
    chance = random.Random(seed)
    moved = START + timedelta(minutes=30)
    fleet.enrol(Enrolment("north-9", "north", "Car 1", "car", since=moved))
    told = []
    packets: dict[str, list[RowOfPacket]] = {"north-1": [], "north-9": []}
    for at in chance.sample(range(0, 3_600, 7), 400):
        samples = []
        for step in range(4):
            value = (
                float("nan") if chance.random() < 0.02 else chance.choice((chance.randint(0, 9_000) / 100, 0.123456))
            )
            samples.append((SPEED.number, step * 250, value, Quality.NOT_FINITE if value != value else 0))
        device = "north-9" if at >= 1_800 and at % 2 else "north-1"
        told += [(ms_of(START) + at * 1_000 + one[1], None if one[2] != one[2] else one[2]) for one in samples]
        samples.append((RPM.number, 0, 1.0, 0))
        packets[device].append(RowOfPacket(len(packets[device]) + 1, ms_of(START) + at * 1_000, samples))
    for device, made in packets.items():
        insert_rows(fleet.sink_dsn, fleet.devices[device], fleet.tenants["north"], made)
    return sorted(told, key=lambda one: one[0])


def compact(fleet: Fleet, before: timedelta = timedelta(days=2)) -> int:
    now_ms = ms_of(START + before)
    return Compactor(fleet.sink_dsn, 90).run(now_ms, 3_600).packets


def rows(client: httpx.Client, **question: Any) -> list[dict[str, Any]]:
    """All pages."""
    asked = {**HOUR, "limit": 333, **question}
    found: list[dict[str, Any]] = []
    while True:
        body = client.get("/api/v1/assets/Car 1/readings", params=asked).raise_for_status().json()
        found += body["items"]
        if body["next"] is None:
            return found
        asked["cursor"] = body["next"]


def columns(client: httpx.Client, **question: Any) -> list[tuple[int, float | None, str]]:
    asked = {**HOUR, "form": "columns", **question}
    found: list[tuple[int, float | None, str]] = []
    while True:
        body = client.get("/api/v1/assets/Car 1/readings", params=asked).raise_for_status().json()
        made = ReadingColumns.model_validate(body)
        qualities = made.qualities or ["good"] * len(made.values)
        times = [ms_of(made.base) + offset for offset in made.offsets_ms]
        found += list(zip(times, made.values, qualities, strict=True))
        if made.next is None:
            return found
        asked["cursor"] = made.next


def test_rows_blocks_and_both_give_the_same_answers(fleet: Fleet, server: Server) -> None:
    expected = fill(fleet)
    with server.client(fleet.key("north")) as client:
        hot_rows, hot_columns = rows(client), columns(client)
        assert [(one[0], one[1]) for one in hot_columns] == expected
        assert [one["value"] for one in hot_rows] == [value for _, value in expected]
        assert {one["device"] for one in hot_rows} == {"north-1", "north-9"}
        assert compact(fleet, timedelta(hours=1, minutes=30)) > 100  # the first half hour
        both_rows, both_columns = rows(client), columns(client, limit=97)
        assert both_rows == hot_rows and both_columns == hot_columns
        assert compact(fleet) > 100
        assert rows(client, limit=211) == hot_rows and columns(client) == hot_columns


def test_a_cursor_from_before_a_compaction_goes_on_after_it(fleet: Fleet, server: Server) -> None:
    fill(fleet, 2)
    with server.client(fleet.key("north")) as client:
        whole = rows(client)
        first = client.get("/api/v1/assets/Car 1/readings", params={**HOUR, "limit": 500}).json()
        compact(fleet)
        rest = client.get("/api/v1/assets/Car 1/readings", params={**HOUR, "limit": 9_999, "cursor": first["next"]})
    assert first["items"] + rest.json()["items"] == whole


def test_too_many_rows_are_refused_columns_are_not(fleet: Fleet, server: Server) -> None:
    with server.client(fleet.key("north")) as client:
        refused = client.get("/api/v1/assets/Car 1/readings", params={**HOUR, "limit": 50_001})
        taken = client.get("/api/v1/assets/Car 1/readings", params={**HOUR, "limit": 50_001, "form": "columns"})
    assert refused.status_code == 422 and refused.json()["code"] == "too_many_rows"
    assert taken.status_code == 200 and taken.json()["values"] == []


def test_a_chart_of_readings_leaves_out_bad_values_as_windows_do(fleet: Fleet, server: Server) -> None:
    """Zooming in must not draw what zooming out leaves out: a value that its device calls bad breaks the line."""
    wrong = {20: Quality.OUT_OF_RANGE, 21: FIRST_BAD_QUALITY, 40: Quality.UNCERTAIN}
    packets = [
        RowOfPacket(
            at + 1, ms_of(START) + at * 1_000, [(SPEED.number, 0, 999.0 if at in wrong else 10.0, wrong.get(at, 0))]
        )
        for at in range(60)
    ]
    insert_rows(fleet.sink_dsn, fleet.devices["north-1"], fleet.tenants["north"], packets)
    asked: dict[str, str | int] = {**HOUR, "points": 1_000, "keep": "all", "source": "readings"}
    with server.client(fleet.key("north")) as client:
        body = client.get("/api/v1/assets/Car 1/series", params=asked).raise_for_status().json()
    offsets = dict(zip(body["offsets_ms"], body["values"], strict=True))
    assert [ms for ms, value in offsets.items() if value == 999.0] == [40_000], "uncertain is not bad"
    assert [ms for ms, value in offsets.items() if value is None] == [19_001]
    assert len(offsets) == 59


@pytest.mark.parametrize("keep", ["extremes", "triangles"])
def test_a_chart_of_readings_keeps_its_shape_and_shows_gaps(fleet: Fleet, server: Server, keep: str) -> None:
    peaks = {123: 200.0, 700: -5.0}
    packets = [
        RowOfPacket(at + 1, ms_of(START) + at * 1_000, [(SPEED.number, 0, peaks.get(at, at % 7), 0)])
        for at in [*range(300), *range(500, 800)]
    ]
    insert_rows(fleet.sink_dsn, fleet.devices["north-1"], fleet.tenants["north"], packets)
    compact(fleet)
    asked: dict[str, str | int] = {**HOUR, "points": 60, "keep": keep, "source": "readings"}
    with server.client(fleet.key("north")) as client:
        chart = Series.model_validate(client.get("/api/v1/assets/Car 1/series", params=asked).json())
    assert chart.values is not None and chart.complete and chart.source == "readings"
    shown = [value for value in chart.values if value is not None]
    assert max(shown) == 200.0 and min(shown) == -5.0 and len(shown) <= 66
    gap = chart.values.index(None)
    assert chart.values.count(None) == 1
    assert chart.offsets_ms[gap - 1] == 299_000 and chart.offsets_ms[gap + 1] == 500_000


def test_a_chart_of_windows_takes_the_width_of_a_point_and_shows_missing_windows(fleet: Fleet, server: Server) -> None:
    for minute in [0, 1, 2, 5, 6]:
        at = START + timedelta(minutes=minute)
        fleet.window("north-1", SPEED.number, at, [100 * minute, 100 * minute + 300], 60)
        fleet.window("north-1", SPEED.number, at, [100 * minute], 10)
    with server.client(fleet.key("north")) as client:
        minutes = client.get("/api/v1/assets/Car 1/series", params={**HOUR, "points": 60}).json()
        pairs = client.get("/api/v1/assets/Car 1/series", params={**HOUR, "points": 30}).json()
        tens = client.get("/api/v1/assets/Car 1/series", params={**HOUR, "points": 360}).json()
    chart = Series.model_validate(minutes)
    assert (chart.source, chart.width_s, chart.n) == ("windows", 60, [2, 2, 2, None, 2, 2])
    assert chart.low == [0.0, 1.0, 2.0, None, 5.0, 6.0] and chart.high == [3.0, 4.0, 5.0, None, 8.0, 9.0]
    assert chart.mean == [1.5, 2.5, 3.5, None, 6.5, 7.5]
    assert chart.offsets_ms == [0, 60_000, 120_000, 180_000, 300_000, 360_000]
    assert (pairs["width_s"], pairs["low"], pairs["n"]) == (120, [0.0, 2.0, 5.0, 6.0], [4, 2, 2, 2])
    assert tens["width_s"] == 10 and tens["n"].count(None) == 4
